"""`fieldagent hub radio-key …`: gives all kits of a workspace another radio-key, step by step, and
shows who still lacks it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Collection, Sequence
from functools import partial

from fieldagent.cli.ask_key import ask_key
from fieldagent.cli.hub.opened_store import show, show_list, with_store
from fieldagent.hub.access import directory, revocation
from fieldagent.hub.access.directory import Refused, Row
from fieldagent.hub.access.secret import new_air_key
from fieldagent.hub.field import radio_key
from fieldagent.hub.field.radio_key import LAST, KeyPrice
from fieldagent.hub.settings import HubSettings, price_of
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.writing import clock_time
from fieldagent.system.exit_codes import OK
from fieldagent.system.terminal import escaped
from fieldagent.system.wording import counted


def change(given: argparse.Namespace) -> int:
    """Have all kits of a workspace change their radio-key, once the cost is agreed to."""
    return with_store(given, partial(_change, given, None))


def revoke_and_change(given: argparse.Namespace) -> int:
    """Take a kit out of use, and have all others change their radio-key: both or neither."""
    return with_store(given, partial(_change, given, given.device))


def _change(given: argparse.Namespace, stolen: str | None, hub: HubSettings, store: Store) -> int:
    key = ask_key("radio-key") if given.key_given else new_air_key()

    def find(db: Db) -> tuple[int, list[int], int | None, KeyPrice]:
        workspace = directory.workspace_of(db, given.workspace)
        but = [directory.device_named(db, workspace, each) for each in given.but or ()]
        lost = None if stolen is None else directory.device_named(db, workspace, stolen)
        without = [*but, *([] if lost is None else [lost])]
        return workspace, but, lost, _price_of(db, workspace, given, LAST, without)

    workspace, but, lost, found = store.once(find)
    bearer = _agreed(given, found, hub)

    def act(db: Db) -> Row:
        now = time.time()
        if lost is not None:
            revocation.revoke(db, lost, given.why, now=now)
        radio_key.begin(db, workspace, key, bearer, left_out=but, now=now)
        revoked = {} if lost is None else {"id": lost, "revoked": True}
        return {**revoked, **_short(db, workspace, now)}

    return show(given, {**store.once(act), "cost": _price(found, hub)})


def _price_of(
    db: Db, workspace: int, given: argparse.Namespace, steps: int, but: Collection[int]
) -> KeyPrice:
    now = time.time()
    return radio_key.price(db, workspace, given.by or "", steps=steps, but=but, now=now)


def _price(found: KeyPrice, hub: HubSettings) -> str:
    """Return whom it reaches and what that takes, for people."""
    waiting = found.kits - found.linked - found.by_satellite
    parts = [
        f"{found.linked} by link" if found.linked else "",
        f"{found.by_satellite} over satellite{_credits(found, hub)}" if found.by_satellite else "",
        f"{waiting} once linked, or by a neighbour" if waiting > 0 else "",
    ]
    return f"{counted(found.kits, 'kit')}: {', '.join(filter(None, parts))}"


def _credits(found: KeyPrice, hub: HubSettings) -> str:
    if not found.credits:
        return ""
    prices = {price_of(hub, each) for each in found.operators}
    price = prices.pop() if len(prices) == 1 else None
    money = "" if price is None else f", {price.of(found.credits)}"
    return f" ({counted(found.credits, 'credit')}{money} at most, with all answers)"


def _agreed(given: argparse.Namespace, found: KeyPrice, hub: HubSettings) -> str:
    """Return by which bearer it goes. Raises Refused where nobody has agreed to what it costs."""
    if given.by or not found.by_satellite or given.yes:
        return given.by or ""
    told = _price(found, hub)
    if not sys.stdin.isatty():
        raise Refused(f"{told}: --yes agrees to that, --by ip waits for links and neighbours")
    print(f"{told}. Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("nothing was changed")
    return ""


def _short(db: Db, workspace: int, now: float) -> Row:
    found = radio_key.standing(db, workspace, now)
    if found is None:
        raise Refused("no radio-key was changed here: `fieldagent hub radio-key change`")
    return {
        "step": f"{found['step']} of {LAST}",
        "ended": found["ended"] is not None,
        "kits": len(found["kits"]),
        "lacking": found["lacking"],
    }


def status(given: argparse.Namespace) -> int:
    """Print at which step the change is, and who is behind; it is Refused where there never was
    one."""

    def tell(hub: HubSettings, store: Store) -> int:
        def read(db: Db) -> tuple[Row, list[Row]]:
            workspace = directory.workspace_of(db, given.workspace)
            found = radio_key.standing(db, workspace, time.time())
            return _short(db, workspace, time.time()), found["kits"] if found else []

        short, kits = store.once(read)
        if given.json:
            return show(given, {**short, "devices": kits})
        print("\n".join(_lines(short, kits)))
        return OK

    return with_store(given, tell)


def _lines(short: Row, kits: Sequence[Row]) -> list[str]:
    if short["ended"]:
        head = "the change of radio-key is over: the old one is dropped"
    else:
        head = f"the change of radio-key is at step {short['step']}"
    behind = short["lacking"]
    who = f"{counted(behind, 'kit')} of {short['kits']} behind" if behind else "all kits are there"
    return [f"{head}; {who}", *map(_line, kits)]


def _line(kit: Row) -> str:
    at = "" if kit["answered"] is None else f"  {clock_time(kit['answered'])}"
    said = f"  {kit['said']}" if kit["said"] else ""
    return escaped(f"{kit['id']}  {kit['name']}  step {kit['step']}  {kit['state']}{at}{said}")


def leave_out(given: argparse.Namespace) -> int:
    """Go on with the change without a kit, and print how it stands."""

    def act(db: Db) -> Row:
        workspace = directory.workspace_of(db, given.workspace)
        device = directory.device_named(db, workspace, given.device)
        radio_key.leave_out(db, device, now=time.time())
        return _short(db, workspace, time.time())

    return with_store(given, lambda hub, store: show(given, store.once(act)))


def ask(given: argparse.Namespace) -> int:
    """Ask a kit anew for its step; what that costs over satellite is asked about first."""

    def act(hub: HubSettings, store: Store) -> int:
        def find(db: Db) -> tuple[int, KeyPrice]:
            workspace = directory.workspace_of(db, given.workspace)
            device = directory.device_named(db, workspace, given.device)
            others = {each.device for each in radio_key.kits_of(db, workspace, 0.0)} - {device}
            return device, _price_of(db, workspace, given, 1, others)

        device, found = store.once(find)
        bearer = _agreed(given, found, hub)
        store.once(lambda db: radio_key.ask_again(db, device, bearer, now=time.time()))
        return show(given, {"id": device, "cost": _price(found, hub)})

    return with_store(given, act)


def key(given: argparse.Namespace) -> int:
    """Show it, for kits that have no way to the hub."""

    def read(db: Db) -> Row:
        found = radio_key.change_of(db, directory.workspace_of(db, given.workspace))
        if found is None:
            raise Refused("no radio-key was changed here: the kits alone have it")
        return {"radio-key": found.key.hex()}

    return with_store(given, lambda hub, store: show_list(given, [store.once(read)]))
