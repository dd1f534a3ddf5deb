"""Mistakes in drivers, as a seed plans them: a call to the outbox raises, first or at its end."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fieldagent.package.package import Channel

CALLS = ("load", "intend", "settle")
"""What a driver asks of its outbox while a transmission is under way."""


class Mistake(Exception):
    """What a driver did not expect."""


class Mistakes:
    def __init__(self) -> None:
        self._planned: dict[tuple[Channel, str], bool] = {}

    def plan(self, channel: Channel, call: str, *, late: bool) -> None:
        """The next such call raises; with `late` once it has done its work."""
        self._planned[channel, call] = late

    def clear(self) -> None:
        self._planned.clear()

    def making(self, call: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method of the outbox, with what is planned for it."""

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
