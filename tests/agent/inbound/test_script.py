"""The script hook with real processes: the contract, and commands with faults."""

from __future__ import annotations

import errno
import gc
import json
import logging
import os
import signal
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.agent.inbound import script
from fieldagent.agent.inbound.script import (
    LINE_MAX,
    OUTPUT_MAX,
    Lines,
    judge,
    make_environment,
    run_script,
)
from fieldagent.system import signals
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult
from tests.processes import until_async

BODY = '{"requestId":"r"}'
LARGE = json.dumps({"content": "x" * 200_000}, separators=(",", ":"))
NOT_ASCII = '{"content":"Grüße 🛰"}'
SURROGATE = '{"content":"\ud800"}'
NUL = '{"content":"a\0b"}'


async def run(
    command: str, body: str = BODY, *, deadline: float = 20.0
) -> tuple[HandoverResult, list[str]]:
    printed: list[str] = []
    delivery = Delivery("r", "ada", body, 0.0)
    return await run_script(command, delivery, emit=printed.append, deadline=deadline), printed


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less than the product does for commands that ignore SIGTERM or leave children."""
    monkeypatch.setattr(signals, "GRACE_S", 0.3)
    monkeypatch.setattr(script, "LINGER_S", 0.3)


@pytest.mark.parametrize("body", [BODY, LARGE, NOT_ASCII])
async def test_hook_gets_payload_on_standard_input_with_newline(body: str) -> None:
    result, printed = await run("cat; echo end", body)
    assert result == HandoverResult(HandoverOutcome.HANDED)
    assert "".join(printed) == body + "end"
    assert printed[-1] == "end"


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        (BODY, [BODY, "unset"]),
        ("x" * script.ENVIRONMENT_MAX, ["x" * 8192] * 4 + ["unset"]),
        ("x" * (script.ENVIRONMENT_MAX + 1), ["unset", "1"]),
        (LARGE, ["unset", "1"]),
        (NOT_ASCII, ["unset", "1"]),
        (SURROGATE, ["unset", "1"]),
        (NUL, ["unset", "1"]),
    ],
)
async def test_hook_gets_short_payload_in_environment(
    body: str, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_PAYLOAD", "somebody else's")
    monkeypatch.setenv("AGENT_PAYLOAD_OMITTED", "somebody else's")
    show = 'echo "${AGENT_PAYLOAD-unset}"; echo "${AGENT_PAYLOAD_OMITTED-unset}"'
    assert await run(show, body) == (HandoverResult(HandoverOutcome.HANDED), seen)


async def test_lone_surrogate_is_escaped_on_standard_input() -> None:
    _, printed = await run("cat", SURROGATE)
    assert printed == ['{"content":"\\ud800"}']


def test_environment_of_hook_excludes_systemd_variables() -> None:
    ours = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "1", "HOME": "/root"}
    assert make_environment("{}", ours) == {"HOME": "/root", "AGENT_PAYLOAD": "{}"}


EXITS = [
    ("true", HandoverOutcome.HANDED, ""),
    ("exit 75", HandoverOutcome.FAILED, "asked to be run again"),
    ("exit 1", HandoverOutcome.REFUSED, "failed (exit 1)"),
    ("exit 200", HandoverOutcome.REFUSED, "ended by signal 72"),
    ("/nowhere/at/all", HandoverOutcome.REFUSED, "was not found (exit 127): correct inbound-hook"),
    ("/etc/passwd", HandoverOutcome.REFUSED, "not executable (exit 126): chmod +x it"),
    ("if", HandoverOutcome.REFUSED, "failed (exit 2)"),
    ("kill -SEGV $$", HandoverOutcome.REFUSED, "ended by SIGSEGV"),
    ("sh -c 'kill -KILL $$'; exit $?", HandoverOutcome.REFUSED, "ended by SIGKILL"),
]


@pytest.mark.parametrize(("command", "outcome", "reason"), EXITS, ids=[row[0] for row in EXITS])
async def test_exit_status_of_hook_determines_outcome_of_payload(
    command: str, outcome: HandoverOutcome, reason: str
) -> None:
    result, _ = await run(command)
    assert result.outcome is outcome
    assert reason in result.reason


@given(st.integers(-64, 255))
def test_every_exit_status_has_outcome_and_reason(status: int) -> None:
    result = judge(status)
    assert (result.outcome is HandoverOutcome.HANDED) == (status == 0)
    assert bool(result.reason) == (status != 0)


async def test_hook_is_retried_if_shell_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result, _ = await run(f": {'x' * 200_000}")
    assert result.outcome is HandoverOutcome.FAILED
    assert result.reason == (
        "/bin/sh could not be started: Argument list too long; shorten inbound-hook"
    )


async def test_command_with_nul_is_refused() -> None:
    result, _ = await run("echo a\0b")
    assert result.outcome is HandoverOutcome.REFUSED


async def test_output_lines_of_hook_are_printed_immediately() -> None:
    """The command continues only after its first line was visible outside."""
    read, write = os.pipe()
    printed: list[str] = []

    def emit(line: str) -> None:
        printed.append(line)
        os.write(write, b"seen\n")

    gate = f"/proc/{os.getpid()}/fd/{read}"
    delivery = Delivery("r", "ada", BODY, 0.0)
    command = f"echo one; head -n 1 {gate} >/dev/null; echo two"
    result = await run_script(command, delivery, emit=emit, deadline=20)
    os.close(read)
    os.close(write)
    assert (result.outcome, printed) == (HandoverOutcome.HANDED, ["one", "two"])


async def test_closed_terminal_does_not_end_hook(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def emit(line: str) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    delivery = Delivery("r", "ada", BODY, 0.0)
    result = await run_script("echo one; echo two", delivery, emit=emit)
    assert result.outcome is HandoverOutcome.HANDED
    assert "inbound-hook printed 'two', which cannot be sent: Broken pipe" in caplog.text


async def test_standard_error_of_hook_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert await run("echo to the operator >&2") == (HandoverResult(HandoverOutcome.HANDED), [])
    assert "inbound-hook printed: to the operator" in caplog.text


@pytest.mark.parametrize("body", [BODY, LARGE])
@pytest.mark.parametrize("command", ["true", "exec <&-; true", "head -c 1 >/dev/null"])
async def test_hook_may_leave_standard_input_unread(command: str, body: str) -> None:
    result, _ = await run(command, body)
    assert result.outcome is HandoverOutcome.HANDED


async def test_hook_that_never_reads_large_payload_ends_at_deadline(brief: None) -> None:
    result, _ = await run("exec sleep 1000", LARGE, deadline=0.3)
    assert result.outcome is HandoverOutcome.REFUSED


async def test_endless_output_is_limited_and_ends_at_deadline(
    brief: None,
) -> None:
    result, printed = await run(f"yes {'y' * 999}", deadline=1.0)
    assert result.outcome is HandoverOutcome.REFUSED
    assert sum(len(line) + 1 for line in printed) < OUTPUT_MAX + 100
    assert printed[-1] == f"[more than {OUTPUT_MAX} bytes: the rest is not printed]"


async def test_large_output_does_not_block_hook() -> None:
    result, printed = await run("head -c 30000000 /dev/zero; exit 0")
    assert result.outcome is HandoverOutcome.HANDED
    assert len(printed) == OUTPUT_MAX // LINE_MAX + 1


def alive(pid: int) -> bool:
    """Return True if the process lives. A zombie is dead, and only its parent has not waited for it
    yet.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


