"""Carries out the steps of `delivery.pml` with a real kit's core and a real hub's store and
mailbox.

Each one's bytes go to the other, or are lost. Before each step, the model's state is compared with
the journal and the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fieldagent.hub.contract import Bearer
from fieldagent.hub.field import mobile_terminated, operator_calls, operator_handover
from fieldagent.hub.operator.contract import Verdict
from fieldagent.hub.store.opening import open_store
from fieldagent.package.package import Channel, Message
from fieldagent.wire.envelope import derive_key
from fieldagent.wire.outcome import Outcome
from tests.hub.field import MASTER, START, Field, Sky, field_of
from tests.kit import Kit, kit
from tests.models.restored_hub import walk_through_restores
from tests.models.spin import Step

CLEO = 3
"""Her kit has a modem with tags."""
TEXT = "come down"
BACK_OFF = 7_200.0
"""Seconds in which a failed call is tried again."""
VERDICTS = {"taken": Outcome.SENT, "doubtful": Outcome.DOUBTFUL, "refused": Outcome.NOT_SENT}


class Walk:
    def __init__(self, k: Kit, hub: Field, gateway: list[bytes]) -> None:
        self._kit, self._hub, self._gateway = k, hub, gateway

    async def receive_message(self, step: Step) -> None:
        assert await self._state() == step.state, step
        if step.call not in ("ended", "restore"):
            await getattr(self, step.call)(step.how)

    # The state that the model sees.

    async def _state(self) -> dict[str, str]:
        ((delivery,),) = await self._hub.rows(
            "SELECT delivery.state FROM delivery JOIN item ON item.id = item"
            " WHERE delivery.device = ? AND item.sender = 1",
            CLEO,
        )
        ((messages,),) = await self._hub.rows(
            "SELECT count(*) FROM mobile_terminated WHERE device = ?", CLEO
        )
        journal = self._kit.journal
        bodies = [body for (body,) in journal.read("SELECT body FROM inbound")]
        return {
            "delivery": delivery,
            "message": "ready" if messages else "none",
            "handed": str(sum(TEXT in body for body in bodies)),
            "owes": str(int(bool(journal.read("SELECT 1 FROM owed")))),
        }

    # Acts of the hub.

    async def pack(self, how: str) -> None:
        self._hub.now += BACK_OFF
        now = self._hub.now
        packed = await self._hub.store.commit(
            lambda db: mobile_terminated.pack_due_messages(db, now)
        )
        assert packed == 1

    async def carry_out(self, how: str) -> None:
        """Let the operator accept it. `doubtful`: its answer is lost."""
        hub = self._hub
        hub.now += BACK_OFF
        hub.sky = Sky(verdicts=[Verdict(VERDICTS[how])] if how in VERDICTS else [])
        (call,) = await hub.store.commit(lambda db: operator_handover.claim_messages(db, hub.now))
        await operator_calls.carry_out(hub.store, {"directip": hub.sky}, call, clock=hub.clock)
        assert len(hub.sky.calls) == int(how != "needless")
        if how in ("taken", "doubtful"):
            self._gateway.append(call.body)

    async def load(self, how: str) -> None:
        """Send it over the link, which may break before the kit has it, or before its
        confirmation.
        """
        box = self._hub.mailbox(CLEO)
        if how == "nothing":
            assert await box.load(65_536) is None
            return
        while (outgoing := await box.load(65_536)) is not None:
            if how == "returned":
                await box.return_message(outgoing, reason="the link has ended")
                return
            inbox = self._kit.inbox
            assert isinstance(outgoing.body, bytes)
            await inbox.store_message(
                outgoing.body,
                lambda db: None,
                channel=Channel.CELLULAR,
                receipt_channel=None,
                is_tagged=False,
            )
            if how == "unconfirmed":
                return
            await box.mark_stored(outgoing)

    # Acts of the kit.

    async def receive(self, how: str) -> None:
        """Fetch it from the gateway, which keeps it if it did not get the confirmation."""
        body = self._gateway[0]
        if how != "kept":
            del self._gateway[0]
        if how != "lost":
            await self._kit.reception.receive(body)

    async def take_in(self, how: str) -> None:
        """Confirm the received items in another message."""
        await self._kit.post(message={"content": "a word of its own"})
        transmission = self._kit.load()
        await self._kit.outbox.settle(transmission, Outcome.SENT)
        if how == "arrived":
            device = self._hub.device(CLEO)
            taken = self._hub.mobile_originated()
            await taken.take_in(device, transmission.body, Bearer.SATELLITE)


async def walk(steps: Sequence[Step], place: Path) -> None:
    """Carry out a trace of the model with the real code. Fails if a state of the code differs from
    the state of the model.
    """
    before, gateway = place / "before.sqlite3", list[bytes]()
    store = open_store(str(before))
    async with field_of(store) as hub:
        await hub.push(Message(TEXT), target=CLEO)
    store.close()
    up, down = derive_key(MASTER, "MO"), derive_key(MASTER, "MT")
    async with kit(place, key=up, keys=[down]) as k:
        await walk_through_restores(steps, before, START, lambda hub: Walk(k, hub, gateway))
