"""Answers to HTTP callers while nothing can be stored.

The log contains the trouble with the database. Anonymous callers get neither the database's name
nor its address.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fieldagent.http.message import Admission, Handler, Judge, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.store.group import StoreFailed, StoreFull, StoreUnavailable
from fieldagent.system.sentence import sentence

RETRY_AFTER_S = 5
"""Seconds after which a caller may try again. The store itself tries to reach its database more
often."""
REASON = sentence("the hub cannot use its database now; see its log")

_AGAIN = (("Retry-After", str(RETRY_AFTER_S)),)


def make_not_now(reason: str = REASON) -> Problem:
    """Return the Problem 503 with Retry-After. `reason` is for anonymous callers and must not
    describe the database.
    """
    return Problem(
        503,
        sentence("{reason}; try again in {seconds} s", reason=reason, seconds=RETRY_AFTER_S),
        headers=_AGAIN,
    )


def make_patient(judge: Judge) -> Judge:
    """Return a variant of `judge` that answers 503 while the database is unavailable, and whose
    handlers do too.
    """

    async def judge_patiently(head: Request) -> Admission:
        with _convert_errors():
            admission = await judge(head)
        return admission._replace(handler=_make_patient_handler(admission.handler))

    return judge_patiently


def _make_patient_handler(handler: Handler) -> Handler:
    async def handle_patiently(request: Request) -> Response:
        with _convert_errors():
            return await handler(request)

    return handle_patiently


@contextmanager
def _convert_errors() -> Iterator[None]:
    try:
        yield
    except StoreFull:
        raise Problem(507, "the hub's disk is full; try again later", headers=_AGAIN) from None
    except (StoreFailed, StoreUnavailable):
        raise make_not_now() from None
