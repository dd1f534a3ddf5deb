"""`fieldagent hub command KIT …`: tells a kit what to do, by its link or over satellite, and shows
what it answered."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, NamedTuple

from fieldagent.cli.hub.opened_store import show_list, with_store
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.field.command_cost import CommandCost, cost
from fieldagent.hub.records import audit, commands
from fieldagent.hub.records.commands import GivenCommand
from fieldagent.hub.settings import HubSettings, price_of
from fieldagent.hub.store.contract import Db, Store
from fieldagent.system.exit_codes import ERROR, OK
from fieldagent.system.terminal import escaped_lines
from fieldagent.system.wording import counted
from fieldagent.wire.command import NotACommand, RemoteCommand, read_words
from fieldagent.wire.command_proof import command_key, prove

LOOK = 0.5
"""Seconds between two looks for the answer."""


class _Commanded(NamedTuple):
    workspace: int
    device: int


def command(given: argparse.Namespace) -> int:
    def carry_out(settings: HubSettings, store: Store) -> int:
        kit = store.once(lambda db: _kit(db, given))
        if not given.words:
            return _list(given, store, kit)
        asked = _read(given.words)
        found = store.once(lambda db: _cost(db, kit, asked, time.time()))
        told = _price(found, settings)
        _agree(given, found, told)
        # Nobody waits for a link that is not there.
        grace = float(settings.satellite_grace) if found.linked else 0.0
        number = store.once(lambda db: _give(db, kit, asked, given.by, grace, time.time()))
        return _wait(given, store, kit, number, told)

    return with_store(given, carry_out)


def _kit(db: Db, given: argparse.Namespace) -> _Commanded:
    workspace = directory.workspace_of(db, given.workspace)
    return _Commanded(workspace, directory.device_named(db, workspace, given.device))


def _read(words: list[str]) -> RemoteCommand:
    try:
        return read_words(words)
    except NotACommand as wrong:
        raise Refused(str(wrong)) from None


def _cost(db: Db, kit: _Commanded, asked: RemoteCommand, now: float) -> CommandCost:
    number = commands.next_number(db, kit.device, now)
    return cost(db, kit.device, number, prove(number, asked, b""), now)


def _price(found: CommandCost, settings: HubSettings) -> str:
    """Return what both cost over satellite, for people."""
    size = f"{found.down} bytes there, at most {found.up} back"
    if not found.credits:
        return f"over satellite {size}"
    price = price_of(settings, found.operator)
    money = "" if price is None else f" ({price.of(found.credits)})"
    left = "" if found.credits_left is None else f"; {found.credits_left} left here today"
    return f"over satellite {counted(found.credits, 'credit')}{money}: {size}{left}"


def _agree(given: argparse.Namespace, found: CommandCost, told: str) -> None:
    """Ask whether it may be paid for. Raises Refused."""
    if given.by == "ip" or (given.by is None and not found.reached):
        return
    if not found.reached:
        raise Refused("it has no satellite modem here: `fieldagent hub device imei`, or --by ip")
    if not found.fits:
        raise Refused(f"its modem takes no message of {found.down} bytes: --by ip")
    if given.yes or (given.by is None and found.linked):
        return
    if not sys.stdin.isatty():
        raise Refused(f"{told}: --yes agrees to that, --by ip waits for the link")
    print(f"{told}. Send it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("nothing was sent")


def _give(
    db: Db, kit: _Commanded, asked: RemoteCommand, by: str | None, grace: float, now: float
) -> int:
    secrets = directory.secrets_of(db, kit.device)
    if not secrets:
        raise Refused(
            "the kit and this hub share no secret, so that it would do nothing: `fieldagent hub"
            f" device token {kit.device}` or `device key {kit.device}` makes one"
        )
    number = commands.next_number(db, kit.device, now)
    proved = prove(number, asked, command_key(secrets[0]))
    order = GivenCommand(kit.workspace, kit.device, number, proved, by or "", audit.ADMINISTRATION)
    commands.give(db, order, now, grace)
    return number


def _wait(given: argparse.Namespace, store: Store, kit: _Commanded, number: int, told: str) -> int:
    until = time.monotonic() + given.wait
    while True:
        row = store.once(lambda db: _row(db, kit, number))
        if row["answer"] is not None or time.monotonic() >= until:
            break
        time.sleep(LOOK)
    if given.json:
        return _shown(given, [{**row, "cost": told}], row)
    for line in _lines(row):
        print(line)
    if row["answer"] is None:
        print(f"{told}; `fieldagent hub command {given.device}` shows the answer once it is here")
    return _shown(given, [], row)


def _row(db: Db, kit: _Commanded, number: int) -> dict[str, Any]:
    listed = commands.listing(db, kit.device, time.time(), limit=100)
    return next(each for each in listed if each["number"] == number)


def _shown(given: argparse.Namespace, rows: list[dict[str, Any]], row: dict[str, Any]) -> int:
    if rows:
        show_list(given, rows)
    return OK if row["outcome"] in (None, "done") else ERROR


def _lines(row: dict[str, Any]) -> list[str]:
    state = row["outcome"] or row["state"]
    head = f"{row['number']}  {row['command']}  {row['given']}  {state}"
    why = f": {row['reason']}" if row["reason"] else ""
    by = f" by {row['answeredBy']}" if row["answeredBy"] else ""
    answer = escaped_lines(row["answer"] or "").splitlines()
    return [f"{head}{by}{why}", *(f"    {line}" for line in answer)]


def _list(given: argparse.Namespace, store: Store, kit: _Commanded) -> int:
    rows = store.once(
        lambda db: commands.listing(db, kit.device, time.time(), limit=max(1, given.limit))
    )
    if given.json:
        return show_list(given, rows)
    print("\n".join(line for row in rows for line in _lines(row)) or "none")
    return OK
