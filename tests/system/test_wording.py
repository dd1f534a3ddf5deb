"""Error texts for people."""

from __future__ import annotations

import errno
import os
from urllib.error import URLError

import pytest

from fieldagent.system.wording import describe_reason

REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (REFUSED, "connection refused"),
        (URLError(REFUSED), "connection refused"),
        (
            FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/nope"),
            "/nope: no such file or directory",
        ),
        (TimeoutError("timed out"), "timed out"),
        (FileNotFoundError("there is no settings file"), "there is no settings file"),
        (ValueError("no port"), "no port"),
    ],
)
def test_system_error_is_described_without_its_number(error: Exception, text: str) -> None:
    assert describe_reason(error) == text
