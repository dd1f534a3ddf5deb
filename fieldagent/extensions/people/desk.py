"""Decides about everything that people's handhelds send, and stores the results on disk.

| received                   | from a known person          | from a guest            |
|----------------------------|------------------------------|-------------------------|
| direct text                | Package of that person       | refused, explained daily|
| text on a channel          | Package if it begins with    | nothing                 |
|                            | `mesh-word`                  |                         |
| `SOS …`, `MAYDAY …`, alert | the kit's SOS, in their name | an SOS of their own     |
| `SOS CANCEL` alone         | calls off their part of it   | the same                |
| `help`, `sos` on a channel | the kit asks for an SOS      | the same                |
| position                   | the newest is stored         | the same                |
| waypoint                   | Package                      | nothing                 |
| name and key               | stored, a new key is logged  | the same                |
| battery                    | stored, never sent on        | the same                |

Texts and waypoints that came over the Internet (MQTT) are ignored. An SOS among them is shown as a
notice. The same packet counts once in 24 hours.

If the radio does not authenticate senders (`Desk.caveat`), the kit adds that warning to everything
that they send, and these rules replace the ones above:

| received                   | from a known person          | from a guest            |
|----------------------------|------------------------------|-------------------------|
| `SOS …`, `MAYDAY …`, alert | a message, and a notice      | a notice                |
| the same, in `mesh-sos`    | an SOS of their own          | the same                |
| position                   | a tracker's at the hub       | the newest is stored    |
| anything                   | free, or within one budget for all such people         |
"""

from __future__ import annotations

import hmac
import logging
import re
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any

from fieldagent.agent.inbound import reading
from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal import directory, handhelds, incident, outbound
from fieldagent.agent.journal.handhelds import Handheld
from fieldagent.agent.journal.incident import IncidentOver
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.cancel import Cancellation, call_off, may_include_user_messages
from fieldagent.agent.outbound.intake import Intake
from fieldagent.extensions.people.contract import (
    PRECISE,
    HandheldBattery,
    HandheldMarker,
    HandheldName,
    HandheldPosition,
    HandheldReport,
    HandheldText,
    shorten_handle,
)
from fieldagent.extensions.people.directory import Holder, find_holder
from fieldagent.extensions.people.doubts import list_doubts
from fieldagent.extensions.people.replies import (
    ADDED_REPLY,
    CALLED_OFF_REPLY,
    EMERGENCY_REPLY,
    GUEST_REPLY,
    JOINED_REPLY,
    LIMIT_REPLY,
    NO_ALARM_REPLY,
    NO_SOS_REPLY,
    RAISED_REPLY,
    STAYS_OPEN_REPLY,
    STRANGER_REPLY,
    UNAUTHENTICATED_REPLY,
    WITHHELD_REPLY,
    WRONG_CODE_REPLY,
    translate,
)
from fieldagent.extensions.people.settings import CREDITS_PER_DAY, PeopleSettings
from fieldagent.extensions.people.toll import HandheldLimits
from fieldagent.extensions.people.unbelieved import (
    FROM_AFAR,
    UnauthenticatedCalls,
    make_distress_notice,
)
from fieldagent.package import distress
from fieldagent.package.distress import Call
from fieldagent.package.package import (
    SOS_PRIORITY,
    TRACKER,
    Location,
    Message,
    Package,
    Person,
    Waypoint,
    convert_to_date,
)
from fieldagent.package.reading import INT32
from fieldagent.package.writing import drop_invalid_members
from fieldagent.system.lazy_dataclass import dataclass

log = logging.getLogger(__name__)

ADDRESS = re.compile(r"\+[0-9]{6,15}|[^\s@]+@[^\s@]+\.[^\s@]+")
"""Pattern of a telephone number or an email address."""
JOIN_COMMAND = re.compile(r"\s*join\s+(\S+)\s*", re.IGNORECASE)
REPLY_LIFETIME_S = 3600.0
"""Seconds for which the kit tries to send a reply."""
GUESSES_PER_DAY_MAX = 5
"""Number of join codes that one handheld may try per day."""
KM_A_DEGREE = 111.2


