"""A MeshCore companion as the kit's radio for handhelds: direct messages, adverts and batteries of
people.

    a public key          identifies a person: another key is another person's radio
    a text on a channel   is not authenticated. In a private channel the name before the colon is
                          accepted if exactly one contact has it. Otherwise the text can still raise
                          an SOS under that name
    reactions             do not exist, so the result of a message is sent as a text
    waypoints, alerts     do not exist, and an SOS is a text
    an acknowledgement    comes from the person's radio

The radio gives each message to its host once and then forgets it. So the next message is requested
only when the last message is on disk.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from math import inf
from random import getrandbits
from typing import NoReturn
from urllib.parse import quote

import trio

from fieldagent.agent.channels.contract import ChannelLink, LinkState
from fieldagent.agent.channels.radio_modem import RadioLost
from fieldagent.agent.channels.recognition import Recognition
from fieldagent.extensions.people.contract import (
    HandheldBattery,
    HandheldName,
    HandheldPlace,
    HandheldReport,
    HandheldSignal,
    HandheldText,
    PeoplesRadio,
    TextOutcome,
    make_located,
)
from fieldagent.extensions.people.meshcore_host import (
    FULL_CONTACTS_REASON,
    CompanionHost,
    open_host,
)
from fieldagent.package.package import Location
from fieldagent.system import waits
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire import meshcore_companion as wire
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.meshcore_companion import (
    CompanionCommand,
    CompanionContact,
    CompanionMessage,
    CompanionText,
    ContactType,
    TextType,
)

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 60.0
"""Seconds between two checks of the radio's clock and of its waiting messages."""
ADVERT_AFTER, ADVERT_EVERY = 60.0, 43_200.0
"""Seconds until the kit sends its first advert to the whole mesh, and seconds between two
adverts."""
BATTERY_INTERVAL_S = 21_600.0
"""Seconds between two queries of a person's battery. Each query costs two packets."""
SIMULTANEOUS_TEXTS_MAX = 6
"""Largest number of texts that may be on their way at the same time. A radio remembers eight
expected acknowledgements."""
ACK_SPARE_S = 3.0
"""Seconds to wait for an acknowledgement after the end of the radio's own estimate."""
ACK_MAX = 60.0
UNANSWERED_MAX = 200
"""Largest number of unacknowledged texts whose times are stored in memory for a retry."""
CHARGES = (
    *((3.3, 0), (3.5, 5), (3.6, 15), (3.7, 35), (3.8, 55), (3.9, 70), (4.0, 85), (4.2, 100)),
)
"""Voltages of a lithium cell under light load, with the approximate charge in percent."""
ON_CHANNEL = "#"
"""Prefix of the handle of a person who is known only from a text on a channel."""
_HANDLE = re.compile(
    rf"{ON_CHANNEL}(?:1?[0-9]?[0-9]|2[0-4][0-9]|25[0-5])/.*|(?:[0-9a-f]{{2}}){{6,32}}",
    re.ASCII | re.DOTALL,
)


class _UnacknowledgedText(NamedTuple):
    """A text that was not acknowledged. The kit repeats the text with the same time, from which a
    receiver recognises a text that it has already.
    """

    time: int
    attempt: int
    codes: list[bytes]


