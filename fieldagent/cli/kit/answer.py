"""What a command prints of the agent's answer."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from fieldagent.kit.local_http import CallFailed
from fieldagent.system.terminal import escaped_lines


def report(failed: CallFailed) -> int:
    """Print why a call had no success, and return how the command ends."""
    print(f"fieldagent: {escaped_lines(str(failed))}", file=sys.stderr)
    return failed.code


def show(arguments: argparse.Namespace, value: Any, text: str) -> None:
    """Print `value` where JSON is asked for, and `text` otherwise."""
    print(json.dumps(value) if arguments.json else escaped_lines(text))
