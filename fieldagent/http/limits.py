"""Limits of the resources that one peer may use: sizes, times and numbers, and the CPU seconds that
the steps of a caller's tasks take in this thread. Also the limits of unauthenticated callers at
listeners without HTTP: the number of connections, and the CPU time of each source.

Each caller has accounts with a share of a core. A caller that has spent more than its share must
wait for its turn, in order of arrival, and gets the status 429 after `TURN_WAIT_MAX_S`. Other
callers are not affected. A source (see `address`) has three accounts. The door account pays for
connections, TLS and first request heads. The other two pay for health probes, and for all other
requests of anonymous callers. A valid credential has its own account, from any source.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import trio

from fieldagent.http.address import Network, find_source, is_in
from fieldagent.http.headers import read_cookie
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.price import charge_nobody, charge_to, get_payer
from fieldagent.system.rate import format_retry_after
from fieldagent.system.wording import sentence


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server for its peers. Sizes are in bytes, times in seconds. A deadline applies to
    its whole phase, not to each read.
    """

    head: int = 16_384
    target: int = 8_000
    """Bytes of a request target. RFC 9112 3 requires at least 8000 for a request line."""
    chunk_framing: int = 32_768
    """Bytes of the size lines, extensions and trailers of one chunked body. This number is limited
    because tiny chunks cost time to parse."""
    head_deadline: float = 10.0
    body_deadline: float = 30.0
    idle_deadline: float = 60.0
    write_deadline: float = 30.0
    """Deadline of one response, or of one part of a stream, in seconds."""
    linger_s: float = 2.0
    """Seconds that a refused peer has to read the reason before the connection is reset."""
    connections: int = 128
    leaving_max: int = 512
    """Maximum number of connections, in addition to `connections`, that are not served, and stay
    open only until they have sent the response 503."""
    per_source: int | None = None
    """Maximum number of connections of one source (see `address`). Upgraded connections do not
    count."""
    proxies: tuple[Network, ...] = ()
    """Networks whose addresses are shared by many people, so that `per_source` does not apply."""
    pace: CpuPace | None = None
    """CPU limit per caller. None if all callers are trusted."""
    bodies: int = 16_777_216
    """Maximum total of bytes of all request bodies that are held at the same time."""
    grace: float = 10.0
    """Seconds that active requests have to finish when the server stops."""


TURN_WAIT_MAX_S = 5.0
"""Longest time in seconds to wait for a turn."""
RECHECK_AFTER_S = 0.25
"""Seconds between two checks of a waiting caller. Checks are not made exactly when the debt is
paid, because each check is also charged and would create the next debt, forever. Also, a booked
price may be refunded in the meantime."""
WAITING_CONNECTIONS_MAX = 32
"""Maximum number of waiting connections of one source. Further connections are closed at once."""
ACCOUNTS = 10_000
"""Number of accounts from which the accounts without debt are dropped."""
KNOWN_CREDENTIALS_MAX = 4_096
"""Maximum number of recent valid credentials that are remembered, 32 bytes each."""
COST_MIN_S = 0.000_1
"""Seconds that each connection and each turn costs. These seconds stand for the work of the kernel
and of trio's loop, which is not part of a task's step."""


class CpuShare(NamedTuple):
    """Share of one core in the long run, and the CPU seconds that may be spent at once."""

    core: float
    burst: float


ANONYMOUS_TOTAL_SHARE = CpuShare(0.02, 0.3)
ANONYMOUS_SHARE = CpuShare(0.03, 0.25)
PROBE = CpuShare(0.02, 0.1)
KNOWN_CALLER = CpuShare(0.5, 10.0)
KNOWN_CALLER_SHARE = CpuShare(0.05, 0.5)


