"""Builds the task that drives each channel, from the settings and the agent's parts.

Each function imports its own modules, so that an agent without that channel saves the memory.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from fieldagent.agent.assembly import Parts
from fieldagent.agent.bearer import BearerSeat, make_bearers
from fieldagent.agent.channels.contract import ChannelLink, IpTurn
from fieldagent.agent.channels.reopening import forbid_healing
from fieldagent.agent.journal import directory, outbound
from fieldagent.agent.modem_healing import make_healing
from fieldagent.agent.settings import Settings
from fieldagent.agent.watchdog import Progress
from fieldagent.package.package import Channel
from fieldagent.system.lazy_module import load_lazily
from fieldagent.system.supervisor import Part
from fieldagent.wire.kit_condition import KitCondition
from fieldagent.wire.proof import digest_token

if TYPE_CHECKING:
    from fieldagent.agent.channels.healing_steps import Healer


Condition = Callable[[], KitCondition] | None
"""Function that returns the kit's condition. None for a simulated kit, which has no machine."""


def _run_satellite(
    settings: Settings, parts: Parts, progress: Progress, condition: Condition = None
) -> Part:
    from fieldagent.agent.satellites import registry
    from fieldagent.agent.satellites.contract import SatelliteSeat

    outbox = parts.outboxes[Channel.SATELLITE]
    assert settings.satellite_port is not None
    seat = SatelliteSeat(
        settings.satellite_port,
        settings.satellite_baud,
        settings.satellite_mailbox_check,
        settings.satellite_registration == "auto",
        settings.satellite_own,
        outbox,
        parts.receptions[Channel.SATELLITE],
        outbox.link,
        _make_heal_step(Channel.SATELLITE, settings, parts),
        progress.watch("satellite"),
    )
    return registry.load_modem(settings.satellite_modem).driver(seat)


def _make_heal_step(
    channel: Channel, settings: Settings, parts: Parts
) -> Callable[[], Awaitable[bool]]:
    healer = _make_healer(channel.lower(), parts.outboxes[channel].link, settings, parts)
    return forbid_healing if healer is None else healer.run_due_step


def _make_healer(name: str, link: ChannelLink, settings: Settings, parts: Parts) -> Healer | None:
    healing = make_healing(settings).get(name)
    if healing is None:
        return None
    from fieldagent.agent.channels.healing_steps import Healer

    return Healer(healing, link, settings.state_directory, parts.journal.clock.now)


def _run_cellular(
    settings: Settings, parts: Parts, progress: Progress, condition: Condition = None
) -> Part:
    # Replace a module that `websockets` imports but does not need in a release. With its own
    # imports, for e-mail and zip files, the module takes 1 MB.
    load_lazily("importlib.metadata")
    from fieldagent.agent.channels import cellular
    from fieldagent.agent.channels.condition_news import ConditionNews
    from fieldagent.agent.channels.hub_connection import HubAddress
    from fieldagent.agent.channels.kit_notes import BackupShelf, DirectoryShelf, KitNotes
    from fieldagent.agent.outbound.hub_backup import HubBackup

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
    turn = IpTurn()
    healer = _make_healer("cellular", outbox.link, settings, parts)
    backup = HubBackup(parts.journal, outbox, digest_token(settings.hub_token)[:8])
    by_ip = partial(
        cellular.run,
        hub,
        outbox,
        parts.receptions[Channel.CELLULAR],
        outbox.link,
        KitNotes(
            settings.state_directory,
            links,
            directory=DirectoryShelf(
                partial(directory.read_version, parts.journal),
                partial(directory.store_directory, parts.journal),
            ),
            read_in_range=_make_range_reader(parts),
            backup=BackupShelf(backup.make_summary, backup.answer),
            condition=None if condition is None else ConditionNews(condition),
        ),
        random=random.Random(),
        ping=settings.cellular_ping,
        journal_number=outbound.read_journal_number(parts.journal),
        heal=cellular.forbid_healing_since if healer is None else healer.run_due_step_since,
        progress=progress.watch("cellular"),
        turn=turn,
    )
    return partial(run_all, by_ip, *_list_bearer_parts(settings, parts, progress, turn))


def _make_range_reader(parts: Parts) -> Callable[[], Mapping[int, int]] | None:
    """Return the function that lists the stations in range, or None if this kit does not send the
    hub's messages to neighbours.
    """
    station = parts.station
    return station.get_in_range if station is not None and station.has_relay_down else None


def _list_bearer_parts(
    settings: Settings, parts: Parts, progress: Progress, turn: IpTurn
) -> Iterator[Part]:
    """Yield the task of each bearer, which transmits items while there is no IP link."""
    outbox = parts.outboxes[Channel.CELLULAR]
    assert settings.hub_token is not None
    for bearer in make_bearers(settings.parts).values():
        name, link = bearer.healing.channel, ChannelLink()
        healer = _make_healer(name, link, settings, parts)
        seat = BearerSeat(
            digest_token(settings.hub_token),
            outbox,
            parts.receptions[Channel.CELLULAR],
            outbox.link,
            turn,
            parts.journal,
            settings.state_directory,
            link,
            forbid_healing if healer is None else healer.run_due_step,
            progress.watch(name),
        )
        yield partial(bearer.run, seat)


async def run_all(*parts: Part) -> None:
    """Run all parts. If a part fails, end the other parts and raise its error."""
    async with trio.open_nursery() as nursery:
        for part in parts:
            nursery.start_soon(part)


def _run_radio(
    settings: Settings, parts: Parts, progress: Progress, condition: Condition = None
) -> Part:
    assert parts.station is not None
    heal = _make_heal_step(Channel.RADIO, settings, parts)
    return parts.station.make_driver(heal, progress.watch("radio"))


class Driver(Protocol):
    def __call__(
        self, settings: Settings, parts: Parts, progress: Progress, condition: Condition = None
    ) -> Part: ...


DRIVERS: dict[Channel, Driver] = {
    Channel.SATELLITE: _run_satellite,
    Channel.CELLULAR: _run_cellular,
    Channel.RADIO: _run_radio,
}
"""Driver of each channel: a function that returns a task, which the supervisor restarts after a
failure."""
