"""How often somebody may fail to prove who they are: rows of `attempt`, for every hub process.

A source (see `http.address`) has one count, and so has a browser in which its owner has signed in
before. An account's count only delays: nobody can keep its owner out.
"""

from __future__ import annotations

from fieldagent.http.problem import Problem
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import Rate, retry_after
from fieldagent.system.sentence import sentence

BY_ADDRESS = Rate(per_minute=6, burst=12)
BY_ACCOUNT = Rate(per_minute=6, burst=24)
"""Beyond it a try is delayed, from wherever it comes."""
DELAY_MAX = 5.0
"""Seconds."""
ACCOUNTS = ("user ", "name ")
"""How what stands for an account begins: one that there is, and one that there is not."""


def too_many(what: str, wait: float) -> Problem:
    """Return the Problem 429 for `what`, with Retry-After in whole seconds."""
    seconds = retry_after(wait)
    return Problem(
        429,
        sentence("{what}; try again in {seconds} s", what=what, seconds=seconds),
        headers=(("Retry-After", seconds),),
    )


def blocked(db: Db, source: str, now: float) -> Problem | None:
    """Return the refusal where an address has failed too often of late."""
    _, problem = _admit(db, source, BY_ADDRESS, now)
    return problem


def note_failure(db: Db, source: str, now: float) -> None:
    """Charge a wrong secret to the address that it came from; time is Unix time."""
    tat, _ = _admit(db, source, BY_ADDRESS, now)
    _store(db, source, tat)


class Reserved(NamedTuple):
    """A try at a password that may be made, and is counted as a failure until it was right."""

    who: tuple[str, ...]
    """Under what it is counted."""
    delay: float
    """Seconds until it may be made."""
    owed: float
    """By its source: the more, the later in line."""


def reserve(db: Db, source: str, account: str, device: str, now: float) -> Reserved | Problem:
    """Count a try before it is made: of many at once, no more are made than may fail.

    A source that fails too often is refused. What others have failed at delays a try, and refuses
    none. `device` names a browser that has signed in to this account before: it has a count of its
    own, and is delayed at the most.
    """
    if device:
        who, wait = _late(db, f"device {device} {account}", BY_ADDRESS, now)
        return Reserved((who,), min(wait, DELAY_MAX), 0.0)
    tat, problem = _admit(db, source, BY_ADDRESS, now)
    if problem is not None:
        return problem
    _store(db, source, tat)
    who, wait = _late(db, account, BY_ACCOUNT, now)
    return Reserved((source, who), min(wait, DELAY_MAX), tat - now)


def _late(db: Db, who: str, rate: Rate, now: float) -> tuple[str, float]:
    """Count one more, and return the seconds by which it comes too early. What comes beyond is not
    owed: whoever waits has waited enough after DELAY_MAX."""
    tat, wait = _rate(db, who, rate, now)
    _store(db, who, tat)
    return who, wait


def give_back(db: Db, reserved: Reserved) -> None:
    """Take back what `reserve` has counted: the password was right."""
    for who in reserved.who:
        rate = BY_ACCOUNT if who.startswith(ACCOUNTS) else BY_ADDRESS
        db.execute("UPDATE attempt SET tat = tat - ? WHERE who = ?", 60.0 / rate.per_minute, who)


FORGOTTEN_AT_ONCE = 1_000


def forget(db: Db, now: float) -> int:
    """Drop some of what no longer counts; how much. A flood leaves a row for each address."""
    return len(
        db.execute(
            # Asked again of the row itself: another process may count one more of it meanwhile
            # (PostgreSQL 13.2.1: a row that was changed is judged by the outer condition alone).
            "DELETE FROM attempt WHERE tat <= ? AND who IN"
            " (SELECT who FROM attempt WHERE tat <= ? LIMIT ?) RETURNING who",
            *(now, now, FORGOTTEN_AT_ONCE),
        )
    )


def _rate(db: Db, who: str, rate: Rate, now: float) -> tuple[float, float]:
    rows = db.execute("SELECT tat FROM attempt WHERE who = ?", who)
    return rate.admit(float(rows[0][0]) if rows else 0.0, now)


def _admit(db: Db, who: str, rate: Rate, now: float) -> tuple[float, Problem | None]:
    tat, wait = _rate(db, who, rate, now)
    return tat, too_many("too many calls with wrong credentials", wait) if wait else None


def _store(db: Db, who: str, tat: float) -> None:
    db.execute(
        "INSERT INTO attempt (who, tat) VALUES (?, ?)"
        " ON CONFLICT (who) DO UPDATE SET tat = excluded.tat",
        who,
        tat,
    )