class CallerAccount:
    """CPU seconds that one caller has spent, and the caller's share of a core, which pays for
    them.
    """

    def __init__(self, share: CpuShare) -> None:
        self.share = share
        self._paid_at = 0.0
        """Time on trio's clock at which the caller's share of a core has paid for all spent seconds
        (the theoretical arrival time of ITU-T I.371)."""
        self._line = trio.Lock()
        self.waiting = 0

    def spend(self, seconds: float) -> None:
        """Add CPU seconds to the spent seconds. Negative seconds are a refund."""
        self._paid_at = max(self._paid_at, trio.current_time()) + seconds / self.share.core

    def compute_wait(self) -> float:
        """Return the seconds until the caller's next turn, or 0 if the caller may continue at
        once.
        """
        share = self.share
        return max(0.0, self._paid_at - trio.current_time() - share.burst / share.core)

    @property
    def is_idle(self) -> bool:
        """Return True if the account can be dropped: no caller waits, and all spent seconds are
        paid.
        """
        return not self.waiting and self._paid_at <= trio.current_time()

    def can_continue(self) -> bool:
        """Return True if the caller does not need to wait for a turn."""
        return not self.waiting and not self.compute_wait()

    async def wait_for_turn(self) -> None:
        """Wait for a turn, in order of arrival. Raises Problem 429 if no turn comes within
        `TURN_WAIT_MAX_S`.
        """
        self.waiting += 1
        try:
            with trio.move_on_after(TURN_WAIT_MAX_S):
                async with self._line:
                    while self.compute_wait():
                        await trio.sleep(RECHECK_AFTER_S)
                    self.spend(COST_MIN_S)
                    return
        finally:
            self.waiting -= 1
        seconds = format_retry_after(self.compute_wait())
        raise Problem(
            429,
            sentence(
                "this address, or its key, uses too much processor time; try again in {seconds} s",
                seconds=seconds,
            ),
            headers=(("Retry-After", seconds),),
        )


