"""How often somebody may fail to prove who they are: rows of `attempt`, for every hub process.

A source (see `http.address`) has one count, and so has an account.
"""

from __future__ import annotations

from fieldagent.http.problem import Problem
from fieldagent.hub.store.contract import Db
from fieldagent.system.rate import Rate, retry_after

BY_ADDRESS = Rate(per_minute=6, burst=12)
BY_ACCOUNT = Rate(per_minute=6, burst=24)
"""More than from one address: nobody alone can keep somebody else out."""


def too_many(what: str, wait: float) -> Problem:
    seconds = retry_after(wait)
    return Problem(429, f"{what}; try again in {seconds} s", headers=(("Retry-After", seconds),))


def blocked(db: Db, source: str, now: float) -> Problem | None:
    """Whether an address has failed too often of late."""
    _, problem = _admit(db, source, BY_ADDRESS, now)
    return problem


def note_failure(db: Db, source: str, now: float) -> None:
    tat, _ = _admit(db, source, BY_ADDRESS, now)
    _store(db, source, tat)


def reserve(db: Db, source: str, account: str, now: float) -> Problem | None:
    """Count a try at a password as a failure before it is made: of many at once, no more are made
    than may fail."""
    by_address, problem = _admit(db, source, BY_ADDRESS, now)
    if problem is not None:
        return problem
    by_account, problem = _admit(db, account, BY_ACCOUNT, now)
    if problem is not None:
        return problem
    _store(db, source, by_address)
    _store(db, account, by_account)
    return None


def give_back(db: Db, source: str, account: str) -> None:
    """The password was right: take back what `reserve` has counted."""
    for who, rate in ((source, BY_ADDRESS), (account, BY_ACCOUNT)):
        db.execute("UPDATE attempt SET tat = tat - ? WHERE who = ?", 60.0 / rate.per_minute, who)


FORGOTTEN_AT_ONCE = 1_000


def forget(db: Db, now: float) -> int:
    """Drop some of what no longer counts; how much. A flood leaves a row for each address."""
    return len(
        db.execute(
            "DELETE FROM attempt WHERE who IN (SELECT who FROM attempt WHERE tat <= ? LIMIT ?)"
            " RETURNING who",
            now,
            FORGOTTEN_AT_ONCE,
        )
    )


def _admit(db: Db, who: str, rate: Rate, now: float) -> tuple[float, Problem | None]:
    rows = db.execute("SELECT tat FROM attempt WHERE who = ?", who)
    tat, wait = rate.admit(float(rows[0][0]) if rows else 0.0, now)
    return tat, too_many("too many calls with wrong credentials", wait) if wait else None


def _store(db: Db, who: str, tat: float) -> None:
    db.execute(
        "INSERT INTO attempt (who, tat) VALUES (?, ?)"
        " ON CONFLICT (who) DO UPDATE SET tat = excluded.tat",
        who,
        tat,
    )
