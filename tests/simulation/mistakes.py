"""Driver errors planned by a seed: a call to the outbox raises, at its start or its end."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fieldagent.package.package import Channel

CALLS = ("load", "record_intent", "settle")
"""Calls of a driver to its outbox during a transmission."""


class Mistake(Exception):
    """An error that a driver does not expect."""


class Mistakes:
    def __init__(self) -> None:
        self._planned: dict[tuple[Channel, str], bool] = {}

    def plan(self, channel: Channel, call: str, *, late: bool) -> None:
        """Let the next such call raise: after its work if `late`, otherwise before."""
        self._planned[channel, call] = late

    def clear(self) -> None:
        self._planned.clear()

    def making(self, call: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return the outbox's method with its planned error."""

        async def late(result: Any) -> None:
            await result
            raise Mistake(call)

        def called(outbox: Any, *arguments: Any, **more: Any) -> Any:
            planned = self._planned.pop((outbox.channel, call), None)
            if planned is False:
                raise Mistake(call)
            result = method(outbox, *arguments, **more)
            if planned is None:
                return result
            if inspect.isawaitable(result):
                return late(result)
            raise Mistake(call)

        return called
