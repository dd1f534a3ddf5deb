"""Decides which recovery step is due for a modem that no longer answers. Pure.

A modem can hang while no person is near who could switch it off and on. Each step is more drastic
than the previous one. No step is taken while the modem works, so no step interrupts a session. The
number of steps per hour is limited even if the agent restarts each minute, because each step is
stored before it is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import WrongProperty

SILENCE_S = 45.0
"""Seconds of silence before the first step. In this time, the port is reopened several times."""
PAUSE_S = 60.0
"""Seconds between two steps, in which the modem can recover."""
ROUND_PAUSE, ROUND_PAUSE_MAX = 600.0, 3600.0
"""Seconds from the last step until the first step is taken again: the first wait, which doubles,
and the longest wait."""
HOUR, STEPS_AN_HOUR = 3600.0, 8


class HealingStep(NamedTuple):
    kind: str
    """One of `dtr`, `gpio`, `rockblock`, `usb` or `command`."""
    where: str = ""
    """Place where the step is taken. For `gpio`, it is the line. For `rockblock`, the lines of I_EN
    and I_BTD. For `usb`, the device; empty means the device of the port."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.where}" if self.where else self.kind


class Healing(NamedTuple):
    """Recovery settings of one channel."""

    channel: str
    """Name of the channel in the settings."""
    port: str
    steps: tuple[HealingStep, ...]
    command: str | None
    silent: float = SILENCE_S
    """Seconds of silence before the first step."""
    pause: float = PAUSE_S
    """Seconds between two steps."""


def get_steps(
    steps: tuple[HealingStep, ...] | None, command: str | None, *usual: HealingStep
) -> tuple[HealingStep, ...]:
    """Return the configured steps. If `steps` is None, return the usual steps and, if `command` is
    set, a command step.
    """
    if steps is not None:
        return steps
    return (*usual, HealingStep("command")) if command else usual


def find_healing_faults(pairs: Mapping[str, str]) -> list[str]:
    """Return a text for each command step in these settings whose command is not set."""
    return [
        f"{name} needs {command}: set that too, or remove {name}"
        for name, value in pairs.items()
        if name.endswith("-heal")
        and "command" in value.replace(",", " ").split()
        and (command := f"{name.removesuffix('-heal')}-recovery-command") not in pairs
    ]


def read_steps_of_link(value: str) -> tuple[HealingStep, ...]:
    """Parse the steps for a modem that is reached over IP, as `read_steps` does. Such a modem has
    no port from which its line or USB device could be found. Raises WrongProperty for any other
    value.
    """
    steps = read_steps(value)
    for step in steps:
        if step.kind in ("dtr", "rockblock") or (step.kind == "usb" and not step.where):
            raise WrongProperty(
                f"has {step}, and a link by IP has no serial port: its steps are gpio:LINE,"
                " usb:DEVICE such as usb:1-1.2, or command"
            )
    return steps


def read_steps(value: str) -> tuple[HealingStep, ...]:
    """Parse a list of steps such as `dtr gpio:17 usb command`. `none` means no steps. Raises
    WrongProperty for any other value.
    """
    if value == "none":
        return ()
    return tuple(_read_step(word) for word in value.replace(",", " ").split())


def _read_step(step_text: str) -> HealingStep:
    kind, _, argument = step_text.partition(":")
    line = argument.rpartition("/")[2]
    if kind == "gpio" and _is_line(line):
        return HealingStep(kind, argument)
    if kind == "rockblock" and argument.count("/") == 1 and all(map(_is_line, argument.split("/"))):
        return HealingStep(kind, argument)
    if kind == "usb" and (not argument or argument.replace("-", "").replace(".", "").isdigit()):
        return HealingStep(kind, argument)
    if step_text in ("dtr", "command"):
        return HealingStep(kind)
    raise WrongProperty(
        f"has {step_text!r}: a step is dtr, gpio:LINE such as gpio:17 or gpio:gpiochip0/17, usb,"
        " rockblock:I_EN/I_BTD such as rockblock:24/16, usb:DEVICE such as usb:1-1.2, or command"
    )


def _is_line(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text[:6]) < 1000


@dataclass(slots=True)
class HealingLadder:
    """Decides which step is due. All times are from the same monotonic clock, except the times on
    disk.
    """

    steps: tuple[HealingStep, ...]
    step_times: list[float] = field(default_factory=list)
    """Times of the steps in the last hour, in elapsed time; loaded from disk at the start."""
    silent: float = SILENCE_S
    pause: float = PAUSE_S
    away_since: float | None = None
    place: int = 0
    not_before: float = 0.0
    rounds: int = 0

    def find_due_step(
        self, away_since: float | None, now: float, elapsed_s: float, *, is_requested: bool = False
    ) -> HealingStep | None:
        """Return the step that is due, or None. If `is_requested`, a person has requested a step
        before it is due. `away_since` is the time when the modem became silent, or None if it
        answers.
        """
        if away_since != self.away_since:
            self.away_since, self.place, self.rounds = away_since, 0, 0
            self.not_before = (away_since or 0.0) + self.silent
        self.step_times = [at for at in self.step_times if elapsed_s - HOUR < at <= elapsed_s]
        if away_since is None or not self.steps or (now < self.not_before and not is_requested):
            return None
        return self.steps[self.place] if len(self.step_times) < STEPS_AN_HOUR else None

    def record_step(self, now: float, elapsed_s: float) -> None:
        """Record that the due step is taken now."""
        self.step_times.append(elapsed_s)
        self.place = (self.place + 1) % len(self.steps)
        self.not_before = now + self.pause
        if self.place == 0:
            rest = max(ROUND_PAUSE, self.pause) * 2**self.rounds
            self.not_before = now + min(rest, max(ROUND_PAUSE_MAX, self.pause))
            self.rounds = min(self.rounds + 1, 10)