@dataclass(slots=True)
class Desk:
    journal: Journal
    intake: Intake
    cancellation: Cancellation
    inbox: Inbox
    toll: HandheldLimits
    settings: PeopleSettings
    proof_keys: Sequence[bytes]
    caveat: str = ""
    """Warning about unauthenticated senders (`PeoplesRadio.caveat`); empty if the radio
    authenticates them."""
    unbelieved: UnauthenticatedCalls = field(default_factory=UnauthenticatedCalls)

    @property
    def _credits(self) -> int:
        own = self.settings.credits_per_day
        return own if own is not None else 0 if self.caveat else CREDITS_PER_DAY

    async def process_report(self, report: HandheldReport) -> bool:
        """Process a received report. Return False if the sender must be notified of a refusal,
        otherwise True. An accepted report is then on disk. A repeat gets the result of the first
        report. A text that came over the internet is not accepted; people only see a call for help
        in it. Raises the journal's errors.
        """
        await self._store_signal(report)
        content = report.what
        if isinstance(content, HandheldName):
            await self._process_name(report.handle, content)
        elif isinstance(content, HandheldBattery):
            await self._store_facts(report.handle, battery=content.battery)
        elif isinstance(content, HandheldPosition):
            await self._process_position(report, content)
        elif report.over_internet:
            if isinstance(content, HandheldText) and _is_distress(content):
                self._show_internet_call(report, content)
            return True
        elif self._is_repeated(report):
            return not handhelds.is_refused(self.journal, report.handle, report.number)
        elif isinstance(content, HandheldText):
            return await self._process_text(report, content)
        elif isinstance(content, HandheldMarker):
            await self._process_marker(report, content)
        return True

    def _is_repeated(self, report: HandheldReport) -> bool:
        return handhelds.is_heard(self.journal, report.handle, report.number)

    async def _store_signal(self, report: HandheldReport) -> None:
        if report.over_internet or not report.number:
            return
        rssi, snr, hops = report.signal
        await self._store_facts(
            report.handle, heard=self.journal.clock.now(), rssi=rssi, snr=snr, hops=hops
        )

    async def _store_facts(self, handle: str, **known: object) -> None:
        await self.journal.persist(handhelds.store_facts(handle, **known))

    async def _process_name(self, handle: str, content: HandheldName) -> None:
        before = handhelds.read_handheld(self.journal, handle)
        if content.name and content.name != before.name:
            await self._store_facts(handle, name=content.name)
            self._warn_of_doubt(handle)
        if not content.key:
            return
        if not before.key:
            await self._store_facts(handle, key=content.key)
        elif content.key not in (before.key, before.other_key):
            await self._store_facts(handle, other_key=content.key)
            self._warn_of_doubt(handle)

    def _warn_of_doubt(self, handle: str) -> None:
        for each in list_doubts(self.journal, self.settings.people or {}):
            if each.handle == handle:
                log.warning("%s", each.notice)

    async def _process_position(self, report: HandheldReport, position: HandheldPosition) -> None:
        before = handhelds.read_handheld(self.journal, report.handle)
        location = drop_invalid_members(position.where)
        now = self.journal.clock.date(self.journal.clock.now())
        fixed = location.timestamp.timestamp() if location.timestamp else now
        if before.fixed is not None and fixed < before.fixed <= now:
            return
        await self._store_facts(
            report.handle,
            latitude=location.latitude,
            longitude=location.longitude,
            altitude=location.altitude,
            fixed=fixed,
            precision=position.precision,
        )
        position_rule = self.settings.positions
        person = self.find_holder(report.handle)
        blurred = position.precision < PRECISE
        is_old = not report.number
        if not position_rule or not person.is_known or blurred or report.over_internet or is_old:
            return
        if not self.toll.begin_position_interval(report.handle, position_rule):
            return
        package = replace(
            _add_position(person, location),
            collapse_key=_compute_collapse_key(f"position {report.handle}"),
            gather=position_rule,
            time_to_live=position_rule * 2,
        )
        await self._accept(report, package, None)

    async def _process_marker(self, report: HandheldReport, marker: HandheldMarker) -> None:
        person = self.find_holder(report.handle)
        if not person.is_known:
            return
        point = Waypoint(
            marker.latitude,
            marker.longitude,
            person.add_name(marker.name),
            notes=marker.notes or None,
        )
        package = Package(
            point,
            collapse_key=_compute_collapse_key(f"wp {report.handle} {marker.mark}"),
            time_to_live=None if marker.lasts is None else min(marker.lasts, INT32[-1]),
            author=person.author,
        )
        await self._accept(report, package, None)

    async def _process_text(self, report: HandheldReport, text: HandheldText) -> bool:
        if text.answers is not None and text.direct:
            await self._note_read(report.handle, text.answers)
        if text.reaction and not _is_distress(text):
            return True
        call = distress.read(text.text, direct=text.direct).call
        if call is Call.MAYBE and not text.alert:
            question_key = f"asked {self.toll.get_day()} {report.handle}"
            await self._post(question_key, report, EMERGENCY_REPLY)
        if call is Call.CANCEL:
            if text.direct:
                await self._call_off(report, text)
        elif _is_distress(text):
            if self.caveat and report.handle not in self.settings.sos:
                return await self._handle_unauthenticated(report, text)
            await self._raise(report, text)
        elif (
            (code := JOIN_COMMAND.fullmatch(text.text)) and text.direct and self.settings.join_code
        ):
            return await self._join(report, text, code[1])
        else:
            return await self._process_message(report, text)
        return True

    def _show_internet_call(self, report: HandheldReport, text: HandheldText) -> None:
        """Show people a call for help that arrived over the Internet. Log only the first such call
        within an hour.
        """
        now = self.journal.clock.now()
        is_news = report.handle not in [handle for handle, _ in self.unbelieved.list_calls(now)]
        self.unbelieved.add_call(report.handle, now, FROM_AFAR)
        if is_news:
            person = self.find_holder(report.handle)
            log.warning("%s: %s", make_distress_notice(person, FROM_AFAR), text.text)

    async def _handle_unauthenticated(self, report: HandheldReport, text: HandheldText) -> bool:
        """Show people a call for help from an unauthenticated sender, without raising an alarm. If
        the person is known, send the call as a message. Otherwise refuse it. Return True if the
        message was accepted.
        """
        person = self.find_holder(report.handle)
        self.unbelieved.add_call(report.handle, self.journal.clock.now())
        log.warning("%s: %s", make_distress_notice(person), text.text)
        if not person.is_known:
            return await self._refuse_guest(report, text)
        message = Message(person.add_name(text.text.strip()))
        is_accepted = await self._accept(report, Package(message, author=person.author), text)
        if is_accepted and not text.alert:
            await self._reply(report, NO_ALARM_REPLY)
        return is_accepted

    async def _refuse_guest(self, report: HandheldReport, text: HandheldText) -> bool:
        """Explain to a guest, once a day, why the kit does not send the guest's messages. If the
        message is an alert, no text is sent. Return False.
        """
        if text.direct and not text.alert:
            template = STRANGER_REPLY if self.caveat else GUEST_REPLY
            request = f"guest {self.toll.get_day()} {report.handle}"
            await self._post(request, report, template, handle=shorten_handle(report.handle))
        await self._remember(report, None, handhelds.REFUSED_SIGN)
        return False

    async def _note_read(self, handle: str, packet: int) -> None:
        request = handhelds.find_answered(self.journal, handle, packet)
        if request is not None:
            is_news, name = handhelds.mark_read(request), self.find_holder(handle).name
            await reading.store_reading(
                self.journal, self.inbox, request, name, waits_for_space=True, condition=is_news
            )

    async def _process_message(self, report: HandheldReport, message: HandheldText) -> bool:
        text = message.text.strip()
        if not message.direct:
            command, _, text = text.partition(" ")
            if command.casefold() != self.settings.word.casefold():
                return True
        if not text:
            return True
        person = self.find_holder(report.handle, message.key if message.direct else None)
        if not person.is_known:
            return await self._refuse_guest(report, message)
        addressee, text = _split_addressee(self.journal, text)
        words = Message(person.add_name(text))
        return await self._accept(
            report, Package(words, to=addressee, author=person.author), message
        )

    async def _accept(
        self, report: HandheldReport, package: Package, text: HandheldText | None
    ) -> bool:
        is_direct = text is not None and text.direct and not text.alert
        earlier = outbound.find_by_idempotency_key(self.journal, _make_key(report))
        if earlier is not None:
            # An object is repeated for days. The cost was decided when it arrived first.
            await self._remember(report, earlier.sequence if is_direct else None)
            return True
        await self.toll.cancel_bookings()
        affordable, price = self._afford(report, package)
        if affordable is None:
            if is_direct:
                await self._reply(report, LIMIT_REPLY, limit=self._credits)
            await self._remember(report, None, handhelds.REFUSED_SIGN)
            return False
        await self.toll.book_price(report.handle, report.number, price)
        package_state = await self.intake.accept(affordable, _make_key(report))
        await self._remember(report, package_state.sequence if is_direct else None)
        return True

    def _afford(self, report: HandheldReport, package: Package) -> tuple[Package | None, int]:
        """Return the Package with the channels that can be paid for, or None if there is no such
        channel. Also return its price in credits.
        """
        if self.caveat:
            plan = self.toll.afford(report.handle, report.number, package, self._credits)
            return (plan.package if plan.is_allowed else None), plan.price
        price = self.toll.compute_price(package)
        spent = self.toll.read_spent(report.handle, report.number) if price else 0
        return (package if not price or spent + price <= self._credits else None), price

    async def _raise(self, report: HandheldReport, call: HandheldText) -> None:
        person = self.find_holder(report.handle, call.key if call.direct else None)
        # An unauthenticated sender opens a separate incident, because any radio could have sent the
        # call.
        unproved = "" if person.is_known and not self.caveat else report.handle
        handheld = handhelds.read_handheld(self.journal, report.handle)
        text = distress.read(call.text, direct=call.direct).remaining_words.strip()
        radio = ", ".join(filter(None, (shorten_handle(report.handle), self.caveat)))
        # The map of an incident does not show a tracker's position, so the text contains the
        # position.
        place = (
            _describe_position(handheld) if self.caveat else _describe_blurred_position(handheld)
        )
        who_and_where = f"{person.name} ({radio}){place}"
        content = f"SOS from {who_and_where}: {text}" if text else f"SOS from {who_and_where}"
        package = Package(Message(content), priority=SOS_PRIORITY, author=person.author)
        withheld = ""
        if unproved:
            package, withheld = await self._afford_sos(package)
        package_state = await self.intake.accept(package, _make_key(report), handle=unproved)
        number = incident.find_incident(self.journal, package_state.sequence)
        assert number is not None, "an SOS belongs to an incident"
        is_first = number == package_state.sequence
        if (where := _find_exact_position(handheld)) is not None:
            position = _add_position(person, where, priority=SOS_PRIORITY)
            if unproved:
                position, _ = await self._afford_sos(position)
            # The incident may have been cancelled meanwhile. A position alone does not raise
            # another incident.
            with suppress(IncidentOver):
                await self.intake.accept(
                    position, f"{_make_key(report)} position", incident_number=number
                )
        joined = handhelds.join_sos(number, report.handle, is_raiser=is_first)
        await self.journal.persist(joined)
        log.warning("SOS of %s received by radio: %s", who_and_where, text)
        if withheld:
            log.warning("the SOS of %s uses only other channels: %s", who_and_where, withheld)
        await self._reply(
            report, WITHHELD_REPLY if withheld else RAISED_REPLY if is_first else ADDED_REPLY
        )
        await self._remember(report, package_state.sequence if call.direct else None)

    async def _afford_sos(self, package: Package) -> tuple[Package, str]:
        """Return the Package with the channels that the budget for other people's SOS calls can pay
        for. Also return the reason why the other channels are not used.
        """
        plan = self.toll.afford_sos(package)
        await self.toll.book_sos_cost(plan.price)
        return plan.package, plan.withheld_text

    async def _call_off(self, report: HandheldReport, text: HandheldText) -> None:
        own_incident = incident.find_open_of_handheld(self.journal, report.handle)
        open_incident = own_incident or incident.find_open(self.journal)
        incidents = (
            []
            if open_incident is None
            else handhelds.list_in_sos(self.journal, open_incident.number)
        )
        own = [each for each in incidents if each.handle == report.handle and not each.called_off]
        key = handhelds.read_handheld(self.journal, report.handle).key
        if open_incident is None or not own:
            await self._reply(report, NO_SOS_REPLY)
        elif key and text.key != key:
            await self._reply(report, UNAUTHENTICATED_REPLY)
        else:
            others = [each for each in incidents if each.handle != report.handle]
            is_theirs = any(each.raised for each in incidents)
            is_ended = is_theirs and all(each.called_off for each in others)
            is_ended = is_ended and not may_include_user_messages(
                self.journal, open_incident.number
            )
            if is_ended:
                # Do not wait for a session, because the next message may be another person's SOS.
                ending = self.cancellation, self.intake, self.proof_keys, open_incident.number
                await call_off(self.journal, *ending, limit_s=0.0)
            # Store this last. If power fails before the SOS has ended, the person can then cancel
            # it again.
            await self.journal.persist(
                handhelds.record_sos_canceled(open_incident.number, report.handle)
            )
            await self._reply(report, CALLED_OFF_REPLY if is_ended else STAYS_OPEN_REPLY)
        await self._remember(report, None)

    async def _join(self, report: HandheldReport, text: HandheldText, code: str) -> bool:
        guesses = self.toll.count_guess(report.handle)
        right = hmac.compare_digest(code.encode(), (self.settings.join_code or "").encode())
        if guesses > GUESSES_PER_DAY_MAX:
            return False
        if right:
            handheld = handhelds.read_handheld(self.journal, report.handle)
            key = text.key or handheld.other_key or handheld.key
            now = self.journal.clock.now()
            await self._store_facts(report.handle, joined=now, key=key, other_key=None)
            await self._reply(report, JOINED_REPLY, name=self.find_holder(report.handle).name)
        else:
            await self._reply(report, WRONG_CODE_REPLY)
        await self._remember(report, None, "" if right else handhelds.REFUSED_SIGN)
        return right

    def find_holder(self, handle: str, key: bytes | None = None) -> Holder:
        """Return the holder of the radio `handle`, with the warning that must be shown with the
        holder's name.
        """
        holder = find_holder(self.journal, self.settings.people or {}, handle, key)
        return holder._replace(caveat=self.caveat)

    async def _remember(
        self, report: HandheldReport, sequence: int | None, answer: str = ""
    ) -> None:
        now = self.journal.clock.now()
        record_operation = handhelds.record_packet(
            report.handle, report.number, now, sequence, answer
        )
        await self.journal.persist(record_operation)

    async def _reply(self, report: HandheldReport, text: str, **values: object) -> None:
        await self._post(f"answer {report.handle} {report.number}", report, text, **values)

    async def _post(
        self, request: str, report: HandheldReport, text: str, **values: object
    ) -> None:
        post_text = self.translate_for(report, text, **values)
        now = self.journal.clock.now()
        store_operation = handhelds.store_text(
            report.handle, request, post_text, now, now + REPLY_LIFETIME_S, report.number
        )
        await self.journal.persist(store_operation)

    def translate_for(self, report: HandheldReport, text: str, **values: object) -> str:
        """Translate a text of the kit into the language of the person's message. If this language
        is unknown, use the language of the kit. `values` replace placeholders.
        """
        own = (
            distress.find_help_language(report.what.text)
            if isinstance(report.what, HandheldText)
            else None
        )
        return translate(own or self.settings.language, text, **values)


