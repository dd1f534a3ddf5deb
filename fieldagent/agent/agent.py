"""The agent: the nursery that connects queue, journal, channels, hooks and local API."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from fieldagent import __version__
from fieldagent.agent import clock_offer, gpsd, refusals
from fieldagent.agent.api import track
from fieldagent.agent.api.routes import LocalApi
from fieldagent.agent.api.sos import describe_check_in
from fieldagent.agent.api.track import Tracking
from fieldagent.agent.assembly import Parts, assemble
from fieldagent.agent.channels.contract import ChannelLink, LinkState
from fieldagent.agent.drivers import DRIVERS
from fieldagent.agent.gpsd import track_incident
from fieldagent.agent.inbound import hooks
from fieldagent.agent.inbound.hooks import Hook, run_hook
from fieldagent.agent.inbound.reading import report_new_stages
from fieldagent.agent.journal import (
    commands,
    dead_letters,
    handhelds,
    inbound,
    losses,
    outbound,
)
from fieldagent.agent.journal.inbound import UnacceptedPayloadList
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import Spent
from fieldagent.agent.kit_part import (
    find_station_part,
    get_device_ports,
    get_kit_part,
    list_part_names,
)
from fieldagent.agent.only_one import hold_lock
from fieldagent.agent.outbound.budget import compute_sos_reserve
from fieldagent.agent.outbound.channel_limits import LIMITS
from fieldagent.agent.outbound.repeats import run_fragment_requests, run_incident_repeats
from fieldagent.agent.page import make_canned_routes
from fieldagent.agent.settings import Settings
from fieldagent.agent.update_news import UpdateNews
from fieldagent.agent.watchdog import Progress, feed_watchdog, summarise_status
from fieldagent.http.guard import check_loopback_caller
from fieldagent.http.listeners import ListenFailed, get_port, open_listeners
from fieldagent.http.message import Judge
from fieldagent.http.routes import make_router
from fieldagent.http.server import serve
from fieldagent.package.package import Channel
from fieldagent.page import map_tiles
from fieldagent.page.map_tiles import CarriedMap
from fieldagent.page.refusals import translate_problems
from fieldagent.store.group import StoreFailed, StoreFull
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.price import Price
from fieldagent.system.signals import StopRequests, stop_at_signal
from fieldagent.system.supervisor import Note, Part, Supervisor, describe_error
from fieldagent.system.systemd_notify import notify

if TYPE_CHECKING:
    from fieldagent.agent.condition.logbook import Logbook
    from fieldagent.wire.kit_condition import KitCondition

log = logging.getLogger(__name__)

AWAY_REPORTED_AFTER_S = 3600.0
"""Seconds for which a channel must be away before `/api/health` reports this."""
HOUSEKEEPING_INTERVAL_S = 3600.0
"""Seconds between two deletions of old rows."""
CLEANUP_DELAY_S, RESERVE_CHECK_INTERVAL_S = 5.0, 60.0
"""Seconds from the start to the replay of the dead letters and to the check of the journal, and
seconds between two checks of the free disk space."""
MAP_CHECK_INTERVAL_S = 600.0
"""Seconds between two checks of `map-file`."""
DISK_RETRY_INTERVAL_S = 10.0
"""Seconds between two attempts to return to the disk."""
STOP_TIMEOUT_S = 5.0
"""Longest time in seconds for writing to the logbook that the agent stops properly."""
NOT_ON_DISK = "the journal is in memory, and not on the disk: {}"


@dataclass(slots=True)
class Agent:
    """A running agent: its parts, and the methods that report its status and its problems."""

    settings: Settings
    parts: Parts
    progress: Progress
    supervisor: Supervisor
    unaccepted_payloads: UnacceptedPayloadList
    update_news: UpdateNews
    logbook: Logbook | None
    """Record of starts and signals. None if the kit has no IP link to a hub, because only the hub
    reads the record."""
    carried_map: CarriedMap
    tracking: Tracking
    started: float

    def get_status(self) -> dict[str, Any]:
        journal, services = self.parts.journal, self.parts.services
        return {
            "sos": self.parts.incident_status(),
            "checkIn": describe_check_in(journal),
            "version": __version__,
            "uptime": round(trio.current_time() - self.started, 3),
            "channels": {channel: self._get_channel_status(channel) for channel in Channel},
            "ports": self._get_ports(),
            "journal": {
                "commits": journal.commits,
                "full": journal.full,
                "notOnDisk": journal.not_on_disk or None,
                "losses": [
                    loss._replace(at=journal.clock.date(loss.at))._asdict()
                    for loss in losses.list_newest(journal.read)
                ],
            },
            "clock": self._describe_clock(),
            "deadLetters": self._describe_dead_letters(),
            "notices": self._list_notices(),
            "confirmationsRefused": self.parts.inbox.mismatches,
            "faults": self._list_faults(),
            **{
                name: service.get_status() if (service := services.get(name)) is not None else None
                for name in list_part_names()
            },
            "track": self.tracking.get_status(),
        }

    def _get_ports(self) -> dict[str, str | None]:
        """Return the ports that the agent uses, by the names of their settings. They may differ
        from the settings file if the file was changed after the start.
        """
        own = self.settings
        ports = {
            "satellite-port": own.satellite_port,
            **get_device_ports(own.parts),
        }
        return {name: None if port is None else str(port) for name, port in ports.items()}

    def _list_notices(self) -> list[str]:
        trouble, station = self.parts.inbox.key_trouble, self.parts.station
        journal = self.parts.journal
        station_notices = [] if station is None else station.list_notices(journal.clock.date)
        hook_notices = hooks.list_notices(
            self.parts.hooks, self.unaccepted_payloads.list_payloads()
        )
        disk_notices = [NOT_ON_DISK.format(journal.not_on_disk)] if journal.not_on_disk else []
        updates = self.update_news.list_notices()
        parts = [
            each for service in self.parts.services.values() for each in service.list_notices()
        ]
        air = self.parts.outboxes[Channel.RADIO].link.air_time.find_notice() if station else ""
        own_notices = [each for each in (trouble, air, self.carried_map.trouble) if each]
        return [*disk_notices, *own_notices, *station_notices, *parts, *hook_notices, *updates]

    def _describe_clock(self) -> dict[str, Any]:
        clock = self.parts.journal.clock
        source = clock.source()
        return {
            "time": clock.date(clock.now()),
            "trusted": bool(source),
            "source": source or None,
        }

    def _describe_dead_letters(self) -> dict[str, Any]:
        journal = self.parts.journal
        letters = [
            {"channel": letter.channel, "received": letter.received, "reason": letter.reason}
            for letter in dead_letters.list_newest(journal, 1)
        ]
        return {
            **dead_letters.count_letters(journal)._asdict(),
            "latest": letters[0] if letters else None,
        }

    def _list_faults(self) -> list[dict[str, Any]]:
        """Return, for people, the last failure of each part of the agent that has failed since the
        start.
        """
        now = trio.current_time()
        return [
            {
                "part": fault.part,
                "error": fault.error,
                "at": fault.at,
                "times": fault.times,
                "down": fault.is_down(now),
            }
            for fault in self.supervisor.get_faults()
            if fault.times
        ]

    def count_faults(self) -> dict[str, int]:
        return self.supervisor.count_faults()

    def _get_channel_status(self, channel: Channel) -> dict[str, Any]:
        outbox = self.parts.outboxes.get(channel)
        if outbox is None:
            return _make_channel_status(
                is_configured=False, link=ChannelLink(), queued_count=0, cost=Spent()
            )
        budget = None
        if channel is Channel.SATELLITE:
            budget = self.settings.satellite_credits_per_day
        if channel is Channel.RADIO and self.parts.station is not None:
            outbox.link.facts |= self.parts.station.get_facts()
            if outbox.link.air_time.is_limited():
                outbox.link.facts["airTimeLeft"] = round(outbox.link.air_time.compute_remaining())
        status = _make_channel_status(True, outbox.link, len(outbox), outbox.budget.get_spent())
        if outbox.link.state is LinkState.READY:
            # The driver updates the reason only from time to time. If a Package waits for credits,
            # show this reason immediately.
            status["reason"] = outbox.describe_hold() or outbox.link.reason
        if channel is Channel.SATELLITE and (price := self.parts.price) is not None:
            status["moneyToday"] = _format_money(price, outbox.budget.get_spent())
        if budget is not None:
            status["creditsPerDay"] = budget
            status["creditsForSos"] = compute_sos_reserve(
                budget, self.settings.satellite_sos_reserve
            )
        if outbox.link.last_success is not None:
            status["lastSuccess"] = self.parts.journal.clock.date(outbox.link.last_success)
        return status

    def read_condition(self) -> KitCondition:
        """Return the kit's condition for the report over the IP link."""
        from fieldagent.agent.condition.reading import make_condition, make_status

        assert self.logbook is not None
        journal, trouble = self.parts.journal, self.find_illness() is not None
        answer, starts = self.get_status(), commands.count_starts(journal)
        status = make_status(self.settings, answer, starts, trouble=trouble)
        return make_condition(status, self.logbook, journal.clock, self.get_links())

    def get_links(self) -> dict[str, ChannelLink]:
        """Return each channel's link by the channel's name in lower case."""
        return {name.lower(): outbox.link for name, outbox in self.parts.outboxes.items()}

    def find_illness(self) -> str | None:
        disk_fault = self.parts.journal.not_on_disk
        disk_fault_text = NOT_ON_DISK.format(disk_fault) if disk_fault else None
        return self.find_stuck_part() or disk_fault_text or self.supervisor.describe_trouble()

    def list_lost_channels(self) -> list[str]:
        """Return the channels that have been away for AWAY_REPORTED_AFTER_S or more, each with the
        reason.
        """
        now = trio.current_time()
        return [
            f"{channel.lower()}: {outbox.link.reason or 'away'}"
            for channel, outbox in self.parts.outboxes.items()
            if (since := outbox.link.away_since) is not None
            and now - since >= AWAY_REPORTED_AFTER_S
        ]

    def find_stuck_part(self) -> str | None:
        """Return a problem that only a restart of the agent may fix, or None if there is none."""
        journal = self.parts.journal
        if journal.failed is not None:
            return f"{journal.failed}; check the disk and restart the agent"
        # If the disk is full, loops wait for space and are not stuck.
        silent_parts = [] if journal.full else self.progress.list_silent_loops()
        return f"no progress in: {', '.join(silent_parts)}" if silent_parts else None


