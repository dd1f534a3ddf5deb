"""Carries out the hub's commands, one after the other, and each only once.

A power cut loses no command: each command is on disk before the link confirms it or the modem
clears it. A command that only reads is repeated, because the hub has not seen its result. A command
that changes something (`acts`) is stored as `begun` before it runs, and is not repeated. After a
restart of the agent, the answer contains the known result. An answer is on disk before it is put
into a Package, and is put into only one Package.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import inf

import trio

from fieldagent.agent.commands.acts import (
    ACTION_BY_VERB,
    CHECK_BY_VERB,
    INTERRUPTING_VERBS,
    REPEATABLE_VERBS,
    VERB_CONDITIONS,
    wait_until_quiet,
)
from fieldagent.agent.commands.context import CannotBeDone, CommandContext, CommandFailed
from fieldagent.agent.condition.reading import make_status
from fieldagent.agent.inbound.command_gate import AGE_MAX_S, CommandGate
from fieldagent.agent.journal import commands, history, outbound
from fieldagent.agent.journal.commands import StoredCommand
from fieldagent.agent.journal.records import StoredPackage
from fieldagent.package.package import Channel, CommandAnswer, CommandOutcome, Package
from fieldagent.package.reading import KINDS
from fieldagent.package.writing import format_clock_time
from fieldagent.store.group import StoreFailed, StoreFull
from fieldagent.system import waits
from fieldagent.system.supervisor import describe_error
from fieldagent.wire import answer_text, kit_status
from fieldagent.wire.command import Argument, format_command, get_answer_size, get_verb

log = logging.getLogger(__name__)


def read_status(context: CommandContext, arguments: tuple[Argument, ...]) -> bytes:
    """Return the kit's condition in 32 bytes."""
    answer, has_trouble = context.status(), context.find_trouble() is not None
    return kit_status.encode(
        make_status(context.settings, answer, context.start_count, trouble=has_trouble)
    )


def read_log(context: CommandContext, arguments: tuple[Argument, ...]) -> bytes:
    """Return the newest warnings in the agent's log, as many as fit into the answer."""
    lines = context.log.list_lines() or ["no warning since the agent began"]
    return answer_text.pack_lines(lines, get_answer_size(arguments))


def show_history(context: CommandContext, arguments: tuple[Argument, ...]) -> bytes:
    """Return the history of a Package, the newest event first. Raises CannotBeDone if the Package
    is unknown.
    """
    journal, id_ = context.parts.journal, int(arguments[0])
    package = outbound.find_by_id(journal, id_)
    if package is None:
        raise CannotBeDone(f"no Package has the id {id_}")
    receipts = outbound.list_receipts(journal, package.sequence)
    lines = [f"status {package.status or 'waiting'}"]
    for each in reversed(history.list_lines(journal, package, receipts)):
        often = f"x{each.times}" if each.times > 1 else ""
        columns = (format_clock_time(each.at), each.channel or "", each.event, each.detail, often)
        lines.append(" ".join(filter(None, columns)))
    return answer_text.pack_lines(lines, get_answer_size(arguments[1:]))


def read_trace(context: CommandContext, arguments: tuple[Argument, ...]) -> bytes:
    """Return the last part of the trace of the satellite modem's line. Raises CannotBeDone if no
    satellite modem is configured.
    """
    if (outbox := context.parts.outboxes.get(Channel.SATELLITE)) is None:
        raise CannotBeDone("no satellite modem is configured")
    lines = outbox.link.recorder.format_trace().splitlines()
    return answer_text.pack_last(lines, get_answer_size(arguments))


READER_BY_VERB = {"status": read_status, "log": read_log, "show": show_history, "trace": read_trace}


DISK_RETRY_AFTER_S = 60.0
"""Seconds until storing an answer is tried again if the disk was full."""
RECHECK_AFTER_S = 3_600.0
"""Seconds between two checks of the age of waiting commands."""
SUBJECT_MISSING_REASON = "its subject did not arrive within 5 days"
UNREADABLE = "it is damaged on the kit's disk, and was not carried out: send it again"
INTERRUPTED_REASON = "the agent stopped during the command: its progress is unknown"


async def run(context: CommandContext, gate: CommandGate) -> None:
    """Carry out stored and new commands, forever."""
    journal = context.parts.journal
    with _record_log(context):
        if not context.start_count:
            context.start_count = await journal.persist(commands.count_start)
        for each in commands.list_unanswered(journal):
            if each.state == "begun":
                await _store_answer(context, await _make_answer_after_start(context, each))
        while True:
            news = gate.news
            for each in commands.list_unanswered(journal):
                if each.state == "accepted" and not _can_still_arrive(context, each):
                    await _store_answer(context, await _carry_out(context, each))
            for each in commands.list_unanswered(journal):
                if each.state == "owed":
                    await _send_answer(context, each)
            unanswered = commands.list_unanswered(journal)
            if all(
                each.state == "accepted" and _can_still_arrive(context, each) for each in unanswered
            ):
                with waits.move_on_after(RECHECK_AFTER_S if unanswered else inf):
                    await news.wait()


def _is_something_missing(context: CommandContext, command_record: StoredCommand) -> bool:
    """Return True if the command needs something that has not arrived."""
    if not command_record.is_readable:
        return False
    is_here = VERB_CONDITIONS.get(get_verb(command_record.command).name)
    return is_here is not None and not is_here(context, command_record)


def _can_still_arrive(context: CommandContext, command_record: StoredCommand) -> bool:
    """Return True if the command waits for something that may still arrive."""
    return (
        _is_something_missing(context, command_record)
        and context.parts.journal.clock.now() < command_record.arrived_at + AGE_MAX_S
    )


