"""Text of an answer to a command, for people."""

from __future__ import annotations

from fieldagent.package.package import CommandAnswer, CommandOutcome
from fieldagent.wire import answer_text, kit_status
from fieldagent.wire.command import BY_NAME
from fieldagent.wire.errors import RemoteProtocolError

STATUS = BY_NAME["status"].number


def text_of(verb: int, answer: CommandAnswer) -> str:
    """Return the answer as lines, or a message if it cannot be read."""
    try:
        if verb == STATUS and answer.outcome is CommandOutcome.DONE:
            return "\n".join(kit_status.lines(kit_status.decode(answer.body)))
        return answer_text.unpack(answer.body)
    except RemoteProtocolError as error:
        return f"{len(answer.body)} bytes that cannot be read: {error}"