def _format_money(price: Price, cost: Spent) -> str:
    """Return today's cost as text. The text is a range if it is unknown whether a part was
    spent.
    """
    least = price.format_amount(cost.credits)
    return (
        f"{least} to {price.format_amount(cost.credits + cost.doubtful)}"
        if cost.doubtful
        else least
    )


def _make_channel_status(
    is_configured: bool, link: ChannelLink, queued_count: int, cost: Spent
) -> dict[str, Any]:
    return {
        "configured": is_configured,
        "state": link.state.value if is_configured else None,
        "reason": link.reason,
        "signal": link.signal,
        "lastSuccess": link.last_success,
        "queued": queued_count,
        "bytesToday": cost.bytes,
        "creditsToday": cost.credits,
        "creditsInDoubtToday": cost.doubtful,
        **link.facts,
    }


def assemble_agent(settings: Settings, journal: Journal, emit: Callable[[str], None]) -> Agent:
    """Assemble the agent without starting a task. `emit` prints the lines for a script."""
    parts = assemble(settings, journal, emit)
    now = trio.current_time
    supervisor = Supervisor(
        fatal=(StoreFailed, StoreFull), outside_errors=(ListenFailed,), clock=time.time
    )
    news = UpdateNews(
        settings.update_address,
        settings.update_key,
        settings.state_directory,
        journal.clock,
        has_hub=settings.hub_address is not None,
    )
    left_overs, logbook = UnacceptedPayloadList(journal), _open_logbook(settings, journal)
    return Agent(
        settings,
        parts,
        Progress(now),
        supervisor,
        left_overs,
        news,
        logbook,
        CarriedMap(settings.map_file),
        Tracking(settings.state_directory),
        now(),
    )


