"""What each caller may cost: seconds of this thread's processor, as every step of theirs took.

Each has accounts with a share of a core. Who has spent more waits for the next turn, first come,
first served, and after `PATIENCE` is answered 429; nobody else notices. A source (see `address`)
has three: its door (connections, TLS, first heads), its probes, and all else that strangers ask
for. A credential that was right has one of its own, wherever it comes from.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import trio

from fieldagent.http.address import Network, is_in, source_of
from fieldagent.http.cookie import cookie_of
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.system.bill import charge_to, nobody, payer
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import retry_after
from fieldagent.system.sentence import sentence

PATIENCE = 5.0
"""Seconds in line for a turn."""
LOOK_AGAIN = 0.25
"""Seconds between two looks of who waits in line: each look is charged too, and one as soon as
the debt is paid would make the next, for ever. What was booked may be given back meanwhile."""
IN_LINE = 32
"""At the door of one source; whoever comes then is turned away unheard."""
ACCOUNTS = 10_000
"""Beyond so many, those that owe nothing are forgotten."""
KNOWN = 4_096
"""Credentials that were right lately, 32 bytes each."""
AT_LEAST = 0.000_1
"""Seconds for a connection or a turn: what the kernel and the loop take is in no step."""


class CpuShare(NamedTuple):
    """Of one core: in the long run, and seconds of it that may be spent at once."""

    core: float
    burst: float


DOOR = CpuShare(0.02, 0.3)
STRANGER = CpuShare(0.03, 0.25)
PROBE = CpuShare(0.02, 0.1)
KNOWN_CALLER = CpuShare(0.5, 10.0)
VOUCHED = CpuShare(0.05, 0.5)


class Tab:
    """What one caller has spent."""

    def __init__(self, share: CpuShare) -> None:
        self.share = share
        self._paid_at = 0.0
        """When all that was spent is paid, at the share of a core (ITU-T I.371's `tat`)."""
        self._line = trio.Lock()
        self.waiting = 0

    def spend(self, seconds: float) -> None:
        """Add seconds of the processor to what was spent; negative ones give back."""
        self._paid_at = max(self._paid_at, trio.current_time()) + seconds / self.share.core

    def owes(self) -> float:
        """Return the seconds until its next turn; 0 where it may go on at once."""
        share = self.share
        return max(0.0, self._paid_at - trio.current_time() - share.burst / share.core)

    @property
    def is_idle(self) -> bool:
        """Return whether it may be forgotten: nobody waits, and all that was spent is paid."""
        return not self.waiting and self._paid_at <= trio.current_time()

    def may_go_on(self) -> bool:
        """Return whether its caller need not wait for a turn."""
        return not self.waiting and not self.owes()

    async def turn(self) -> None:
        """Wait in line. Raises Problem 429."""
        self.waiting += 1
        try:
            with trio.move_on_after(PATIENCE):
                async with self._line:
                    while self.owes():
                        await trio.sleep(LOOK_AGAIN)
                    self.spend(AT_LEAST)
                    return
        finally:
            self.waiting -= 1
        seconds = retry_after(self.owes())
        raise Problem(
            429,
            sentence(
                "this address, or its key, uses more than its share of the processor; try again"
                " in {seconds} s",
                seconds=seconds,
            ),
            headers=(("Retry-After", seconds),),
        )


class CpuPace(trio.abc.Instrument):
    """The accounts of one process, for all of its servers.

    `source` finds the source of a request behind a proxy, whose networks are `proxies`; `cookie`
    names that of who has signed in, `probes` the paths that tell how the server is. `voucher` names
    whom a signature makes known before they have proved who they are.
    """

    def __init__(
        self,
        *,
        cookie: str,
        probes: Collection[str] = (),
        proxies: Collection[Network] = (),
        source: Callable[[Request], str] = lambda head: source_of(head.peer),
        voucher: Callable[[Request], str] = lambda head: "",
    ) -> None:
        self._cookie = cookie
        self._probes = frozenset(probes)
        self._proxies = tuple(proxies)
        self._source = source
        self._voucher = voucher
        self._accounts: dict[tuple[CpuShare, str], Tab] = {}
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._charged: dict[trio.lowlevel.Task, PacedVisit] = {}
        self._begun: float | None = None
        self._servers = 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Measure while one more server needs it."""
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
        """Note the processor time at which a charged task goes on (trio's Instrument)."""
        self._begun = time.thread_time() if task in self._charged else None

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Charge what the step took to the visit that pays for the task."""
        visit = self._charged.get(task)
        if visit is not None and self._begun is not None:
            visit.spend(time.thread_time() - self._begun)

    def account(self, share: CpuShare, whose: str) -> Tab:
        """Return the tab of a caller with that share; of too many, the idle ones are forgotten."""
        tab = self._accounts.get((share, whose))
        if tab is None:
            if len(self._accounts) >= ACCOUNTS:
                self._forget_idle()
            tab = self._accounts[share, whose] = Tab(share)
        return tab

    def _forget_idle(self) -> None:
        self._accounts = {key: each for key, each in self._accounts.items() if not each.is_idle}

    def visit(self, address: str) -> PacedVisit:
        """Begin the visit of somebody who has come from there; a proxy, or a Unix socket, brings
        many."""
        if not address or is_in(address, self._proxies):
            return PacedVisit(self, None)
        return PacedVisit(self, self.account(DOOR, source_of(address)))

    def is_crowded(self, address: str) -> bool:
        """Return whether nobody else from there can be heard now."""
        door = self._accounts.get((DOOR, source_of(address)))
        return door is not None and door.waiting >= IN_LINE

    def account_of(self, head: Request) -> Tab:
        """Return who pays for this request."""
        if head.path in self._probes:
            return self.account(PROBE, self._source(head))
        digest = self._digest(head)
        if digest in self._known:
            self._known.move_to_end(digest)
            return self.account(KNOWN_CALLER, digest.hex())
        if voucher := self._voucher(head):
            return self.account(VOUCHED, voucher)
        return self.account(STRANGER, self._source(head))

    def remember(self, head: Request) -> None:
        """Note that whoever called with this credential has proved who they are."""
        if digest := self._digest(head):
            self._known[digest] = None
            if len(self._known) > KNOWN:
                self._known.popitem(last=False)

    def forget(self, head: Request) -> None:
        """Forget the credential, which was refused: they are a stranger."""
        self._known.pop(self._digest(head), None)

    def _digest(self, head: Request) -> bytes:
        headers = head.headers
        credential = (
            headers.get("x-api-key")
            or cookie_of(head, self._cookie)
            or headers.get("authorization", "")
        )
        return hashlib.sha256(credential.encode()).digest() if credential else b""

    def charge(self, task: trio.lowlevel.Task, visit: PacedVisit | None) -> None:
        """Let that visit pay for the task from its next step on, or nobody."""
        if visit is None:
            self._charged.pop(task, None)
        else:
            self._charged[task] = visit


async def check_in_thread(
    check: Callable[[], bool], limiter: trio.CapacityLimiter, price: float
) -> bool:
    """Check a proof that is dear to check, on the account of whoever this task answers.

    `price` seconds are booked before, so that nobody begins many at once, and given back where it
    is right. They are the same on each machine: on a slow one a person may mistype as often. Who
    may try how often is for the caller to count.
    """
    pay = payer()
    pay(price)
    right = await trio.to_thread.run_sync(check, limiter=limiter)
    if right:
        pay(-price)
    return right


class Visit:
    """One connection, at a server where nobody is charged."""

    def begin(self) -> None:
        """Charge the task that runs now from here on."""

    def end(self) -> None:
        """Charge nobody for it any more."""

    def may_go_on(self) -> bool:
        """Return whether `turn` would return at once."""
        return True

    async def turn(self) -> None:
        """Wait until the account has something left. Raises Problem 429."""

    def note_request(self, head: Request) -> None:
        """Note that what follows is for this request."""

    def note_let_in(self, head: Request, caller: Any) -> None:
        """Note that the request was let in; `caller` is None where anybody is."""

    def note_refused(self, head: Request, status: int) -> None:
        """Note that the request was refused by its head."""


class PacedVisit(Visit):
    """One connection whose task is charged from `begin` to `end`.

    Who proves who they are pays for their own way in: the door is the strangers'.
    """

    def __init__(self, pace: CpuPace, door: Tab | None) -> None:
        self._pace = pace
        self._account = self._door = door
        self._at_door = 0.0
        """Seconds that the door has paid for this connection."""
        self._task: trio.lowlevel.Task | None = None
        if door is not None:
            self.spend(AT_LEAST)

    def begin(self) -> None:
        self._task = trio.lowlevel.current_task()
        # What a database or a checker takes for it, too.
        charge_to(self.spend)
        self._pace.charge(self._task, self)

    def end(self) -> None:
        if self._task is not None:
            self._pace.charge(self._task, None)
            self._task = None
            charge_to(nobody)

    def spend(self, seconds: float) -> None:
        """Charge seconds of the processor to whoever pays for this visit now."""
        if self._account is not None:
            self._account.spend(seconds)
            if self._account is self._door:
                self._at_door += seconds

    def may_go_on(self) -> bool:
        return self._account is None or self._account.may_go_on()

    async def turn(self) -> None:
        if self._account is not None:
            await self._account.turn()

    def note_request(self, head: Request) -> None:
        self._account = self._pace.account_of(head)

    def note_let_in(self, head: Request, caller: Any) -> None:
        if caller is not None:
            self._pace.remember(head)
            self._account = self._pace.account_of(head)
            self._pay_own_way_in()

    def _pay_own_way_in(self) -> None:
        if self._account is not None and self._door is not None:
            self._account.spend(self._at_door)
            self._door.spend(-self._at_door)
            self._at_door = 0.0

    def note_refused(self, head: Request, status: int) -> None:
        if status == 401:
            self._pace.forget(head)
