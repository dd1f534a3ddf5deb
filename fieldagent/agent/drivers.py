"""What runs the driver of each channel, made of the settings and the agent's parts.

Each loads what it needs itself: an agent does without the memory of channels that it has not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING

from fieldagent.agent.assembly import Parts
from fieldagent.agent.journal import outbound
from fieldagent.agent.progress import Progress
from fieldagent.agent.settings import Settings
from fieldagent.package.package import Channel
from fieldagent.system.put_off import put_off
from fieldagent.system.supervisor import Part

if TYPE_CHECKING:
    from fieldagent.agent.channels.radio_modem import RadioModem


def _satellite(settings: Settings, parts: Parts, progress: Progress) -> Part:
    from fieldagent.agent.channels import satellite

    outbox = parts.outboxes[Channel.SATELLITE]
    assert settings.satellite_port is not None
    return partial(
        satellite.run,
        settings.satellite_port,
        outbox,
        parts.receptions[Channel.SATELLITE],
        outbox.link,
        satellite.Pace(random.Random(), settings.satellite_mailbox_check),
        baud=settings.satellite_baud,
        progress=progress.watch("satellite"),
    )


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

    outbox = parts.outboxes[Channel.RADIO]
    place, baud, link = settings.radio_port, settings.radio_baud, outbox.link
    station = parts.station
    assert place is not None
    assert station is not None
    owed = None
    if settings.radio_callsign and settings.radio_protocol == "node":
        from fieldagent.agent.channels.identification import OwedIdentification, identified

        owed = OwedIdentification(station.identification(settings.radio_callsign))

    def open_air() -> AbstractAsyncContextManager[RadioModem]:
        if settings.radio_protocol == "kiss":
            from fieldagent.agent.channels.tnc import open_tnc

            return open_tnc(place, baud, settings.radio_callsign, link)
        from fieldagent.agent.channels.node import open_node

        node = partial(open_node, place, baud, link, settings.radio_packet_bytes)
        return node() if owed is None else identified(node, owed)

    return partial(
        radio.run,
        open_air,
        outbox,
        station.reception,
        link,
        random=random.Random(),
        packet_bytes=settings.radio_packet_bytes,
        progress=progress.watch("radio"),
    )


DRIVERS: dict[Channel, Callable[[Settings, Parts, Progress], Part]] = {
    Channel.SATELLITE: _satellite,
    Channel.CELLULAR: _cellular,
    Channel.RADIO: _radio,
}
"""Each returns what runs the driver, again after it failed."""