def _is_distress(text: HandheldText) -> bool:
    return text.alert or distress.read(text.text, direct=text.direct).call is Call.SOS


def _make_key(report: HandheldReport) -> str:
    return handhelds.make_idempotency_key(report.handle, report.number)


def _split_addressee(journal: Journal, text: str) -> tuple[Person | None, str]:
    """Return the addressee and the text of a message that begins with `@` and a name, email address
    or telephone number. If the addressee is unknown, return None and the whole text.
    """
    first_word, _, rest = text.partition(" ")
    name, remaining_text = first_word[1:].rstrip(":,"), rest.strip()
    if not first_word.startswith("@") or not remaining_text:
        return None, text
    if ADDRESS.fullmatch(name):
        return name, remaining_text
    person = directory.find_by_name(journal, name)
    return (None, text) if person is None else (person.as_named, remaining_text)


def _compute_collapse_key(text: str) -> int:
    """Return a hash of the text, from 0 to 2^31 - 1. Packages with the same hash replace each
    other.
    """
    return zlib.crc32(text.encode()) & 0x7FFF_FFFF


def _find_exact_position(handheld: Handheld) -> Location | None:
    """Return the last position of a handheld, or None if the position is unknown or blurred on
    purpose.
    """
    if (
        handheld.latitude is None
        or handheld.longitude is None
        or (handheld.precision or 0) < PRECISE
    ):
        return None
    moment = None if handheld.fixed is None else convert_to_date(handheld.fixed)
    return Location(handheld.latitude, handheld.longitude, moment, handheld.altitude)


