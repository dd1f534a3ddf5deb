"""A simulated person at home, behind the operator's gateway. The person receives the kit's messages
and writes to the kit.

MO messages are decoded and printed, and missing fragments are requested. MT messages are split and
numbered in the same way as by a hub.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from fieldagent.extensions.lab.simulator.mt_queue import MtQueue
from fieldagent.package.package import Item, get_position_time
from fieldagent.package.payload import Identity
from fieldagent.package.writing import encode_item, format_timestamp, get_kind
from fieldagent.system.wording import format_count
from fieldagent.wire.envelope import (
    Entry,
    Envelope,
    Fragment,
    Introduction,
    Receipt,
    Report,
    Unreadable,
    compute_fragments_digest,
    decode,
    encode,
)
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.fragments import join, split
from fieldagent.wire.sbd import MT_BYTES
from fieldagent.wire.seal import TAG_BYTES

ORIGIN = 1
BODIES_KEPT = 20
"""Largest number of MT messages that are stored so that they can be sent again unchanged."""
HOME_IDENTITY = Identity("1", "Base camp", "User", "base@example.org", "7")


class HomeWriter:
    """Sends messages to the kit. The writer numbers the messages, splits them if necessary, and
    stores them so that they can be repeated.
    """

    def __init__(
        self, queue: MtQueue, clock: Callable[[], float], key: bytes | None, mt_bytes: int
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._key = key
        self._mt_bytes = mt_bytes
        self._sequence = int(clock())
        self._introduced = False
        self._sent: dict[int, list[Fragment]] = {}
        self._bodies: deque[bytes] = deque(maxlen=BODIES_KEPT)

    def send(self, item: Item, *, sos: bool = False) -> int:
        """Queue an item and return the number of its MT messages."""
        self._sequence += 1
        moment = get_position_time(item)
        time = int(moment.timestamp() if moment else self._clock())
        entry = Entry(self._sequence, item, time, sos)
        entries = [entry]
        if not self._introduced:
            entries.insert(0, Entry(ORIGIN, Introduction(HOME_IDENTITY), entry.time))
            self._introduced = True
        envelope = encode(entries, origin=ORIGIN)
        capacity = self._mt_bytes - (0 if self._key is None else TAG_BYTES + 1)
        if len(envelope) <= capacity:
            self._queue_entries(entries)
            return 1
        fragments = self._sent[self._sequence] = split(envelope, capacity)
        for fragment in fragments:
            self._queue_entries([Entry(self._sequence, fragment)])
        return len(fragments)

    def repeat(self, sequence: int, report: Report) -> int:
        """Send the fragments again that the kit is missing. Return their number."""
        missing = [f for f in self._sent.get(sequence, []) if f.index not in report.arrived]
        for fragment in missing:
            self._queue_entries([Entry(sequence, fragment)])
        return len(missing)

    def repeat_unreadable(self, report: Unreadable) -> bool:
        """Send the message again that the kit could not read. Return False if no stored message has
        the reported size.
        """
        for body in self._bodies:
            if len(body) == report.size:
                self._queue.put(body)
                return True
        return False

    def ask_for_missing(self, sequence: int, count: int, fragments: dict[int, bytes]) -> None:
        """Queue a report to the kit about the fragments of an item that have arrived, out of
        `count`.
        """
        digest = compute_fragments_digest(fragments[position] for position in sorted(fragments))
        report = Report(count, frozenset(fragments), digest)
        self._queue_entries([Entry(sequence, report, int(self._clock()))], origin=0)

    def _queue_entries(self, entries: list[Entry], origin: int = ORIGIN) -> None:
        body = encode(entries, origin=origin, key=self._key)
        self._bodies.append(body)
        self._queue.put(body)


class BaseCamp:
    def __init__(
        self,
        say: Callable[[str], None],
        queue: MtQueue,
        *,
        clock: Callable[[], float] = time.time,
        key: bytes | None = None,
        keys: Sequence[bytes] = (),
        mt_bytes: int = MT_BYTES,
    ) -> None:
        """Create the base camp. `mt_bytes` is the largest size of an MT message for the kit's
        modem.
        """
        self._say = say
        self._keys = keys
        self._writer = HomeWriter(queue, clock, key, mt_bytes)
        self._seen: set[bytes] = set()
        self._fragments: dict[tuple[int, int], dict[int, bytes]] = {}
        self.lose_fragments = 0
        """Number of fragments from the kit that will be lost next."""
        self.received: list[Item] = []
        """Complete items in the order of their arrival, without duplicates."""

    def send(self, item: Item, *, sos: bool = False) -> int:
        """Queue an item for the kit and return the number of its MT messages."""
        return self._writer.send(item, sos=sos)

    def receive_message(self, imei: str, momsn: int, body: bytes) -> None:
        """Print the content of an MO message and answer its requests. If the message cannot be
        decoded, print it in hexadecimal.
        """
        try:
            self._read(decode(body, keys=self._keys))
        except RemoteProtocolError as error:
            self._say(f"   not readable: {error}: {body.hex()}")

    def _read(self, envelope: Envelope) -> None:
        for entry in envelope.entries:
            content = entry.content
            if isinstance(content, Fragment):
                self._read_fragment(entry.sequence, content)
            elif isinstance(content, Report):
                fragments_text = format_count(
                    self._writer.repeat(entry.sequence, content), "fragment"
                )
                self._say(f"   report: to the kit again: {fragments_text} of {entry.sequence}")
            elif isinstance(content, Unreadable):
                is_known = self._writer.repeat_unreadable(content)
                explanation = "sent again" if is_known else "not known here"
                self._say(f"   a message of {content.size} bytes could not be read: {explanation}")
            elif isinstance(content, Receipt):
                self._say(f"   receipt: {entry.sequence} is stored")
            elif isinstance(content, Item):
                self._read_item(entry, content)
        for fault in envelope.not_understood:
            self._say(f"   {fault}")

    def _read_item(self, entry: Entry, item: Item) -> None:
        entry_bytes = encode([entry])
        repeat_mark = " (again)" if entry_bytes in self._seen else ""
        if not repeat_mark:
            self._seen.add(entry_bytes)
            self.received.append(item)
        time_text = format_timestamp(datetime.fromtimestamp(entry.time, UTC))
        text = json.dumps(encode_item(item), ensure_ascii=False)
        sos = " SOS" if entry.sos else ""
        self._say(f"   {entry.sequence} {time_text}{sos} {get_kind(item)} {text}{repeat_mark}")

    def _read_fragment(self, sequence: int, part: Fragment) -> None:
        fragment_text = f"   {sequence} fragment {part.index + 1} of {part.count}"
        if self.lose_fragments:
            self.lose_fragments -= 1
            self._say(f"{fragment_text}: lost on the way home")
        else:
            self._say(fragment_text)
            self._fragments.setdefault((sequence, part.count), {})[part.index] = part.payload
        fragments = self._fragments.get((sequence, part.count), {})
        if len(fragments) == part.count:
            del self._fragments[(sequence, part.count)]
            self._read(decode(join(fragments)))
        elif part.index == part.count - 1:
            self._writer.ask_for_missing(sequence, part.count, fragments)
            missing = format_count(part.count - len(fragments), "fragment")
            self._say(f"   {missing} missing: asked the kit to repeat")
