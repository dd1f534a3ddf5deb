"""What the kit and the hub tell each other beside the messages: settings for the kit, and what came
of them and of its last update."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path

import trio

from fieldagent.agent import outcomes
from fieldagent.agent.from_afar import OFFER
from fieldagent.system import waits
from fieldagent.system.folder import put_file
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.kit_note import KitReport, SettingsOffer, SettingsReport, decode
from fieldagent.wire.settings_change import NotAChange, read_change

log = logging.getLogger(__name__)

LOOK = 5.0
"""Seconds between two looks at what root's units have written, while that may change."""
MAY_CHANGE = 1_200.0
"""Seconds after a start, or an offer, in which it may: every change starts the agent."""


@dataclass(slots=True)
class KitNotes:
    """`state_directory` is the agent's."""

    state_directory: Path
    told: KitReport = field(default_factory=KitReport)
    """Over this link."""
    watch_until: float = field(default_factory=lambda: trio.current_time() + MAY_CHANGE)
    offered: trio.Event = field(default_factory=trio.Event)

    def begin(self) -> None:
        """A new link: the hub is told again."""
        self.told = KitReport()

    async def next(self) -> bytes:
        while (report := self._report()) == self.told:
            with waits.move_on_after(LOOK if trio.current_time() < self.watch_until else inf):
                await self.offered.wait()
            self.offered = trio.Event()
        self.told = report
        return report.encode()

    def _report(self) -> KitReport:
        report = outcomes.read(self.state_directory)
        waiting = _number_of(self._waiting())
        return replace(report, settings=SettingsReport(waiting, "waiting")) if waiting else report

    def _waiting(self) -> bytes:
        """What root's unit has not taken yet."""
        try:
            return (self.state_directory / OFFER).read_bytes()
        except OSError:
            return b""

    async def take_in(self, body: bytes) -> None:
        """Hand an offer to root's unit, once. Nothing of it is trusted here: the unit verifies it
        before anything else."""
        number = _number_of(body)
        last = outcomes.read(self.state_directory).settings
        if not number or (last is not None and last.number == number) or body == self._waiting():
            return
        log.info("the hub brings settings %d: fieldagent-settings.service looks at them", number)
        try:
            put = partial(put_file, self.state_directory / OFFER, body)
            await trio.to_thread.run_sync(put)
        except OSError as error:
            log.warning("settings from the hub cannot be kept, it brings them again: %s", error)
            return
        self.watch_until = trio.current_time() + MAY_CHANGE
        self.offered.set()


def _number_of(offer: bytes) -> int:
    """0 is of what is no offer that could be taken."""
    try:
        note = decode(offer)
        return read_change(note.text).number if isinstance(note, SettingsOffer) else 0
    except (RemoteProtocolError, NotAChange) as error:
        if offer:
            log.warning("a note of the hub cannot be read: %s", error)
        return 0
