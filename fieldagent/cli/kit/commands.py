"""`fieldagent commands`: shows the hub's commands to this kit, and the kit's answers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from fieldagent.cli.kit.answer import make_calling, show
from fieldagent.kit.local_http import call
from fieldagent.system.exit_codes import OK
from fieldagent.system.terminal import escape_lines, format_local_time


@make_calling
def print_commands(arguments: argparse.Namespace) -> int:
    """Print the commands that this kit allows, and the commands from the hub with their answers."""
    answer = call(arguments.port, "GET", "/api/commands").body
    show(arguments, answer, escape_lines("\n".join(_format_lines(answer))))
    return OK


def _format_lines(answer: dict[str, Any]) -> Iterator[str]:
    yield f"this kit allows {', '.join(answer['allowed']) or 'none'} (remote-commands)"
    for each in answer["commands"]:
        state = each["outcome"] or each["state"]
        heading = f"{each['number']}  {each['command']}  {format_local_time(each['came'])}"
        yield f"{heading}  by {each['channel']}  {state}"
        for line in (each["answer"] or "").splitlines():
            yield f"    {line}"
    if not answer["commands"]:
        yield "no command from the hub"
