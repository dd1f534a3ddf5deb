"""Stores the radio's air-time of the last hour, so that the limit per hour also applies after a
restart.
"""

from __future__ import annotations

import sqlite3
from typing import NoReturn

from fieldagent.agent.channels.air_time import HOUR, AirTime
from fieldagent.agent.journal.journal import Journal


def read_known(journal: Journal) -> dict[int, float]:
    """Return the stored seconds on the air, by minute of elapsed time."""
    return dict(journal.read("SELECT minute, seconds FROM air_time"))


async def store_regularly(journal: Journal, air_time: AirTime) -> NoReturn:
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
