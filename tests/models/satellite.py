"""Carries out the steps of `satellite.pml` with the real driver, conversation, outbox and journal.

Each call that the model names waits for its turn in the trace. Events before it happen first, and
the model's knowledge of modem, disk and gateway is compared. After a power cut, the next run
continues with a copy of the journal from the disk at that moment.
"""

from __future__ import annotations

import random
import shutil
import string
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from fieldagent.agent.channels import satellite, sbd_modem
from fieldagent.agent.channels.contract import Intent, Transmission
from fieldagent.agent.channels.line_speed import LineSpeed
from fieldagent.agent.channels.satellite import SatelliteDriver
from fieldagent.agent.channels.sbd_modem import Modem
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.agent.outbound.package_state import get_package_state
from fieldagent.agent.satellites.sbd import SBD
from fieldagent.extensions.lab.simulator.sbd_modem import SimulatedModem
from fieldagent.extensions.lab.simulator.sbd_state import PlannedStatus, VolatileState
from fieldagent.package.package import Message, Status
from fieldagent.package.reading import read_package
from fieldagent.wire import sbd
from fieldagent.wire.envelope import decode
from fieldagent.wire.outcome import Outcome
from tests.kit import Kit, kit
from tests.models.spin import Step

PATIENCE = 3 * 3600.0
"""Seconds of virtual time for the calls of one run of the program."""
PACKAGE, SOS, FOREIGN = 1, 2, 3
FOREIGN_BODY = b"what another host left"
IMEIS = ("300234010000001", "300234010000002")
NUMBERS = 8
"""Number of MOMSNs in the model."""
MO_STATUS = {"SENT": 0, "DOUBTFUL": 18, "NOT_SENT": 32, "REFUSED": 14}
LEGS = {None: "waits", Status.DELIVERED: "delivered", Status.ERROR: "error"}
HAPPENS = {"brown_out", "dip", "other_modem", "port_lost", "power_fails", "accept"}
"""Events from outside the program."""


def document(package: int) -> dict[str, Any]:
    """Return a Package beside which no other fits."""
    noise = random.Random(package).choices(string.ascii_letters + string.digits, k=280)
    content = f"{package} {''.join(noise)}"
    return {"message": {"content": content}, "priority": 100 if package == SOS else 1}


def package_in(body: bytes) -> int:
    """Return the model's Package in these bytes, or 0 if there is none."""
    if body in (b"", FOREIGN_BODY):
        return FOREIGN if body else 0
    contents = [entry.content for entry in decode(body).entries]
    (message,) = [content for content in contents if isinstance(content, Message)]
    return int(message.content[0])


class PowerFailed(Exception):
    """Error that ends a run of the program at a simulated power cut. Later calls of the run have no
    effect.
    """


class Gateway:
    """Records arrivals: `sbd_session.Gateway`."""

    def __init__(self) -> None:
        self.came: set[int] = set()

    def receive_mobile_originated(self, imei: str, momsn: int, body: bytes) -> None:
        self.came.add(package_in(body))

    def get_mobile_terminated(self) -> bytes | None:
        return None

    def remove_mobile_terminated(self) -> None:
        raise AssertionError("nothing waits")

    def count_waiting(self) -> int:
        return 0


