"""Writes docs/reference/settings.md from the tables in the code.

    .venv/bin/python build/settings_doc.py [--check]

With --check it writes nothing, and fails if the page is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from fieldagent.agent import settings as agent
from fieldagent.agent.kit_part import get_device_parts, list_part_keys
from fieldagent.agent.satellites.registry import get_modems as modem_names
from fieldagent.agent.satellites.registry import load_modem
from fieldagent.hub import settings as hub
from fieldagent.hub.contact.registry import get_contact_kinds
from fieldagent.hub.operator.registry import get_operators
from fieldagent.system.properties import Key

PAGE = Path(__file__).resolve().parent.parent / "docs/reference/settings.md"
HEAD = """\
# Settings

For operators. This page lists every setting of the agent and the hub. `build/settings_doc.py`
generates the page from the code.

The agent and the hub each read one settings file. It contains Java properties in UTF-8: a key, `=`
and a value in each line. A line that starts with `#` is a comment. Defaults are in brackets. A
setting without a default is off. Unknown keys and wrong values are errors, and the program shows
all of them at once. `fieldagent check` tests the settings of an agent, and `fieldagent hub check`
those of a hub.

An environment variable replaces a setting of the file. `FIELDAGENT_HUB_PORT` replaces `port` of the
hub, and `FIELDAGENT_AGENT_API_PORT` replaces `api-port` of the agent. To read the value from the
first line of a file, such as a container's secret, add `_FILE` to the name of the variable and set
the path of the file. An unknown variable with one of these prefixes is an error. Both checks list
the variables that replace settings.

Settings with secrets (`hub-token`, keys, `webhook-secret`) belong in a file that only its user can
read. The installer sets these rights.
"""
AGENT = """
## The agent

The file is `/etc/fieldagent/agent.properties` on an installed kit, otherwise
`~/.config/fieldagent/agent.properties` (`$XDG_CONFIG_HOME`). `--config` names another file.
"""
HUB = """
## The hub

The file is `/etc/fieldagent/hub.properties` on an installed hub, otherwise
`~/.config/fieldagent/hub.properties` (`$XDG_CONFIG_HOME`). `--config` names another file. Set
`tls-certificate` and `tls-key` together, and `rockblock-username` and `rockblock-password`. If
`listen` is not a loopback address, set TLS or `trusted-proxies`. If
`directip-listen` is not a loopback address, set `directip-allow`.
"""


RADIO_HEAD = """
### Radios

These are the values of `radio-protocol`. [Connect a radio](../how-to/radio.md) shows how to choose
one, and [add a radio](../how-to/add-a-radio.md) how to write your own. The agent refuses the
settings of a radio that `radio-protocol` does not name.

| `radio-protocol` | for | needs | facts in `GET /api/status` |
|---|---|---|---|
"""


def page() -> str:
    of_agent = (
        table([*agent.KEYS, *list_part_keys()], agent.get_needs())
        + make_modem_tables()
        + make_radio_tables()
    )
    of_hub = table(hub.KEYS, {}) + make_operator_table() + make_contact_table()
    return HEAD + AGENT + of_agent + HUB + of_hub


OPERATORS_HEAD = """
### Satellite operators

These are the values of a device's `operator`. [Connect a satellite
operator](../how-to/satellite-operator.md) shows how to use them, and [add an
operator](../how-to/add-an-operator.md) how to write your own.

| `operator` | for | settings |
|---|---|---|
"""


def make_operator_table() -> str:
    """Return a Markdown table of the available satellite operators."""
    rows = [
        f"| `{kind.name}` | {kind.description} | {_names(key.name for key in kind.keys)} |\n"
        for kind in get_operators().values()
    ]
    return OPERATORS_HEAD + "".join(rows)


CONTACTS_HEAD = """
### Kinds of contact

These are the ways to notify a [contact](../how-to/add-a-contact.md). [Add a kind of
contact](../how-to/add-an-operator.md#add-a-kind-of-contact) shows how to write your own.

| kind | address | settings |
|---|---|---|
"""


def make_contact_table() -> str:
    """Return a Markdown table of the available kinds of contact."""
    rows = [
        f"| `{kind.name}` | {kind.form or 'from the browser'} |"
        f" {_names(key.name for key in kind.keys) or 'none'} |\n"
        for kind in get_contact_kinds().values()
    ]
    return CONTACTS_HEAD + "".join(rows)


MODEM_HEAD = """
### Satellite modems

These are the values of `satellite-modem`. [Connect a satellite modem](../how-to/satellite.md) shows
how to use them, and [add a satellite modem](../how-to/add-a-satellite-modem.md) how to write your
own.

| `satellite-modem` | for | facts in `GET /api/status` |
|---|---|---|
"""


def make_modem_tables() -> str:
    """Return two Markdown tables: the available satellite modems, and their settings."""
    kinds = [load_modem(name) for name in modem_names()]
    rows = [f"| `{kind.name}` | {kind.description} | {_facts(kind.facts)} |" for kind in kinds]
    keys = [key for kind in kinds for key in kind.keys]
    return MODEM_HEAD + "\n".join(rows) + "\n" + table(keys, {})


def _facts(facts: Mapping[str, str]) -> str:
    return "; ".join(f"`{name}`: {means}" for name, means in facts.items())


def make_radio_tables() -> str:
    """Return two Markdown tables: the available radios, and their settings."""
    kinds = [
        part.load_kind(name)
        for part in get_device_parts().values()
        if part.load_kind
        for name in part.kinds
    ]
    rows = [
        f"| `{kind.name}` | {kind.description} | {_names(kind.needs)} | {_facts(kind.facts)} |"
        for kind in kinds
    ]
    keys = [key for kind in kinds for key in kind.keys]
    if not kinds:
        return ""
    return RADIO_HEAD + "\n".join(rows) + "\n" + table(keys, {})


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def table(keys: Iterable[Key], needs: Mapping[str, str]) -> str:
    rows = ["", "| setting | meaning |", "|---|---|"]
    for key in keys:
        means = key.description.replace("|", "\\|")
        needed = f". Needs `{needs[key.name]}`" if key.name in needs else ""
        rows.append(f"| `{key.name}` | {means}{needed} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    text = "docs/reference/settings.md differs from the code: run build/settings_doc.py"
    print(text, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
