"""What an idle agent does without. `tests/bench/process.py` has the memory itself, as a ratio."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.processes import agent

AGENT = (
    "import fieldagent.__main__, fieldagent.cli.kit.run, fieldagent.agent.channels.satellite, sys;"
    "print(*sys.modules)"
)
HEAVY = {
    "argparse": "for other commands than a unit's",
    "calendar": "for a date of HTTP's",
    "difflib": "for who has a typo in the settings",
    "email.message": "in xml.sax.saxutils and urllib.request",
    "email.utils": "for a webhook that tells when it is back as a date",
    "gzip": "for a page that a browser asks for",
    "http.client": "in xml.sax.saxutils and urllib.request",
    "importlib.resources": "in importlib.abc",
    "uuid": "for what comes in",
    "urllib.request": "in xml.sax.saxutils",
    "websockets": "for who has a hub",
    "xml": "in javaproperties",
    "fieldagent.agent.channels.cellular": "for who has a hub",
    "fieldagent.agent.inbound.script": "for who has inbound-hook",
    "fieldagent.agent.journal.salvage": "for who had a damaged journal",
    "fieldagent.agent.network_page": "for who has page-listen",
    "fieldagent.http.link_session": "for who has a hub",
    "fieldagent.store.pages": "for who had a damaged journal",
    "fieldagent.webhook.post": "for who has webhook-address",
}
"""Of some hundred kilobytes each, with where it comes in."""


def test_an_idle_agent_does_without_what_it_does_not_need() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", AGENT], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "fieldagent.agent.agent" in loaded
    assert HEAVY.keys() & set(loaded) == set()


def test_one_with_a_hub_does_without_what_its_library_imports_and_does_not_use(
    tmp_path: Path,
) -> None:
    settings = {"hub-address": "http://127.0.0.1:1", "hub-token": "0" * 64}
    command = [sys.executable, "-X", "importtime", "-m", "fieldagent"]
    with agent(tmp_path, settings, command) as kit:
        loaded = {line.rpartition("|")[2].strip() for line in kit.lines}
    assert "websockets.client" in loaded
    assert {"email", "email.utils", "importlib.metadata", "zipfile"} & loaded == set()