class CpuPace(trio.abc.Instrument):
    """CPU accounts of one process, for all of its servers.

    `source` returns the source of a request behind a proxy. `proxies` contains the networks of
    proxies. `cookie` is the name of the session cookie, and `probes` contains the paths of health
    checks. `voucher` returns the user in a signed cookie, before the user is authenticated.
    """

    def __init__(
        self,
        *,
        cookie: str,
        probes: Collection[str] = (),
        proxies: Collection[Network] = (),
        source: Callable[[Request], str] = lambda head: find_source(head.peer),
        voucher: Callable[[Request], str] = lambda head: "",
    ) -> None:
        self._cookie = cookie
        self._probes = frozenset(probes)
        self._proxies = tuple(proxies)
        self._source = source
        self._voucher = voucher
        self._accounts: dict[tuple[CpuShare, str], CallerAccount] = {}
        self._known_credentials: OrderedDict[bytes, None] = OrderedDict()
        self._charged: dict[trio.lowlevel.Task, PacedVisit] = {}
        self._step_begun_at: float | None = None
        self._servers = 0

    @contextmanager
    def measure_work(self) -> Iterator[None]:
        """Measure CPU time while at least one server needs it."""
        self._servers += 1
        if self._servers == 1:
            trio.lowlevel.add_instrument(self)
        try:
            yield
        finally:
            self._servers -= 1
            if not self._servers:
                trio.lowlevel.remove_instrument(self)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Record the CPU time at the start of a charged task's step (trio's Instrument)."""
        self._step_begun_at = time.thread_time() if task in self._charged else None

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Charge the CPU time of the step to the task's visit."""
        visit = self._charged.get(task)
        if visit is not None and self._step_begun_at is not None:
            visit.spend(time.thread_time() - self._step_begun_at)

    def get_account(self, share: CpuShare, share_name: str) -> CallerAccount:
        """Return the account of a caller with this `share`. If there are too many accounts, drop
        idle accounts.
        """
        tab = self._accounts.get((share, share_name))
        if tab is None:
            if len(self._accounts) >= ACCOUNTS:
                self._forget_idle()
            tab = self._accounts[share, share_name] = CallerAccount(share)
        return tab

    def _forget_idle(self) -> None:
        self._accounts = {key: each for key, each in self._accounts.items() if not each.is_idle}

    def visit(self, address: str) -> PacedVisit:
        """Begin the visit of a connection from `address`. A proxy or a Unix socket has no door
        account, because many callers share it.
        """
        if not address or is_in(address, self._proxies):
            return PacedVisit(self, None)
        return PacedVisit(self, self.get_account(ANONYMOUS_TOTAL_SHARE, find_source(address)))

    def is_crowded(self, address: str) -> bool:
        """Return True if too many connections from `address` wait for a turn."""
        door = self._accounts.get((ANONYMOUS_TOTAL_SHARE, find_source(address)))
        return door is not None and door.waiting >= WAITING_CONNECTIONS_MAX

    def find_account(self, head: Request) -> CallerAccount:
        """Return the account that pays for this request: of the probes, of a known credential, of
        the user in a signed cookie, or of the anonymous source.
        """
        if head.path in self._probes:
            return self.get_account(PROBE, self._source(head))
        digest = self._digest(head)
        if digest in self._known_credentials:
            self._known_credentials.move_to_end(digest)
            return self.get_account(KNOWN_CALLER, digest.hex())
        if voucher := self._voucher(head):
            return self.get_account(KNOWN_CALLER_SHARE, voucher)
        return self.get_account(ANONYMOUS_SHARE, self._source(head))

    def remember(self, head: Request) -> None:
        """Remember the hash of this request's credential as valid. If there are too many, forget
        the one that was used least recently.
        """
        if digest := self._digest(head):
            self._known_credentials[digest] = None
            if len(self._known_credentials) > KNOWN_CREDENTIALS_MAX:
                self._known_credentials.popitem(last=False)

    def forget(self, head: Request) -> None:
        """Forget the credential of this request, because it was refused. The caller is anonymous
        from then on.
        """
        self._known_credentials.pop(self._digest(head), None)

    def _digest(self, head: Request) -> bytes:
        headers = head.headers
        credential = (
            headers.get("x-api-key")
            or read_cookie(head, self._cookie)
            or headers.get("authorization", "")
        )
        return hashlib.sha256(credential.encode()).digest() if credential else b""

    def charge(self, task: trio.lowlevel.Task, visit: PacedVisit | None) -> None:
        """Charge the task to `visit` from its next step on. None ends the charging."""
        if visit is None:
            self._charged.pop(task, None)
        else:
            self._charged[task] = visit


async def check_in_thread(
    check: Callable[[], bool], limiter: trio.CapacityLimiter, price: float
) -> bool:
    """Run an expensive check of a credential in a thread, charged to the caller of this task, and
    return its result.

    `price` seconds are booked first, so that a caller cannot start many checks at once. These
    seconds are refunded if the check succeeds. The price is the same on all machines, so that a
    person may mistype as often on a slow machine. The caller of this function must limit the number
    of attempts.
    """
    pay = get_payer()
    pay(price)
    right = await trio.to_thread.run_sync(check, limiter=limiter)
    if right:
        pay(-price)
    return right


class Visit:
    """One connection at a server without CPU limits."""

    def begin(self) -> None:
        """Charge the current task from now on."""

    def end(self) -> None:
        """Charge the current task to no account from now on."""

    def can_continue(self) -> bool:
        """Return True if `wait_for_turn` would return at once."""
        return True

    async def wait_for_turn(self) -> None:
        """Wait until the account allows a turn. Raises Problem 429 if no turn comes within
        `TURN_WAIT_MAX_S`.
        """

    def record_request(self, head: Request) -> None:
        """Record that the following work is for this request."""

    def record_admission(self, head: Request, caller: Any) -> None:
        """Record that the request was admitted. `caller` is None if anyone is admitted."""

    def record_refusal(self, head: Request, status: int) -> None:
        """Record that the request was refused with `status` before its body was read."""


