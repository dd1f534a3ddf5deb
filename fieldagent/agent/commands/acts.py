"""The hub's commands that change something on the kit. Each command is stored as begun before its
function is called. The function returns a sentence with the result.

`restart` and `reboot` do not return: the agent answers these commands after its next start.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn

import trio

from fieldagent import __version__
from fieldagent.agent import outcomes
from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.commands.context import CannotBeDone, CommandContext, CommandFailed
from fieldagent.agent.journal import commands, incident, outbound
from fieldagent.agent.journal.commands import StoredCommand, find_delta, is_delta_stored
from fieldagent.agent.journal.records import StoredPackage
from fieldagent.agent.modem_healing import make_healing
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.agent.outcomes import (
    OFFER,
    PROGRAM_DELTA,
    PROGRAM_OFFER,
    REBOOT,
    SOS_IN_MEMORY,
)
from fieldagent.package.package import Channel
from fieldagent.package.writing import get_kind
from fieldagent.system.folder import replace_file
from fieldagent.system.minisign import NotSigned
from fieldagent.system.signed_release import parse_release
from fieldagent.system.wording import format_count
from fieldagent.wire.kit_note import ZIPAPP, OfferReport, ProgramOffer, SettingsOffer
from fieldagent.wire.settings_change import NotAChange, get_kit_id, parse_command_arguments
from fieldagent.wire.signed_delta import parse_payload

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 0.5
"""Seconds between two checks of the condition that a command waits for."""
SESSION_END_TIMEOUT_S = 600.0
"""Longest time in seconds to wait for the end of a session. After this time, a command that would
interrupt the session fails."""
HEALING_TIMEOUT_S = 300.0
"""Longest time in seconds until `channels.reopening` takes the next recovery step for a silent
modem."""
TRIAL_TIMEOUT_S = 1_800.0
"""Longest time in seconds until root's unit has finished the trial of settings or a program, or
restarts the agent for the trial."""
ENDED = ("taken", "refused", "back")
REBOOT_TIMEOUT_S = 120.0
"""Longest time in seconds until root's unit reboots the machine."""


def _get_satellite(context: CommandContext) -> ChannelOutbox:
    outbox = context.parts.outboxes.get(Channel.SATELLITE)
    if outbox is None:
        raise CannotBeDone("no satellite modem is configured")
    return outbox


async def retry(context: CommandContext, command_record: StoredCommand) -> str:
    """Make the satellite modem try now to send waiting Packages. Raises CannotBeDone if no
    satellite modem is configured.
    """
    outbox = _get_satellite(context)
    outbox.link.request_attempt()
    return f"the modem tries now, with {format_count(len(outbox), 'Package')} to send"


def check_healing(context: CommandContext) -> None:
    """Raise CannotBeDone if no modem needs a recovery step."""
    link = _get_satellite(context).link
    if "satellite" not in make_healing(context.settings):
        raise CannotBeDone("satellite-heal has no step here")
    if link.state is not LinkState.ABSENT:
        raise CannotBeDone(
            f"the modem answers ({link.state.value}): recovery steps are only for a silent modem"
        )


async def heal(context: CommandContext, command_record: StoredCommand) -> str:
    """Take the next recovery step for a silent modem. Raises CommandFailed if no step was taken
    within HEALING_TIMEOUT_S.
    """
    link = _get_satellite(context).link
    before = link.facts.get("healingSteps", 0)
    link.heal_now = True
    with trio.move_on_after(HEALING_TIMEOUT_S):
        while link.facts.get("healingSteps", 0) == before:
            await trio.sleep(CHECK_INTERVAL_S)
        return str(link.facts.get("healing", ""))
    link.heal_now = False
    raise CommandFailed(
        "no step was taken in five minutes: the modem answers, or 8 steps were taken in an hour"
    )


def check_restart(context: CommandContext) -> None:
    """Raise CannotBeDone if systemd would not start the agent again."""
    if not os.environ.get("INVOCATION_ID"):
        raise CannotBeDone("systemd has not started this agent, so it would not start again")


def _check_no_sos_in_memory(context: CommandContext) -> None:
    """Raise CannotBeDone if an SOS exists only in the agent's memory and would be lost."""
    journal = context.parts.journal
    if journal.not_on_disk and incident.find_open(journal):
        raise CannotBeDone(SOS_IN_MEMORY.format(journal.not_on_disk))


async def restart(context: CommandContext, command_record: StoredCommand) -> NoReturn:
    """Stop the agent properly, so that systemd starts it again. Raises CannotBeDone if an SOS
    exists only in memory.
    """
    _check_no_sos_in_memory(context)
    os.kill(os.getpid(), signal.SIGTERM)
    await trio.sleep_forever()


