"""Tells everyone who listens what happens: Packages, inbound payloads, link quality.

Server-sent events (the HTML standard, section 9.2) for `GET /api/events`. Nothing is kept for those
who were away; the journal answers what was.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import trio

BACKLOG = 256
"""Events that a slow listener may be behind; more are lost to it, and it is told."""
KEEP_ALIVE = 15.0
"""Seconds of silence after which a comment shows that the stream lives."""
TOPICS = ("package", "inbound", "link")


class Events:
    def __init__(self) -> None:
        self._listeners: dict[trio.MemorySendChannel[bytes], frozenset[str]] = {}
        self._behind: set[trio.MemorySendChannel[bytes]] = set()

    def __bool__(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    def publish(self, topic: str, document: Any) -> None:
        """Never waits: a listener that does not read has no hold on the agent."""
        text = document if isinstance(document, str) else json.dumps(document)
        event = f"event: {topic}\ndata: {text}\n\n".encode()
        for listener, topics in self._listeners.items():
            if topic in topics:
                try:
                    listener.send_nowait(event)
                except trio.WouldBlock:
                    self._behind.add(listener)

    async def listen(self, topics: frozenset[str]) -> AsyncIterator[bytes]:
        send, receive = trio.open_memory_channel[bytes](BACKLOG)
        self._listeners[send] = topics
        try:
            yield b": listening\n\n"
            while True:
                event = b": alive\n\n"
                with trio.move_on_after(KEEP_ALIVE):
                    event = await receive.receive()
                if send in self._behind and not receive.statistics().current_buffer_used:
                    self._behind.discard(send)
                    event += b"event: lost\ndata: {}\n\n"
                yield event
        finally:
            del self._listeners[send]
            self._behind.discard(send)