class PacedVisit(Visit):
    """One connection whose task is charged from `begin` to `end`.

    An authenticated caller also pays for its connection, because the door account is for anonymous
    callers.
    """

    def __init__(self, pace: CpuPace, door_account: CallerAccount | None) -> None:
        self._pace = pace
        self._account = self._door = door_account
        self._door_paid_s = 0.0
        """CPU seconds of this connection that the source's door account has paid."""
        self._task: trio.lowlevel.Task | None = None
        if door_account is not None:
            self.spend(COST_MIN_S)

    def begin(self) -> None:
        self._task = trio.lowlevel.current_task()
        # Also charge work in threads, such as the database's, to this visit.
        charge_to(self.spend)
        self._pace.charge(self._task, self)

    def end(self) -> None:
        if self._task is not None:
            self._pace.charge(self._task, None)
            self._task = None
            charge_to(charge_nobody)

    def spend(self, seconds: float) -> None:
        """Charge CPU seconds to the account that currently pays for this visit."""
        if self._account is not None:
            self._account.spend(seconds)
            if self._account is self._door:
                self._door_paid_s += seconds

    def can_continue(self) -> bool:
        return self._account is None or self._account.can_continue()

    async def wait_for_turn(self) -> None:
        if self._account is not None:
            await self._account.wait_for_turn()

    def record_request(self, head: Request) -> None:
        self._account = self._pace.find_account(head)

    def record_admission(self, head: Request, caller: Any) -> None:
        if caller is not None:
            self._pace.remember(head)
            self._account = self._pace.find_account(head)
            self._move_cost_to_caller()

    def record_authentication(self, share_name: str) -> None:
        """Make the caller's own account pay for this connection, because the caller has
        authenticated itself without HTTP, for example with a certificate.
        """
        self._account = self._pace.get_account(KNOWN_CALLER, share_name)
        self._move_cost_to_caller()

    def _move_cost_to_caller(self) -> None:
        if self._account is not None and self._door is not None:
            self._account.spend(self._door_paid_s)
            self._door.spend(-self._door_paid_s)
            self._door_paid_s = 0.0

    def record_refusal(self, head: Request, status: int) -> None:
        if status == 401:
            self._pace.forget(head)


class UnauthenticatedLimit:
    """Limit of at most `maximum` connections, each for at most `seconds`. `pace.measure_work` must
    be active during the connections.
    """

    def __init__(self, maximum: int, seconds: float) -> None:
        self.pace = CpuPace(cookie="")
        self._maximum = maximum
        self._seconds = seconds
        self._by_source: dict[str, dict[trio.CancelScope, None]] = {}
        """Connections by source, the oldest first."""

    @asynccontextmanager
    async def admit(self, address: str) -> AsyncIterator[PacedVisit]:
        """Charge the source of `address` for the CPU time of the block. The block is cancelled
        after `seconds`, or earlier to make space for another connection. In that case, the source
        with the most connections loses its oldest connection. Raises Problem 429 if the source uses
        too much processor time.
        """
        if self.pace.is_crowded(address):
            raise Problem(429)
        while sum(map(len, self._by_source.values())) >= self._maximum:
            self._end_one()
        source, visit = find_source(address), self.pace.visit(address)
        visit.begin()
        try:
            with waits.move_on_after(self._seconds) as scope:
                self._by_source.setdefault(source, {})[scope] = None
                await visit.wait_for_turn()
                yield visit
        finally:
            self._forget(source, scope)
            visit.end()

    def _end_one(self) -> None:
        source = max(self._by_source, key=lambda each: len(self._by_source[each]))
        oldest = next(iter(self._by_source[source]))
        oldest.cancel()
        self._forget(source, oldest)

    def _forget(self, source: str, scope: trio.CancelScope) -> None:
        connections_left = self._by_source.get(source, {})
        connections_left.pop(scope, None)
        if not connections_left:
            self._by_source.pop(source, None)
