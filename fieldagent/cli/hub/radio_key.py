"""`fieldagent hub device radio-key …`: gives all kits of a workspace a new radio-key, step by step,
and shows the kits that do not have it yet.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Collection, Sequence
from functools import partial

from fieldagent.cli.ask_key import ask_key
from fieldagent.cli.hub.opened_store import (
    Call,
    Result,
    make_store_command,
    make_transaction,
    run_with_store,
    show,
)
from fieldagent.hub.access import directory, revocation
from fieldagent.hub.access.directory import Refused, Row
from fieldagent.hub.access.secret import make_air_key
from fieldagent.hub.field import radio_key
from fieldagent.hub.field.radio_key import LAST, KeyPrice
from fieldagent.hub.settings import HubSettings, find_price
from fieldagent.hub.store.contract import Db, Store
from fieldagent.system.exit_codes import OK
from fieldagent.system.terminal import escape_line, format_local_time
from fieldagent.system.wording import format_count


def change(arguments: argparse.Namespace) -> int:
    """Change the radio-key of all kits in a workspace, after the user has confirmed the price."""
    return run_with_store(arguments, partial(_change, arguments, None))


def revoke_and_change(arguments: argparse.Namespace) -> int:
    """Revoke a kit, and change the radio key of all other kits in the same transaction."""
    return run_with_store(arguments, partial(_change, arguments, arguments.device))


def _change(
    arguments: argparse.Namespace, stolen: str | None, hub: HubSettings, store: Store
) -> int:
    key = ask_key("radio-key") if arguments.key_given else make_air_key()

    def find(db: Db) -> tuple[int, list[int], int | None, KeyPrice]:
        workspace = directory.find_workspace(db, arguments.workspace)
        but = [directory.find_device_named(db, workspace, each) for each in arguments.but or ()]
        lost_device = None if stolen is None else directory.find_device_named(db, workspace, stolen)
        without = [*but, *([] if lost_device is None else [lost_device])]
        return workspace, but, lost_device, _compute_price(db, workspace, arguments, LAST, without)

    workspace, but, lost_device, estimate = store.run_once(find)
    bearer = _confirm_price(arguments, estimate, hub)

    def start_change(db: Db) -> Row:
        now = time.time()
        if lost_device is not None:
            revocation.revoke(db, lost_device, arguments.why, now=now)
        radio_key.begin_change(db, workspace, key, bearer, left_out=but, now=now)
        revoked = {} if lost_device is None else {"id": lost_device, "revoked": True}
        return {**revoked, **_shorten(db, workspace, now)}

    return show(arguments, {**store.run_once(start_change), "cost": _format_price(estimate, hub)})


def _compute_price(
    db: Db, workspace: int, arguments: argparse.Namespace, steps: int, excluded: Collection[int]
) -> KeyPrice:
    now = time.time()
    return radio_key.compute_price(
        db, workspace, arguments.by or "", steps=steps, excluded=excluded, now=now
    )


def _format_price(estimate: KeyPrice, hub: HubSettings) -> str:
    """Return, for people, the number of kits for each bearer, and the price."""
    waiting = estimate.kits - estimate.linked - estimate.by_satellite
    parts = [
        f"{estimate.linked} by link" if estimate.linked else "",
        f"{estimate.by_satellite} over satellite{_format_credits(estimate, hub)}"
        if estimate.by_satellite
        else "",
        f"{waiting} once linked, or by a neighbour" if waiting > 0 else "",
    ]
    return f"{format_count(estimate.kits, 'kit')}: {', '.join(filter(None, parts))}"


def _format_credits(estimate: KeyPrice, hub: HubSettings) -> str:
    if not estimate.credits:
        return ""
    prices = {find_price(hub, each) for each in estimate.operators}
    price = prices.pop() if len(prices) == 1 else None
    money = "" if price is None else f", {price.format_amount(estimate.credits)}"
    return f" ({format_count(estimate.credits, 'credit')}{money} at most, with all answers)"


def _confirm_price(arguments: argparse.Namespace, estimate: KeyPrice, hub: HubSettings) -> str:
    """Ask the user to confirm the price. Return the bearer to use, or an empty text for any bearer.
    Raises Refused if the user does not confirm.
    """
    if arguments.by or not estimate.by_satellite or arguments.yes:
        return arguments.by or ""
    price = _format_price(estimate, hub)
    if not sys.stdin.isatty():
        raise Refused(
            f"{price}: use --yes to accept the cost, or --by ip to wait for links and neighbours"
        )
    print(f"{price}. Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("nothing was changed")
    return ""


def _shorten(db: Db, workspace: int, now: float) -> Row:
    change = radio_key.describe_change(db, workspace, now)
    if change is None:
        raise Refused("no radio-key was changed here: use `fieldagent hub device radio-key change`")
    return {
        "step": f"{change['step']} of {LAST}",
        "ended": change["ended"] is not None,
        "kits": len(change["kits"]),
        "pending": change["pending"],
    }


@make_store_command
def show_status(arguments: argparse.Namespace, hub: HubSettings, store: Store) -> Result:
    """Print the step of the change, and the kits that do not have the new key yet. Raises Refused
    if the workspace never had a change.
    """

    def read(db: Db) -> tuple[Row, list[Row]]:
        workspace = directory.find_workspace(db, arguments.workspace)
        change = radio_key.describe_change(db, workspace, time.time())
        return _shorten(db, workspace, time.time()), change["kits"] if change else []

    short, kits = store.run_once(read)
    if arguments.json:
        return show(arguments, {**short, "devices": kits})
    print("\n".join(_format_lines(short, kits)))
    return OK


def _format_lines(short: Row, kits: Sequence[Row]) -> list[str]:
    if short["ended"]:
        heading = "the change of radio-key is over: the old one is dropped"
    else:
        heading = f"the change of radio-key is at step {short['step']}"
    pending = short["pending"]
    kit_names = (
        f"{format_count(pending, 'kit')} of {short['kits']} behind"
        if pending
        else "all kits are present"
    )
    return [f"{heading}; {kit_names}", *map(_format_line, kits)]


def _format_line(kit: Row) -> str:
    at = "" if kit["answered"] is None else f"  {format_local_time(kit['answered'])}"
    answer = f"  {kit['answer']}" if kit["answer"] else ""
    return escape_line(
        f"{kit['id']}  {kit['name']}  step {kit['step']}  {kit['state']}{at}{answer}"
    )


@make_transaction
def leave_out(call: Call) -> Result:
    """Leave a kit out of the change, and print the state of the change."""
    radio_key.leave_out(call.db, call.device, now=call.now)
    return _shorten(*call.here, call.now)


@make_store_command
def ask(arguments: argparse.Namespace, hub: HubSettings, store: Store) -> Result:
    """Send a kit the command for its step again. If it goes over satellite, the user must confirm
    the price first.
    """

    def find(db: Db) -> tuple[int, KeyPrice]:
        workspace = directory.find_workspace(db, arguments.workspace)
        device = directory.find_device_named(db, workspace, arguments.device)
        others = {each.device for each in radio_key.list_kits(db, workspace, 0.0)} - {device}
        return device, _compute_price(db, workspace, arguments, 1, others)

    device, estimate = store.run_once(find)
    bearer = _confirm_price(arguments, estimate, hub)
    store.run_once(lambda db: radio_key.ask_again(db, device, bearer, now=time.time()))
    return {"id": device, "cost": _format_price(estimate, hub)}


@make_transaction
def print_key(call: Call) -> Result:
    """Print the new radio key, for kits that have no route to the hub."""
    key_change = radio_key.find_change(*call.here)
    if key_change is None:
        raise Refused("no radio-key was changed here: only the kits have it")
    return [{"radio-key": key_change.key.hex()}]
