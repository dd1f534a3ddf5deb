"""History of each Package: the lines that `fieldagent show` prints, oldest first.

If an event repeats the previous line, the count of that line is increased. So a channel that is
tried for days without service adds one line, not thousands.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable

from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.losses import read_status
from fieldagent.agent.journal.records import PackageFacts, StorageReceipt
from fieldagent.package.delivery import ChannelDelivery
from fieldagent.package.package import Channel
from fieldagent.system.lazy_named_tuple import NamedTuple

WAITS_EVENT = "waits"
"""Event: a Package waits before its first attempt on a channel; the detail contains the time and
the reason."""

REFUSED_EVENT = "refused"
"""Event: the remote side or the modem refuses a Package; the detail contains the reason."""

SMS_EVENT = "by SMS"
"""Event: an SMS with a Package left, or may have left."""


class Line(NamedTuple):
    at: float
    """Unix time of the event. If `times` is above 1, this is the time of the last occurrence."""
    event: str
    channel: Channel | None = None
    detail: str = ""
    times: int = 1


def record_event(
    db: sqlite3.Connection,
    sequences: Iterable[int],
    channel: Channel,
    event: str,
    detail: str,
    at: float,
) -> None:
    """Add a line with the elapsed time `at` to the history of each Package. If the Package's last
    line on the channel has the same event and detail, increase its count and update its time
    instead.
    """
    for sequence in sequences:
        repeated_event = db.execute(
            "UPDATE story SET at = ?, times = times + 1 WHERE event = ? AND detail = ? AND number"
            " = (SELECT max(number) FROM story WHERE sequence = ? AND channel = ?)",
            (at, event, detail, sequence, channel),
        )
        if not repeated_event.rowcount:
            db.execute(
                "INSERT INTO story (sequence, channel, event, detail, at)"
                " SELECT sequence, ?, ?, ?, ? FROM package WHERE sequence = ?",
                (channel, event, detail, at, sequence),
            )


def has_left(journal: Journal, channel: Channel, sequences: Iterable[int]) -> bool:
    """Return True if any of these Packages was transmitted over the channel."""
    sql = "SELECT 1 FROM story WHERE sequence = ? AND channel = ? AND event = 'sent' LIMIT 1"
    return any(journal.read(sql, sequence, channel) for sequence in sequences)


def can_have_left(journal: Journal, sequence: int, channel: Channel | None = None) -> bool:
    """Return True if the Package was transmitted over `channel`, or may have been. If `channel` is
    None, any channel counts.
    """
    if channel is None:
        return bool(journal.read(f"{_SELECT_LEFT} LIMIT 1", sequence))
    return bool(journal.read(_LEFT_OVER, sequence, channel))


def can_have_left_in(db: sqlite3.Connection, sequence: int, channel: Channel) -> bool:
    """Return the same as `can_have_left` for one channel, within a transaction."""
    return bool(db.execute(_LEFT_OVER, (sequence, channel)).fetchall())


_SELECT_LEFT = "SELECT 1 FROM story WHERE sequence = ? AND event IN ('sent', 'may have left')"
_LEFT_OVER = f"{_SELECT_LEFT} AND channel = ? LIMIT 1"


def is_sent_by_sms(journal: Journal, sequence: int) -> bool:
    """Return True if an SMS with the Package left, or may have left."""
    sql = "SELECT 1 FROM story WHERE sequence = ? AND event = ? LIMIT 1"
    return bool(journal.read(sql, sequence, SMS_EVENT))


def count_refusals(journal: Journal, sequence: int, channel: Channel) -> int:
    """Return the number of times that the channel has refused the Package."""
    rows = journal.read(
        "SELECT total(times) FROM story WHERE sequence = ? AND channel = ? AND event = ?",
        sequence,
        channel,
        REFUSED_EVENT,
    )
    return int(rows[0][0])


def read_last_failure(journal: Journal, sequence: int, channel: Channel) -> str:
    """Return the reason of the last failed attempt on `channel`, or '' if there is none."""
    rows = journal.read(
        "SELECT detail FROM story WHERE sequence = ? AND channel = ?"
        " AND event NOT IN ('sent', ?, ?) ORDER BY number DESC LIMIT 1",
        *(sequence, channel, WAITS_EVENT, SMS_EVENT),
    )
    return add_names(journal, rows[0][0]) if rows else ""


_STATION = re.compile(r"\bstation ([0-9]+)\b")


def add_names(journal: Journal, detail: str) -> str:
    """Return `detail` with each `station N` replaced by the name of that station, if it is known.

    The journal stores only the numbers, because a name may arrive after the event.
    """
    if _STATION.search(detail) is None:
        return detail
    names = dict(journal.read("SELECT -origin, name FROM identity WHERE origin < 0"))
    return _STATION.sub(lambda match: names.get(int(match[1])) or match[0], detail)


def _name_station(receipt: StorageReceipt) -> str:
    return f"stored by {receipt.by.name or receipt.by.id}"


def list_lines(
    journal: Journal, package: PackageFacts, receipts: Iterable[StorageReceipt]
) -> list[Line]:
    """Return the complete history of a Package in the order of time: acceptance, attempts, ends of
    its channel deliveries, receipts, and the final status.
    """
    date = journal.clock.date
    story = [Line(date(package.accepted), "accepted")]
    rows = journal.read(
        "SELECT at, event, channel, detail, times FROM story WHERE sequence = ? ORDER BY number",
        package.sequence,
    )
    story += [
        Line(date(at), event, Channel(name), add_names(journal, detail), times)
        for at, event, name, detail, times in rows
    ]
    rows = journal.read(
        "SELECT ended, channel, status, reason FROM leg WHERE sequence = ? AND status IS NOT NULL"
        " ORDER BY ended",
        package.sequence,
    )
    for at, name, status, reason in rows:
        delivery = ChannelDelivery(read_status(status), reason)
        story.append(Line(date(at), delivery.status or "", Channel(name), delivery.reason))
    story += [Line(receipt.at, "confirmed", None, _name_station(receipt)) for receipt in receipts]
    if package.status is not None and package.ended is not None:
        story.append(Line(date(package.ended), "answered", None, package.status))
    return sorted(story, key=lambda line: line.at)