class Line:
    """A serial line in memory: `serial_port.SerialPort`."""

    def __init__(self, modem: SimulatedModem, hold_session: Callable[[], None]) -> None:
        self._modem = modem
        self._hold_session = hold_session
        self._said = trio.Event()

    async def read(self) -> bytes:
        while not (data := self._modem.data_to_send()):
            await self._said.wait()
            self._said = trio.Event()
        return data

    async def write(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self._modem.receive_data(data)
        if self._modem.session:
            self._hold_session()
        self._said.set()


class Walk:
    """Modem, gateway and disk, which outlive each run of the program."""

    def __init__(self, steps: Sequence[Step], place: Path) -> None:
        self._steps = deque(steps)
        self._place = place
        self._runs = 0
        self._gateway = Gateway()
        self._modem = SimulatedModem(self._gateway, imei=IMEIS[0])
        self._sequences: dict[int, int] = {}
        self._kit: Kit | None = None
        self._port: Modem | None = None
        self._run_over = trio.Event()

    @property
    def ended(self) -> bool:
        return not self._steps

    # One run of the program.

    async def run(self) -> None:
        """Run until the trace has ended or power fails."""
        self._run_over = trio.Event()
        pace = satellite.Pace(random.Random(1))
        with trio.move_on_after(PATIENCE) as limit:
            async with kit(self._home()) as k, trio.open_nursery() as nursery:
                self._kit = k
                if not self._sequences:
                    await self._accept(PACKAGE)

                async def drive() -> None:
                    await satellite.run(
                        *("port", k.outbox, k.reception, k.outbox.link, pace),
                        speed=LineSpeed(19_200, SBD),
                    )

                nursery.start_soon(drive)
                await self._run_over.wait()
                nursery.cancel_scope.cancel()
        assert not limit.cancelled_caught, f"the code does not do {self._steps and self._steps[0]}"

    def _home(self) -> Path:
        home = self._place / str(self._runs)
        home.mkdir(exist_ok=True)
        return home

    async def _accept(self, package: int) -> None:
        assert self._kit is not None
        accepted = await self._kit.intake.accept(read_package(document(package)))
        self._sequences[package] = self._kit.sequence(accepted.id)

    # The trace.

    async def turn(
        self, call: str, value: Callable[[], int] = lambda: 0, how: str | None = None
    ) -> None:
        """Return when the program may make this call, with that `value` at that time. Raises the
        error of an event that happens instead.
        """
        if self._run_over.is_set():
            return
        while self._steps and self._steps[0].call in HAPPENS:
            await self._happen(self._steps.popleft())
        assert self._steps, f"the model has ended, the code does {call} {how}"
        step = self._steps.popleft()
        assert step.call == call, f"the model does {step}, the code {call} {how}"
        assert value() == step.value, (step, value())
        assert how in (None, step.how), (step, how)
        self._compare(step)

    def _compare(self, step: Step) -> None:
        assert self._kit is not None
        intent = self._kit.outbox.get_unsettled()
        volatile = self._modem.state.volatile
        came = [int(package in self._gateway.came) for package in (PACKAGE, SOS)]
        assert step.state == {
            "momsn": str(self._modem.state.momsn % NUMBERS),
            "buffer": str(package_in(volatile.mo_buffer if volatile.mo_flag else b"")),
            "holds_ours": str(int(self._port is not None and self._port.is_holding_own_message)),
            "intent": str(0 if intent is None else package_in(intent.transmission.body)),
            "at_modem": str(0 if intent is None else intent.at_modem % NUMBERS),
            "came": ",".join(map(str, came)),
            "leg": ",".join(self._delivery(package) for package in (PACKAGE, SOS)),
        }, step

    def _delivery(self, package: int) -> str:
        assert self._kit is not None
        if package not in self._sequences:
            return LEGS[None]
        standing = get_package_state(self._kit.journal, self._sequences[package])
        return LEGS[standing.deliveries[self._kit.outbox.channel].status]

    async def _happen(self, step: Step) -> None:
        state = self._modem.state
        if step.call == "accept":
            await self._accept(SOS)
        elif step.call == "port_lost":
            raise PortLost("the trace has it so")
        elif step.call == "power_fails":
            here = self._home()
            self._runs += 1
            shutil.copytree(here, self._home(), dirs_exist_ok=True)
            self._run_over.set()
            raise PowerFailed
        elif step.call == "other_modem":
            state.imei = IMEIS[state.imei == IMEIS[0]]
            state.momsn = int(step.state["momsn"])
            self._reset(echo=bool(step.value))
            if int(step.state["buffer"]):
                state.volatile.mo_buffer, state.volatile.mo_flag = FOREIGN_BODY, True
        else:
            self._reset(echo=step.call == "brown_out")

    def _reset(self, *, echo: bool) -> None:
        """Cut the modem's power. Without an echo of its own, this is a short power loss without a
        trace.
        """
        self._modem.state.stored = VolatileState(echo=echo)
        self._modem.start_brown_out()

    def hold_session(self) -> None:
        """Apply the sky's effect to a session that has started."""
        assert self._steps, "the model has ended, the code holds a session"
        step = self._steps.popleft()
        if step.call == "brown_out":
            self._reset(echo=True)
            return
        if step.call == "dip":
            self._modem.state.volatile = replace(VolatileState(echo=False))
            step = self._steps.popleft()
        assert step.call == "reply", step
        counted, delivered = bool(step.value & 1), bool(step.value & 2)
        status = PlannedStatus(MO_STATUS[step.how], delivered, counted)
        self._modem.faults.statuses.append(status)
        self._modem.faults.lose_replies = step.value >> 2
        self._modem.finish_session()

    async def rest(self) -> None:
        """Called when the program has nothing to do, or waits for a time: let the next event of the
        trace happen, or compare the states.
        """
        if self._run_over.is_set():
            return
        assert self._steps, "the model has ended, the code has not"
        if self._steps[0].call == "accept":
            await self._happen(self._steps.popleft())
        elif self._steps[0].call == "ended":
            self._compare(self._steps.popleft())
            self._run_over.set()

    # Calls of the code.

    def hold_calls(self, patch: pytest.MonkeyPatch) -> None:
        """Let each call wait for its turn."""
        open_modem = sbd_modem.open_modem

        @asynccontextmanager
        async def opened(*what: Any) -> AsyncIterator[Modem]:
            await self.turn("open_modem", lambda: 1 + IMEIS.index(self._modem.state.imei))
            async with open_modem(*what) as self._port:
                try:
                    yield self._port
                finally:
                    self._port = None

        @asynccontextmanager
        async def open_serial(*what: Any) -> AsyncIterator[Line]:
            yield Line(self._modem, self.hold_session)

        patch.setattr(satellite, "open_modem", opened)
        patch.setattr(sbd_modem, "open_serial", open_serial)

        def hold(kind: type, name: str, turn: Callable[..., Awaitable[None]]) -> None:
            call = getattr(kind, name)

            async def held(self_: Any, *what: Any, **how: Any) -> Any:
                await turn(*what)
                return await call(self_, *what, **how)

            patch.setattr(kind, name, held)

        async def settle(transmission: Transmission, outcome: Outcome) -> None:
            await self.turn("settle", partial(package_in, transmission.body), outcome.name)

        async def clear(command: str) -> None:
            if command == sbd.CLEAR_MO:
                await self.turn("clear")

        async def resolve(intent: Intent) -> None:
            await self.turn("_resolve", partial(package_in, intent.transmission.body))

        async def verdict(status: Any, momsn: int) -> None:
            await self.turn("_verdict", how=status.verdict.name)

        async def record_intent(transmission: Transmission) -> None:
            await self.turn("record_intent", partial(package_in, transmission.body))

        async def note_copy(transmission: Transmission) -> None:
            await self.turn("note_copy", partial(package_in, transmission.body))

        hold(SatelliteDriver, "_wait_until_due", self.rest)
        hold(SatelliteDriver, "_hold_session", partial(self.turn, "_session"))
        hold(SatelliteDriver, "_resolve", resolve)
        hold(SatelliteDriver, "_judge_session", verdict)
        hold(Modem, "write", lambda body: self.turn("write", partial(package_in, body)))
        hold(Modem, "hold_session", partial(self.turn, "session"))
        hold(Modem, "clear", clear)
        hold(ChannelOutbox, "record_intent", record_intent)
        hold(ChannelOutbox, "record_copy", note_copy)
        hold(ChannelOutbox, "settle", settle)


async def walk(steps: Sequence[Step], place: Path) -> None:
    """Carry out a trace of the model with the real code. Fails if a state of the code differs from
    the state of the model.
    """
    taken = Walk(steps, place)
    with pytest.MonkeyPatch.context() as patch:
        taken.hold_calls(patch)
        while not taken.ended:
            try:
                await taken.run()
            except* PowerFailed:
                pass
