"""Limits on failed authentication attempts. The counts are rows of `attempt`, which all hub
processes share.

Each source (see `http.address`) has one count. An account has a separate count for each browser in
which its owner has signed in before. The count of an account only delays an attempt, so that an
attacker cannot lock out the owner of the account.
"""

from __future__ import annotations

from fieldagent.http.problem import Problem
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import Rate, format_retry_after
from fieldagent.system.wording import sentence

BY_ADDRESS = Rate(per_minute=6, burst=12)
BY_ACCOUNT = Rate(per_minute=6, burst=24)
"""Rate of attempts on one account. Attempts above this rate are delayed, whatever their source
is."""
DELAY_MAX_S = 5.0
"""Largest number of seconds by which an attempt is delayed."""
ACCOUNTS = ("user ", "name ")
"""Prefixes of the keys under which attempts on an account are counted. The first is for existing
accounts, the second for names without an account."""


def make_too_many_problem(cause: str, wait: float) -> Problem:
    """Return the Problem 429 with the text `cause`, and with Retry-After in whole seconds."""
    seconds = format_retry_after(wait)
    return Problem(
        429,
        sentence("{what}; try again in {seconds} s", what=cause, seconds=seconds),
        headers=(("Retry-After", seconds),),
    )


def find_block(db: Db, source: str, now: float) -> Problem | None:
    """Return the Problem 429 if a source has failed too often recently, otherwise None."""
    _, problem = _admit(db, source, BY_ADDRESS, now)
    return problem


def count_failure(db: Db, source: str, now: float) -> None:
    """Count a wrong secret for the source that sent it. `now` is Unix time."""
    tat, _ = _admit(db, source, BY_ADDRESS, now)
    _store(db, source, tat)


class ReservedAttempt(NamedTuple):
    """An allowed attempt with a password. The attempt counts as a failure until the password proves
    to be right.
    """

    keys: tuple[str, ...]
    """Keys under which the attempt is counted."""
    delay: float
    """Seconds that the caller must wait before the password is checked, at most `DELAY_MAX_S`."""
    debt_s: float
    """Seconds until the source has its full allowance of attempts again. Attempts of a source with
    a higher debt come later in the waiting line."""


def reserve_attempt(
    db: Db, source: str, account: str, device: str, now: float
) -> ReservedAttempt | Problem:
    """Count an attempt before it is made, so that many simultaneous attempts cannot exceed the
    limit.

    A source that fails too often is refused. Failures from other sources delay an attempt but never
    refuse it. `device` identifies a browser that has signed in to this account before. Attempts
    from such a browser have a separate count and are only delayed.
    """
    if device:
        account_key, wait = _count_attempt(db, f"device {device} {account}", BY_ADDRESS, now)
        return ReservedAttempt((account_key,), min(wait, DELAY_MAX_S), 0.0)
    tat, problem = _admit(db, source, BY_ADDRESS, now)
    if problem is not None:
        return problem
    _store(db, source, tat)
    account_key, wait = _count_attempt(db, account, BY_ACCOUNT, now)
    return ReservedAttempt((source, account_key), min(wait, DELAY_MAX_S), tat - now)


def _count_attempt(db: Db, key: str, rate: Rate, now: float) -> tuple[str, float]:
    """Count one more attempt. Return the key of its count, and the seconds by which the attempt is
    too early.
    """
    tat, wait = _get_rate(db, key, rate, now)
    _store(db, key, tat)
    return key, wait


def cancel_reservation(db: Db, reservation: ReservedAttempt) -> None:
    """Undo the count of `reserve_attempt`, because the password was right."""
    for account_key in reservation.keys:
        rate = BY_ACCOUNT if account_key.startswith(ACCOUNTS) else BY_ADDRESS
        db.execute(
            "UPDATE attempt SET tat = tat - ? WHERE who = ?", 60.0 / rate.per_minute, account_key
        )


DELETED_PER_CALL = 1_000


def delete_old_attempts(db: Db, now: float) -> int:
    """Delete at most `DELETED_PER_CALL` rows that no longer affect a limit, and return their
    number.
    """
    return len(
        db.execute(
            # Check the row again in the outer condition, because another process may count another
            # attempt meanwhile. PostgreSQL rechecks only the outer condition on a row that was
            # changed (PostgreSQL manual, 13.2.1).
            "DELETE FROM attempt WHERE tat <= ? AND who IN"
            " (SELECT who FROM attempt WHERE tat <= ? LIMIT ?) RETURNING who",
            *(now, now, DELETED_PER_CALL),
        )
    )


def _get_rate(db: Db, key: str, rate: Rate, now: float) -> tuple[float, float]:
    rows = db.execute("SELECT tat FROM attempt WHERE who = ?", key)
    return rate.admit(float(rows[0][0]) if rows else 0.0, now)


def _admit(db: Db, key: str, rate: Rate, now: float) -> tuple[float, Problem | None]:
    tat, wait = _get_rate(db, key, rate, now)
    return tat, make_too_many_problem(
        "too many calls with wrong credentials", wait
    ) if wait else None


def _store(db: Db, key: str, tat: float) -> None:
    db.execute(
        "INSERT INTO attempt (who, tat) VALUES (?, ?)"
        " ON CONFLICT (who) DO UPDATE SET tat = excluded.tat",
        key,
        tat,
    )
