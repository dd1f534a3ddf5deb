"""`fieldagent satellite`: makes the modem try immediately, for example when it has a view of the
sky, and shows the traffic on its serial line.
"""

from __future__ import annotations

import argparse

from fieldagent.cli.kit.answer import make_calling, show
from fieldagent.kit.local_http import call
from fieldagent.system.exit_codes import OK
from fieldagent.system.wording import format_count


@make_calling
def retry(arguments: argparse.Namespace) -> int:
    """Make the modem try now, and print the number of waiting Packages. `fieldagent status` shows
    the results.
    """
    answer = call(arguments.port, "POST", "/api/satellite/retry", {}).body
    waits = format_count(answer["queued"], "Package")
    show(arguments, answer, f"the satellite modem tries now: {waits} to send")
    return OK


@make_calling
def print_trace(arguments: argparse.Namespace) -> int:
    """Print the trace of the last fault, which is on disk, and the trace in the agent's memory."""
    query = f"channel={arguments.channel}&payloads={int(arguments.payloads)}"
    answer = call(arguments.port, "GET", f"/api/trace?{query}").body
    show(arguments, answer, f"{answer['kept']}{answer['memory']}".rstrip("\n"))
    return OK
