"""Injects faults into child processes: makes functions raise, or replaces values. A `sitecustomize`
module, which Python loads at its start, does this.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests import offline

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Break:
    """A function whose calls raise. `place` is `module:attribute.attribute`. An attribute may be a
    key of a dictionary.
    """

    place: str
    times: int = 1
    """Number of calls that raise. 0 means all."""
    after: int = 0
    """Number of calls before the first failure."""
    late: bool = False
    """True if the call runs the original function before it raises."""
    kills: bool = False
    """True if the call kills the process instead."""


@dataclass(frozen=True)
class Put:
    """A value to replace, such as a constant."""

    place: str
    value: Any


class AsATest(Exception):
    pass


def environment(home: Path, *changes: Break | Put) -> dict[str, str]:
    """Return environment variables for a child process in which these changes apply. Its
    `sitecustomize` module is written to `home`.
    """
    folder = home / "breaking"
    folder.mkdir(exist_ok=True)
    breaks = [asdict(change) for change in changes if isinstance(change, Break)]
    puts = [asdict(change) for change in changes if isinstance(change, Put)]
    listed = {"breaks": breaks, "puts": puts}
    (folder / "sitecustomize.py").write_text(
        f"import json\nfrom tests.breaking import change\n"
        f"change(**json.loads({json.dumps(listed)!r}))\n"
    )
    return {"PYTHONPATH": offline.path(f"{folder}:{ROOT}")}


def change(breaks: list[dict[str, Any]], puts: list[dict[str, Any]]) -> None:
    try:
        for each in breaks:
            fault = Break(**each)
            _replace(fault.place, partial(_broken, fault))
        for each in puts:
            _replace(each["place"], partial(_instead, each["value"]))
    except Exception:
        # Python ignores a sitecustomize that fails, so end the process.
        traceback.print_exc()
        os._exit(70)


def _instead(value: Any, old: Any) -> Any:
    return value


def _replace(place: str, new: Callable[[Any], Any]) -> None:
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for each in owners:
        owner = owner[each] if isinstance(owner, dict) else getattr(owner, each)
    if isinstance(owner, dict):
        owner[name] = new(owner[name])
    else:
        setattr(owner, name, new(getattr(owner, name)))


def _broken(fault: Break, original: Callable[..., Any]) -> Callable[..., Any]:
    calls = 0

    def raises_now() -> bool:
        nonlocal calls
        calls += 1
        return calls > fault.after and (not fault.times or calls <= fault.after + fault.times)

    async def late(result: Any) -> None:
        await result
        raise AsATest(f"as a test in {fault.place}")

    def broken(*arguments: Any, **more: Any) -> Any:
        if not raises_now():
            return original(*arguments, **more)
        if fault.kills:
            if fault.late:
                original(*arguments, **more)
            os.kill(os.getpid(), signal.SIGKILL)
        if not fault.late:
            raise AsATest(f"as a test in {fault.place}")
        return late(original(*arguments, **more))

    return broken


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "what should happen has not"
        time.sleep(0.05)
