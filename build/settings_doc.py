"""Writes docs/reference/settings.md from the tables in the code.

    .venv/bin/python build/settings_doc.py [--check]

With --check it writes nothing, and fails if the page is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from fieldagent.agent import settings as agent
from fieldagent.agent.radios.known import RADIOS, radio
from fieldagent.hub import settings as hub
from fieldagent.hub.escalation.known import contact_kinds
from fieldagent.hub.operator.known import operators
from fieldagent.system.properties import Key

PAGE = Path(__file__).resolve().parent.parent / "docs/reference/settings.md"
HEAD = """\
# Settings

Written by `build/settings_doc.py` from the tables in the code: change those, and run it again.

Both files are Java properties, in UTF-8: a key, `=`, a value; `#` begins a comment. A key that is
not known is an error, and so is a value that cannot be: every fault is told at once.
Defaults stand in brackets; a key without one is off until it is set. `fieldagent check` tells
whether an agent could work with its settings, and what to mend.

What holds a secret (`hub-token`, the keys, `webhook-secret`) belongs in a file that only its user
can read; the installer makes it so.
"""
AGENT = """
## The agent

In `~/.config/fieldagent/agent.properties` (`$XDG_CONFIG_HOME`), or what `--config` names; of an
installed kit in `/etc/fieldagent/agent.properties`.
"""
HUB = """
## The hub

In `~/.config/fieldagent/hub.properties` (`$XDG_CONFIG_HOME`), or what `--config` names; of an
installed hub in `/etc/fieldagent/hub.properties`. `tls-certificate` goes with `tls-key`, and
`rockblock-username` with `rockblock-password`. Where `listen` is not this machine's own, TLS or
`trusted-proxies` must be set; where `directip-listen` is not, `directip-allow` must.
"""


RADIO_HEAD = """
### Radios

What `radio-protocol` may be; each is one module of `fieldagent/agent/radios/`, and
[add a radio](../how-to/add-a-radio.md) tells how one of your own is made. What belongs to one radio
is a setting beside the others, and unknown with another.

| `radio-protocol` | for | needs | tells in `GET /api/status` |
|---|---|---|---|
"""


def page() -> str:
    of_agent = table(agent.KEYS, agent.NEEDS) + radios()
    of_hub = table(hub.KEYS, {}) + satellite_operators() + people()
    return HEAD + AGENT + of_agent + HUB + of_hub


OPERATORS_HEAD = """
### Satellite operators

What a device's `operator` may be; each is one module of `fieldagent/hub/operator/`, and
[add an operator](../how-to/add-an-operator.md) tells how one of your own is made.

| `operator` | for | settings |
|---|---|---|
"""


def satellite_operators() -> str:
    """Return the available operators as a table."""
    rows = [
        f"| `{kind.name}` | {kind.means} | {_names(key.name for key in kind.keys)} |\n"
        for kind in operators().values()
    ]
    return OPERATORS_HEAD + "".join(rows)


CONTACTS_HEAD = """
### Kinds of contact

How somebody is told of an SOS; each is one module of `fieldagent/hub/escalation/`, and
[add an operator](../how-to/add-an-operator.md) tells how one of your own is made.

| kind | takes | settings |
|---|---|---|
"""


def people() -> str:
    """Return the available kinds of contact as a table."""
    rows = [
        f"| `{kind.name}` | {kind.form or 'what a browser gives'} |"
        f" {_names(key.name for key in kind.keys) or 'none'} |\n"
        for kind in contact_kinds().values()
    ]
    return CONTACTS_HEAD + "".join(rows)


def radios() -> str:
    """Return the available radios as a table, and the settings of all as another one."""
    kinds = [radio(name) for name in RADIOS]
    rows = [
        f"| `{kind.name}` | {kind.means} | {_names(kind.needs)} |"
        f" {'; '.join(f'`{name}`: {means}' for name, means in kind.facts.items())} |"
        for kind in kinds
    ]
    keys = [key for kind in kinds for key in kind.keys]
    return RADIO_HEAD + "\n".join(rows) + "\n" + table(keys, {})


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def table(keys: Iterable[Key], needs: Mapping[str, str]) -> str:
    rows = ["", "| key | means |", "|---|---|"]
    for key in keys:
        means = key.means.replace("|", "\\|")
        needed = f". Needs `{needs[key.name]}`" if key.name in needs else ""
        rows.append(f"| `{key.name}` | {means}{needed} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    text = "docs/reference/settings.md is not what the code says: run build/settings_doc.py"
    print(text, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