def _open_logbook(settings: Settings, journal: Journal) -> Logbook | None:
    if settings.hub_address is None:
        return None
    # Import these modules here, so that a kit without a hub saves their memory.
    from fieldagent.agent.condition import machine
    from fieldagent.agent.condition.logbook import Logbook

    clock = journal.clock
    return Logbook(
        settings.state_directory,
        clock.get_base().boot,
        clock.now,
        reset=machine.reset(),
        commanded_boots=commands.read_ended_boots(journal),
    )


async def run(
    settings: Settings,
    emit: Callable[[str], None],
    stop_requests: StopRequests,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the agent until one of the requests in `stop_requests` arrives. When the local API
    listens, `task_status` is set to started, with the port as its value.

    Raises AlreadyRunning, OSError (the port is in use), StoreFailed, Unusable.
    """
    with hold_lock(settings.state_directory):
        listeners = open_listeners(settings.api_port)
        journal = Journal(settings.state_directory / "journal.sqlite3", may_leave_disk=True)
        stopping = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_run_journal, journal, stopping)
                agent = assemble_agent(settings, journal, emit)
                try:
                    await _run_parts(agent, listeners, stop_requests, stopping, task_status)
                except* StoreFull:
                    log.error("stopped with a full disk: events that were not stored are repeated")
                nursery.cancel_scope.cancel()
        finally:
            journal.close()
        if journal.failed is not None:
            raise journal.failed


async def _run_journal(journal: Journal, stop_event: trio.Event) -> None:
    """Run the journal. If the journal fails, stop the agent properly, so that all callers still get
    a response.
    """
    await journal.run()
    log.critical("%s; nothing more is accepted", journal.failed)
    stop_event.set()


async def _run_parts(
    agent: Agent,
    listeners: list[socket.socket],
    stop_requests: StopRequests,
    stop_event: trio.Event,
    task_status: trio.TaskStatus[int],
) -> None:
    keep = agent.supervisor.keep_running
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_at_signal, stop_requests, stop_event)
        with suppress(StoreFull):
            # Take the reserve before anyone can post, so that there is space for an SOS if the disk
            # becomes full.
            await agent.parts.journal.refill_reserve()
        for name, part in BACKGROUND_TASKS.items():
            nursery.start_soon(keep, name, partial(part, agent))
        for hook in agent.parts.hooks:
            if hook.by_itself:
                nursery.start_soon(keep, name_handover(hook), partial(_run_hook, agent, hook))
        for channel, outbox in agent.parts.outboxes.items():
            nursery.start_soon(keep, f"{channel} queue", outbox.run)
            condition = None if agent.logbook is None else agent.read_condition
            driver = DRIVERS[channel](agent.settings, agent.parts, agent.progress, condition)
            drive = partial(_run_driver, outbox.link, driver)
            nursery.start_soon(partial(keep, channel, drive, mend=outbox.requeue_lost))
        for name, service in agent.parts.services.items():
            title = get_kit_part(name).title
            run = partial(service.run, agent.get_status, agent.supervisor.make_reporter(title))
            nursery.start_soon(keep, title, run)
        station, station_part = agent.parts.station, find_station_part(agent.settings.parts)
        if station is not None and station_part is not None:
            nursery.start_soon(keep, station_part.title, station.run)
        await _serve_api(agent, listeners, stop_event, task_status)
        nursery.cancel_scope.cancel()


def name_handover(hook: Hook) -> str:
    """Return the name of the task that hands payloads to a hook, for the log and for errors."""
    return f"the handover to the {hook.name}"


async def _run_hook(agent: Agent, hook: Hook) -> None:
    note_fault = agent.supervisor.make_reporter(name_handover(hook))
    await run_hook(hook, agent.parts.journal, agent.parts.inbox, note_fault)


async def _run_driver(link: ChannelLink, driver: Part) -> None:
    """Run a channel's driver. If the driver fails, show the failure in the link's state."""
    link.state = LinkState.STARTING
    try:
        await driver()
    except Exception as error:
        link.record_signal(None)
        link.state = LinkState.FAULT
        link.reason = f"the driver failed and is started again: {describe_error(error)}"
        raise


async def _serve_api(
    agent: Agent,
    listeners: list[socket.socket],
    stop_event: trio.Event,
    task_status: trio.TaskStatus[int],
) -> None:
    """Serve the local API. Return when `stop_event` is set and all callers have a response."""
    port = get_port(listeners)
    settings = agent.settings
    judge = make_router(
        [
            *LocalApi(agent.parts, agent).make_routes(),
            *map_tiles.make_map_routes(agent.carried_map),
            *track.make_routes(agent.parts, agent.tracking),
            *make_canned_routes(settings.canned_messages),
        ]
    )
    async with trio.open_nursery() as nursery:
        note_fault = agent.supervisor.make_reporter("the local API")
        await nursery.start(
            partial(
                serve,
                translate_problems(judge, refusals.__name__),
                listeners,
                stop_event=stop_event,
                guard=check_loopback_caller,
                note_fault=note_fault,
            )
        )
        if settings.page_listen:
            part = _serve_network_page(agent, judge, stop_event, note_fault)
            nursery.start_soon(agent.supervisor.keep_running, "the page for the network", part)
        log.info("the local API answers at http://127.0.0.1:%d", port)
        notify("READY=1")
        task_status.started(port)
        await stop_event.wait()
        if agent.parts.journal.not_on_disk:
            log.warning(
                "stopping: items that are only in memory are lost unless the disk can store"
                " them now"
            )
        else:
            log.info("stopping: waiting items are kept and continue at the next start")
        notify("STOPPING=1")
        agent.parts.journal.record_stop()
        agent.parts.endings.stop()
        if agent.logbook is not None:
            with trio.move_on_after(STOP_TIMEOUT_S):
                await trio.to_thread.run_sync(agent.logbook.record_stop, abandon_on_cancel=True)


def _serve_network_page(
    agent: Agent, judge: Judge, stop_event: trio.Event, note_fault: Note
) -> Part:
    # Import this module here, so that a kit without this page saves the memory of TLS.
    from fieldagent.agent import network_page

    return partial(network_page.run, agent.settings, judge, stop_event, note_fault)


async def delete_old_entries_forever(agent: Agent) -> None:
    settings = agent.settings
    while True:
        before = agent.parts.journal.clock.now() - settings.keep_ended_days * 86_400
        keep = settings.keep_ended_count
        for forget in (outbound.forget, inbound.forget, handhelds.forget):
            # Delete in batches, so that other commits do not wait for all deletions.
            while await agent.parts.journal.persist(forget(end_time=before, keep_count=keep)):
                pass
        await agent.parts.journal.persist(losses.forget(end_time=before))
        if agent.parts.station is not None:
            await agent.parts.station.delete_old_entries()
        await trio.sleep(HOUSEKEEPING_INTERVAL_S)


async def _read_dead_letters(agent: Agent) -> None:
    """Replay the dead letters once at the start, because some may have become readable with a new
    key or a later version.
    """
    await trio.sleep(CLEANUP_DELAY_S)
    for letter in reversed(dead_letters.list_newest(agent.parts.journal)):
        tagged = not LIMITS[Channel(letter.channel)].authentic
        try:
            if await agent.parts.inbox.replay(letter, is_tagged=tagged):
                log.info("dead letter %d of %s could be read now", letter.number, letter.channel)
        except (StoreFailed, StoreFull):
            raise
        except Exception as error:
            agent.supervisor.make_reporter("dead letters")(error, f"dead letter {letter.number}")
    await trio.sleep_forever()


async def maintain_disk_reserve(agent: Agent) -> None:
    journal = agent.parts.journal
    while True:
        interval = DISK_RETRY_INTERVAL_S if journal.not_on_disk else RESERVE_CHECK_INTERVAL_S
        await trio.sleep_until(waits.compute_nearest_beat(interval))
        with suppress(StoreFull):
            await journal.return_to_disk(idle=lambda: not _is_in_memory_alone(agent))
            await journal.refill_reserve()


def _is_in_memory_alone(agent: Agent) -> bool:
    """Return True if payloads wait for a hook or an SOS is open. While the journal is in memory, a
    restart would lose them.
    """
    waiting_payloads = agent.parts.journal.read(
        "SELECT 1 FROM handover WHERE state = 'waiting' LIMIT 1"
    )
    return bool(waiting_payloads or agent.get_status()["sos"]["active"])


async def _check_map_regularly(agent: Agent) -> None:
    """Check the map file regularly, because its memory card may be removed while the page is not in
    use.
    """
    if agent.carried_map.path is None:
        await trio.sleep_forever()
    while True:
        await agent.carried_map.read_about()
        await trio.sleep(MAP_CHECK_INTERVAL_S)


async def _check_journal_once(agent: Agent) -> None:
    """Check the journal's integrity once, after the API listens."""
    await trio.sleep(CLEANUP_DELAY_S)
    await agent.parts.journal.check_skipped_integrity()
    await trio.sleep_forever()


async def _repeat_open_incident(agent: Agent) -> None:
    parts, settings = agent.parts, agent.settings
    await run_incident_repeats(
        parts.journal,
        parts.queues,
        interval_s=settings.sos_repeat,
        end_condition=settings.sos_until,
        clock=parts.journal.clock.now,
    )


async def _track_sos(agent: Agent) -> None:
    parts, settings = agent.parts, agent.settings
    if settings.gpsd is None:
        await trio.sleep_forever()
    await track_incident(
        parts.journal,
        parts.intake,
        parts.queues,
        source=settings.gpsd,
        interval_s=settings.sos_track,
    )


async def _report_links(agent: Agent) -> None:
    """While there is a listener, report the condition of each channel and of handheld radios to the
    event stream.
    """
    events = agent.parts.events
    while True:
        await events.wait_for_listener()
        for name, channel in agent.get_status()["channels"].items():
            if channel["configured"]:
                events.report("link", name, {"channel": name, **channel})
        for service in agent.parts.services.values():
            for person in service.list_doubtful_people():
                events.report("people", person["handle"], person)
        await events.wait_until_check_due()


async def _report_events(agent: Agent) -> None:
    await agent.parts.events.follow_journal()


async def _ask_for_fragments(agent: Agent) -> None:
    await run_fragment_requests(
        agent.parts.journal, agent.parts.outboxes, clock=agent.parts.journal.clock.now
    )


async def _show_life(agent: Agent) -> None:
    journal = agent.parts.journal
    leave_time = partial(clock_offer.offer_time, journal.clock, agent.settings.state_directory)
    await feed_watchdog(
        journal, agent.find_stuck_part, lambda: summarise_status(agent.get_status()), leave_time
    )


async def _update_clock_from_gpsd(agent: Agent) -> None:
    if agent.settings.gpsd is not None:
        await gpsd.update_clock_from_gpsd(agent.parts.journal.clock, agent.settings.gpsd)


async def _watch_for_updates(agent: Agent) -> None:
    await agent.update_news.run_update_checks()


async def _report_stages(agent: Agent) -> None:
    await report_new_stages(agent.parts.inbox, agent.parts.outboxes)


async def _carry_out_commands(agent: Agent) -> None:
    gate = agent.parts.inbox.commands
    if not gate.can_prove() and not commands.list_unanswered(agent.parts.journal):
        return
    # Import these modules here, so that a kit without commands from a hub saves their memory.
    from fieldagent.agent.commands import service
    from fieldagent.agent.commands.context import CommandContext

    context = CommandContext(agent.settings, agent.parts, agent.get_status, agent.find_illness)
    await service.run(context, gate)


async def _maintain_logbook(agent: Agent) -> None:
    if (logbook := agent.logbook) is None:
        return
    while True:
        await trio.to_thread.run_sync(logbook.write_file)
        await waits.sleep(logbook.compute_time_to_hour())
        logbook.close_hour(agent.get_links(), trio.current_time())


async def _resume(agent: Agent) -> None:
    await agent.parts.resume.run()


BACKGROUND_TASKS = {
    "the hub's commands": _carry_out_commands,
    "the resume of waiting items": _resume,
    "the kit's logbook": _maintain_logbook,
    "housekeeping": delete_old_entries_forever,
    "the dead letters": _read_dead_letters,
    "the reserve on the disk": maintain_disk_reserve,
    "the check of the journal": _check_journal_once,
    "the map": _check_map_regularly,
    "the watchdog": _show_life,
    "the time from gpsd": _update_clock_from_gpsd,
    "the event stream": _report_events,
    "the links' condition": _report_links,
    "the search for fragments": _ask_for_fragments,
    "the repeats of an SOS": _repeat_open_incident,
    "the positions of an SOS": _track_sos,
    "the check for updates": _watch_for_updates,
    "the receipts to senders": _report_stages,
}
"""Tasks in addition to those for channels and hooks, by their names for people."""
