"""Stores the credits and bytes that were spent on each channel and day, the current day of the
budget, and the radio's air-time of the last hour. So the limits also apply after a restart.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import NoReturn

from fieldagent.agent.channels.air_time import HOUR, AirTime
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.journal.records import Spent
from fieldagent.package.package import Channel
from fieldagent.system.lazy_named_tuple import NamedTuple


class BudgetDay(NamedTuple):
    """The day whose budget is in use."""

    day: str
    """Date in ISO 8601."""
    since: float
    """Elapsed time when the day began."""
    trusted: bool
    """True if the date comes from a trusted clock."""
    carried: str = ""
    """Date from an untrusted clock whose costs also count for this day. Empty if there is none."""


class Booking(NamedTuple):
    """Cost that a budget has booked for a Package on a channel."""

    sequence: int
    channel: Channel
    credits: int
    """Number of credits, or of SMS."""
    day: BudgetDay


_SELECT_DAY_SQL = "SELECT day, since, trusted, carried FROM budget_day"
_SELECT_SPENT = (
    "SELECT coalesce(sum(bytes), 0), coalesce(sum(credits), 0), coalesce(sum(doubtful), 0)"
    " FROM spent"
    " WHERE channel = ? AND day IN (?, ?)"
)


def read_known_day(journal: Journal) -> BudgetDay | None:
    """Return the day of the last booking, or None if there was none."""
    return _read_day(journal.read(_SELECT_DAY_SQL))


def read_known_day_in(db: sqlite3.Connection) -> BudgetDay | None:
    """Return the day as `read_known_day` does, within a transaction."""
    return _read_day(db.execute(_SELECT_DAY_SQL).fetchall())


def _read_day(rows: list[tuple[str, float, int, str]]) -> BudgetDay | None:
    for day, since, trusted, carried in rows:
        return BudgetDay(day, since, bool(trusted), carried)
    return None


def spend(channel: str, day: BudgetDay, cost: Spent) -> Operation[None]:
    """Return the operation that adds `cost` to the costs of a channel, or of another budget, on
    `day`. It also stores the day as the current one.
    """

    def store(db: sqlite3.Connection) -> None:
        db.execute("INSERT OR REPLACE INTO budget_day VALUES (1, ?, ?, ?, ?)", day)
        db.execute(
            "INSERT INTO spent VALUES (?, ?, ?, ?, ?) ON CONFLICT (day, channel) DO UPDATE"
            " SET bytes = bytes + excluded.bytes, credits = credits + excluded.credits,"
            " doubtful = doubtful + excluded.doubtful",
            (day.day, channel, cost.bytes, cost.credits, cost.doubtful),
        )

    return store


def read_spent(journal: Journal, channel: str, day: BudgetDay) -> Spent:
    """Return the costs of a channel, or of another budget, on `day`, including the costs of the
    date `day.carried`.
    """
    (row,) = journal.read(_SELECT_SPENT, channel, day.day, day.carried)
    return Spent(*row)


def read_spent_in(db: sqlite3.Connection, channel: str, day: BudgetDay) -> Spent:
    """Return the costs as `read_spent` does, within a transaction."""
    return Spent(*db.execute(_SELECT_SPENT, (channel, day.day, day.carried)).fetchone())


def record_bookings(
    budget: str, sequence: int, credits_by_channel: Mapping[Channel, int], day: BudgetDay
) -> Operation[None]:
    """Return the operation that stores the credits that a budget has booked for a Package on each
    channel.
    """

    def store(db: sqlite3.Connection) -> None:
        db.executemany(
            "INSERT OR REPLACE INTO booking (sequence, channel, budget, credits, day, since,"
            " trusted, carried) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (sequence, channel, budget, credits_, *day)
                for channel, credits_ in credits_by_channel.items()
                if credits_
            ],
        )

    return store


def list_ended_bookings(journal: Journal, budget: str) -> list[Booking]:
    """Return the bookings of a budget whose Packages have ended on the booked channel or do not use
    it.
    """
    rows = journal.read(
        "SELECT sequence, channel, credits, day, since, trusted, carried FROM booking"
        " WHERE budget = ? AND NOT EXISTS (SELECT 1 FROM leg WHERE leg.sequence = booking.sequence"
        " AND leg.channel = booking.channel AND leg.status IS NULL) ORDER BY sequence, channel",
        budget,
    )
    return [
        Booking(sequence, Channel(channel), credits_, BudgetDay(day, since, bool(trusted), carried))
        for sequence, channel, credits_, day, since, trusted, carried in rows
    ]


def delete_booking(budget: str, booking: Booking) -> Operation[None]:
    """Return the operation that deletes a booking, because the real cost of the channel is
    known.
    """

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            "DELETE FROM booking WHERE sequence = ? AND channel = ? AND budget = ?",
            (booking.sequence, booking.channel, budget),
        )

    return store


def sum_spent(journal: Journal) -> dict[str, Spent]:
    """Return the total costs of each channel and each other budget by name, over all days."""
    rows = journal.read(
        "SELECT channel, sum(bytes), sum(credits), sum(doubtful) FROM spent GROUP BY channel"
    )
    return {channel: Spent(*sums) for channel, *sums in rows}


def read_air_time(journal: Journal) -> dict[int, float]:
    """Return the stored seconds on the air, by minute of elapsed time."""
    return dict(journal.read("SELECT minute, seconds FROM air_time"))


async def store_air_time_regularly(journal: Journal, air_time: AirTime) -> NoReturn:
    """Store the air-time forever, each time that enough of it has been used. Writes are rare,
    because each write wears the memory card.
    """
    while True:
        while not air_time.is_to_be_saved():
            await air_time.grown.wait()
        minutes = air_time.collect_unsaved_minutes()

        def store(db: sqlite3.Connection, minutes: dict[int, float] = minutes) -> None:
            db.execute("DELETE FROM air_time WHERE minute < ?", (max(minutes) - HOUR // 60 - 1,))
            db.executemany("INSERT OR REPLACE INTO air_time VALUES (?, ?)", minutes.items())

        await journal.persist(store)