async def reboot(context: CommandContext, command_record: StoredCommand) -> NoReturn:
    """Write the order to reboot to a file for root's unit. Raises CannotBeDone if an SOS exists
    only in memory, and CommandFailed if no unit reboots the machine in time.
    """
    _check_no_sos_in_memory(context)
    request_path = context.settings.state_directory / REBOOT
    boot = context.parts.journal.clock.get_base().boot
    try:
        await trio.to_thread.run_sync(partial(replace_file, request_path, boot.encode()))
    except OSError as error:
        raise CommandFailed(
            f"the order cannot be stored for root's unit: {error.strerror}"
        ) from None
    await trio.sleep(REBOOT_TIMEOUT_S)
    raise CommandFailed(
        "fieldagent-reboot.path does not run here, or the machine does not shut down"
    )


async def change_settings(context: CommandContext, command_record: StoredCommand) -> str:
    """Write the settings to a file for root's unit, which verifies and tries them and restarts the
    agent. Wait for the result. Raises CannotBeDone if the settings are refused, CommandFailed if
    they are rolled back.
    """
    state = context.settings.state_directory
    if _find_report(context, "settings", command_record.number) is None:
        await _store_settings_offer(context, command_record)
    if await _is_change_done(context, "settings", command_record.number):
        return "they are in force"
    (state / OFFER).unlink(missing_ok=True)
    raise CommandFailed("root's unit has not tried the settings: check fieldagent-settings.path")


async def update_program(context: CommandContext, command_record: StoredCommand) -> str:
    """Write the delta to a file for root's unit, which verifies the delta, makes the new program
    and tries it. Wait for the result. Raises CannotBeDone if the delta is refused, CommandFailed if
    the previous program runs again.
    """
    state = context.settings.state_directory
    if _find_report(context, "program", command_record.number) is None:
        version = await _store_delta_offer(context, command_record)
        log.warning("root's unit tests version %s, built from a delta", version)
    if await _is_change_done(context, "program", command_record.number):
        return f"{__version__} runs"
    (state / PROGRAM_OFFER).unlink(missing_ok=True)
    raise CommandFailed("root's unit has not tried the program: check fieldagent-update-offer.path")


def check_update(context: CommandContext) -> None:
    """Raise CannotBeDone if the program cannot be replaced by a delta."""
    from fieldagent.agent.channels.kit_notes import find_installation_kind

    if find_installation_kind(Path(__file__)) != ZIPAPP:
        raise CannotBeDone("only a zipapp accepts a delta: update the packages with apt")


def is_delta_here(context: CommandContext, command_record: StoredCommand) -> bool:
    """Return True if the delta for the command has arrived completely. The delta arrives
    separately, in its own item.
    """
    return is_delta_stored(context.parts.journal, _get_digest(command_record))


def _get_digest(command_record: StoredCommand) -> bytes:
    (digest,) = command_record.command.arguments
    assert isinstance(digest, bytes)
    return digest


async def _store_delta_offer(context: CommandContext, command_record: StoredCommand) -> str:
    """Write the delta to a file for the systemd unit that runs as root, and return the version of
    the new program. Raises CannotBeDone if the delta cannot be used, and CommandFailed if the file
    cannot be written.
    """
    payload = find_delta(context.parts.journal, _get_digest(command_record))
    if payload is None:
        raise CannotBeDone("the delta was replaced by a later one")
    try:
        version = parse_release(parse_payload(payload).signature.comment).version
    except (ValueError, NotSigned) as wrong:
        raise CannotBeDone(str(wrong)) from None
    state = context.settings.state_directory
    offer = ProgramOffer(command_record.number, version, "").encode()

    def store_request() -> None:
        replace_file(state / PROGRAM_DELTA, payload)
        # Root's unit watches this file, so write it last.
        replace_file(state / PROGRAM_OFFER, offer)

    try:
        await trio.to_thread.run_sync(store_request)
    except OSError as error:
        raise CommandFailed(
            f"the program cannot be stored for root's unit: {error.strerror}"
        ) from None
    return version


async def _is_change_done(context: CommandContext, subject: str, number: int) -> bool:
    """Return True if the change succeeded, or False if root's unit has not tried it in time. Raises
    CannotBeDone if the change was refused, CommandFailed if it was rolled back.
    """
    with trio.move_on_after(TRIAL_TIMEOUT_S):
        while (
            report := _find_report(context, subject, number)
        ) is None or report.state not in ENDED:
            await trio.sleep(CHECK_INTERVAL_S)
        if report.state == "refused":
            raise CannotBeDone(report.reason)
        if report.state == "back":
            raise CommandFailed(f"taken back: {report.reason}")
        return True
    return False


async def change_radio_key(context: CommandContext, command_record: StoredCommand) -> str:
    """Take one step of the change to the group's new `radio-key`. The step takes effect at once.
    Raises CannotBeDone if this kit cannot use the key, and CommandFailed if the key cannot be
    stored.
    """
    step, sealed = command_record.command.arguments
    assert isinstance(step, int) and isinstance(sealed, bytes)
    if (station := context.parts.station) is None:
        return "no radio is configured: there is nothing to change"
    return await station.change_key(step, sealed)


