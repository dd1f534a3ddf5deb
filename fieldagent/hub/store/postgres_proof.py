"""What one process knows of whether PostgreSQL takes what is written."""

from __future__ import annotations

import logging
import random
import time
from math import inf

import psycopg

from fieldagent.hub.store.contract import FRESH
from fieldagent.store.group import StoreFull
from fieldagent.system.lazy_dataclass import dataclass

log = logging.getLogger(__name__)


def new_worker() -> int:
    """Return a number that no process before had."""
    return random.randrange(1, 2**31)


@dataclass(slots=True)
class WriteProof:
    database: str
    """What people are told of it."""
    worker: int
    """See `Db.worker`."""
    written: float = -inf
    """When something was committed last; time.monotonic."""
    full: bool = False
    """What was to be written last found no room, and nothing that needs any was written since."""

    def is_needed(self) -> bool:
        """Return whether a write of its own must prove it."""
        return self.full or time.monotonic() - self.written > FRESH

    def note_write(self, *, needed_room: bool = False) -> None:
        """Note that something was committed; `needed_room`, that it took new pages."""
        self.written = time.monotonic()
        if needed_room:
            self.full = False
            log.warning("%s has room again", self.database)

    def note_full(self, error: psycopg.Error) -> StoreFull:
        """Return what its callers are told, who need not know what the database is called."""
        if not self.full:
            why = " ".join(str(error).split())
            log.error("%s has no room: %s. What is brought is refused", self.database, why)
        self.full = True
        return StoreFull("the hub's database has no room, its log says where")
