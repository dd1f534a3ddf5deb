"""The script hook, which runs a shell command for each delivery.

The command has its own session and process group, so that all its processes can be ended. When the
command has ended, its remaining child processes may continue if they have closed the command's
output. Otherwise they are ended.
"""

from __future__ import annotations

import codecs
import errno
import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from subprocess import PIPE
from types import MappingProxyType

import trio

from fieldagent.system import waits
from fieldagent.system.signals import end_group
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult

log = logging.getLogger(__name__)

LINE_MAX = 8192
"""Maximum number of characters in a line. A longer line is split."""

OUTPUT_MAX = 1 << 20
"""Maximum number of bytes that are printed for one run of the command. Further bytes are read and
dropped."""


class Lines:
    """Splits bytes into lines of text. Bytes that are not UTF-8 are shown as U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._line = ""
        self._room = OUTPUT_MAX

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield the lines that `data` completes, without their line ends."""
        if self._room < 0:
            return
        yield from self._split(self._decoder.decode(data[: self._room]))
        self._room -= len(data)
        if self._room < 0:
            yield from self.end()
            yield f"[more than {OUTPUT_MAX} bytes: the rest is not printed]"

    def end(self) -> Iterator[str]:
        """Yield the text after the last line end."""
        yield from self._split(self._decoder.decode(b"", final=True))
        if self._line:
            yield self._line
            self._line = ""

    def _split(self, text: str) -> Iterator[str]:
        *complete_lines, self._line = (self._line + text).split("\n")
        for line in complete_lines:
            yield from _split_pieces(line) or [""]
        if len(self._line) > LINE_MAX:
            *full, self._line = _split_pieces(self._line)
            yield from full


def _split_pieces(line: str) -> list[str]:
    return [line[start : start + LINE_MAX] for start in range(0, len(line), LINE_MAX)]


ENVIRONMENT_MAX = 32_768
"""Maximum size of `AGENT_PAYLOAD` in bytes. The kernel refuses a single string of 131 072 bytes,
and limits the total size."""

DEADLINE = 60.0

LINGER_S = 1.0
"""Seconds for which output is read after the command has ended, if a child process keeps the output
open."""

_READ_SIZE = 16_384

_OWN_VARIABLES = {
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "AGENT_PAYLOAD",
    "AGENT_PAYLOAD_OMITTED",
    "AGENT_PAYLOAD_SOS",
    "AGENT_PAYLOAD_UNAUTHENTICATED",
}
"""Variables of our own environment that a hook must not inherit."""

EX_TEMPFAIL = 75
"""Exit status of sysexits.h with which the script requests a retry."""

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit statuses of the shell itself (POSIX, 2.8.2)."""


async def run_script(
    command: str,
    delivery: Delivery,
    *,
    emit: Callable[[str], None],
    deadline: float = DEADLINE,
) -> HandoverResult:
    """Run `command` for `delivery`, and return the result. `emit` is called with each line of the
    command's standard output. If the command runs longer than `deadline` seconds, it is ended, and
    the result is REFUSED.
    """
    try:
        process = await _start(
            command, make_environment(delivery.body, os.environ, make_marks(delivery))
        )
    except OSError as error:
        too_long = "; shorten inbound-hook" if error.errno == errno.E2BIG else ""
        return HandoverResult(
            HandoverOutcome.FAILED, f"/bin/sh could not be started: {error.strerror}{too_long}"
        )
    except ValueError:
        return HandoverResult(
            HandoverOutcome.REFUSED, "inbound-hook holds a character that no command can have"
        )
    has_ended_itself = await _serve_process(process, delivery.body, emit, deadline)
    if not has_ended_itself:
        return HandoverResult(
            HandoverOutcome.REFUSED,
            f"inbound-hook did not end within {deadline:g} s;"
            " make it quicker or raise inbound-hook-deadline",
        )
    assert process.returncode is not None
    return judge(process.returncode)


def make_marks(delivery: Delivery) -> dict[str, str]:
    """Return environment variables with the value `1` for an SOS and for an unauthenticated sender.
    A script can check them without reading the payload.
    """
    flags = {
        "AGENT_PAYLOAD_SOS": delivery.sos,
        "AGENT_PAYLOAD_UNAUTHENTICATED": delivery.unauthenticated,
    }
    return {name: "1" for name, is_so in flags.items() if is_so}


def make_environment(
    body: str, environment: Mapping[str, str], marks: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return the hook's environment: our own, `make_marks`, and the payload if every shell can
    handle its size and characters.
    """
    inherited = {name: value for name, value in environment.items() if name not in _OWN_VARIABLES}
    inherited |= marks
    if len(body) <= ENVIRONMENT_MAX and body.isascii() and "\0" not in body:
        return inherited | {"AGENT_PAYLOAD": body}
    return inherited | {"AGENT_PAYLOAD_OMITTED": "1"}


