"""Sends texts to people's handhelds, and signs that show the progress of people's own messages.

A text is sent in parts. Each part is repeated until the person's radio confirms it. If a person is
out of range, the kit tries again when it hears the person's radio. Otherwise it tries less and less
often, until the text expires. The radio's confirmation is not a read receipt, but a person's answer
or reaction is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import field
from math import inf
from typing import NoReturn

import trio

from fieldagent.agent.inbound import reading
from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal import handhelds, outbound
from fieldagent.agent.journal.handhelds import HandheldPost, HandheldSent
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import StoredPackage
from fieldagent.agent.outbound.package_state import list_reached
from fieldagent.extensions.people import signs
from fieldagent.extensions.people.contract import PeopleRadio, TextOutcome
from fieldagent.extensions.people.directory import Holder
from fieldagent.package.delivery import Stage
from fieldagent.package.package import Message
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass

log = logging.getLogger(__name__)

RETRY_PAUSES_S = (60.0, 300.0, 900.0, 3600.0)
"""Seconds until the next attempt if a person did not answer and the kit does not hear the person's
radio meanwhile. The last value applies to all later attempts."""
PARTS_MAX = 3
MORE_SUFFIX = " … more at the kit"
OWN_REQUEST_PREFIXES = ("answer ", "guest ", "given up ")
"""Prefixes of the ids of the kit's own texts, for which no receipts are sent."""
LINE_LIFETIME_S = 3600.0
CHECK_INTERVAL_S = 3600.0
BEGINNING = 24
"""Number of characters that are quoted from a message, so that its sender recognises the
message."""


def split_into_parts(text: str, size: int) -> list[str]:
    """Split a text into numbered parts of at most `size` bytes, at spaces if possible. If there
    would be more than `PARTS_MAX` parts, return only the first, and note in the last that there is
    more.
    """
    if len(text.encode()) <= size:
        return [text]
    capacity = size - len("1/3 ")
    pieces = _cut_into_parts(text, capacity, PARTS_MAX + 1)
    if len(pieces) > PARTS_MAX:
        return [_cut_into_parts(text, size - len(MORE_SUFFIX.encode()), 1)[0] + MORE_SUFFIX]
    return [f"{place}/{len(pieces)} {piece}" for place, piece in enumerate(pieces, 1)]


def count_parts(text: str, size: int) -> int:
    """Return the number of parts of at most `size` bytes that the whole text needs."""
    if len(text.encode()) <= size:
        return 1
    return len(_cut_into_parts(text, size - len("1/3 "), len(text)))


def _cut_into_parts(text: str, size: int, limit: int) -> list[str]:
    pieces: list[str] = []
    rest = text.strip()
    while rest and len(pieces) < limit:
        piece = rest.encode()[:size].decode("utf-8", "ignore")
        if len(piece) < len(rest):
            at = piece.rfind(" ")
            piece = piece[:at] if at > len(piece) // 2 else piece
        pieces.append(piece.strip())
        rest = rest[len(piece) :].strip()
    return pieces


class Absence:
    """Pauses between attempts to send to people who did not answer. `now` is elapsed time."""

    def __init__(self) -> None:
        self._failures: dict[str, tuple[float, int]] = {}

    def compute_end(self, handle: str, heard_at: float | None) -> float:
        """Return the time of the next attempt, or -inf if the kit may try now."""
        if handle not in self._failures:
            return -inf
        failed, tries = self._failures[handle]
        if heard_at is not None and heard_at > failed:
            return -inf
        return failed + RETRY_PAUSES_S[min(tries, len(RETRY_PAUSES_S)) - 1]

    def record_attempt(self, handle: str, now: float, *, is_present: bool) -> None:
        if is_present:
            self._failures.pop(handle, None)
        else:
            _, tries = self._failures.get(handle, (now, 0))
            self._failures[handle] = now, tries + 1


