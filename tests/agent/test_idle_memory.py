"""Modules that an idle agent does not load. `tests/bench/process.py` measures the memory as a
ratio.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.processes import Agent, agent, sky

HEAVY = {
    "argparse": "for commands other than a unit's",
    "calendar": "for an HTTP date",
    "difflib": "for a typo in the settings",
    "email.message": "in xml.sax.saxutils and urllib.request",
    "email.utils": "for a webhook with a date in Retry-After",
    "gzip": "for a page in a browser",
    "http.client": "in xml.sax.saxutils and urllib.request",
    "importlib.resources": "in importlib.abc",
    "uuid": "for received items",
    "urllib.request": "in xml.sax.saxutils",
    "websockets": "for a hub",
    "xml": "in javaproperties",
    "fieldagent.agent.channels.cellular": "for a hub",
    "fieldagent.agent.description": "for the API description",
    "fieldagent.agent.inbound.script": "for inbound-hook",
    "fieldagent.agent.journal.repair": "for a damaged journal",
    "fieldagent.agent.network_page": "for page-listen",
    "fieldagent.http.link_session": "for a hub",
    "fieldagent.http.openapi": "for the API description",
    "fieldagent.page.map_file": "for map-file",
    "fieldagent.webhook.post": "for webhook-address",
    "fieldagent.wire.kit_note": "for a hub",
    "fieldagent.wire.sms_pdu": "for sms-port",
}
"""Modules of about a hundred kilobytes each, with the setting that needs them."""
OURS_MAX = 254
"""Maximum number of our modules that an agent with only a satellite modem loads. More modules cost
memory in each kit and a longer start: load a module for a setting where the setting is read. If
all kits need it, increase this number."""
VERBOSE = [sys.executable, "-v", "-m", "fieldagent"]
"""Python prints its imports (`-v`), including those of `importlib.import_module`, which importtime
omits."""


def loaded(kit: Agent) -> set[str]:
    """Return the names of the modules that the agent has loaded so far."""
    return set(re.findall(r"^import '([\w.]+)' # ", "\n".join(kit.output()), re.MULTILINE))


def test_idle_agent_loads_no_unneeded_modules(tmp_path: Path) -> None:
    with sky(tmp_path), agent(tmp_path, {}, VERBOSE) as kit:
        kit.expect("answers on")
        modules = loaded(kit)
    assert {"fieldagent.agent.agent", "fieldagent.agent.satellites.sbd"} <= modules
    assert {name: HEAVY[name] for name in HEAVY.keys() & modules} == {}
    ours = {name for name in modules if name.startswith("fieldagent")}
    # The list of extensions loads their descriptions, and nothing uses more of them.
    assert [name for name in ours if re.match(r"fieldagent\.extensions\.\w+\.", name)] == []
    assert len(ours) <= OURS_MAX, sorted(ours)


def test_agent_with_hub_loads_no_unused_modules_of_websockets(
    tmp_path: Path,
) -> None:
    settings = {"hub-address": "http://127.0.0.1:1", "hub-token": "0" * 64}
    with agent(tmp_path, settings, VERBOSE) as kit:
        modules = loaded(kit)
    assert "websockets.client" in modules
    assert {"email", "email.utils", "importlib.metadata", "zipfile"} & modules == set()
