"""Prints the agent's responses, and the errors of requests to the agent."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from fieldagent.kit.local_http import CallFailed
from fieldagent.system.terminal import escape_lines, format_lines

Command = Callable[[argparse.Namespace], int]


def make_calling(command: Command) -> Command:
    """Return a command that runs `command`, and prints the reason if a request to the agent
    fails.
    """

    @wraps(command)
    def run_reporting(arguments: argparse.Namespace) -> int:
        try:
            return command(arguments)
        except CallFailed as failed:
            return report(failed)

    return run_reporting


def report(error: CallFailed) -> int:
    """Print the reason why a request failed, and return the exit code."""
    print(f"fieldagent: {escape_lines(str(error))}", file=sys.stderr)
    return error.code


def show(arguments: argparse.Namespace, value: Any, text: str) -> None:
    """Print `value` as JSON if --json is set, otherwise `text`. Names of states in the text may be
    coloured.
    """
    print(json.dumps(value) if arguments.json else format_lines(text))