@dataclass(slots=True)
class HandheldMessenger:
    journal: Journal
    inbox: Inbox
    who: Callable[[str], Holder]
    absence: Absence
    _news: trio.Event = field(default_factory=trio.Event)

    async def run(self, radio: PeopleRadio) -> None:
        """Send to each person in a separate task, until cancelled. Raises RadioLost and PortLost,
        and the journal's errors.
        """
        busy: set[str] = set()
        self._news = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pass_news_on)
            while True:
                # Get the event before the journal is read, so that no change is missed.
                news = self._news
                now = self.journal.clock.now()
                next_at = now + CHECK_INTERVAL_S
                for handle, at in self._compute_due_times().items():
                    if handle in busy:
                        continue
                    if at <= now:
                        busy.add(handle)
                        nursery.start_soon(self._serve, radio, handle, busy)
                    else:
                        next_at = min(next_at, at)
                with waits.move_on_after(min(CHECK_INTERVAL_S, next_at - now)):
                    await news.wait()

    async def _pass_news_on(self) -> NoReturn:
        while True:
            await self.journal.wait_for_commit()
            self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def _compute_due_times(self) -> dict[str, float]:
        """Return the elapsed time when the next text or sign is due for each handheld."""
        handles = [each.handle for each in handhelds.list_posts(self.journal)]
        handles += [sent.handle for sent, _, _ in self._list_signs()]
        return {
            handle: self.absence.compute_end(
                handle, handhelds.read_handheld(self.journal, handle).heard
            )
            for handle in dict.fromkeys(handles)
        }

    def _list_signs(self) -> list[tuple[HandheldSent, str, str]]:
        pending = []
        for sent in handhelds.list_reportable(self.journal):
            package = outbound.find_by_sequence(self.journal, sent.sequence)
            if package is not None:
                sign, line = signs.find_due_sign(sent.told, list_reached(self.journal, package))
                if sign:
                    pending.append((sent, sign, line))
        return pending

    async def _serve(self, radio: PeopleRadio, handle: str, busy: set[str]) -> None:
        try:
            for sent, sign, line in self._list_signs():
                if sent.handle == handle and not await self._sign(radio, sent, sign, line):
                    return
            for post in handhelds.list_posts(self.journal):
                if post.handle == handle and not await self._send_post(radio, post):
                    return
        finally:
            busy.discard(handle)
            # Something for the person may have arrived meanwhile.
            self._wake()

    async def _sign(
        self, radio: PeopleRadio, sent_text: HandheldSent, sign: str, line: str
    ) -> bool:
        sign_text = f"{line or signs.SIGN_MEANINGS[sign]} («{self._find_beginning(sent_text)}»)"
        outcome = await radio.react(sent_text.handle, sent_text.number, sign, sign_text)
        if not self._record_outcome(sent_text.handle, outcome):
            return False
        await self.journal.persist(handhelds.store_signs(sent_text, sent_text.told + sign))
        if line and radio.has_signs:
            now = self.journal.clock.now()
            request = f"given up {sent_text.sequence}"
            await self.journal.persist(
                handhelds.store_text(
                    sent_text.handle,
                    request,
                    f"{sign} {line}",
                    now,
                    now + LINE_LIFETIME_S,
                    sent_text.number,
                )
            )
        return True

    def _find_beginning(self, sent_text: HandheldSent) -> str:
        """Return the beginning of a person's message, from which the person recognises the
        message.
        """
        package = outbound.read_packages(self.journal, [sent_text.sequence]).get(sent_text.sequence)
        item = package.package.item if isinstance(package, StoredPackage) else None
        text = item.content if isinstance(item, Message) else ""
        text = text.removeprefix(self.who(sent_text.handle).signature)
        return text if len(text) <= BEGINNING else text[:BEGINNING].rstrip() + "…"

    async def _send_post(self, radio: PeopleRadio, post: HandheldPost) -> bool:
        """Send a text. Return True if the kit should now send another text to the person's
        radio.
        """
        if self.journal.clock.now() >= post.expires:
            log.warning("a text did not reach %s in time", self.who(post.handle).name)
            await self.journal.persist(handhelds.update_text(post.number, state="expired"))
            return True
        parts = split_into_parts(post.text, radio.text_bytes)
        for place in range(post.part, len(parts)):
            packet = radio.make_number()
            await self.journal.persist(handhelds.record_packet_number(post.number, packet))
            answers = 0 if place else post.answers
            outcome = await radio.send_text(post.handle, parts[place], packet, answers)
            if not self._record_outcome(post.handle, outcome):
                log.info(
                    "%s did not receive a text: %s", self.who(post.handle).name, outcome.reason
                )
                if not outcome.too_early:
                    await self.journal.persist(
                        handhelds.update_text(post.number, tries=post.attempts + 1)
                    )
                return False
            await self.journal.persist(handhelds.update_text(post.number, part=place + 1))
        is_there = handhelds.mark_arrived(post.number)
        if post.request_id.startswith(OWN_REQUEST_PREFIXES):
            await self.journal.persist(is_there)
            return True
        name, request = self.who(post.handle).name, post.request_id.partition(" ")[0]
        # Store the arrival and the receipt in one commit, because the receipt could not be created
        # later.
        if (cut := count_parts(post.text, radio.text_bytes)) > len(parts):
            name = f"{len(parts)}/{cut} {name}"
        context = self.journal, self.inbox, request, name
        await reading.store_reading(*context, Stage.RADIO, waits_for_space=True, condition=is_there)
        return True

    def _record_outcome(self, handle: str, outcome: TextOutcome) -> bool:
        if not outcome.too_early:
            self.absence.record_attempt(
                handle, self.journal.clock.now(), is_present=outcome.is_confirmed
            )
        return outcome.is_confirmed
