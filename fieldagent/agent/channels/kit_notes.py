"""What the kit tells the hub of itself, beside its messages: how its last update ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import trio

from fieldagent.agent import outcomes
from fieldagent.wire.kit_note import KitReport

LOOK = 15.0
"""Seconds between two looks at what root's unit has written, while that may change."""
MAY_CHANGE = 1_200.0
"""Seconds after a start in which it may: every change of program or settings starts the agent."""


@dataclass(slots=True)
class KitNotes:
    """`state_directory` is the agent's."""

    state_directory: Path
    told: KitReport = field(default_factory=KitReport)
    """Over this link."""
    watch_until: float = field(default_factory=lambda: trio.current_time() + MAY_CHANGE)

    def begin(self) -> None:
        """A new link: the hub is told again."""
        self.told = KitReport()

    async def next(self) -> bytes:
        while (report := outcomes.read(self.state_directory)) == self.told:
            if trio.current_time() > self.watch_until:
                await trio.sleep_forever()
            await trio.sleep(LOOK)
        self.told = report
        return report.encode()

    async def take_in(self, body: bytes) -> None:
        """The hub tells nothing yet that an agent of this version would use."""
