"""A program's log lines as systemd's journal accepts them: sd-daemon(3)."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from fieldagent.system.log_lines import JournalFormatter
from tests.processes import MODULE, PATIENCE


def _run_with_faulty_settings(environment: dict[str, str], stderr: int) -> None:
    """Run an agent with faulty settings."""
    subprocess.run(
        [*MODULE, "run", "--config", "/dev/stdin"],
        input=b"api-port=many\n",
        stderr=stderr,
        env={**os.environ, **environment},
        timeout=PATIENCE,
    )


def test_log_lines_have_a_severity_prefix_only_for_the_journal() -> None:
    ours, theirs = os.pipe()
    at = os.fstat(theirs)
    for stream, expected in ((f"{at.st_dev}:{at.st_ino}", b"<3>fieldagent: "), ("1:2", b"fieldag")):
        _run_with_faulty_settings({"JOURNAL_STREAM": stream}, theirs)
        lines = os.read(ours, 65_536).splitlines()
        assert len(lines) >= 2
        assert all(line.startswith(expected) for line in lines), lines
    os.close(ours)
    os.close(theirs)


def test_each_line_of_a_traceback_has_its_severity() -> None:
    try:
        raise ValueError("of ours")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "it failed", (), sys.exc_info())
    lines = JournalFormatter("%(message)s").format(record).split("\n")
    assert lines[0] == "<3>it failed"
    assert lines[-1] == "<3>ValueError: of ours"
    assert all(line.startswith("<3>") for line in lines)


@pytest.mark.parametrize(
    ("level", "severity"),
    [("DEBUG", 7), ("INFO", 6), ("WARNING", 4), ("ERROR", 3), ("CRITICAL", 3)],
)
def test_log_levels_map_to_sd_daemon_severities(level: str, severity: int) -> None:
    record = logging.LogRecord("x", getattr(logging, level), "", 0, "said", (), None)
    assert JournalFormatter("%(message)s").format(record) == f"<{severity}>said"
