"""What runs the driver of each channel, made of the settings and the agent's parts.

Each loads what it needs itself: an agent does without the memory of channels that it has not.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING

from fieldagent.agent.assembly import Parts
from fieldagent.agent.channels.reopening import no_healing
from fieldagent.agent.journal import outbound
from fieldagent.agent.progress import Progress
from fieldagent.agent.settings import Settings, healing_of, radio_place
from fieldagent.package.package import Channel
from fieldagent.system.put_off import put_off
from fieldagent.system.supervisor import Part

if TYPE_CHECKING:
    from fieldagent.agent.channels.radio_modem import RadioModem


def _satellite(settings: Settings, parts: Parts, progress: Progress) -> Part:
    from fieldagent.agent.satellites import known
    from fieldagent.agent.satellites.contract import SatelliteSeat

    outbox = parts.outboxes[Channel.SATELLITE]
    assert settings.satellite_port is not None
    seat = SatelliteSeat(
        settings.satellite_port,
        settings.satellite_baud,
        settings.satellite_mailbox_check,
        settings.satellite_registration == "auto",
        outbox,
        parts.receptions[Channel.SATELLITE],
        outbox.link,
        _heal(Channel.SATELLITE, settings, parts),
        progress.watch("satellite"),
    )
    return known.modem(settings.satellite_modem).driver(seat)


def _heal(channel: Channel, settings: Settings, parts: Parts) -> Callable[[], Awaitable[bool]]:
    healing = healing_of(settings).get(channel)
    if healing is None:
        return no_healing
    from fieldagent.agent.channels.healing_steps import Healer

    link = parts.outboxes[channel].link
    return Healer(healing, link, settings.state_directory, parts.journal.clock.now).attend


def _cellular(settings: Settings, parts: Parts, progress: Progress) -> Part:
    # `websockets` imports it, and a release asks it for nothing; with e-mail and zip files, which
    # it reads, it takes 1 MB.
    put_off("importlib.metadata")
    from fieldagent.agent.channels import cellular
    from fieldagent.agent.channels.hub_connection import HubAddress
    from fieldagent.agent.channels.kit_notes import KitNotes
    from fieldagent.agent.channels.recovery import Recovery

    outbox = parts.outboxes[Channel.CELLULAR]
    assert settings.hub_address is not None
    assert settings.hub_token is not None
    hub = HubAddress(
        settings.hub_address,
        settings.hub_token,
        settings.hub_ca_file,
        settings.cellular_interface,
    )
    links = {name.lower(): each.link for name, each in parts.outboxes.items()}
    command, after = settings.cellular_recovery_command, settings.cellular_recovery_after
    return partial(
        cellular.run,
        hub,
        outbox,
        parts.receptions[Channel.CELLULAR],
        outbox.link,
        KitNotes(settings.state_directory, links),
        random=random.Random(),
        ping=settings.cellular_ping,
        journal=outbound.journal_number(parts.journal),
        recovery=None if command is None else Recovery(command, after),
        progress=progress.watch("cellular"),
    )


def _radio(settings: Settings, parts: Parts, progress: Progress) -> Part:
    from fieldagent.agent.channels import radio
    from fieldagent.agent.radios import known

    outbox = parts.outboxes[Channel.RADIO]
    station, link = parts.station, outbox.link
    assert station is not None
    kind = known.radio(settings.radio_protocol)
    open_air: Callable[[], AbstractAsyncContextManager[RadioModem]]
    open_air = partial(kind.open, radio_place(settings), link)
    if settings.radio_callsign and not kind.says_callsign:
        from fieldagent.agent.channels.identification import OwedIdentification, identified

        owed = OwedIdentification(station.identification(settings.radio_callsign))
        open_air = partial(identified, open_air, owed)

    return partial(
        radio.run,
        open_air,
        outbox,
        station.reception,
        link,
        random=random.Random(),
        packet_bytes=settings.radio_packet_bytes,
        heal=_heal(Channel.RADIO, settings, parts),
        progress=progress.watch("radio"),
    )


DRIVERS: dict[Channel, Callable[[Settings, Parts, Progress], Part]] = {
    Channel.SATELLITE: _satellite,
    Channel.CELLULAR: _cellular,
    Channel.RADIO: _radio,
}
"""Each returns what runs the driver, again after it failed."""
