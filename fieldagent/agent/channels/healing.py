"""What brings a modem back that answers no more: steps, one after the other. Pure.

A modem hangs, and who could cut its power is far away. Each step is harsher than the one before,
and none is taken while the modem works, so never within a session. So many in an hour, also where
the agent starts anew each minute: what is taken is on disk first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import WrongProperty

SILENT = 45.0
"""Seconds of silence before the first step: the port is opened anew a few times before."""
PAUSE = 60.0
"""Seconds that the modem has after a step, before the next."""
ROUND_PAUSE, ROUND_PAUSE_MAX = 600.0, 3600.0
"""Seconds after the last step, before the first again: twice as long each time, and the most."""
HOUR, STEPS_AN_HOUR = 3600.0, 8


class HealingStep(NamedTuple):
    kind: str
    """dtr, gpio, rockblock, usb or command."""
    where: str = ""
    """Of gpio its line, of rockblock those of I_EN and I_BTD, of usb the device; empty for the one
    that the port is of."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.where}" if self.where else self.kind


class Healing(NamedTuple):
    """What a channel's settings say of it."""

    channel: str
    """As the settings name it."""
    port: str
    steps: tuple[HealingStep, ...]
    command: str | None
    silent: float = SILENT
    """Seconds of silence before the first step."""
    pause: float = PAUSE
    """Seconds between two steps."""


def steps_of(
    steps: tuple[HealingStep, ...] | None, command: str | None, *usual: HealingStep
) -> tuple[HealingStep, ...]:
    """Return those that are set; else the usual ones, and the command where there is one."""
    if steps is not None:
        return steps
    return (*usual, HealingStep("command")) if command else usual


def healing_faults(pairs: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the settings of it: a command that is to be run and is not set."""
    return [
        f"{name} needs {command}: set that too, or remove {name}"
        for name, value in pairs.items()
        if name.endswith("-heal")
        and "command" in value.replace(",", " ").split()
        and (command := f"{name.removesuffix('-heal')}-recovery-command") not in pairs
    ]


def read_steps_of_link(value: str) -> tuple[HealingStep, ...]:
    """Read the steps as `read_steps` does, of a modem whose link is by IP: no port names its line
    or its USB device. Raises WrongProperty."""
    steps = read_steps(value)
    for step in steps:
        if step.kind in ("dtr", "rockblock") or (step.kind == "usb" and not step.where):
            raise WrongProperty(
                f"has {step}, and a link by IP has no serial port: its steps are gpio:LINE,"
                " usb:DEVICE such as usb:1-1.2, or command"
            )
    return steps


def read_steps(value: str) -> tuple[HealingStep, ...]:
    """Read `dtr gpio:17 usb command`, in this order; `none` is no step. Raises WrongProperty."""
    if value == "none":
        return ()
    return tuple(_read_step(word) for word in value.replace(",", " ").split())


def _read_step(word: str) -> HealingStep:
    kind, _, where = word.partition(":")
    line = where.rpartition("/")[2]
    if kind == "gpio" and _is_line(line):
        return HealingStep(kind, where)
    if kind == "rockblock" and where.count("/") == 1 and all(map(_is_line, where.split("/"))):
        return HealingStep(kind, where)
    if kind == "usb" and (not where or where.replace("-", "").replace(".", "").isdigit()):
        return HealingStep(kind, where)
    if word in ("dtr", "command"):
        return HealingStep(kind)
    raise WrongProperty(
        f"has {word!r}: a step is dtr, gpio:LINE such as gpio:17 or gpio:gpiochip0/17, usb,"
        " rockblock:I_EN/I_BTD such as rockblock:24/16, usb:DEVICE such as usb:1-1.2, or command"
    )


def _is_line(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text[:6]) < 1000


@dataclass(slots=True)
class HealingLadder:
    """Which step is due. Moments are of one steady clock, but those that are kept on disk."""

    steps: tuple[HealingStep, ...]
    taken: list[float] = field(default_factory=list)
    """When steps were taken in the last hour, in lived time; from disk at first."""
    silent: float = SILENT
    pause: float = PAUSE
    away_since: float | None = None
    place: int = 0
    not_before: float = 0.0
    rounds: int = 0

    def look(
        self, away_since: float | None, now: float, lived: float, *, asked: bool = False
    ) -> HealingStep | None:
        """Note whether the modem answers, by `away_since`: None while it does. Return the step that
        is due now, if one is, or was `asked` for."""
        if away_since != self.away_since:
            self.away_since, self.place, self.rounds = away_since, 0, 0
            self.not_before = (away_since or 0.0) + self.silent
        self.taken = [at for at in self.taken if lived - HOUR < at <= lived]
        if away_since is None or not self.steps or (now < self.not_before and not asked):
            return None
        return self.steps[self.place] if len(self.taken) < STEPS_AN_HOUR else None

    def take(self, now: float, lived: float) -> None:
        """Note that the step that was due is taken."""
        self.taken.append(lived)
        self.place = (self.place + 1) % len(self.steps)
        self.not_before = now + self.pause
        if self.place == 0:
            rest = max(ROUND_PAUSE, self.pause) * 2**self.rounds
            self.not_before = now + min(rest, max(ROUND_PAUSE_MAX, self.pause))
            self.rounds = min(self.rounds + 1, 10)
