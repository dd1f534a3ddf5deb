"""Fills a hub with many people and their kits, as after a year. Some of the kits have problems."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial

from fieldagent.hub.access import directory
from fieldagent.hub.field import check_in
from fieldagent.hub.field.check_in import Rule
from fieldagent.hub.records import contact, kit_report, ledger
from fieldagent.hub.records.contact import Position
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.opening import open_store
from fieldagent.package.package import SOS_PRIORITY, Location, Message
from fieldagent.wire.envelope import Source
from fieldagent.wire.kit_note import KitReport, ModemReport, UpdateReport

SAID = 4
"""Number of items of each kit."""
ROUND = {"battery": 3, "silent": 5, "never": 6, "update": 7, "clock": 9}
"""Last digit of the kits with each trouble."""
WORKSPACE, DISPATCHER = 1, 2


def settle(database: str, kits: int) -> None:
    """Fill a workspace that has only a dispatcher. Kit 1 is in distress, and each kit whose number
    ends as in `ROUND` has that trouble.
    """
    now = time.time()
    store = open_store(database)
    for first in range(1, kits + 1, 200):
        numbers = range(first, min(first + 200, kits + 1))
        store.run_once(partial(_settle, numbers=numbers, now=now))
    store.close()


def _settle(db: Db, numbers: range, now: float) -> None:
    for number in numbers:
        member = directory.add_user(db, WORKSPACE, f"Person {number}", now=now)
        device, _ = directory.add_device(
            db, WORKSPACE, member, directory.NewDevice(f"kit {number}"), now=now
        )
        if number % 10 != ROUND["never"]:
            _hear(db, number, device, member, now)


def _hear(db: Db, number: int, device: int, member: int, now: float) -> None:
    rest = number % 10
    at = now - (3 * 86_400 if rest == ROUND["silent"] else 60 * rest)
    place = (46 + number % 37 / 50, 7 + number % 41 / 50)
    contact.record_contacts(db, {device: Position(*place, at)}, "ip", at)
    battery = 12 if rest == ROUND["battery"] else 80
    update = UpdateReport("2", "1", "no link") if rest == ROUND["update"] else None
    modems = (ModemReport("satellite", 4, battery),)
    kit_report.store_report(db, device, KitReport(modems=modems, update=update), at)
    if rest == ROUND["silent"]:
        check_in.begin_rule(db, device, Rule(interval=365 * 86_400.0), now=now)
        db.execute("UPDATE check_in SET warned = 1 WHERE device = ?", device)
    ahead = 3_600 if rest == ROUND["clock"] else 0
    for step in range(SAID):
        moment = at - 600 * (SAID - step) + ahead
        where = Location(place[0] + step / 500, place[1], datetime.fromtimestamp(moment, UTC))
        said = Message(f"all well at {number}") if step == 1 else where
        source = Source(device, step + 1)
        posting = Posting(
            WORKSPACE, member, said, int(moment), 50, target=DISPATCHER, source=source
        )
        ledger.add_item(db, posting, now=at - 600 * (SAID - step), grace=0)
    down = Posting(WORKSPACE, DISPATCHER, Message(f"hello {number}"), int(at), 50, target=member)
    ledger.add_item(db, down, now=at, grace=0)
    if number == 1:
        words = Message("leg broken")
        source = Source(device, SAID + 1)
        sos = Posting(
            WORKSPACE,
            member,
            words,
            int(at),
            SOS_PRIORITY,
            sos=True,
            source=source,
            target=DISPATCHER,
        )
        ledger.add_item(db, sos, now=now, grace=0)
