"""Reports stored rows that cannot be read; lists omit them."""

from __future__ import annotations

import logging
from functools import lru_cache

from fieldagent.package.package import Status

log = logging.getLogger(__name__)


@lru_cache(maxsize=1_000)
def report_unreadable(what: str, name: str) -> None:
    """Log a stored row once, however often a list is read."""
    log.error("%s %s in the journal cannot be read: lists leave it out", what, name)


def read_status(text: str | None) -> Status | None:
    """Return a stored status. One that cannot be read is Error, because a list must show the
    row."""
    try:
        return None if text is None else Status(text)
    except ValueError:
        report_unreadable("status", repr(text))
        return Status.ERROR
