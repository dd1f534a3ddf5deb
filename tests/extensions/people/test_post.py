"""The postman's handling of the outcomes of texts."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from fieldagent.agent.journal import handhelds, inbound
from fieldagent.extensions.people.contract import (
    HandheldReport,
    HandheldText,
    PeopleRadio,
    TextOutcome,
)
from fieldagent.extensions.people.desk import Desk
from fieldagent.extensions.people.directory import Holder
from fieldagent.extensions.people.post import Absence, HandheldMessenger
from fieldagent.extensions.people.settings import PeopleSettings
from fieldagent.extensions.people.toll import HandheldLimits
from fieldagent.package.delivery import Stage
from fieldagent.package.package import Message
from fieldagent.store.group import StoreFull
from fieldagent.wire.envelope import Entry, encode
from tests import kit as kits
from tests.processes import PATIENCE

ADA = "!00000ada"


def get_unknown_holder(handle: str) -> Holder:
    return Holder(handle, handle, is_known=False)


class Radio:
    """Answers each text with the next of these outcomes."""

    text_bytes, has_signs = 200, True

    def __init__(self, *outcomes: TextOutcome) -> None:
        self.outcomes = [*outcomes]
        self.said: list[str] = []
        self.make_number = count(1).__next__

    async def send_text(self, handle: str, text: str, number: int, answers: int = 0) -> TextOutcome:
        self.said.append(text)
        return self.outcomes.pop(0)


@pytest.mark.parametrize(
    ("outcome", "is_absent"),
    [
        (TextOutcome(False, "the radio accepts one text in two seconds", too_early=True), False),
        (TextOutcome(False, "no acknowledgement"), True),
    ],
)
async def test_absent_person_gets_no_text_for_a_while(
    tmp_path: Path, outcome: TextOutcome, is_absent: bool
) -> None:
    """No person counts as absent because the kit's own radio refuses."""
    async with kits.kit(tmp_path) as kit:
        journal = kit.journal
        await journal.persist(handhelds.store_text(ADA, "r1", "hello", 0.0, 1e12))
        radio = Radio(outcome, TextOutcome(True, ""))
        postman = HandheldMessenger(journal, kit.inbox, get_unknown_holder, Absence())
        with trio.move_on_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(postman.run, cast(PeopleRadio, radio))
                while has_waiting_texts(journal) and not postman.absence.compute_end(ADA, None) > 0:
                    await journal.wait_for_commit()
                nursery.cancel_scope.cancel()
        assert len(radio.said) == (1 if is_absent else 2)
        assert has_waiting_texts(journal) == is_absent


async def test_radio_stage_is_stored_once_the_disk_has_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No caller can get the error of a full disk here, and it would end the agent."""
    owe, tries = inbound.add_pending_stage, count(1)

    def owe_once_there_is_room(*what: Any) -> bool:
        if next(tries) == 1:
            raise StoreFull("the disk is full")
        return owe(*what)

    monkeypatch.setattr("fieldagent.agent.journal.journal.FULL_PAUSE_S", 0.0)
    monkeypatch.setattr(inbound, "add_pending_stage", owe_once_there_is_room)
    async with kits.kit(tmp_path) as kit:
        await kit.hear(encode([Entry(7, Message("to Ada"), int(kits.START))]), tagged=True)
        ((request,),) = kit.journal.read("SELECT request_id FROM inbound")
        await kit.journal.persist(handhelds.store_text(ADA, request, "hello", 0.0, 1e12))
        postman = HandheldMessenger(kit.journal, kit.inbox, get_unknown_holder, Absence())
        radio = Radio(TextOutcome(True, ""))
        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = trio.current_time() + PATIENCE
            nursery.start_soon(postman.run, cast(PeopleRadio, radio))
            while not inbound.list_pending_stages(kit.journal):
                await kit.journal.wait_for_commit()
            nursery.cancel_scope.cancel()
        (owed,) = inbound.list_pending_stages(kit.journal)
        assert (owed.stage, owed.text) == (Stage.RADIO, ADA)


@pytest.mark.parametrize("stage", [Stage.RADIO, Stage.READ])
async def test_stage_interrupted_by_a_power_cut_is_still_reported_to_the_sender(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: Stage
) -> None:
    """Before, the arrival or the reading was noted first, and the sender was never informed."""

    async def once_more(kit: kits.Kit) -> None:
        if stage is Stage.RADIO:
            postman = HandheldMessenger(kit.journal, kit.inbox, get_unknown_holder, Absence())
            await postman.run(cast(PeopleRadio, Radio(TextOutcome(True, ""))))
        else:
            await kit.journal.persist(handhelds.record_packet_number(1, 77))
            sign = HandheldText("👍", direct=True, answers=77, reaction=True)
            others = kit.journal, kit.intake, kit.cancellation, kit.inbox
            desk = Desk(
                *others,
                HandheldLimits(kit.journal, kit.outboxes),
                PeopleSettings(port="nowhere"),
                [],
            )
            await desk.process_report(HandheldReport(ADA, next(numbers), sign))

    def cut(*what: Any) -> bool:
        raise RuntimeError("power fails")

    numbers = count(1)
    async with kits.kit(tmp_path) as kit:
        await kit.hear(encode([Entry(7, Message("to Ada"), int(kits.START))]), tagged=True)
        ((request,),) = kit.journal.read("SELECT request_id FROM inbound")
        await kit.journal.persist(handhelds.store_text(ADA, request, "hello", 0.0, 1e12))
        with monkeypatch.context() as broken:
            broken.setattr(inbound, "add_pending_stage", cut)
            with pytest.raises((RuntimeError, BaseExceptionGroup)):
                await once_more(kit)
        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = trio.current_time() + PATIENCE
            nursery.start_soon(once_more, kit)
            while not inbound.list_pending_stages(kit.journal):
                await kit.journal.wait_for_commit()
            nursery.cancel_scope.cancel()
        (owed,) = inbound.list_pending_stages(kit.journal)
        assert (owed.stage, owed.text) == (stage, ADA)


def has_waiting_texts(journal: Any) -> bool:
    return bool(handhelds.list_posts(journal))