@contextmanager
def _record_log(context: CommandContext) -> Iterator[None]:
    root = logging.getLogger()
    root.addHandler(context.log)
    try:
        yield
    finally:
        root.removeHandler(context.log)


async def _carry_out(context: CommandContext, command_record: StoredCommand) -> CommandAnswer:
    command_text = format_command(command_record.command)
    if not command_record.is_readable:
        return _make_answer(command_record, CommandOutcome.FAILED, UNREADABLE)
    if _is_something_missing(context, command_record):
        return _make_answer(command_record, CommandOutcome.REFUSED, SUBJECT_MISSING_REASON)
    log.info("the hub's command %d: %s", command_record.number, command_text)
    name = get_verb(command_record.command).name
    try:
        if name in READER_BY_VERB:
            body = READER_BY_VERB[name](context, command_record.command.arguments)
            return CommandAnswer(command_record.number, CommandOutcome.DONE, body)
        if name in CHECK_BY_VERB:
            CHECK_BY_VERB[name](context)
        if name in INTERRUPTING_VERBS:
            await wait_until_quiet(context)
    except CannotBeDone as why:
        return _make_answer(command_record, CommandOutcome.REFUSED, str(why))
    except Exception as error:
        return _make_mistake_answer(command_record, error)
    boot = context.parts.journal.clock.get_base().boot
    await context.parts.journal.persist(commands.begin(command_record.number, boot))
    log.warning("the hub's command %d is carried out: %s", command_record.number, command_text)
    return await _make_done(context, command_record, name)


async def _make_done(
    context: CommandContext, command_record: StoredCommand, name: str
) -> CommandAnswer:
    try:
        return _make_answer(
            command_record, CommandOutcome.DONE, await ACTION_BY_VERB[name](context, command_record)
        )
    except CannotBeDone as why:
        return _make_answer(command_record, CommandOutcome.REFUSED, str(why))
    except CommandFailed as why:
        return _make_answer(command_record, CommandOutcome.FAILED, str(why))
    except Exception as error:
        return _make_mistake_answer(command_record, error)


def _make_mistake_answer(command_record: StoredCommand, error: Exception) -> CommandAnswer:
    """Log the unexpected error of a command, and return an answer for it, so that the error does
    not block the next commands. Errors of the journal are raised again.
    """
    if isinstance(error, StoreFailed | StoreFull):
        raise error
    log.exception("command %d failed because of a bug", command_record.number)
    return _make_answer(
        command_record, CommandOutcome.FAILED, f"the agent failed: {describe_error(error)}"
    )


async def _make_answer_after_start(
    context: CommandContext, command_record: StoredCommand
) -> CommandAnswer:
    """Return the answer to a command that was begun before the agent's start. A command in
    REPEATABLE_VERBS is carried out again.
    """
    if not command_record.is_readable:
        return _make_answer(command_record, CommandOutcome.FAILED, INTERRUPTED_REASON)
    name = get_verb(command_record.command).name
    if name == "restart":
        return _make_answer(command_record, CommandOutcome.DONE, "the agent has restarted")
    if name == "reboot" and command_record.boot != context.parts.journal.clock.get_base().boot:
        return _make_answer(command_record, CommandOutcome.DONE, "the machine has restarted")
    if name in REPEATABLE_VERBS:
        return await _make_done(context, command_record, name)
    return _make_answer(command_record, CommandOutcome.FAILED, INTERRUPTED_REASON)


def _make_answer(
    command_record: StoredCommand, outcome: CommandOutcome, text: str
) -> CommandAnswer:
    return CommandAnswer(command_record.number, outcome, answer_text.pack(text))


async def _store_answer(context: CommandContext, answer: CommandAnswer) -> None:
    await context.parts.journal.persist(partial(commands.store_answer, answer=answer))


async def _send_answer(context: CommandContext, command_record: StoredCommand) -> None:
    """Put the answer into a Package, for the channel over which the command arrived. If the disk is
    full, wait DISK_RETRY_AFTER_S seconds and leave the answer in the journal.
    """
    assert command_record.answer is not None
    log.info("command %d: %s", command_record.number, command_record.answer.outcome.name.lower())
    if command_record.channel == Channel.RADIO:
        await _answer_by_radio(context, command_record.number, command_record.answer)
        return
    priority = KINDS["commandAnswer"].priority
    channels = frozenset([Channel(command_record.channel)])
    package = Package(command_record.answer, channels=channels, priority=priority)
    try:
        await context.parts.intake.accept(package, f"fieldagent command {command_record.number}")
    except StoreFull as full:
        log.error("the answer to command %d waits: %s", command_record.number, full)
        await trio.sleep(DISK_RETRY_AFTER_S)
        return
    journal = context.parts.journal
    await journal.persist(commands.mark_answered(command_record.number, journal.clock.now()))


async def _answer_by_radio(context: CommandContext, number: int, answer: CommandAnswer) -> None:
    """Send the answer to the hub in a parcel, because the command arrived in a parcel."""
    parts, now = context.parts, context.parts.journal.clock.now()

    def store(db: sqlite3.Connection) -> StoredPackage | None:
        commands.mark_answered(number, now)(db)
        station = parts.station
        return None if station is None else station.store_answer(db, answer, now)

    accepted = await parts.journal.persist(store)
    if accepted is None:
        log.error(
            "the answer to command %d cannot be sent: no radio is configured any more", number
        )
    else:
        parts.intake.queue_relayed(accepted)
