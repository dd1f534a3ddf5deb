"""Connects the radio to the agent: plans the station, drives the radio, and reports the state."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, NoReturn

import trio

from fieldagent.agent.channels.contract import ChannelLink, LinkState
from fieldagent.agent.channels.radio_modem import RadioModem
from fieldagent.agent.commands.context import CannotBeDone, CommandFailed
from fieldagent.agent.condition import machine
from fieldagent.agent.drivers import run_all
from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal import on_air
from fieldagent.agent.journal.records import StoredPackage
from fieldagent.agent.journal.spending import store_air_time_regularly
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.ending import Endings
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.agent.station import StationBase
from fieldagent.extensions.radio import driver, neighbour_listing
from fieldagent.extensions.radio.mesh import radio_keys
from fieldagent.extensions.radio.mesh.key_change import GroupKeys
from fieldagent.extensions.radio.mesh.radio_piggyback import RadioPiggyback
from fieldagent.extensions.radio.mesh.reception import RadioReception
from fieldagent.extensions.radio.mesh.relay_down import RelayDown
from fieldagent.extensions.radio.mesh.rounds import OTHERS_REPEAT_LIFETIME_S
from fieldagent.extensions.radio.mesh.station import (
    Station,
    StationSettings,
    make_piggyback,
    set_up,
)
from fieldagent.extensions.radio.radios.regions import find_air_limit
from fieldagent.extensions.radio.registry import load_radio
from fieldagent.extensions.radio.settings import RadioSettings, get_radio_place
from fieldagent.package.delivery import ChannelDelivery
from fieldagent.package.package import Channel, CommandAnswer
from fieldagent.system.supervisor import Part
from fieldagent.wire.envelope import derive_key
from fieldagent.wire.sealed_key import open_key


class RadioPlan:
    """Implements `agent.station.StationPlan`, with the settings of the station."""

    def __init__(self, base: StationBase) -> None:
        self._base = base
        self._settings = _make_station_settings(base)
        self._piggyback = _make_piggyback(self._settings, base)

    @property
    def acknowledger(self) -> RadioPiggyback | None:
        """Return the part that acknowledges items of neighbours, or None if this kit does not
        relay.
        """
        return self._piggyback if self._settings.relays_over else None

    def make_carrier(self, intake: Intake) -> RelayDown | None:
        """Return the Carrier for the hub's messages, or None if this kit does not relay."""
        if not self._settings.relays_over:
            return None
        clock, brings_down = self._base.journal.clock, self._settings.brings_down
        return RelayDown(intake, clock, brings_parcels=brings_down)

    def set_up(
        self, inbox: Inbox, intake: Intake, endings: Endings, queue: ChannelQueue
    ) -> RadioStation:
        """Build the station without starting a task."""
        base, piggyback = self._base, self._piggyback
        link = base.links[Channel.RADIO]
        station = set_up(
            self._settings, base.journal, inbox, intake, endings, piggyback, queue, link
        )
        return RadioStation(base, self._settings, station)


