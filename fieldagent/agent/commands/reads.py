"""The hub's commands that only read. Each function returns the body of the answer."""

from __future__ import annotations

from fieldagent.agent.commands.hands import CannotBeDone, CommandContext
from fieldagent.agent.condition.reading import make_status
from fieldagent.agent.journal import history, outbound
from fieldagent.package.package import Channel
from fieldagent.package.writing import format_clock_time
from fieldagent.wire import answer_text, kit_status
from fieldagent.wire.command import Argument, get_answer_size


def read_status(context: CommandContext, arguments: tuple[Argument, ...]) -> bytes:
    """Return the kit's condition in 32 bytes."""
    answer, has_trouble = context.status(), context.find_trouble() is not None
    return kit_status.encode(
        make_status(context.settings, answer, context.start_count, trouble=has_trouble)
    )


def log(context: CommandContext, arguments: tuple[Argument, ...]) -> bytes:
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


READER_BY_VERB = {"status": read_status, "log": log, "show": show_history, "trace": read_trace}
