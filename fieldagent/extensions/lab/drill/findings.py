"""Results of a drill, read from the kits' journals, the hub's database and the operator's bill."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from fieldagent.extensions.lab.drill.kit import Kit, PostedPackage
from fieldagent.extensions.lab.drill.outage import DAY_S, START
from fieldagent.extensions.lab.drill.world import World
from fieldagent.package.package import Channel
from fieldagent.system.lazy_named_tuple import NamedTuple

OUTAGE_SHARE_MIN = 0.1
"""Fraction of the waiting time that an outage must last before the report names it as the
reason."""


class BrokenPromise(Exception):
    """Error: the program has broken one of its guarantees. The text contains the trace of the
    message.
    """


class CallForHelp(NamedTuple):
    """An SOS of a kit. Times are in seconds since the start of the drill. A time is None if the
    event never happened.
    """

    kit: str
    raised: float
    at_hub: float | None
    seen: float | None
    """Time when the desk acknowledged the SOS."""
    known: float | None
    """Time when the kit received the acknowledgement."""


class KitMessage(NamedTuple):
    """A message or position that users posted at a kit. It is not an SOS."""

    kit: str
    number: int
    at: float
    at_hub: float | None
    is_position: bool
    replaced: bool
    """True if a position did not arrive, and a newer position of the same kit arrived instead."""
    why: str
    """Reason why the item is late or missing. Empty if it arrived in time or was replaced."""


class DeskMessage(NamedTuple):
    """A message that a dispatcher wrote to one kit. Times are in seconds since the start of the
    drill.
    """

    kit: str
    at: float
    on_kit: float | None
    """Time when the message was on the kit's disk."""


class Bill(NamedTuple):
    kit: str
    days: list[int]
    """Credits of each day in the operator's bill."""
    for_sos: int
    own_count: int
    """Credits that the kit itself has counted. `doubtful` is the largest number of further credits
    that the kit may have spent."""
    doubtful: int


class Findings(NamedTuple):
    calls: list[CallForHelp]
    sent: list[KitMessage]
    written: list[DeskMessage]
    bills: list[Bill]
    air: dict[str, float]
    """Airtime of each kit in seconds."""
    unposted: dict[str, int]
    """Number of messages of each kit that could not be posted because the kit had no power."""


def find(world: World) -> Findings:
    """Return the results of a drill. Raises BrokenPromise if the program has broken one of its
    guarantees.
    """
    failed = [f"{kit.plan.name}: {each}" for kit in world.kits for each in kit.record.faults]
    failed += [f"the hub: {each}" for each in world.faults]
    if failed:
        raise BrokenPromise("\n".join(failed))
    with closing(_open(Path(world.database))) as hub:
        calls: list[CallForHelp] = []
        sent: list[KitMessage] = []
        messages: list[DeskMessage] = []
        bills: list[Bill] = []
        # A kit that never had power has no journal.
        kits = [kit for kit in world.kits if (kit.home / "journal.sqlite3").exists()]
        for kit in kits:
            with closing(_open(kit.home / "journal.sqlite3")) as journal:
                _check(kit, journal, hub)
                calls += _find_calls(kit, journal, hub)
                sent += _find_sent(world, kit, journal, hub)
                messages += _find_written(kit, journal, world.desk.written[kit.number])
                if Channel.SATELLITE in kit.plan.bearers:
                    bills.append(_make_bill(world, kit, journal))
    has_radio = [kit for kit in world.kits if Channel.RADIO in kit.plan.bearers]
    return Findings(
        sorted(calls, key=lambda call: call.raised),
        sent,
        messages,
        bills,
        {kit.plan.name: float(world.air.seconds[kit.number]) for kit in has_radio},
        {kit.plan.name: kit.record.unposted for kit in world.kits if kit.record.unposted},
    )


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def _convert_to_drill_time(moment: Any) -> float | None:
    return None if moment is None else float(moment) - START


def _check(kit: Kit, journal: sqlite3.Connection, hub: sqlite3.Connection) -> None:
    kit_statuses = dict(journal.execute("SELECT sequence, status FROM package"))
    at_hub = Counter(
        number
        for (number,) in hub.execute(
            "SELECT source_sequence FROM item WHERE source_device = ?", (kit.number,)
        )
    )
    hub_rows = journal.execute(
        "SELECT sequence FROM leg WHERE status = 'Delivered' AND channel IN ('Cellular',"
        " 'Satellite') AND sequence NOT IN (SELECT sequence FROM carried)"
    )
    delivered = {number for (number,) in hub_rows}
    for number in kit.record.posted:
        if number not in kit_statuses:
            raise _make_broken_promise(kit, journal, number, "was accepted and is lost")
        if number in delivered and not at_hub[number]:
            raise _make_broken_promise(
                kit, journal, number, "is Delivered, but the hub does not have it"
            )
        if at_hub[number] > 1:
            raise _make_broken_promise(
                kit, journal, number, f"is at the hub {at_hub[number]} times"
            )
    strange = at_hub.keys() - kit_statuses.keys()
    if strange:
        raise _make_broken_promise(
            kit, journal, min(strange), "is at the hub, but no one posted it"
        )


def _make_broken_promise(
    kit: Kit, journal: sqlite3.Connection, number: int, what: str
) -> BrokenPromise:
    history = journal.execute(
        "SELECT at, channel, event, detail FROM story WHERE sequence = ? ORDER BY number",
        (number,),
    )
    lines = [(at - START, f"{channel}: {event} {detail}") for at, channel, event, detail in history]
    lines += [(at, text) for at, text in kit.record.log if str(number) in text or "power" in text]
    trace = "\n".join(f"  {format_clock(at)}  {text}" for at, text in sorted(lines))
    return BrokenPromise(f"{kit.plan.name}: message {number} {what}\n{trace}")


