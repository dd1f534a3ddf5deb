"""HTTP responses while the hub cannot store anything.

The log describes the database problem. Anonymous callers see neither the database's name nor its
address.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fieldagent.http.message import Admission, Handler, Judge, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.store.group import StoreFailed, StoreFull, StoreUnavailable
from fieldagent.system.wording import sentence

RETRY_AFTER_S = 5
"""Seconds after which a caller may try again. The store tries to reach its database more often."""
REASON = sentence("the hub cannot use its database now; see its log")

_AGAIN = (("Retry-After", str(RETRY_AFTER_S)),)


def make_not_now(reason: str = REASON) -> Problem:
    """Return a Problem with status 503 and a Retry-After header. Anonymous callers see `reason`, so
    `reason` must not describe the database.
    """
    return Problem(
        503,
        sentence("{reason}; try again in {seconds} s", reason=reason, seconds=RETRY_AFTER_S),
        headers=_AGAIN,
    )


def make_patient(judge: Judge) -> Judge:
    """Wrap `judge` so that it and its handlers respond with status 503 while the database is
    unavailable.
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
