"""Records the posts of a soak, their answers, and the arrivals at each place."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fieldagent.extensions.lab.simulator.base_camp import BaseCamp
from fieldagent.extensions.lab.simulator.gateway import SimulatedGateway
from fieldagent.extensions.lab.simulator.mt_queue import MtQueue
from tests.hub.test_journey import Receiver

INTERRUPTED = 5.0
"""Seconds within which a sender stores the result of a post while its database answers."""


def texts(body: Any) -> list[str]:
    return [event["content"] for payload in body["payloads"] for event in payload["events"]]


class Ledger:
    """Records of all callers. Many threads write to it at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self.accepted: dict[str, set[str]] = {}
        """Accepted texts by channel, or `push`."""
        self.delivered: dict[str, set[str]] = {}
        """Texts whose post was answered `Delivered`, by channel."""
        self.otherwise: Counter[str] = Counter()
        """Other answers, by their text."""
        self.absent: list[str] = []
        """Texts that were answered `Delivered` over satellite but are missing at the gateway."""
        self.faults: Counter[str] = Counter()
        self.given_up = threading.Event()
        """Set when no caller waits for an answer any longer."""

    def number(self) -> int:
        with self._lock:
            self._next += 1
            return self._next

    def accept(self, kind: str, text: str) -> None:
        with self._lock:
            self.accepted.setdefault(kind, set()).add(text)

    def answer(self, kind: str, text: str, body: dict[str, Any]) -> None:
        with self._lock:
            if body["status"] == "Delivered":
                self.delivered.setdefault(kind, set()).add(text)
            else:
                self.otherwise[f"{kind}: {body['status']} {body.get('channels')}"] += 1

    def fault(self, what: str) -> None:
        with self._lock:
            self.faults[what] += 1

    def count(self, kind: str) -> int:
        return len(self.accepted.get(kind, ()))


class Above:
    """Records the MO messages at the gateway of one modem."""

    def __init__(self) -> None:
        self.again = 0
        """Messages that came off the air twice, which a doubtful session may cause."""
        queue = MtQueue()
        self._home = BaseCamp(self._say, queue)
        self.gateway = SimulatedGateway(self._say, queue, self._home)
        self._read = 0
        self._has: set[str] = set()
        self._lock = threading.Lock()

    def _say(self, line: str) -> None:
        self.again += line.endswith("(again)")

    def has(self, text: str) -> bool:
        with self._lock:
            for item in self._home.received[self._read :]:
                self._read += 1
                self._has.add(getattr(item, "content", ""))
            return text in self._has


@dataclass
class Post:
    """A hook's receiver, and the times of its sender's kills and its database's outages."""

    name: str
    receiver: Receiver
    killed: list[float] = field(default_factory=list)
    outages: list[tuple[float, float]] = field(default_factory=list)
    """Begin and end of each outage of the sender's database."""

    def note_kill(self) -> None:
        self.killed.append(time.monotonic())

    @contextmanager
    def note_outage(self) -> Iterator[None]:
        """Note that the sender's database is out of reach inside the block."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.outages.append((begin, time.monotonic()))

    def is_interrupted(self, at: float) -> bool:
        """Return True if the sender was killed before it had certainly stored the result of its
        post at that time. It stores the result as soon as its database answers again.
        """
        stored = at + INTERRUPTED
        for begin, end in sorted(self.outages):
            if begin <= stored and at <= end:
                stored = max(stored, end + INTERRUPTED)
        return any(at <= kill <= stored for kill in self.killed)

    def arrived(self) -> Counter[str]:
        return Counter(text for body in [*self.receiver.got] for text in texts(body))

    def twice(self) -> tuple[list[str], list[str]]:
        """Return items that arrived more than once: without a reason, and with a kill of the sender
        before it had certainly stored the result of the earlier post.
        """
        times: dict[str, list[float]] = {}
        for body, at in zip([*self.receiver.got], [*self.receiver.times], strict=False):
            for text in texts(body):
                times.setdefault(text, []).append(at)
        unexplained: list[str] = []
        interrupted: list[str] = []
        for text, came in times.items():
            for at in came[:-1]:
                (interrupted if self.is_interrupted(at) else unexplained).append(text)
        return unexplained, interrupted