OVERDUE = {
    "obeys SIGTERM": "echo $$; sleep 1000 & echo $!; wait",
    "ignores SIGTERM": "trap '' TERM; echo $$; sleep 1000 & echo $!; while :; do wait; done",
    "child ignores SIGTERM": "echo $$; (trap '' TERM; exec sleep 1000) & echo $!; wait",
    "ends before child": "echo $$; trap 'exit 0' TERM; (trap '' TERM; exec sleep"
    " 1000) & echo $!; while :; do wait; done",
    "is stopped": "echo $$; sleep 1000 & echo $!; kill -STOP $$",
}


@pytest.mark.parametrize("command", OVERDUE.values(), ids=OVERDUE)
async def test_overdue_hook_is_killed_with_children(command: str, brief: None) -> None:
    result, printed = await run(command, deadline=0.5)
    assert result.outcome is HandoverOutcome.REFUSED
    assert "did not end within 0.5 s" in result.reason
    pids = [int(line) for line in printed]
    assert len(pids) == 2
    await until_async(lambda: not any(alive(pid) for pid in pids))


async def test_overdue_hook_may_clean_up() -> None:
    result, printed = await run(
        "trap 'echo cleared; exit 0' TERM; while :; do sleep 0.05; done", deadline=0.5
    )
    assert result.outcome is HandoverOutcome.REFUSED
    assert printed == ["cleared"]


@pytest.mark.full
async def test_child_of_ended_shell_may_clean_up() -> None:
    child = "trap 'sleep 0.3; echo cleared; exit' TERM; while :; do sleep 0.05; done"
    result, printed = await run(f"({child}); true", deadline=0.5)
    assert result.outcome is HandoverOutcome.REFUSED
    assert printed == ["cleared"]


@pytest.mark.parametrize("child", ["sleep 1000", "sh -c 'trap \"\" TERM; sleep 1000; sleep 1000'"])
async def test_child_that_holds_output_open_is_killed(
    brief: None, child: str, caplog: pytest.LogCaptureFixture
) -> None:
    result, printed = await run(f"{child} & echo $!; exit 0")
    assert result.outcome is HandoverOutcome.HANDED
    assert "left child processes that hold its output open" in caplog.text
    await until_async(lambda: not alive(int(printed[0])))


async def test_child_that_has_closed_output_continues(brief: None) -> None:
    result, printed = await run("sleep 1000 >/dev/null 2>&1 </dev/null & echo $!; exit 0")
    assert result.outcome is HandoverOutcome.HANDED
    child = int(printed[0])
    assert alive(child), "a detached child is not killed"
    os.kill(child, signal.SIGKILL)


