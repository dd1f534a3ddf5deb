"""`fieldagent run` as systemd starts it, read without argparse.

argparse and the table of all commands would be half a megabyte of an agent for as long as it runs,
and a tenth of its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fieldagent.system.lazy_named_tuple import NamedTuple


class RunArguments(NamedTuple):
    """As argparse names them."""

    config: Path | None = None
    verbose: bool = False


def plain_run(words: Sequence[str]) -> RunArguments | None:
    """Return the arguments of a plain `run`; None for all else, which argparse knows: other
    commands, other spellings, mistakes."""
    match words:
        case ["run"]:
            return RunArguments()
        case ["run", "--config", file] if file and not file.startswith("-"):
            return RunArguments(Path(file))
    return None