async def hold_packages(context: CommandContext, command_record: StoredCommand) -> str:
    """Hold back Packages of the command's kind from satellite until `resume`, also after a restart.
    An SOS is never held back. Return a sentence with the number of waiting Packages. Raises
    CannotBeDone if no satellite modem is configured.
    """
    kind, queue = _find_kind_to_hold(context, command_record)
    await context.parts.journal.persist(commands.record_held_kind(kind, is_held=True))
    # List the Packages again, to include those that were posted in the meantime.
    queued = _list_queued_of_kind(context, queue, kind)
    queue.hold_back(kind, queued)
    return f"{kind} waits: {format_count(len(queued), 'Package')} now"


async def resume(context: CommandContext, command_record: StoredCommand) -> str:
    """Release the Packages of the command's kind that `hold` holds back. Return a sentence with
    their number. Raises CannotBeDone if no satellite modem is configured.
    """
    kind, queue = _find_kind_to_hold(context, command_record)
    await context.parts.journal.persist(commands.record_held_kind(kind, is_held=False))
    queued = _list_queued_of_kind(context, queue, kind)
    queue.release_kind(kind, queued)
    return f"{kind} goes again: {format_count(len(queued), 'Package')} now"


def _find_kind_to_hold(
    context: CommandContext, command_record: StoredCommand
) -> tuple[str, ChannelQueue]:
    """Return the command's kind of Package, and the satellite queue. Raises CannotBeDone if no
    satellite modem is configured.
    """
    _get_satellite(context)
    return str(command_record.command.arguments[0]), context.parts.queues[Channel.SATELLITE]


def _list_queued_of_kind(context: CommandContext, queue: ChannelQueue, kind: str) -> list[int]:
    """Return the sequences of the queued Packages of `kind` that are not an SOS."""
    packages_by_sequence = outbound.read_packages(context.parts.journal, queue.list_waiting())
    packages = {
        key: each.package
        for key, each in packages_by_sequence.items()
        if isinstance(each, StoredPackage)
    }
    return [
        sequence
        for sequence, package in packages.items()
        if not package.urgent and get_kind(package.item) == kind
    ]


async def _store_settings_offer(context: CommandContext, command_record: StoredCommand) -> None:
    kit = get_kit_id(context.settings.hub_token or "")
    try:
        text, signature = parse_command_arguments(
            command_record.number, kit, command_record.command.arguments
        )
        by_satellite = command_record.channel == Channel.SATELLITE
        body = SettingsOffer(text, signature, by_satellite).encode()
        offer_path = context.settings.state_directory / OFFER
        await trio.to_thread.run_sync(partial(replace_file, offer_path, body))
    except NotAChange as wrong:
        raise CannotBeDone(str(wrong)) from None
    except OSError as error:
        raise CommandFailed(
            f"the settings cannot be stored for root's unit: {error.strerror}"
        ) from None


def _find_report(context: CommandContext, subject: str, number: int) -> OfferReport | None:
    """Return the report of root's unit on the settings or the program (`subject`) with the number
    `number`, or None if there is none.
    """
    reports = outcomes.read(context.settings.state_directory)
    report = reports.settings if subject == "settings" else reports.program
    return report if report is not None and report.number == number else None


async def wait_until_quiet(context: CommandContext) -> None:
    """Wait until no modem is in a session. Raises CannotBeDone if a session does not end."""
    with trio.move_on_after(SESSION_END_TIMEOUT_S):
        while busy := _find_busy_channel(context.parts.outboxes):
            await trio.sleep(CHECK_INTERVAL_S)
        return
    raise CannotBeDone(f"{busy} has been in a session for ten minutes")


def _find_busy_channel(outboxes: Mapping[Channel, ChannelOutbox]) -> str:
    """Return the name of a channel that is in a session, or '' if there is none. The IP link is
    ignored, because its unacknowledged transmissions are sent again.
    """
    for channel, outbox in outboxes.items():
        if channel is not Channel.CELLULAR and outbox.link.state is LinkState.BUSY:
            return channel
    return ""


ACTION_BY_VERB: dict[str, Callable[[CommandContext, StoredCommand], Awaitable[str]]] = {
    "retry": retry,
    "heal": heal,
    "restart": restart,
    "reboot": reboot,
    "set": change_settings,
    "hold": hold_packages,
    "resume": resume,
    "radio-key": change_radio_key,
    "update": update_program,
}
REPEATABLE_VERBS = ("reboot", "set", "hold", "resume", "radio-key", "update")
"""Commands that are carried out again after a restart of the agent if they were begun before it,
because a repetition has no further effect. A repeated command reboots only once per boot, and tries
the same settings or program only once. A repeated command also holds or releases the same kind, and
takes the same step to a key."""
CHECK_BY_VERB = {"heal": check_healing, "restart": check_restart, "update": check_update}
"""Functions that check whether a command can be carried out, by verb. They raise CannotBeDone."""
VERB_CONDITIONS: dict[str, Callable[[CommandContext, StoredCommand], bool]] = {
    "update": is_delta_here
}
"""Functions that return True if everything that the command needs has arrived, by verb."""
INTERRUPTING_VERBS = ("heal", "restart", "reboot", "set", "update")
"""Commands that wait until no modem is in a session."""
