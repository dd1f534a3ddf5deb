"""Takes the recovery steps of `healing` at a modem's serial port, sleep pin and USB port."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import serial
import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.gpio import GpioInput, GpioLine, find_chip
from fieldagent.agent.channels.healing import STEPS_AN_HOUR, Healing, HealingLadder, HealingStep
from fieldagent.agent.channels.serial_port import PortLost, open_serial
from fieldagent.system.finding import Finding
from fieldagent.system.folder import replace_file
from fieldagent.system.signals import end_group

DEADLINE_S = 120.0
"""Longest time in seconds for the command. It must be less than the time after which the watchdog
considers a silent agent dead."""


async def run_command(setting: str, command: str) -> None:
    """Run `command`, the value of `setting`, with /bin/sh in its own process group. The command's
    output goes to the agent's log.
    """
    try:
        process = await trio.lowlevel.open_process(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        log.error("%s could not be started: %s", setting, error)
    else:
        await _supervise_command(setting, process)


async def _supervise_command(setting: str, process: trio.Process) -> None:
    with trio.move_on_after(DEADLINE_S) as deadline:
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                await end_group(process)
    if deadline.cancelled_caught:
        log.error("%s did not end within %g s and was stopped", setting, DEADLINE_S)
    elif process.returncode:
        log.error("%s failed (exit %d)", setting, process.returncode)
    else:
        log.info("%s has ended", setting)


log = logging.getLogger(__name__)

DTR_LOW_S = 2.0
"""Seconds that DTR is low."""
SLEEP_LOW_S = 5.0
"""Seconds that the sleep pin is low, and that a USB port is off."""
ROCKBLOCK_OFF, ROCKBLOCK_FOLLOWS = 2.0, 10.0
"""Seconds that a RockBLOCK is off, and the longest time in seconds until I_BTD follows I_EN."""
FLUSH_COMMANDS = {"sbd": b"AT*F\r"}
"""Commands that make a modem finish its writes to its memory, by the protocol of the line (9602
developer's guide 3.2.4)."""
FLUSH_TIMEOUT_S = 5.0
"""Seconds to wait for the result of such a command. A modem that hangs does not answer."""
USB_DEVICES = Path("/sys/bus/usb/devices")
TTYS = Path("/sys/class/tty")


class Healer:
    """Takes the recovery steps of one modem. `clock` returns elapsed time. The times of the steps
    are stored in `folder`.
    """

    def __init__(
        self, healing: Healing, link: ChannelLink, folder: Path, clock: Callable[[], float]
    ) -> None:
        self._healing, self._link, self._clock = healing, link, clock
        self._file = folder / f"healing-{healing.channel}.json"
        self._off = folder / f"healing-{healing.channel}-off"
        """File with the kind and the place of a step that switches a device off. The file exists
        from just before the step until the device is on again."""
        self._started = False
        self._ladder = HealingLadder(
            healing.steps, _read_stored_times(self._file), healing.silent, healing.pause
        )

    async def run_due_step(self) -> bool:
        """Take the step that is due, if any. The caller must have closed the port. Return True if a
        step was due.
        """
        return await self.run_due_step_since(self._link.away_since)

    async def run_due_step_since(self, away_since: float | None) -> bool:
        """Take the step that is due, as `run_due_step` does. The modem has been silent since
        `away_since` on trio's clock, or answers if this is None. Return True if a step was due. The
        first call also switches on a device that a killed process left switched off.
        """
        if not self._started:
            self._started = True
            await self._switch_on_again()
        ladder, now = self._ladder, self._clock()
        requested = self._link.heal_now
        step = ladder.find_due_step(away_since, trio.current_time(), now, is_requested=requested)
        if step is None:
            return False
        step_text = f"step {ladder.place + 1} of {len(ladder.steps)}"
        ladder.record_step(trio.current_time(), now)
        self._link.heal_now = False
        self._store_times()
        count = f"{len(ladder.step_times)} of at most {STEPS_AN_HOUR} in an hour"
        log.warning(
            "the %s modem stays silent: %s, %s; %s", self._healing.channel, step_text, step, count
        )
        self._link.facts["healing"] = f"{step_text}, {step}; {count}"
        self._link.facts["healingSteps"] = int(self._link.facts.get("healingSteps", 0)) + 1
        try:
            await self._switch_on_again()
            await self._run_step(step)
        except (OSError, ValueError, serial.SerialException) as error:
            log.error("%s could not be done: %s", step, _describe_error(error))
            self._link.facts["healing"] = (
                f"{step_text}, {step}: could not be done: {_describe_error(error)}"
            )
        return True

    async def _run_step(self, step: HealingStep) -> None:
        if step.kind == "command":
            assert self._healing.command is not None
            await run_command(f"{self._healing.channel}-recovery-command", self._healing.command)
            return
        if step.kind == "dtr":
            await trio.to_thread.run_sync(_drop_dtr, self._healing.port)
            return
        # Send this command only before a step at the sleep pin. The modem must restart after the
        # command, and only the sleep pin restarts it reliably.
        flush = FLUSH_COMMANDS.get(self._link.recorder.kind)
        if flush and step.kind == "gpio" and check_step(self._healing, step).good:
            await self._flush(flush)
        argument = step.where
        if step.kind == "usb":
            # Use the device's path in /sys, because the port does not lead to the device while the
            # device is off.
            argument = str(find_usb_switch(self._healing.port, argument).resolve())
        try:
            replace_file(self._off, f"{step.kind} {argument}".encode())
        except OSError as error:
            log.info("%s cannot be written: %s", self._off, error.strerror)
        try:
            await trio.to_thread.run_sync(_POWER_CYCLE_STEPS[step.kind], argument)
        except (FileNotFoundError, PermissionError):
            # The step could not open the device's file, so nothing was switched off and nothing
            # must be undone.
            self._off.unlink(missing_ok=True)
            raise
        self._off.unlink(missing_ok=True)

    async def _flush(self, command: bytes) -> None:
        """Send the command, and wait at most FLUSH_TIMEOUT_S for its result."""
        recorder, answer = self._link.recorder, b""
        with trio.move_on_after(FLUSH_TIMEOUT_S), suppress(PortLost):
            async with open_serial(self._healing.port, recorder.baud, recorder) as line:
                await line.write(command)
                while b"OK" not in answer and not answer.endswith(b"0\r"):
                    answer += await line.read()
                log.info("the %s modem has finished its writes", self._healing.channel)
                return
        log.info("the %s modem does not answer %s", self._healing.channel, command.decode().strip())

    async def _switch_on_again(self) -> None:
        """Switch on a device that an unfinished step has switched off. A step is unfinished if the
        process was killed during the step, or if writing to the device failed.
        """
        try:
            kind, _, argument = self._off.read_text().partition(" ")
        except (OSError, UnicodeDecodeError):
            return
        log.warning("%s %s may still be off, because a step did not end", kind, argument)
        switch_on = _SWITCH_ON_STEPS.get(kind)
        try:
            if switch_on is not None:
                await trio.to_thread.run_sync(switch_on, argument)
        except FileNotFoundError:
            log.info("%s %s no longer exists", kind, argument)
        except (OSError, ValueError) as error:
            log.error(
                "%s %s could not be switched on again: %s", kind, argument, _describe_error(error)
            )
            return
        self._off.unlink(missing_ok=True)

    def _store_times(self) -> None:
        try:
            replace_file(self._file, json.dumps(self._ladder.step_times).encode())
        except OSError as error:
            log.info("%s cannot be written: %s", self._file, error.strerror)


def _read_stored_times(file: Path) -> list[float]:
    with suppress(OSError, ValueError, TypeError):
        return [float(at) for at in json.loads(file.read_bytes())]
    return []


# The functions below block for some seconds, so they run in a thread. They raise OSError.


def _drop_dtr(port: str) -> None:
    line = serial.Serial(port, timeout=0, exclusive=True)
    try:
        line.dtr = False
        time.sleep(DTR_LOW_S)
        line.dtr = True
    finally:
        line.close()


def _sleep(place: str) -> None:
    line = GpioLine(place)
    try:
        time.sleep(SLEEP_LOW_S)
        line.set_high()
    finally:
        line.close()


def _power_rockblock(place: str) -> None:
    """Switch a RockBLOCK off and on by I_EN. The module may be damaged if I_EN changes again before
    I_BTD has followed. So if I_BTD does not become low, I_EN stays low while the agent runs, and an
    error is raised. (Ground Control, RockBLOCK, power sequence)
    """
    enable, booted = place.split("/")
    follows = GpioInput(int(booted))
    try:
        line = GpioLine(enable)
        _await_level(follows, high=False)
        time.sleep(ROCKBLOCK_OFF)
        try:
            line.set_high()
            _await_level(follows, high=True)
        finally:
            line.close()
    finally:
        follows.close()


def _await_level(state_input: GpioInput, *, high: bool) -> None:
    deadline = time.monotonic() + ROCKBLOCK_FOLLOWS
    while state_input.is_high() is not high:
        if time.monotonic() > deadline:
            level = "high" if high else "low"
            raise OSError(f"I_BTD did not become {level} within {ROCKBLOCK_FOLLOWS:g} s")
        time.sleep(0.02)


def _cut_usb(switch: str) -> None:
    """Remove the device from its bus and add it again. Its power is cut only if the USB hub can
    switch its ports.
    """
    _authorize(switch, "0")
    try:
        time.sleep(SLEEP_LOW_S)
    finally:
        _authorize(switch, "1")


def _authorize(switch: str, value: str) -> None:
    # Open only an existing file, because no file can be created in /sys, and a new file elsewhere
    # would switch nothing.
    with Path(switch).open("r+b", buffering=0) as file:
        file.write(value.encode())


_POWER_CYCLE_STEPS: dict[str, Callable[[str], None]] = {
    "gpio": _sleep,
    "rockblock": _power_rockblock,
    "usb": _cut_usb,
}
"""Functions that switch a device off and on again, by the kind of step. They get the place of the
step."""
_SWITCH_ON_STEPS: dict[str, Callable[[str], None]] = {
    # Repeat the whole step: the level of the GPIO line is unknown, and off must come before on.
    "gpio": _sleep,
    "rockblock": _power_rockblock,
    "usb": partial(_authorize, value="1"),
}


def find_usb_switch(port: str, place: str) -> Path:
    """Return the file that switches the device of `port`, or the device named in `place`. Raises
    OSError.
    """
    if place:
        switch = USB_DEVICES / place / "authorized"
        if not switch.exists():
            raise FileNotFoundError(f"no USB device {place} is there: see {USB_DEVICES}")
        return switch
    tty = (TTYS / Path(os.path.realpath(port)).name / "device").resolve(strict=True)
    for folder in (tty, *tty.parents):
        if (folder / "authorized").is_file() and (folder / "devnum").is_file():
            return folder / "authorized"
    raise FileNotFoundError(f"{port} is not on a USB device")


def check_step(healing: Healing, step: HealingStep) -> Finding:
    """Check whether this step could be taken, without taking it. Return the result as a Finding."""
    text = f"{healing.channel}-heal: {step}"
    try:
        if step.kind in ("gpio", "rockblock"):
            path = find_chip(step.where.rpartition("/")[0] if step.kind == "gpio" else "")
        elif step.kind == "usb":
            path = find_usb_switch(healing.port, step.where)
        else:
            return Finding(True, f"{text} can be done")
    except OSError as error:
        return Finding(False, f"{text}: {_describe_error(error)}")
    if not os.access(path, os.W_OK):
        remedy = "add the agent's user to its group" if step.kind != "usb" else USB_REMEDY
        return Finding(False, f"{text}: {path} may not be written: {remedy}")
    return Finding(True, f"{text} can be done, by {path}")


USB_REMEDY = "let a rule of udev give it to the agent's group, or use a command (uhubctl)"


def _describe_error(error: Exception) -> str:
    message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    file_name = getattr(error, "filename", None)
    return f"{file_name}: {message}" if file_name else message
