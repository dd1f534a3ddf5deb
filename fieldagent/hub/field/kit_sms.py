"""SMS between kits and the hub, through the same services and telephone number as the answers of
contacts.

A text that begins like a frame is from a kit. All other texts are answers of contacts. The hub
sends messages to a kit through the service that delivered the kit's last message.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable

from fieldagent.hub import idle
from fieldagent.hub.contact.contract import AnswerInbox, ContactAnswer, Notice
from fieldagent.hub.contact.registry import ContactSenders
from fieldagent.hub.contract import Bearer, UnknownDevice
from fieldagent.hub.field import sms_mail
from fieldagent.hub.field.mobile_originated import MobileOriginatedReceiver
from fieldagent.hub.field.sms_mail import SmsToKit
from fieldagent.hub.records import claims, contact
from fieldagent.hub.store.contract import ANY_WRITE_TOPIC, Store
from fieldagent.hub.store.persist import persist, skip_if_unavailable
from fieldagent.system.supervisor import Note, describe_error
from fieldagent.webhook.delivery import HandoverOutcome
from fieldagent.wire import sms_frame
from fieldagent.wire.errors import RemoteProtocolError

log = logging.getLogger(__name__)


class KitSmsInbox:
    """Separates kits' frames from answers of contacts. Implements `contact.contract.AnswerInbox`.
    If `answers` is None, the hub ignores the answers of contacts.
    """

    def __init__(
        self,
        store: Store,
        mobile_originated: MobileOriginatedReceiver,
        answers: AnswerInbox | None,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._mobile_originated = mobile_originated
        self._answers = answers
        self._clock = clock

    async def receive_message(self, answer: ContactAnswer) -> None:
        if not sms_frame.is_frame(answer.text):
            if self._answers is not None:
                await self._answers.receive_message(answer)
            return
        try:
            frame = sms_frame.parse_frame(answer.text)
            device = await self._store.read(lambda db: sms_mail.find_device(db, frame))
        except RemoteProtocolError as error:
            log.warning("an SMS of %s for this hub cannot be used: %s", answer.sender, error)
            return
        except UnknownDevice:
            log.warning(
                "an SMS of %s is ignored: it names no active device, or its tag was not made with"
                " that device's link token",
                answer.sender,
            )
            return
        if frame.envelope:
            await self._mobile_originated.take_in(device, frame.envelope, Bearer.SMS)
        # Process the acknowledgements only after the envelope is stored. Also acknowledge a
        # duplicate, because the kit did not get the first acknowledgement.
        await self._store.commit(
            lambda db: sms_mail.process_frame_facts(
                db, device, frame, answer.kind, answer.sender, self._clock()
            )
        )

    async def report(self, message_id: str, reached: bool, reason: str = "") -> None:
        # The report only shows that the SMS reached the kit's modem. The message stays open until
        # the kit itself acknowledges it.
        if self._answers is not None:
            await self._answers.report(message_id, reached, reason)


async def run(
    store: Store,
    reach: ContactSenders,
    *,
    clock: Callable[[], float],
    per_day: int,
    note_fault: Note,
) -> None:
    """Send due SMS to kits, one after the other, until cancelled. At most `per_day` SMS go to one
    kit per UTC day.
    """
    while True:
        news, any_write = store.get_event(contact.SMS_NEWS), store.get_event(ANY_WRITE_TOPIC)
        next_due = clock()
        with skip_if_unavailable():
            next_due = await store.read(lambda db: sms_mail.compute_next_due(db, clock()))
            if next_due <= clock():
                due = await claims.commit_claim(
                    store,
                    lambda db: sms_mail.claim_message(db, clock(), per_day),
                    sms_mail.release_claim,
                )
                if due is not None:
                    await _send_sms(store, reach, due, clock, note_fault)
                continue
        await idle.wait_until_due(any_write, next_due - clock(), news=news)


async def _send_sms(
    store: Store, reach: ContactSenders, sms: SmsToKit, clock: Callable[[], float], note_fault: Note
) -> None:
    notice = Notice(uuid.uuid4().hex, "", sms.text, whole=True)
    try:
        result = await reach.send_notice(sms.kind, sms.number, notice)
        is_taken = result.outcome is HandoverOutcome.HANDED
        reason = "" if is_taken else result.reason or "the service did not accept the message"
        untaken = result.is_untaken
    except Exception as error:
        note_fault(error, f"an SMS to device {sms.device}")
        reason = f"it failed in the hub; see its log: {describe_error(error)}"
        untaken = False
    await persist(
        store, lambda db: sms_mail.record_result(db, sms, reason, clock(), untaken=untaken)
    )
