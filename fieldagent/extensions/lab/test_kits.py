"""`fieldagent hub device make`: creates test kits for `fieldagent simulate fleet`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from fieldagent.cli.hub.opened_store import run_with_store, show
from fieldagent.extensions.lab.simulator.fleet_tokens import format_tokens
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused, Row
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Db, Store
from fieldagent.system.folder import replace_file
from fieldagent.system.wording import describe_reason

OWNER = "test kits"


def make_test_kits(arguments: argparse.Namespace) -> int:
    """Create test kits in a new workspace, so that no one else gets their messages. To remove all
    of them, delete the workspace.
    """
    target: Path = arguments.tokens

    def carry_out(_: HubSettings, store: Store) -> int:
        if target.exists():
            raise Refused(f"{target} already exists: name another, or move it away")
        result = store.run_once(lambda db: _make(db, arguments.workspace, arguments.kits, target))
        return show(arguments, result)

    return run_with_store(arguments, carry_out)


def _make(db: Db, name: str, kits: int, target: Path) -> Row:
    now = time.time()
    if db.execute("SELECT 1 FROM workspace WHERE name = ?", name):
        raise Refused(f"workspace {name!r} already exists: name a new one, only for test kits")
    workspace = directory.add_workspace(db, name, now=now)
    owner = directory.add_user(db, workspace, OWNER, type_="Device", now=now)
    tokens = [
        directory.add_device(
            db, workspace, owner, directory.NewDevice(f"test kit {number}"), now=now
        )[1]
        for number in range(1, kits + 1)
    ]
    # Write the tokens within the transaction, so that the token of each test kit is known.
    try:
        replace_file(target, format_tokens(name, tokens).encode())
    except OSError as error:
        raise Refused(f"{target} cannot be written: {describe_reason(error)}") from None
    return {
        "workspace": workspace,
        "name": name,
        "devices": kits,
        "tokens": str(target),
        "remove": f"fieldagent hub workspace delete {name!r} --yes",
    }