def _add_position(person: Holder, location: Location, **more: Any) -> Package:
    """Return a Package with a person's position. The position of an unauthenticated person has the
    form of a tracker's position.
    """
    if not person.caveat:
        return Package(location, author=person.author, **more)
    name = person.handle.upper()
    point = Waypoint(location.latitude, location.longitude, name, location.timestamp, person.caveat)
    return Package(point, author=f"{TRACKER}{name}", **more)


def _describe_position(handheld: Handheld) -> str:
    """Return the last position of a handheld as text, or an empty text if the position is
    unknown.
    """
    position = _find_exact_position(handheld)
    return (
        _describe_blurred_position(handheld)
        if position is None
        else f", at {position.latitude:.5f} {position.longitude:.5f}"
    )


def _describe_blurred_position(handheld: Handheld) -> str:
    """Return a blurred position with its accuracy as text, or an empty text if the position is
    unknown or exact.
    """
    bits = handheld.precision
    if handheld.latitude is None or handheld.longitude is None or bits is None or bits >= PRECISE:
        return ""
    within = max(0.1, 2.0 ** (PRECISE - bits) * 1e-7 / 2 * KM_A_DEGREE)
    return (
        f", near {handheld.latitude:.3f} {handheld.longitude:.3f}, which their radio blurs on"
        f" purpose: within {within:.1f} km"
    )
