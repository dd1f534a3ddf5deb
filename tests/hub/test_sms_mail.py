"""The hub's handling of kits' SMS frames, without a service: their owners and the answers."""

from __future__ import annotations

import pytest

from fieldagent.hub.contact.contract import ContactAnswer
from fieldagent.hub.contract import Bearer, UnknownDevice
from fieldagent.hub.field import sms_mail
from fieldagent.hub.field.kit_sms import KitSmsInbox
from fieldagent.hub.records import due_receipts, sos
from fieldagent.hub.records.ledger import confirm_all
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import IncidentState, IncidentUpdate, Message
from fieldagent.wire import sms_alphabet, sms_frame
from fieldagent.wire.envelope import Entry, decode, encode
from fieldagent.wire.proof import digest_token
from fieldagent.wire.sms_frame import SmsFrame
from tests.hub.field import START, Field, field_of

NUMBER, OTHER = "+41791234567", "+41797654321"
DIGEST = digest_token("token of kit 1")
NAME, UP, DOWN = (
    sms_frame.derive_name(DIGEST),
    sms_frame.derive_key_up(DIGEST),
    sms_frame.derive_key_down(DIGEST),
)


class Answers:
    """Receives answers of people."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def receive_message(self, answer: ContactAnswer) -> None:
        self.texts.append(answer.text)

    async def report(self, message_id: str, reached: bool, reason: str = "") -> None:
        raise AssertionError("no service reports here")


class Desk:
    def __init__(self, alps: Field) -> None:
        self.alps, self.answers = alps, Answers()
        self._inbox = KitSmsInbox(
            alps.store, alps.mobile_originated(), self.answers, clock=lambda: alps.now
        )
        self._ids = 0

    async def comes(self, text: str, number: str = NUMBER) -> None:
        self._ids += 1
        await self._inbox.receive_message(ContactAnswer("sms", str(self._ids), number, text))

    async def due(self, per_day: int = 100) -> sms_mail.SmsToKit | None:
        return await self.alps.store.commit(
            lambda db: sms_mail.claim_message(db, self.alps.now, per_day)
        )

    async def taken(self, due: sms_mail.SmsToKit, reason: str = "") -> None:
        """Note that the service has accepted it, or has refused it for this reason."""
        await self.alps.store.commit(
            lambda db: sms_mail.record_result(db, due, reason, self.alps.now)
        )

    async def told(self, reason: str = "") -> SmsFrame | None:
        """Deliver the next message, or refuse it for this reason."""
        due = await self.due()
        if due is None:
            return None
        await self.taken(due, reason)
        frame = sms_frame.parse_frame(due.text)
        assert frame.is_tagged_by(DOWN)
        return frame


async def desk_of(alps: Field) -> Desk:
    await alps.store.commit(
        lambda db: db.execute("UPDATE device SET link_token = ? WHERE id = 1", DIGEST.hex())
    )
    return Desk(alps)


def frame_of(sequence: int, text: str, *acknowledged: bytes) -> SmsFrame:
    envelope = encode([Entry(sequence, Message(text), int(START))])
    return SmsFrame(NAME, envelope, acknowledged)


async def count_items(alps: Field) -> int:
    ((count,),) = await alps.rows("SELECT count(*) FROM item")
    return int(count)


async def test_sms_frame_is_stored_and_acknowledged_by_its_tag(store: Store) -> None:
    async with field_of(store) as alps:
        desk = await desk_of(alps)
        frame = frame_of(1, "here")
        for _ in range(2):
            await desk.comes(frame.encode_text(UP))
            answer = await desk.told()
            assert answer is not None
            assert answer.acknowledged == (frame.tag_by(UP),), "a copy is answered too"
            assert await desk.told() is None
        assert await count_items(alps) == 1
        assert desk.answers.texts == []


async def test_sms_without_a_valid_tag_is_ignored(store: Store) -> None:
    async with field_of(store) as alps:
        desk = await desk_of(alps)
        true = frame_of(1, "help")
        await desk.comes(true.encode_text(DOWN))
        await desk.comes(SmsFrame(b"nobody", true.envelope).encode_text(UP))
        await desk.comes(true.encode_text(UP)[:-3])
        await desk.comes("OK 471123")
        assert await count_items(alps) == 0
        assert await desk.told() is None
        assert desk.answers.texts == ["OK 471123"], "what people write goes on"
        with pytest.raises(UnknownDevice):
            await alps.store.read(lambda db: sms_mail.find_device(db, true))


async def test_replayed_sms_does_not_redirect_the_answer(store: Store) -> None:
    async with field_of(store) as alps:
        desk = await desk_of(alps)
        text = frame_of(1, "here").encode_text(UP)
        await desk.comes(text)
        assert await desk.told()
        await desk.comes(text, OTHER)
        due = await desk.due()
        assert due is not None
        assert due.number == NUMBER


async def test_refused_sms_is_retried_later(store: Store) -> None:
    async with field_of(store) as alps:
        desk = await desk_of(alps)
        await desk.comes(frame_of(1, "here").encode_text(UP))
        assert await desk.told("no credit at the service")
        assert await desk.due() is None
        alps.now += 31
        assert await desk.told()
        assert await desk.due() is None


@pytest.mark.parametrize("untaken", [True, False])
async def test_refused_sms_does_not_count_for_the_daily_limit(store: Store, untaken: bool) -> None:
    """An SMS that the service may have accepted counts."""
    async with field_of(store) as alps:
        desk = await desk_of(alps)
        await desk.comes(frame_of(1, "one").encode_text(UP))
        due = await desk.due(per_day=1)
        assert due is not None
        reason = "the service answered 401"
        await alps.store.commit(
            lambda db: sms_mail.record_result(db, due, reason, alps.now, untaken=untaken)
        )
        alps.now += sms_mail.RETRY_S + 1
        assert (await desk.due(per_day=1) is not None) is untaken


async def test_released_sms_does_not_count_for_the_daily_limit(store: Store) -> None:
    async with field_of(store) as alps:
        desk = await desk_of(alps)
        await desk.comes(frame_of(1, "one").encode_text(UP))
        due = await desk.due(per_day=1)
        await alps.store.commit(lambda db: sms_mail.release_claim(db, due))
        assert await alps.rows("SELECT today, copies FROM kit_sms") == [(0, 0)]
        assert await desk.due(per_day=1)


async def test_sms_refused_after_midnight_counts_for_the_previous_day(store: Store) -> None:
    async with field_of(store) as alps:
        desk = await desk_of(alps)
        await desk.comes(frame_of(1, "one").encode_text(UP))
        due = await desk.due()
        assert due is not None
        await alps.store.commit(lambda db: db.execute("UPDATE kit_sms SET day = '2999-01-01'"))
        await alps.store.commit(
            lambda db: sms_mail.record_result(db, due, "no", alps.now, untaken=True)
        )
        assert await alps.rows("SELECT today FROM kit_sms") == [(1,)]


async def test_sms_to_a_kit_are_limited_per_day(store: Store) -> None:
    async with field_of(store) as alps:
        desk = await desk_of(alps)
        await desk.comes(frame_of(1, "one").encode_text(UP))
        assert await desk.due(per_day=0) is None
        assert await desk.due(per_day=100) is None, "not before the next day"
        alps.now += 86_400
        assert await desk.due(per_day=100)


async def test_unacknowledged_sms_is_repeated_unchanged_and_then_waits(store: Store) -> None:
    async with field_of(store) as alps:
        desk = await desk_of(alps)
        await desk.comes(frame_of(1, "here").encode_text(UP))
        assert await desk.told()
        await alps.push(Message("come back"), target=1)
        tags = set()
        for _ in range(sms_mail.COPIES):
            frame = await desk.told()
            assert frame is not None
            assert frame.envelope
            tags.add(frame.tag)
            assert await desk.told() is None
            alps.now += 10_000
        assert len(tags) == 1
        assert await desk.told() is None
        await desk.comes(frame_of(2, "still here").encode_text(UP))
        frame = await desk.told()
        assert frame is not None
        assert frame.acknowledged
        assert frame.envelope
        await desk.comes(SmsFrame(NAME, b"", (frame.tag,)).encode_text(UP))
        states = await alps.rows("SELECT state, way FROM delivery WHERE device = 1")
        assert states == [("stored", "sms")]
        assert await desk.told() is None


def make_message(parts: int) -> Message:
    """Return a message that needs that many SMS."""
    return Message("x" * (sms_frame.compute_envelope_bytes_down(parts) - 40))


async def list_reasons(alps: Field) -> list[str]:
    rows = await alps.rows("SELECT reason FROM delivery WHERE device = 1 ORDER BY item")
    return [reason for (reason,) in rows]


async def test_long_message_is_sent_in_several_sms_after_short_messages(store: Store) -> None:
    async with field_of(store) as alps:
        desk = await desk_of(alps)
        await alps.push(make_message(5), target=1)
        await alps.push(Message("short"), target=1)
        await desk.comes(frame_of(1, "here").encode_text(UP))
        for parts, states in ((1, ["waiting", "stored"]), (5, ["stored", "stored"])):
            due = await desk.due()
            assert due is not None
            assert sms_alphabet.count_parts(due.text) == parts
            frame = sms_frame.parse_frame(due.text)
            await desk.taken(due)
            assert frame.is_tagged_by(DOWN)
            assert await list_reasons(alps) == ["", ""]
            alps.now += 1
            await desk.comes(SmsFrame(NAME, b"", (frame.tag,)).encode_text(UP))
            rows = await alps.rows("SELECT state FROM delivery WHERE device = 1 ORDER BY item")
            assert [state for (state,) in rows] == states
        assert await desk.told() is None
        ((today,),) = await alps.rows("SELECT today FROM kit_sms")
        assert today == 6, "each part is one of the day's"


async def test_answer_to_an_sos_is_sent_in_more_than_two_sms(store: Store) -> None:
    async with field_of(store) as alps:
        desk = await desk_of(alps)
        raised = encode([Entry(7, Message("leg broken"), int(START), sos=True)])
        await desk.comes(SmsFrame(NAME, raised, ()).encode_text(UP))

        def answer(db: Db) -> None:
            incident = sos.find_by_kit(db, 1, 7)
            assert incident is not None
            due_receipts.owe_incident_update(
                db, incident, IncidentState.SEEN, "я" * 30, "я" * 80, alps.now
            )

        await store.commit(answer)
        frame = await desk.told()
        assert frame is not None
        said = [each.content for each in decode(frame.envelope).entries]
        (word,) = [each for each in said if isinstance(each, IncidentUpdate)]
        assert (word.by, word.text) == ("я" * 30, "я" * 80)


async def test_message_too_long_for_sms_is_reported_and_uses_another_channel(store: Store) -> None:
    async with field_of(store) as alps:
        desk = await desk_of(alps)
        await alps.push(Message("x" * 900), target=1)
        await desk.comes(frame_of(1, "here").encode_text(UP))
        frame = await desk.told()
        assert frame is not None
        assert not frame.envelope
        assert await list_reasons(alps) == [sms_mail.TOO_LONG]
        ((item,),) = await alps.rows("SELECT item FROM delivery WHERE device = 1")

        def by_ip(db: Db) -> None:
            confirm_all(db, [(item, 1)], Bearer.IP, alps.now)

        await alps.store.commit(by_ip)
        assert await list_reasons(alps) == [""]


async def test_sms_beyond_the_daily_limit_waits_for_the_next_day(store: Store) -> None:
    async with field_of(store) as alps:
        desk = await desk_of(alps)
        await alps.push(make_message(5), target=1)
        await desk.comes(frame_of(1, "here").encode_text(UP))
        due = await desk.due(per_day=4)
        assert due is not None
        assert not sms_frame.parse_frame(due.text).envelope
        assert await list_reasons(alps) == [sms_mail.SPENT_REASON]
        await desk.taken(due)
        assert await desk.due(per_day=4) is None
        await desk.comes(frame_of(2, "still here").encode_text(UP))
        due = await desk.due(per_day=8)
        assert due is not None
        assert sms_frame.parse_frame(due.text).envelope
        assert await list_reasons(alps) == [""]
        await desk.taken(due)
        alps.now += 1000
        assert await desk.due(per_day=8) is None, "its copy is one too many"
        alps.now += 86_400
        again = await desk.due(per_day=8)
        assert again is not None
        assert again.text == due.text
