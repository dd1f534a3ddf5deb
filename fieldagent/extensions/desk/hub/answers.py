"""Answers of contacts by SMS and email. An answer acknowledges the incident, or its text is sent to
the kit. The author of the answer gets a reply with the result.

1. Each answer is processed once. The service gives each answer an id.
2. The hub finds the author by the address. Anyone can forge the number of an SMS, so `OK`
   acknowledges only together with the code of the message, and only once. An email needs no code if
   it answers an address or a message that only its recipient can know.
3. Wrong codes are counted per address. After WRONG_MAX wrong codes in an hour, the hub ignores all
   short codes from the address. The reply to the last wrong code contains a long code, which is
   still valid. Only the owner of the number receives this reply, so forged messages cannot lock out
   a contact.
4. Other texts are sent to the kit, if they fit and the kit's credits are sufficient. A text without
   a code is marked as not authenticated. It is not sent if it could be about several incidents. If
   several workspaces know the address, a text without a code or a name is not sent. The hub then
   asks its author which incident or kit the text is for.
5. An answer that belongs to no incident may be for a kit that wrote to the author
   (`correspondence`).
6. The hub does not reply to unknown senders.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Callable
from functools import partial

from fieldagent.extensions.desk.hub import alarm_link, contacts, correspondence, notice
from fieldagent.extensions.desk.hub.alarm_link import AlarmLink
from fieldagent.extensions.desk.hub.contacts import AlarmContact
from fieldagent.extensions.desk.hub.correspondence import WrittenMessage
from fieldagent.extensions.desk.hub.language import find_canned, translate
from fieldagent.hub import refusals
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.api import sos_desk
from fieldagent.hub.contact.contract import ContactAnswer
from fieldagent.hub.field import texts_to_kits
from fieldagent.hub.records import alarm, sending, sos
from fieldagent.hub.records.due_receipts import UPDATE_TEXT_MAX
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.records.sos import Actor, Sos
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import Message
from fieldagent.page.language import read_catalogue
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import make_visible, translate_text

log = logging.getLogger(__name__)

WRONG_MAX, WRONG_WITHIN = 5, 3_600.0
"""Largest number of wrong codes of one address, and the seconds for which a wrong code counts."""
_OK = "[o\N{CYRILLIC SMALL LETTER O}][k\N{CYRILLIC SMALL LETTER KA}]"
"""Pattern for OK typed on a Latin or Cyrillic keyboard. The letters of both keyboards look the
same."""
_TEXT = re.compile(
    rf"\s*({_OK}\b)?[\s,.:;-]*((?:[0-9]{{12}}|[0-9]{{6}})(?![0-9]))?[\s,.:;-]*(.*)",
    re.I | re.DOTALL,
)


class AnswerText(NamedTuple):
    """Content of an answer: OK, a code, and other text. Each part can be missing."""

    accepts: bool
    """True if the text begins with OK."""
    code: str
    words: str


def parse_answer_text(text: str) -> AnswerText:
    """Parse a text such as `OK 471123 on our way`. Each part can be missing."""
    match = _TEXT.fullmatch(text)
    assert match is not None, "every part of it may be missing"
    visible_text = make_visible(match[3])
    return AnswerText(match[1] is not None, match[2] or "", visible_text)


class ContactInbox:
    """Processes contacts' answers. Implements `contract.AnswerInbox`. `clock` returns Unix time."""

    def __init__(self, store: Store, *, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    async def receive_message(self, answer: ContactAnswer) -> None:
        outcome = await self._store.commit(lambda db: process_answer(db, answer, self._clock()))
        log.info("an answer by %s: %s", answer.kind, outcome)

    async def report(self, message_id: str, reached: bool, reason: str = "") -> None:
        noted = partial(report, message_id=message_id, reached=reached, reason=reason)
        await self._store.commit(lambda db: noted(db, now=self._clock()))


def process_answer(db: Db, answer: ContactAnswer, now: float) -> str:
    """Process an answer once. Store the result, and return it in a few words for the log."""
    new = db.execute(
        "INSERT INTO contact_answer (kind, service_id, at, sender, outcome)"
        " VALUES (?, ?, ?, ?, '') ON CONFLICT (kind, service_id) DO NOTHING RETURNING id",
        *(answer.kind, answer.id, now, answer.sender),
    )
    if not new:
        return "received before"
    outcome = _process_new_answer(db, answer, now)
    db.execute("UPDATE contact_answer SET outcome = ? WHERE id = ?", outcome, new[0][0])
    return outcome


def _process_new_answer(db: Db, answer: ContactAnswer, now: float) -> str:
    answer_text = parse_answer_text(answer.text)
    if answer.answers:
        return _handle_proved_message(db, answer, answer_text, now)
    contacts = _find_contacts(db, answer)
    links = {each.id: alarm_link.list_valid(db, each.id, now) for each in contacts}
    open_ones = [(each, link) for each in contacts for link in links[each.id] if _is_open(db, link)]
    writings = correspondence.find_by_address(db, answer.sender, now)
    alarm_workspaces = {each.workspace for each in contacts if links[each.id]}
    is_shared = len(alarm_workspaces | {each.workspace for each in writings}) > 1
    is_named = is_shared and correspondence.is_to_one(writings, answer)
    if writings and (is_named or not (alarm_workspaces if is_shared else open_ones)):
        return correspondence.send_answer(db, writings, answer, now)
    if not any(links.values()):
        return "from an unknown sender" if not contacts else "about no alarm"
    if answer_text.code:
        return _find_by_code(db, answer, contacts, links, answer_text, now)
    contact, link = open_ones[0] if open_ones else _find_newest(contacts, links)
    if answer_text.accepts:
        reason = translate(
            contact.language,
            "Not answered: reply with OK and the six digits of the message.",
        )
        return _reply(db, contact, link.sos, "without code", reason, now)
    if is_shared:
        return _reply(
            db, contact, link.sos, "ambiguous", _ask_which_incident(contact, writings), now
        )
    if len(open_ones) > 1:
        _show_to_desk(db, contact, link, answer_text.words, now)
        reason = translate(
            contact.language,
            "Nothing sent: you have several alarms. Begin with the six digits of one.",
        )
        return _reply(db, contact, link.sos, "ambiguous", reason, now)
    return _send_to_kit(db, contact, link, answer_text.words, now, is_proved=False)


def _find_contacts(db: Db, answer: ContactAnswer) -> list[AlarmContact]:
    rows = db.execute(
        "SELECT id, workspace FROM alarm_contact WHERE kind = ? AND address = ? ORDER BY id",
        *(answer.kind, answer.sender),
    )
    return [contacts.find_contact(db, workspace, id_) for id_, workspace in rows]


def _ask_which_incident(contact: AlarmContact, writings: list[WrittenMessage]) -> str:
    """Return a text that asks the author which incident or kit the answer is for. Several
    workspaces know the author's address, and the desk of one workspace must not see a text for
    another workspace.
    """
    if not writings:
        return translate(
            contact.language,
            "Nothing sent: you have several alarms. Begin with the six digits of one.",
        )
    text = (
        "Nothing sent: several people wrote to you. Begin with the six digits of the alarm, or"
        " with a name: {names}."
    )
    return translate(contact.language, text, names=correspondence.join_names(writings))


def _find_newest(
    contacts: list[AlarmContact], links: dict[int, list[AlarmLink]]
) -> tuple[AlarmContact, AlarmLink]:
    pairs = [(each, links[each.id][0]) for each in contacts if links[each.id]]
    return max(pairs, key=lambda pair: pair[1].id)


def _is_open(db: Db, link: AlarmLink) -> bool:
    return bool(db.execute("SELECT 1 FROM sos WHERE id = ? AND state <> 'closed'", link.sos))


def _find_by_code(
    db: Db,
    answer: ContactAnswer,
    contacts: list[AlarmContact],
    links: dict[int, list[AlarmLink]],
    answer_text: AnswerText,
    now: float,
) -> str:
    contact, last = _find_newest(contacts, links)
    ((wrong,),) = db.execute(
        "SELECT count(*) FROM contact_answer WHERE kind = ? AND sender = ? AND at > ?"
        " AND outcome = 'wrong code'",
        *(answer.kind, answer.sender, now - WRONG_WITHIN),
    )
    if len(answer_text.code) == alarm_link.LONG_CODE:
        for each in contacts:
            for link in links[each.id]:
                if hmac.compare_digest(answer_text.code, alarm_link.make_long_code(db, link)):
                    return _handle_proved(db, each, link, answer_text, now)
    elif wrong >= WRONG_MAX:
        return _reply(db, contact, last.sos, "limited", _find_long_code(db, contact, last), now)
    matches = [(each, alarm_link.find_by_code(db, answer_text.code, each.id)) for each in contacts]
    coded = [(each, link) for each, link in matches if link is not None]
    if len({each.workspace for each, _ in coded}) > 1:
        reason = translate(
            contact.language,
            "Not answered: several alarms have that code. Use the link or your desk.",
        )
        return _reply(db, contact, last.sos, "ambiguous", reason, now)
    for each, link in coded:
        return _handle_proved(db, each, link, answer_text, now)
    if wrong + 1 == WRONG_MAX:
        reason = _find_long_code(db, contact, last)
        return _reply(db, contact, last.sos, "wrong code", reason, now, always=True)
    text = "Not answered: code {code} was not sent to you. See your newest message."
    reason = translate(contact.language, text, code=answer_text.code)
    return _reply(db, contact, last.sos, "wrong code", reason, now)


def _find_long_code(db: Db, contact: AlarmContact, link: AlarmLink) -> str:
    return translate(
        contact.language,
        "Not answered: too many wrong codes from this number. Reply with OK {code}, or use the link"
        " or your desk.",
        code=alarm_link.make_long_code(db, link),
    )


def _handle_proved_message(
    db: Db, answer: ContactAnswer, answer_text: AnswerText, now: float
) -> str:
    """Process an answer to an address or message that only its recipient knows. The answer is about
    an SOS, or it is a reply to a message that a person wrote at a kit.
    """
    link = alarm_link.find_by_message(db, answer.answers)
    if (
        link is None
        and (written_message := correspondence.find_by_message(db, answer.answers)) is not None
    ):
        return correspondence.send_answer(db, [written_message], answer, now)
    if link is None or link.contact is None:
        return "to no message of this hub"
    ((workspace,),) = db.execute("SELECT workspace FROM sos WHERE id = ?", link.sos)
    try:
        contact = contacts.find_contact(db, workspace, link.contact)
    except Refused:
        return "from a removed contact"
    return _handle_proved(db, contact, link, answer_text, now)


def _handle_proved(
    db: Db, contact: AlarmContact, link: AlarmLink, answer_text: AnswerText, now: float
) -> str:
    if link.expires <= now:
        reason = translate(
            contact.language,
            "Not answered: the message is old, and its code has expired.",
        )
        return _reply(db, contact, link.sos, "expired", reason, now)
    if not answer_text.accepts:
        return _send_to_kit(db, contact, link, answer_text.words, now, is_proved=True)
    incident = _find_incident(db, contact, link)
    if link.used is not None:
        end_text = notice.explain_end(db, incident, contact.language)
        reason = translate(
            contact.language, "Not answered: the code was already used. {why}.", why=end_text
        )
        return _reply(db, contact, link.sos, "used", reason, now)
    try:
        actor = Actor(None, link.name)
        canned_text = find_canned(contact.language, answer_text.words)[:UPDATE_TEXT_MAX]
        sos_desk.acknowledge_as(db, incident, actor, canned_text, now)
    except Refused:
        end_text = notice.explain_end(db, incident, contact.language)
        reason = translate(contact.language, "Not answered: {why}.", why=end_text)
        return _reply(db, contact, link.sos, "over", reason, now)
    alarm_link.mark_link_used(db, link, now)
    title, language = notice.make_title(incident, contact.language), contact.language
    text = "You have taken over {what}. The kit receives your name when it can be reached."
    reason = translate(language, text, what=title)
    if not sos_desk.can_kit_receive(db, incident):
        nothing = translate(
            language, "Nothing is sent to its kit, and no other contact is alerted."
        )
        reason = f"{translate(language, 'You have taken over {what}', what=title)}. {nothing}"
    return _reply(db, contact, link.sos, "acknowledged", reason, now)


def _find_incident(db: Db, contact: AlarmContact, link: AlarmLink) -> Sos:
    incident = sos.find_incident(db, contact.workspace, link.sos, locked=True)
    assert incident is not None, "its links go with it"
    return incident


def _send_to_kit(
    db: Db, contact: AlarmContact, link: AlarmLink, words: str, now: float, *, is_proved: bool
) -> str:
    """Send a text to the kit. If the text cannot be sent, reply to the author with the reason."""
    if not words:
        reason = translate(contact.language, "Nothing sent: your message was empty.")
        return _reply(db, contact, link.sos, "empty", reason, now)
    incident = _find_incident(db, contact, link)
    text = find_canned(contact.language, words) if is_proved else f"(number not proved) {words}"
    member = _find_or_add_sender(db, contact, now)
    ((kit_member,),) = db.execute("SELECT member FROM device WHERE id = ?", incident.device)
    posting = Posting(
        incident.workspace,
        member,
        Message(text),
        int(now),
        sos_desk.ANSWER_PRIORITY,
        target=int(kit_member),
    )
    if excess := texts_to_kits.find_excess(db, posting, incident.device, now):
        _show_to_desk(db, contact, link, words, now)
        reason = translate_text(excess, read_catalogue(refusals.__name__, contact.language))
        return _reply(db, contact, link.sos, "not sent", _describe_unsent(contact, reason), now)
    try:
        sos_desk.send_text_to_kit(db, incident, member, text, now)
    except Refused:
        reason = translate(contact.language, "its kit is disabled.")
        return _reply(db, contact, link.sos, "not sent", _describe_unsent(contact, reason), now)
    reason = translate(
        contact.language,
        "Your message is sent to the kit as soon as it can be reached.",
    )
    return _reply(db, contact, link.sos, "to the kit", reason, now)


def _describe_unsent(contact: AlarmContact, reason: str) -> str:
    return translate(contact.language, "Nothing sent: {why}", why=reason)


def _show_to_desk(db: Db, contact: AlarmContact, link: AlarmLink, words: str, now: float) -> None:
    """Show the desk a text that was not sent to the kit."""
    detail = f"wrote, but it was not sent to the kit: {words}"[: sos_desk.TEXT_MAX]
    sos.record_event(db, link.sos, "note", now, name=contact.name, detail=detail)


def _find_or_add_sender(db: Db, contact: AlarmContact, now: float) -> int:
    """Return the member in whose name the kit sees this contact's texts. The first text creates the
    member, which cannot sign in.
    """
    ((member,),) = db.execute("SELECT member FROM alarm_contact WHERE id = ?", contact.id)
    if member is None:
        member = texts_to_kits.add_text_author(db, contact.workspace, contact.name, now)
        db.execute("UPDATE alarm_contact SET member = ? WHERE id = ?", member, contact.id)
    return int(member)


def _reply(
    db: Db,
    contact: AlarmContact,
    sos_id: int,
    outcome: str,
    text: str,
    now: float,
    *,
    always: bool = False,
) -> str:
    """Queue a reply to the author, and return `outcome`. If `always` is True, queue the reply even
    if the limit of replies per hour or day is reached. Forged messages may have caused the earlier
    replies.
    """
    ((lately,),) = db.execute(
        "SELECT count(*) FROM alarm_message WHERE contact = ? AND why = ? AND not_before > ?",
        *(contact.id, alarm.REPLY, now - 3_600.0),
    )
    is_limited = lately >= texts_to_kits.REPLIES_MAX
    if text and (
        always
        or not (
            is_limited
            or sending.record_message_or_refuse(
                db, contact.workspace, contact.address, sending.REPLY, now
            )
        )
    ):
        alarm.queue_reply(db, sos_id, contact.id, text, now)
    return outcome


def report(db: Db, *, message_id: str, reached: bool, reason: str, now: float) -> None:
    """Record a service's report about a message. A repeated report is ignored. A later report
    replaces an earlier report, but a delivered message stays delivered.
    """
    state = "delivered" if reached else "failed"
    rows = db.execute(
        "UPDATE alarm_message SET reached = ? WHERE message_id = ? AND reached <> ?"
        " AND reached <> 'delivered' RETURNING sos, contact, why",
        *(state, message_id, state),
    )
    for sos_id, contact_id, why in rows:
        ((name,),) = db.execute("SELECT name FROM alarm_contact WHERE id = ?", contact_id)
        why_not = "" if reached else f"the service reports a failure: {reason}"
        contacts.record_attempt(db, contact_id, why_not, now)
        if why == alarm.REPLY:
            continue
        if reached:
            detail = f"{name}: the service reports delivery to the handset"
            sos.record_event(db, sos_id, "notified", now, detail=detail)
        else:
            sos.record_event(db, sos_id, "not notified", now, detail=f"{name}: {why_not}")
