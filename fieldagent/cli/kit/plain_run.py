"""`fieldagent run` as systemd starts it, parsed without argparse.

argparse and the table of all commands would cost half a megabyte while the agent runs, and a tenth
of the agent's start time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fieldagent.system.lazy_named_tuple import NamedTuple


class RunArguments(NamedTuple):
    """Arguments of `run`, with the names that argparse uses."""

    config: Path | None = None
    verbose: bool = False


def parse_plain_run(words: Sequence[str]) -> RunArguments | None:
    """Return the arguments of a plain `run`, or None for everything else, which argparse must
    parse: other commands, other spellings, mistakes.
    """
    match words:
        case ["run"]:
            return RunArguments()
        case ["run", "--config", file] if file and not file.startswith("-"):
            return RunArguments(Path(file))
    return None
