"""`fieldagent satellite retry`: a person who sees the sky lets the modem try at once."""

from __future__ import annotations

import argparse

from fieldagent.kit.local_http import CallFailed, call, report, show
from fieldagent.system.exit_codes import OK
from fieldagent.system.wording import counted


def retry(given: argparse.Namespace) -> int:
    """Print what waits; what becomes of it, `fieldagent status` shows."""
    try:
        answer = call(given.port, "POST", "/api/satellite/retry", {}).body
    except CallFailed as failed:
        return report(failed)
    waits = counted(answer["queued"], "Package")
    show(given, answer, f"the satellite modem tries now: {waits} to send")
    return OK