class TextTimes:
    """Times of the kit's texts. Each time is unique, because the mesh treats texts with equal times
    as the same text.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = 0
        self._unanswered: dict[tuple[str, str], _UnacknowledgedText] = {}

    def begin(self, handle: str, text: str) -> _UnacknowledgedText:
        """Return the state of a text that is sent now. If the text was sent before, this is the
        state of its last attempt.
        """
        before = self._unanswered.pop((handle, text), None)
        return before if before is not None else _UnacknowledgedText(self.make_time(), 0, [])

    def make_time(self) -> int:
        """Return a unique Unix time for a new text."""
        self._last = max(self._last + 1, int(self._clock()))
        return self._last

    def remember(self, handle: str, text: str, unanswered: _UnacknowledgedText) -> None:
        """Store an unacknowledged text in memory. If there are more than `UNANSWERED_MAX` texts,
        drop the oldest.
        """
        while len(self._unanswered) >= UNANSWERED_MAX:
            del self._unanswered[next(iter(self._unanswered))]
        self._unanswered[handle, text] = unanswered


class MeshcorePeople:
    """Implements `contract.PeopleRadio`."""

    text_bytes = wire.TEXT_BYTES
    has_signs = False

    def __init__(self, host: CompanionHost, link: ChannelLink, clock: Callable[[], float]) -> None:
        self._host = host
        self._link = link
        self._clock = clock
        self._contacts: dict[bytes, CompanionContact] = {}
        self._waiting_reports: deque[HandheldReport] = deque()
        self._may_wait = True
        """True if a message may be waiting in the radio."""
        self._is_full = False
        self._own_texts = TextTimes(clock)
        self._sent_on_channel: deque[tuple[str, str]] = deque(maxlen=UNANSWERED_MAX)
        self._battery_due_key = b""
        """Key of the last message's sender, whose battery the kit must query; empty if there is
        none."""
        self._query_battery_at: dict[bytes, float] = {}
        self._turns = trio.Semaphore(SIMULTANEOUS_TEXTS_MAX)

    async def begin(self) -> None:
        """Load the contacts from the radio. Raises RadioLost."""
        await self._host.set_clock(self._clock)
        await self._load_contacts()
        for contact in self._contacts.values():
            self._queue_contact(contact, 0, self._find_known_since(contact))
        self._show_capacity(full=False)

    async def advertise(self) -> NoReturn:
        """Send the kit's adverts, so that people can write to the kit. The first advert goes to the
        radios in range, and later adverts regularly go to the whole mesh. Raises RadioLost.
        """
        await self._host.request_answer(
            wire.make_command(CompanionCommand.SEND_ADVERT), CompanionMessage.OK
        )
        await waits.sleep(ADVERT_AFTER)
        while True:
            flood = wire.make_command(CompanionCommand.SEND_ADVERT, b"\1")
            await self._host.request_answer(flood, CompanionMessage.OK)
            await waits.sleep(ADVERT_EVERY)

    async def receive(self) -> HandheldReport:
        while True:
            if self._waiting_reports:
                return self._waiting_reports.popleft()
            # Query the battery only when the queue is empty, because the radio may be lost during
            # the query. The queue would then be lost too.
            key, self._battery_due_key = self._battery_due_key, b""
            if key:
                await self._query_battery(key)
                continue
            if self._may_wait:
                await self._fetch()
                continue
            content = None
            with waits.move_on_after(CHECK_INTERVAL_S):
                content = await self._host.receive_report()
            if content is None:
                await self._maintain_radio()
            else:
                await self._process_unsolicited(content)

    async def _maintain_radio(self) -> None:
        if await self._host.set_clock(self._clock):
            log.warning("the people's radio has restarted, or its clock was wrong: clock set")
        if self._is_full:
            await self._load_contacts()
            self._show_capacity(full=False)
        self._may_wait = True

    async def _load_contacts(self) -> None:
        self._contacts = {each.key: each for each in await self._host.list_contacts()}

    async def _fetch(self) -> None:
        """Request the next message from the radio, and process it. Raises RadioLost."""
        kinds = (
            CompanionMessage.TEXT,
            CompanionMessage.CHANNEL_TEXT,
            CompanionMessage.CHANNEL_DATA,
        )
        old = (
            CompanionMessage.OLD_TEXT,
            CompanionMessage.OLD_CHANNEL_TEXT,
            CompanionMessage.NO_MESSAGE,
        )
        request = wire.make_command(CompanionCommand.NEXT_MESSAGE)
        answer = await self._host.request_answer(request, *kinds, *old)
        self._may_wait = answer[0] not in (CompanionMessage.NO_MESSAGE, CompanionMessage.ERROR)
        if self._may_wait and answer[0] != CompanionMessage.CHANNEL_DATA:
            try:
                message = wire.decode_text(answer)
            except RemoteProtocolError as error:
                log.warning("the people's radio sent a message that cannot be read: %s", error)
                return
            if message.channel is None:
                await self._process_direct_text(message)
            elif message.type == TextType.PLAIN:
                self._process_channel_text(message)

    async def _process_direct_text(self, message: CompanionText) -> None:
        if message.type != TextType.PLAIN:
            return
        contacts = self._find_contacts(message.sender)
        if not contacts:
            # The radio has already deleted the message, so continue even if the radio is lost
            # during this call.
            with suppress(RadioLost):
                await self._load_contacts()
            contacts = self._find_contacts(message.sender)
        if len(contacts) == 1 and contacts[0].type != ContactType.CHAT:
            return
        # If two keys begin with the same prefix, the sender is unknown.
        key = contacts[0].key if len(contacts) == 1 else b""
        handle = (key or message.sender).hex()
        if key:
            self._waiting_reports.append(
                HandheldReport(handle, 0, HandheldName(_clean_text(contacts[0].name), key))
            )
        spoken = HandheldText(message.text, True, key=key)
        signal = HandheldSignal(snr=message.snr, hops=message.hops)
        self._waiting_reports.append(
            HandheldReport(handle, _compute_message_number(message), spoken, signal)
        )
        self._battery_due_key = key

    def _process_channel_text(self, message: CompanionText) -> None:
        name, colon, text = message.text.partition(": ")
        if not colon:
            # Apps put the name before the colon. Even a text without a name may be a call for help.
            name, text = "", message.text
        assert message.channel is not None
        channel = self._host.channels.get(message.channel)
        handle = f"{ON_CHANNEL}{message.channel}/{quote(name)}"
        if name and channel is not None and wire.is_private(channel):
            same_names = [
                each for each in self._list_people() if _clean_text(each.name) == _clean_text(name)
            ]
            handle = same_names[0].key.hex() if len(same_names) == 1 else handle
        signal = HandheldSignal(snr=message.snr, hops=message.hops)
        if handle.startswith(ON_CHANNEL):
            self._waiting_reports.append(
                HandheldReport(handle, 0, HandheldName(_clean_text(name), b""))
            )
        spoken = HandheldText(text, False, "" if channel is None else channel.name)
        self._waiting_reports.append(
            HandheldReport(handle, _compute_message_number(message), spoken, signal)
        )

    def _list_people(self) -> list[CompanionContact]:
        return [each for each in self._contacts.values() if each.type == ContactType.CHAT]

    def _find_contacts(self, prefix: bytes) -> list[CompanionContact]:
        return [each for key, each in self._contacts.items() if key.startswith(prefix)]

    async def _process_unsolicited(self, content: bytes) -> None:
        """Process an unsolicited report: a waiting message, an advert, a battery, or a full contact
        list. Raises RadioLost.
        """
        try:
            if content[0] == CompanionMessage.MESSAGE_WAITS:
                self._may_wait = True
            elif content[0] == CompanionMessage.ADVERT:
                await self._process_advert(wire.decode_advert(content))
            elif content[0] == CompanionMessage.NEW_ADVERT:
                await self._add_contact(wire.decode_contact(content))
            elif content[0] == CompanionMessage.TELEMETRY:
                self._process_battery(*wire.decode_telemetry(content))
            elif content[0] == CompanionMessage.CONTACTS_FULL:
                self._show_capacity(full=True)
        except RemoteProtocolError as error:
            log.debug("the people's radio sent unreadable data: %s", error)

    async def _process_advert(self, key: bytes) -> None:
        contact = await self._host.find_contact(key)
        if contact is not None:
            self._contacts[key] = contact
            number = _compute_number(key + contact.advertised.to_bytes(4, "big"))
            self._queue_contact(contact, number, None)

    async def _add_contact(self, contact: CompanionContact) -> None:
        """Add a contact that the radio does not add by itself. The radio does not accept texts of
        unknown people, and a person in distress may be unknown to it.
        """
        if contact.type != ContactType.CHAT:
            return
        answer = await self._host.request_answer(wire.put_contact(contact), CompanionMessage.OK)
        if answer[0] == CompanionMessage.OK:
            await self._process_advert(contact.key)
        else:
            self._show_capacity(full=True)

    def _queue_contact(
        self, contact: CompanionContact, number: int, since: datetime | None
    ) -> None:
        """Queue a report with a contact's name and position. If `number` is 0, the radio knew the
        contact before, and `since` is the latest possible time of its position, or None if that is
        unknown.
        """
        if contact.type != ContactType.CHAT:
            return
        handle = contact.key.hex()
        self._waiting_reports.append(
            HandheldReport(handle, number, HandheldName(_clean_text(contact.name), contact.key))
        )
        latitude, longitude = contact.latitude / 1e6, contact.longitude / 1e6
        place = make_located(Location(latitude, longitude, since))
        if place and abs(latitude) <= 90 and abs(longitude) <= 180 and (number or since):
            self._waiting_reports.append(HandheldReport(handle, number, place))

    def _find_known_since(self, contact: CompanionContact) -> datetime | None:
        """Return an upper limit for the time of a contact's position, or None if there is no limit.
        The limit is the earlier of two times. The contact's own time may be wrong because of the
        contact's clock. The time of the radio's last change of its entry may be later than the
        position.
        """
        earliest = min(contact.advertised, contact.changed)
        return datetime.fromtimestamp(earliest, UTC) if 0 < earliest <= self._clock() else None

    def _show_capacity(self, *, full: bool) -> None:
        """Show people a warning if the radio's contact list is full. `full` is True if the radio
        has reported this.
        """
        contacts_max = self._host.device.contacts_max
        self._is_full = full or 0 < contacts_max <= len(self._contacts)
        self._link.state = LinkState.FAULT if self._is_full else LinkState.READY
        self._link.reason = (
            FULL_CONTACTS_REASON.format(count=len(self._contacts)) if self._is_full else ""
        )

    async def _query_battery(self, key: bytes) -> None:
        now = trio.current_time()
        if now >= self._query_battery_at.get(key, -inf):
            self._query_battery_at[key] = now + BATTERY_INTERVAL_S
            await self._host.request_answer(wire.ask_telemetry(key), CompanionMessage.SENT)

    def _process_battery(self, sender: bytes, volts: float | None) -> None:
        contacts = self._find_contacts(sender)
        if (
            volts is not None
            and len(contacts) == 1
            and (charge := _compute_charge(volts)) is not None
        ):
            self._waiting_reports.append(
                HandheldReport(contacts[0].key.hex(), 0, HandheldBattery(charge))
            )

    def make_number(self) -> int:
        return getrandbits(48) or 1

    async def send_text(self, handle: str, text: str, number: int, answers: int = 0) -> TextOutcome:
        if not is_handle(handle):
            return TextOutcome(False, "it is not a MeshCore radio, as this kit's radio needs")
        if handle.startswith(ON_CHANNEL):
            return await self._send_on_channel(handle, text)
        async with self._turns:
            return await self._send_by_path(handle, bytes.fromhex(handle), text)

    async def refuse(self, report: HandheldReport, reason: str) -> None:
        if reason:
            await self.send_text(report.handle, reason, self.make_number(), report.number)

    async def react(self, handle: str, number: int, sign: str, words: str) -> TextOutcome:
        # A reason may be long. The radio would refuse a text that is too long, and the kit would
        # retry this text forever before all other texts.
        text = f"{sign} {words}".encode()[: self.text_bytes].decode("utf-8", "ignore")
        return await self.send_text(handle, text, number)

    async def _send_by_path(self, handle: str, key: bytes, text: str) -> TextOutcome:
        """Send a text along the path that the radio knows. If the text is not acknowledged, flood
        the mesh with it.
        """
        time, attempt, codes = self._own_texts.begin(handle, text)
        floods = False
        while not floods and not self._host.is_acknowledged(codes):
            answer = await self._host.request_answer(
                wire.send_text(key, text, time, attempt), CompanionMessage.SENT
            )
            attempt += 1
            try:
                sent = wire.decode_sent(answer)
            except RemoteProtocolError:
                self._own_texts.remember(handle, text, _UnacknowledgedText(time, attempt, codes))
                return TextOutcome(False, f"the radio refuses it: {wire.describe_error(answer)}")
            codes.append(sent.ack)
            floods = sent.flooded
            if await self._host.wait_for_acknowledgement(
                codes, min(ACK_MAX, sent.wait_s + ACK_SPARE_S)
            ):
                break
            if not floods:
                reset = wire.make_command(CompanionCommand.RESET_PATH, key)
                refused = await self._host.request_answer(reset, CompanionMessage.OK)
                floods = refused[0] != CompanionMessage.OK
        if self._host.is_acknowledged(codes):
            return TextOutcome(True, "")
        self._own_texts.remember(handle, text, _UnacknowledgedText(time, attempt, codes))
        return TextOutcome(False, "no acknowledgement")

    async def _send_on_channel(self, handle: str, text: str) -> TextOutcome:
        """Send a text once on the channel, where all members can read it. Used when the person
        cannot be reached in another way.
        """
        if (handle, text) not in self._sent_on_channel:
            self._sent_on_channel.append((handle, text))
            place = int(handle[1:].partition("/")[0])
            command = wire.send_channel_text(place, text, self._own_texts.make_time())
            await self._host.request_answer(command, CompanionMessage.OK, CompanionMessage.SENT)
        return TextOutcome(False, "sent on a channel, where texts are not acknowledged")


def _clean_text(name: str) -> str:
    return " ".join(name.split())[:40]


def _compute_message_number(message: CompanionText) -> int:
    """Return a number that identifies a person's message. MeshCore messages have no numbers, but
    all attempts of a message have the same time and text.
    """
    conversation = message.sender if message.channel is None else bytes([message.channel])
    return _compute_number(conversation + message.time.to_bytes(4, "big") + message.text.encode())


def _compute_number(what: bytes) -> int:
    return int.from_bytes(sha256(what).digest()[:6], "big") or 1


def _compute_charge(volts: float) -> int | None:
    """Return the approximate charge of a lithium cell in percent, or None if `volts` is not the
    voltage of such a cell.
    """
    if not 2.5 <= volts <= 4.6:
        return None
    below = [(at, percent) for at, percent in CHARGES if at <= volts]
    above = [(at, percent) for at, percent in CHARGES if at > volts]
    if not below or not above:
        return CHARGES[-1][1] if below else 0
    (low, least), (high, most) = below[-1], above[0]
    return round(least + (most - least) * (volts - low) / (high - low))


def is_handle(handle: str) -> bool:
    """Return True if the handle belongs to a MeshCore radio: a public key, the beginning of a
    public key, or a name on a channel.
    """
    return _HANDLE.fullmatch(handle) is not None


@asynccontextmanager
async def open_meshcore(
    place: HandheldPlace, link: ChannelLink, clock: Callable[[], float]
) -> AsyncIterator[MeshcorePeople]:
    """Open the MeshCore radio for handhelds. `clock` returns Unix time. Raises RadioLost and
    PortLost, in exception groups.
    """
    async with open_host(place.port) as host:
        link.facts["node"] = host.own.key.hex()
        link.facts["firmware"] = host.device.firmware
        people = MeshcorePeople(host, link, clock)
        await people.begin()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(people.advertise)
            yield people
            nursery.cancel_scope.cancel()


def _make_recognition() -> Recognition:
    from fieldagent.extensions.people.meshcore_recognition import RECOGNITION

    return RECOGNITION


RADIO = PeoplesRadio(
    "meshcore",
    "radios with MeshCore's companion firmware, by serial line or tcp://host:"
    " docs/how-to/handhelds.md",
    open_meshcore,
    is_handle,
    _make_recognition,
)
