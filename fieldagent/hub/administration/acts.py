"""Common steps of all administration calls: check of the permission, rate limit, and conversion of
errors to responses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.query import read_integer
from fieldagent.http.routes import Route
from fieldagent.hub.access.authentication import Authentication
from fieldagent.hub.access.caller import ADMINISTRATOR, Caller, Purpose, charge_rate
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.api.reading import END
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.unavailable import make_not_now
from fieldagent.store.group import StoreFailed, StoreFull, StoreUnavailable
from fieldagent.system.wording import sentence

T = TypeVar("T")

Handler = Callable[..., Awaitable[Response]]

BODY_MAX = 16_384
LISTED, LISTED_MAX = 100, 1_000


class AdministrationContext:
    """Services that the administration calls share. `clock` returns Unix time."""

    def __init__(
        self, store: Store, authentication: Authentication, *, clock: Callable[[], float]
    ) -> None:
        self.store = store
        self.clock = clock
        self._judge = authentication.judge(Purpose.ADMINISTER)

    def route(self, method: str, pattern: str, handler: Handler) -> Route:
        """Return a route for administrators. The bodies of POST and PATCH have at most BODY_MAX
        bytes.
        """
        body = BODY_MAX if method in ("POST", "PATCH") else None
        return Route(method, pattern, handler, judge=self._judge, body=body)

    async def carry_out(self, caller: Caller, operation: Callable[[Db, float], T]) -> T:
        """Count the call and run `operation` in one transaction. `operation` gets the Unix time. If
        `operation` raises Refused or Problem, nothing is changed.
        """
        now = self.clock()
        try:
            too_often = await self.store.commit(lambda db: charge_rate(db, caller, now))
            if too_often is not None:
                raise too_often
            return await self.store.commit(lambda db: _carry_out(db, caller, operation, now))
        except Refused as refused:
            raise Problem(409, str(refused)) from None
        except StoreFull as full:
            raise Problem(
                507, sentence("nothing was changed: {full}; try again later", full=full)
            ) from None
        except (StoreFailed, StoreUnavailable):
            raise make_not_now(
                "the change may not have been made: check, and repeat the call if needed"
            ) from None


def _carry_out(db: Db, caller: Caller, operation: Callable[[Db, float], T], now: float) -> T:
    """Run `operation` while the workspace's administrators are locked. If two administrators remove
    each other's role at the same time, the second call is refused.
    """
    changed_rows = db.execute(
        "SELECT member FROM membership WHERE workspace = ? AND role = ? ORDER BY member"
        + db.for_update(),
        caller.workspace,
        ADMINISTRATOR,
    )
    disabled = "SELECT 1 FROM member WHERE id = ? AND disabled IS NOT NULL"
    if (caller.member,) not in changed_rows or db.execute(disabled, caller.member):
        raise Problem(
            403, sentence("user {member} is no longer an administrator", member=caller.member)
        )
    return operation(db, now)


def read_place(request: Request) -> tuple[int, int]:
    """Return the id before which a page begins, and the largest number of entries on the page."""
    before = read_integer(request, "before", END, range(1, END + 1))
    return before, read_integer(request, "limit", LISTED, range(1, LISTED_MAX + 1))
