"""Limits on failed authentication, as rows of `attempt` shared by every hub process.

Each source (see `http.address`) has one count. Each browser in which an account's owner has signed
in before has its own count. The count of an account only delays a try, so that an attacker cannot
lock out the account's owner.
"""

from __future__ import annotations

from fieldagent.http.problem import Problem
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import Rate, format_retry_after
from fieldagent.system.sentence import sentence

BY_ADDRESS = Rate(per_minute=6, burst=12)
BY_ACCOUNT = Rate(per_minute=6, burst=24)
"""Rate above which a try is delayed, regardless of its source."""
DELAY_MAX_S = 5.0
"""Largest number of seconds by which a try is delayed."""
ACCOUNTS = ("user ", "name ")
"""Prefixes of the keys under which tries at an account are counted: of existing accounts, and of
names without an account."""


def make_too_many(cause: str, wait: float) -> Problem:
    """Return the Problem 429 for `cause`, with Retry-After in whole seconds."""
    seconds = format_retry_after(wait)
    return Problem(
        429,
        sentence("{what}; try again in {seconds} s", what=cause, seconds=seconds),
        headers=(("Retry-After", seconds),),
    )


def find_block(db: Db, source: str, now: float) -> Problem | None:
    """Return the refusal if an address has failed too often recently, else None."""
    _, problem = _admit(db, source, BY_ADDRESS, now)
    return problem


def note_failure(db: Db, source: str, now: float) -> None:
    """Count a wrong secret against the address that sent it. `now` is Unix time."""
    tat, _ = _admit(db, source, BY_ADDRESS, now)
    _store(db, source, tat)


class ReservedTry(NamedTuple):
    """Password try that is allowed. The try counts as a failure until the password turns out to be
    right.
    """

    keys: tuple[str, ...]
    """Keys under which the try is counted."""
    delay: float
    """Seconds to wait before the try."""
    debt_s: float
    """Debt of the caller's address in seconds. A try with a higher debt comes later in the line."""


def reserve(db: Db, source: str, account: str, device: str, now: float) -> ReservedTry | Problem:
    """Count a try before it is made, so that many simultaneous tries cannot exceed the limit.

    A source that fails too often is refused. Failures from other sources delay a try but never
    refuse it. `device` names a browser that has signed in to this account before. A try from that
    browser has its own count and is only delayed.
    """
    if device:
        who, wait = _count_try(db, f"device {device} {account}", BY_ADDRESS, now)
        return ReservedTry((who,), min(wait, DELAY_MAX_S), 0.0)
    tat, problem = _admit(db, source, BY_ADDRESS, now)
    if problem is not None:
        return problem
    _store(db, source, tat)
    who, wait = _count_try(db, account, BY_ACCOUNT, now)
    return ReservedTry((source, who), min(wait, DELAY_MAX_S), tat - now)


def _count_try(db: Db, key: str, rate: Rate, now: float) -> tuple[str, float]:
    """Count one more try. Return the key of its count and the seconds by which the try is too
    early. The caller waits at most DELAY_MAX_S of them.
    """
    tat, wait = _get_rate(db, key, rate, now)
    _store(db, key, tat)
    return key, wait


def cancel_reservation(db: Db, reservation: ReservedTry) -> None:
    """Undo the count of `reserve`, because the password was right."""
    for who in reservation.keys:
        rate = BY_ACCOUNT if who.startswith(ACCOUNTS) else BY_ADDRESS
        db.execute("UPDATE attempt SET tat = tat - ? WHERE who = ?", 60.0 / rate.per_minute, who)


FORGOTTEN_AT_ONCE = 1_000


def forget(db: Db, now: float) -> int:
    """Delete some rows that no longer count, and return their number. A flood of calls leaves one
    row per address.
    """
    return len(
        db.execute(
            # Check the row again in the outer condition, because another process may count another
            # try meanwhile. PostgreSQL rechecks only the outer condition on a row that was changed
            # (PostgreSQL manual, 13.2.1).
            "DELETE FROM attempt WHERE tat <= ? AND who IN"
            " (SELECT who FROM attempt WHERE tat <= ? LIMIT ?) RETURNING who",
            *(now, now, FORGOTTEN_AT_ONCE),
        )
    )


def _get_rate(db: Db, key: str, rate: Rate, now: float) -> tuple[float, float]:
    rows = db.execute("SELECT tat FROM attempt WHERE who = ?", key)
    return rate.admit(float(rows[0][0]) if rows else 0.0, now)


def _admit(db: Db, key: str, rate: Rate, now: float) -> tuple[float, Problem | None]:
    tat, wait = _get_rate(db, key, rate, now)
    return tat, make_too_many("too many calls with wrong credentials", wait) if wait else None


def _store(db: Db, key: str, tat: float) -> None:
    db.execute(
        "INSERT INTO attempt (who, tat) VALUES (?, ?)"
        " ON CONFLICT (who) DO UPDATE SET tat = excluded.tat",
        key,
        tat,
    )
