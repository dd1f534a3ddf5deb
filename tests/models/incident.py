"""Carries out the steps of `incident.pml` with a real kit's core and a real hub's records.

Each one's bytes go to the other, or are lost behind the operator's gateway. Before each step, the
model's state is compared with the journal and the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fieldagent.agent.inbound.incident_news import IncidentNews
from fieldagent.agent.journal import incident
from fieldagent.agent.outbound.cancel import call_off
from fieldagent.agent.outbound.repeats import list_repeated, repeat
from fieldagent.hub.api import sos_desk
from fieldagent.hub.contract import Bearer
from fieldagent.hub.records import sos
from fieldagent.hub.records.sos import Sos
from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.opening import open_store
from fieldagent.package.package import IncidentState, IncidentUpdate
from fieldagent.wire.envelope import Entry, derive_key, encode
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.proof import derive_proof_key, prove_update
from tests.hub.field import MASTER, START, Field, Sky, field_of
from tests.kit import Kit, kit
from tests.models.restored_hub import walk_through_restores
from tests.models.spin import Step

CLEO, DISPATCHER = 3, 2
"""The owner of the kit, which has a modem with tags, and the user who answers."""
LATER = 10 * 365 * 86_400.0
"""Seconds by which the hub's clock is ahead: no message is newer than its end."""
KIT = {
    IncidentState.OPEN: "raised",
    IncidentState.SEEN: "seen",
    IncidentState.CLOSED: "closed",
    IncidentState.CALLED_OFF: "called_off",
}
HUB = {"open": "raised", "seen": "seen", "closed": "closed"}


class Walk:
    def __init__(self, k: Kit, hub: Field) -> None:
        self._kit = k
        self._hub = hub
        self._number = k.sequence()
        self._contacts = 0

    async def receive_message(self, step: Step) -> None:
        assert await self._state() == step.state, step
        if step.call not in ("ended", "restore"):
            await getattr(self, step.call)(step)

    # The state that the model sees.

    async def _state(self) -> dict[str, str]:
        last_incident = incident.find_last(self._kit.journal)
        assert last_incident is not None
        at_hub = incident.list_at_hub(self._kit.journal, self._number)
        return {
            "kit": KIT[IncidentState(last_incident.state)],
            "at_hub": str(int(self._number in at_hub)),
            "repeats": str(int(bool(list_repeated(self._kit.journal, "person")))),
        } | await self._hub.store.read(self._hub_state)

    def _hub_state(self, db: Db) -> dict[str, str]:
        alarm = sos.find_by_kit(db, CLEO, self._number)
        sql = "SELECT 1 FROM item WHERE incident = ? AND sos = 1"
        item = alarm is not None and bool(db.execute(sql, alarm.id))
        says = [self._owed(db, word) for word in ("", "seen", "closed")]
        return {
            "hub": "none" if alarm is None else HUB[alarm.state],
            "item": str(int(item)),
            "receipt": says[0],
            "says": ",".join(says[1:]),
        }

    def _owed(self, db: Db, says: str) -> str:
        sql = "SELECT state FROM receipt WHERE device = ? AND sequence = ? AND says = ?"
        rows = db.execute(sql, CLEO, self._number, says)
        return str(rows[-1][0]) if rows else "not_owed"

    # Acts of the kit.

    async def repeat(self, step: Step) -> None:
        """Send the SOS, for the first time or again."""
        queue = self._kit.outbox.packing.queue
        if self._number not in queue:
            await repeat(self._kit.journal, queue, self._number)
        await self._send(step)

    async def contact(self, step: Step) -> None:
        """Send another message that names the incident, or its cancellation."""
        if step.how == "none":
            self._contacts += 1
            await self._kit.post(message={"content": f"contact {self._contacts}"})
        await self._send(step)

    async def _send(self, step: Step) -> None:
        transmission = self._kit.load()
        await self._kit.outbox.settle(transmission, Outcome.SENT)
        # The hub answers repetitions more and more rarely.
        self._hub.now += self._hub.now - START - LATER + 600
        if step.value:
            device = self._hub.device(CLEO)
            taken = self._hub.mobile_originated()
            await taken.take_in(device, transmission.body, Bearer.SATELLITE)

    async def call_off(self, step: Step) -> None:
        k = self._kit
        await call_off(
            k.journal, k.cancellation, k.intake, [derive_proof_key(MASTER)], self._number
        )

    async def note_word(self, step: Step) -> None:
        """Send this news as an anonymous station by radio: unproved, then with a false proof."""
        word = IncidentUpdate(self._number, IncidentState(step.how), CLEO, "Olga")
        for said in (word, prove_update(word, derive_proof_key(bytes(32)))):
            await self._kit.hear(encode([Entry(5, said, int(START))]), tagged=False)

    # Acts of the hub.

    async def acknowledge(self, step: Step) -> None:
        await self._answer(lambda db, alarm: sos_desk.acknowledge(db, alarm, *self._who()))

    async def close(self, step: Step) -> None:
        await self._answer(lambda db, alarm: sos_desk.close_incident(db, alarm, *self._who()))

    def _who(self) -> tuple[int, str, float]:
        return DISPATCHER, "", self._hub.now

    async def _answer(self, act: Any) -> None:
        def answer(db: Db) -> Sos:
            alarm = sos.find_by_kit(db, CLEO, self._number)
            assert alarm is not None
            answered: Sos = act(db, alarm)
            return answered

        await self._hub.store.commit(answer)

    async def pack(self, step: Step) -> None:
        """Give the waiting data to the operator. It reaches the kit or is lost."""
        self._hub.sky = Sky()
        await self._hub.satellite()
        imei = self._hub.device(CLEO).imei
        for to, body in self._hub.sky.taken:
            if step.value and to == imei:
                await self._kit.reception.receive(body)


async def walk(steps: Sequence[Step], place: Path) -> None:
    """Carry out a trace of the model with the real code. Fails if a state of the code differs from
    the state of the model.
    """
    before = place / "before.sqlite3"
    store = open_store(str(before))
    async with field_of(store):
        pass
    store.close()
    news = IncidentNews(CLEO, [derive_proof_key(MASTER)])
    up, down = derive_key(MASTER, "MO"), derive_key(MASTER, "MT")
    async with kit(place, incidents=news, key=up, keys=[down]) as k:
        await k.post(message={"content": "help"}, priority=100)
        await walk_through_restores(steps, before, START + LATER, lambda hub: Walk(k, hub))
