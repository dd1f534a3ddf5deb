"""Result of one process's last writes, as evidence that PostgreSQL accepts writes."""

from __future__ import annotations

import logging
import random
import time
from math import inf

import psycopg

from fieldagent.hub.store.contract import FRESH_S
from fieldagent.store.group import StoreFull
from fieldagent.system.lazy_dataclass import dataclass

log = logging.getLogger(__name__)


def make_worker_number() -> int:
    """Return a random number for this process, 1 to 2**31 - 1."""
    return random.randrange(1, 2**31)


@dataclass(slots=True)
class WriteProof:
    database: str
    """Name of the database for people."""
    worker: int
    """Number of this process (see `Db.worker`)."""
    written_at: float = -inf
    """Time of the last commit, in time.monotonic."""
    full: bool = False
    """True if the last write that needed space failed because the disk was full."""

    def is_needed(self) -> bool:
        """Return True if only a test write can show that the database accepts writes."""
        return self.full or time.monotonic() - self.written_at > FRESH_S

    def record_write(self, *, needed_room: bool = False) -> None:
        """Record a commit. `needed_room` is True if the commit needed new pages."""
        self.written_at = time.monotonic()
        if needed_room:
            self.full = False
            log.warning("%s has space again", self.database)

    def record_full_disk(self, error: psycopg.Error) -> StoreFull:
        """Record that the disk is full, log this once, and return the error for callers. This error
        does not contain the name of the database.
        """
        if not self.full:
            reason = " ".join(str(error).split())
            log.error("%s is full: %s. New items are refused", self.database, reason)
        self.full = True
        return StoreFull("the hub's database is full; see its log")