class RadioStation:
    """Implements `agent.station.Station`."""

    def __init__(self, base: StationBase, settings: StationSettings, station: Station) -> None:
        self._base = base
        self._settings = settings
        self._station = station
        self.get_in_range = station.get_in_range
        self.list_notices = station.list_notices

    @property
    def outbox(self) -> ChannelOutbox:
        """Return the outbox of the channel Radio."""
        return self._station.outbox

    @property
    def reception(self) -> RadioReception:
        """Return the reception of the channel Radio."""
        return self._station.reception

    @property
    def has_relay_down(self) -> bool:
        """Return True if this kit sends the hub's messages to neighbours."""
        return self._settings.brings_down

    def make_driver(
        self, heal: Callable[[], Awaitable[bool]], progress: Callable[[], None]
    ) -> Part:
        """Return the task that serves the radio forever."""
        settings, journal = self._base.own, self._base.journal
        link = self._base.links[Channel.RADIO]
        run = partial(
            driver.run,
            self._make_opener(settings, link),
            self._station.outbox,
            self._station.reception,
            link,
            random=random.Random(),
            packet_bytes=settings.packet_bytes,
            heal=heal,
            progress=progress,
        )
        return partial(run_all, run, partial(store_air_time_regularly, journal, link.air_time))

    def _make_opener(
        self, settings: RadioSettings, link: ChannelLink
    ) -> Callable[[], AbstractAsyncContextManager[RadioModem]]:
        """Return the function that opens the radio. The modem counts the air-time and transmits the
        callsign if the radio does not.
        """
        kind = load_radio(settings.protocol)
        open_modem: Callable[[], AbstractAsyncContextManager[RadioModem]]
        open_modem = partial(kind.open, get_radio_place(settings), link)
        _limit_air(settings, link)
        if settings.bit_rate is not None and not kind.is_counting_air_time:
            # Import these modules here, so that other kits save this memory.
            from fieldagent.extensions.radio.counted_air import open_counted

            open_modem = partial(open_counted, open_modem, link, settings.bit_rate)
        if settings.callsign and not kind.says_callsign:
            from fieldagent.extensions.radio.identification import (
                IdentificationTimer,
                open_identified,
            )

            timer = IdentificationTimer(self._station.make_identification(settings.callsign))
            open_modem = partial(open_identified, open_modem, timer)
        return open_modem

    async def run(self) -> NoReturn:
        """Repeat items that neighbours have missed, until cancelled."""
        await self._station.repeating.run()

    async def delete_old_entries(self) -> None:
        """Delete entries in the journal that are no longer repeated."""
        journal = self._base.journal
        too_old = journal.clock.now() - OTHERS_REPEAT_LIFETIME_S
        await journal.persist(on_air.forget_kept(end_time=too_old))

    def get_facts(self) -> dict[str, Any]:
        """Return additional members of Radio in `GET /api/status`."""
        station = self._station
        return {
            "neighbours": len(station.neighbours.list_in_range()),
            **station.troubles.get_counts(),
            **station.key_change.get_facts(),
        }

    def list_neighbours(self) -> dict[str, Any]:
        """Return the response to `GET /api/neighbours`."""
        return neighbour_listing.list_neighbours(self._base.journal, self._station)

    def list_unconfirmed_stations(
        self, sequence: int, deliveries: Mapping[Channel, ChannelDelivery]
    ) -> list[dict[str, Any]]:
        """Return the stations in range that have not confirmed a Package that waits for the radio
        or is being repeated.
        """
        return neighbour_listing.list_unconfirmed_stations(
            self._base.journal, self._station, sequence, deliveries
        )

    def store_answer(
        self, db: sqlite3.Connection, answer: CommandAnswer, now: float
    ) -> StoredPackage:
        """Store the answer to a command that arrived by radio, and return its Package. `now` is the
        journal's elapsed time.
        """
        return self._station.parcels.answer(db, answer, now)

    async def change_key(self, step: int, sealed: bytes) -> str:
        """Carry out step `step` of a change of the group's `radio-key`. The step takes effect at
        once. Raises CannotBeDone if this kit cannot use the key, and CommandFailed if the key
        cannot be stored.
        """
        settings, folder = self._base.own, self._base.settings.state_directory
        before = radio_keys.load(settings, folder)
        if not before.keys:
            raise CannotBeDone("no radio-key is set on this kit")
        if (new := open_key(sealed, self._settings.secrets)) is None:
            raise CannotBeDone("the key is encrypted for another satellite-key or hub-token")
        keys = radio_keys.make_keys_after(before, step, new)
        try:
            await trio.to_thread.run_sync(partial(radio_keys.store, settings, folder, keys))
        except OSError as error:
            raise CommandFailed(f"the key cannot be kept: {error.strerror}") from None
        group = GroupKeys(_derive_air_keys(keys.keys), _derive_air_keys(keys.dropped))
        self._station.use_group_keys(group, keys.step)
        return f"step {step} of 3"


def _limit_air(settings: RadioSettings, link: ChannelLink) -> None:
    """Apply the region's limit to the link's air-time. Do nothing for a Meshtastic radio, because
    it applies the limit of the region that is set on the radio itself.
    """
    if settings.region is None or settings.protocol == "meshtastic":
        return
    own, name = settings.own, settings.protocol
    frequency = own.get(f"{name}-frequency", settings.frequency)
    link.air_time.narrow(find_air_limit(settings.region, frequency, own.get(f"{name}-bandwidth")))


def _derive_air_keys(master_keys: Sequence[bytes]) -> list[bytes]:
    """Return the keys for tags on the air, derived from the group's keys."""
    return [derive_key(master, "AIR") for master in master_keys]


def _make_station_settings(base: StationBase) -> StationSettings:
    own, settings = base.own, base.settings
    assert own.station is not None, "radio-port needs radio-station"
    key_ring = radio_keys.load(own, settings.state_directory)
    return StationSettings(
        own.station,
        own.name,
        _derive_air_keys(key_ring.keys),
        own.relay & base.links.keys(),
        own.relay_credits_per_day,
        settings.package_time_to_live,
        own.packet_bytes,
        own.hops,
        key_ring.step,
        sealed=own.seal == "on",
        brings_down=own.relay_down == "on",
        secrets=base.secrets,
        dropped=_derive_air_keys(key_ring.dropped),
        repeats_sos=settings.sos_repeat > 0,
    )


def _make_piggyback(settings: StationSettings, base: StationBase) -> RadioPiggyback:
    links = base.links

    def is_relay_needed() -> bool:
        linked = links.get(Channel.CELLULAR)
        return linked is None or linked.state not in (LinkState.READY, LinkState.BUSY)

    def is_battery_low() -> bool:
        """Return True if the battery of the machine or of its radio is nearly empty."""
        levels = machine.read_battery(), links[Channel.RADIO].facts.get("battery")
        return any(isinstance(each, int) and each < machine.BATTERY_LOW for each in levels)

    return make_piggyback(
        settings,
        base.journal,
        asks_for_relay=is_relay_needed,
        is_battery_low=is_battery_low,
        clock=base.journal.clock.now,
    )