def format_clock(at: float) -> str:
    """Return a time of the drill as day and time of day: `day 2 14:05`."""
    minutes = int(at // 60)
    return f"day {minutes // 1440 + 1} {minutes // 60 % 24:02}:{minutes % 60:02}"


def _find_calls(
    kit: Kit, journal: sqlite3.Connection, hub: sqlite3.Connection
) -> list[CallForHelp]:
    calls_by_number: dict[int, float] = {}
    for body, received in journal.execute("SELECT body, received FROM inbound ORDER BY number"):
        for event in json.loads(body)["payloads"][0]["events"]:
            incident = event.get("incident", {})
            if incident.get("state") in ("seen", "closed"):
                calls_by_number.setdefault(incident["number"], received)
    calls = []
    for number, raised_at in journal.execute("SELECT number, raised FROM incident ORDER BY number"):
        row = hub.execute(
            "SELECT raised, (SELECT min(at) FROM sos_event WHERE sos = sos.id AND event = 'seen')"
            " FROM sos WHERE device = ? AND number = ?",
            (kit.number, number),
        ).fetchone()
        at_hub, seen_at = row or (None, None)
        if number in calls_by_number and (seen_at is None or calls_by_number[number] < seen_at):
            raise _make_broken_promise(
                kit, journal, number, "is shown as seen, but no one at the desk has it"
            )
        call = CallForHelp(
            kit.plan.name,
            raised_at - START,
            _convert_to_drill_time(at_hub),
            _convert_to_drill_time(seen_at),
            _convert_to_drill_time(calls_by_number.get(number)),
        )
        calls.append(call)
    return calls


def _find_sent(
    world: World, kit: Kit, journal: sqlite3.Connection, hub: sqlite3.Connection
) -> list[KitMessage]:
    at_hub = dict(
        hub.execute(
            "SELECT source_sequence, accepted FROM item WHERE source_device = ?", (kit.number,)
        )
    )
    positions = {number for number, each in kit.record.posted.items() if _is_position(each)}
    newest = max(positions & at_hub.keys(), default=0)
    items = []
    for number, posted in kit.record.posted.items():
        if posted.sos:
            continue
        arrived_at = _convert_to_drill_time(at_hub.get(number))
        position = number in positions
        replaced = position and arrived_at is None and number < newest
        reason = ""
        if not replaced and (arrived_at is None or arrived_at - posted.at > world.plan.late):
            end = world.seconds if arrived_at is None else arrived_at
            reason = _explain(world, kit, journal, number, (posted.at, end))
        items.append(
            KitMessage(kit.plan.name, number, posted.at, arrived_at, position, replaced, reason)
        )
    return items


def _is_position(posted: PostedPackage) -> bool:
    return "location" in posted.body


def _explain(
    world: World,
    kit: Kit,
    journal: sqlite3.Connection,
    number: int,
    waited: tuple[float, float],
) -> str:
    start, end = waited
    day = int(start // DAY_S)
    if Channel.SATELLITE in kit.plan.bearers and int(end // DAY_S) > day:
        # A message that waited past midnight may have been held because the credits of its first
        # day were used up.
        limit = kit.plan.credits_per_day - kit.plan.sos_reserve
        if kit.account.bill[day] >= limit - 1:
            return "the day's credits were spent"
    needs = {
        "sky": Channel.SATELLITE,
        "network": Channel.CELLULAR,
        "earshot": Channel.RADIO,
    }
    conditions = [
        condition
        for name, condition in kit.conditions.items()
        if name == "power" or needs[name] in kit.plan.bearers
    ]
    outages = {each.what: each.compute_outage(start, end) for each in (*conditions, world.away)}
    longest_cause, seconds = max(outages.items(), key=lambda pair: pair[1])
    if seconds > OUTAGE_SHARE_MIN * (end - start):
        return longest_cause
    reasons = journal.execute(
        "SELECT reason FROM leg WHERE sequence = ? AND reason <> ''", (number,)
    ).fetchall()
    if reasons:
        return str(reasons[0][0])
    if kit.plan.bearers == (Channel.RADIO,):
        return "no kit in range relayed it to the hub"
    return "waited for its turn"


def _find_written(
    kit: Kit, journal: sqlite3.Connection, posted: dict[str, float]
) -> list[DeskMessage]:
    arrivals: dict[str, float] = {}
    for body, received in journal.execute("SELECT body, received FROM inbound ORDER BY number"):
        for event in json.loads(body)["payloads"][0]["events"]:
            arrivals.setdefault(event.get("content", ""), received)
    return [
        DeskMessage(kit.plan.name, at, _convert_to_drill_time(arrivals.get(text)))
        for text, at in posted.items()
    ]


def _make_bill(world: World, kit: Kit, journal: sqlite3.Connection) -> Bill:
    ((own, doubtful),) = journal.execute(
        "SELECT coalesce(sum(credits), 0), coalesce(sum(doubtful), 0) FROM spent"
        " WHERE channel = 'Satellite'"
    )
    days = int(-(-world.seconds // DAY_S))
    bill = kit.account.bill
    kit_bill = Bill(
        kit.plan.name,
        [bill[day] for day in range(days)],
        kit.account.for_sos.total(),
        own,
        doubtful,
    )
    if not own <= bill.total() <= own + doubtful:
        raise BrokenPromise(
            f"{kit.plan.name}: the operator bills {bill.total()} credits, and the kit counted {own}"
            f" to {own + doubtful}"
        )
    return kit_bill