def judge(status: int) -> HandoverResult:
    """Return the result for an exit status. A negative status is the number of a signal, as in
    `subprocess`.
    """
    if status == 0:
        return HandoverResult(HandoverOutcome.HANDED)
    if status == EX_TEMPFAIL:
        return HandoverResult(
            HandoverOutcome.FAILED, "inbound-hook asked to be run again (exit 75)"
        )
    return HandoverResult(HandoverOutcome.REFUSED, _describe_failure(status))


def _describe_failure(status: int) -> str:
    if status == NOT_FOUND:
        return "a command in inbound-hook was not found (exit 127): correct inbound-hook"
    if status == NOT_EXECUTABLE:
        return (
            "a command in inbound-hook is not executable (exit 126):"
            " chmod +x it, or correct inbound-hook"
        )
    if status < 0:
        return f"inbound-hook was ended by {_name_signal(-status)}"
    if status > 128:
        return f"a command in inbound-hook was ended by {_name_signal(status - 128)}"
    return f"inbound-hook failed (exit {status})"


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


async def _start(command: str, environment: dict[str, str]) -> trio.Process:
    return await trio.lowlevel.open_process(
        ["/bin/sh", "-c", command],
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=environment,
        start_new_session=True,
    )


async def _serve_process(
    process: trio.Process, body: str, emit: Callable[[str], None], deadline: float
) -> bool:
    """Write the payload to the command and read its output until it ends. Return False if the
    command was ended after `deadline` seconds.
    """
    assert process.stdin and process.stdout and process.stderr
    with trio.CancelScope() as conclusion:
        async with process.stdin, process.stdout, process.stderr, trio.open_nursery() as pipes:
            pipes.start_soon(_feed, process.stdin, body)
            pipes.start_soon(_read, process.stdout, partial(_print, emit))
            pipes.start_soon(_read, process.stderr, _log_line)
            has_ended_itself = await _end(process, deadline)
            # From now on, do not allow a cancellation, because it would make the agent hand over
            # the same payload again.
            conclusion.shield = has_ended_itself
            pipes.cancel_scope.deadline = trio.current_time() + LINGER_S
    if has_ended_itself and pipes.cancel_scope.cancelled_caught:
        log.warning(
            "inbound-hook left child processes that hold its output open: they are stopped;"
            " redirect all of their output if they should continue"
        )
        await _end_all(process)
    return has_ended_itself


async def _end(process: trio.Process, deadline: float) -> bool:
    """Wait until the process ends. If the deadline comes first, end the process group and return
    False.
    """
    with waits.move_on_after(deadline):
        try:
            await process.wait()
        finally:
            if running := process.returncode is None:
                await _end_all(process)
        return not running
    return False


def _print(emit: Callable[[str], None], line: str) -> None:
    """Print a line. A closed terminal or pipe must not end the agent."""
    try:
        emit(line)
    except OSError as error:
        log.warning("inbound-hook printed %r, which cannot be sent: %s", line, error.strerror)
    # The encoding of the output may have no code for a character of the line, or the file may be
    # closed. Neither may end the agent.
    except ValueError as error:
        log.warning("inbound-hook printed %r, which cannot be shown: %s", line, error)


def _log_line(line: str) -> None:
    log.warning("inbound-hook printed: %s", line)


async def _feed(stdin: trio.abc.SendStream, body: str) -> None:
    """Write the payload to the command's standard input. A lone surrogate is written as its JSON
    escape.
    """
    with suppress(trio.BrokenResourceError):  # The command need not read its input.
        await stdin.send_all(body.encode("utf-8", "backslashreplace") + b"\n")
    await stdin.aclose()


async def _read(stream: trio.abc.ReceiveStream, handle_line: Callable[[str], None]) -> None:
    lines = Lines()
    try:
        while data := await stream.receive_some(_READ_SIZE):
            for line in lines.feed(bytes(data)):
                handle_line(line)
    finally:
        for line in lines.end():
            handle_line(line)


async def _end_all(process: trio.Process) -> None:
    if not await end_group(process):
        log.error(
            "inbound-hook (process %d) could not be ended: it runs as another user"
            " or waits for a device; end it by hand",
            process.pid,
        )