# Python warns about an abandoned process, which is correct here.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_hook_that_cannot_be_killed_does_not_block_agent(
    brief: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A command like `exec sudo ...` becomes root's, and the kernel refuses our signals."""
    end_group = os.killpg

    def refused(group: int, number: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "killpg", refused)
    result, printed = await run("echo $$; exec sleep 1000", deadline=0.5)
    end_group(int(printed[0]), signal.SIGKILL)
    assert result.outcome is HandoverOutcome.REFUSED
    assert f"(process {printed[0]}) could not be ended" in caplog.text
    gc.collect()


@pytest.mark.parametrize(
    "trouble",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        UnicodeEncodeError("ascii", "é", 0, 1, "ordinal not in range(128)"),
        ValueError("I/O operation on closed file"),
    ],
    ids=lambda trouble: type(trouble).__name__,
)
async def test_unprintable_line_is_logged_and_next_line_is_printed(
    trouble: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    printed: list[str] = []

    def emit(line: str) -> None:
        if line == "é":
            raise trouble
        printed.append(line)

    delivery = Delivery("r", "ada", BODY, 0.0)
    result = await run_script("echo é; echo b", delivery, emit=emit, deadline=20)
    assert (result.outcome, printed) == (HandoverOutcome.HANDED, ["b"])
    assert "inbound-hook printed 'é', which" in caplog.text
    assert str(trouble.args[-1]) in caplog.text


async def test_stop_of_agent_kills_hook_with_children(brief: None) -> None:
    pids: list[int] = []
    started = trio.Event()

    def emit(line: str) -> None:
        pids.append(int(line))
        started.set()

    async with trio.open_nursery() as nursery:
        command = "trap '' TERM; echo $$; sleep 1000; sleep 1000"
        delivery = Delivery("r", "ada", BODY, 0.0)

        async def never_ends() -> None:
            await run_script(command, delivery, emit=emit, deadline=1000)
            raise AssertionError("a canceled call must not return")

        nursery.start_soon(never_ends)
        await started.wait()
        nursery.cancel_scope.cancel()
    await until_async(lambda: not alive(pids[0]))


@pytest.mark.full
async def test_result_of_ended_hook_survives_stop_while_child_lingers() -> None:
    """Without this result, the hook would run again for the same payload after the restart."""
    finished: list[HandoverResult] = []
    with trio.CancelScope() as agent:
        printed: list[str] = []

        def emit(line: str) -> None:
            printed.append(line)

        async def stop_soon() -> None:
            await until_async(lambda: bool(printed) and not alive(int(printed[0])))
            await trio.sleep(0.05)
            agent.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop_soon)
            command = "echo $$; sleep 3 & exit 0"
            delivery = Delivery("r", "ada", BODY, 0.0)
            finished.append(await run_script(command, delivery, emit=emit))
    assert finished == [HandoverResult(HandoverOutcome.HANDED)]


async def test_hooks_leave_no_open_descriptor() -> None:
    await run("true")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for command in ("true", "/nowhere", "echo a; exit 1"):
        await run(command)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


async def test_hook_runs_in_own_session(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    _, printed = await run("cut -d ' ' -f 1,5,6 /proc/$$/stat")
    pid, group, session = printed[0].split()
    assert pid == group == session != str(os.getsid(0))


def lines_of(*segments: bytes) -> list[str]:
    lines = Lines()
    output = [line for segment in segments for line in lines.feed(segment)]
    return output + list(lines.end())


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        ((b"a\nb",), ["a", "b"]),
        ((b"a\n\n",), ["a", ""]),
        ((b"\xc3", b"\xa9\n"), ["é"]),
        ((b"\xff\n",), ["\ufffd"]),
        ((b"\xc3",), ["\ufffd"]),
        ((b"x" * LINE_MAX + b"\n",), ["x" * LINE_MAX]),
        ((b"x" * LINE_MAX, b"y"), ["x" * LINE_MAX, "y"]),
        ((b"x" * 3 * LINE_MAX,), ["x" * LINE_MAX] * 3),
        ((b"",), []),
    ],
)
def test_output_bytes_are_split_into_lines(
    segments: tuple[bytes, ...], expected: list[str]
) -> None:
    assert lines_of(*segments) == expected


@given(st.lists(st.binary(max_size=50)))
def test_lines_are_independent_of_segments(segments: list[bytes]) -> None:
    assert lines_of(*segments) == lines_of(b"".join(segments))


def test_output_is_cut_at_limit_with_one_notice() -> None:
    segment = b"x" * 99 + b"\n"
    lines = lines_of(*[segment] * (OUTPUT_MAX // 100 + 500))
    assert sum(len(line) + 1 for line in lines[:-2]) <= OUTPUT_MAX
    assert [line for line in lines if line.startswith("[more")] == lines[-1:]
    exact = lines_of(b"x\n" * (OUTPUT_MAX // 2))
    assert exact == ["x"] * (OUTPUT_MAX // 2)
