"""A kit's knowledge about its machine and its own past, and the times of its reports to the hub."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from fieldagent.agent.agent import assemble_agent
from fieldagent.agent.channels.condition_news import (
    REPORT_INTERVAL_MAX_S,
    REPORT_INTERVAL_MIN_S,
    ConditionNews,
)
from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.kit_notes import KitNotes
from fieldagent.agent.commands import acts
from fieldagent.agent.condition import machine
from fieldagent.agent.condition.logbook import DAY, HOUR, NAME, Logbook, compute_median
from fieldagent.agent.journal import commands
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.settings import parse
from fieldagent.package.package import Channel, CommandOutcome
from fieldagent.system.elapsed_time import Reading
from fieldagent.system.folder import read_slots, write_in_slots
from fieldagent.wire.kit_condition import (
    CAPPED,
    CAUSES,
    POWER,
    REPORTED_HOURS,
    RESET,
    UNDER_VOLTAGE,
    UNKNOWN,
    WATCHDOG,
    KitCondition,
)
from fieldagent.wire.kit_note import decode
from tests.agent.test_remote_commands import ALL, NOW, at_work
from tests.processes import PATIENCE
from tests.wire.test_command import STATUS

WATCHDOG0 = "sys/class/watchdog/watchdog0/bootstatus"
RSTS = "proc/device-tree/chosen/bootloader/rsts"
THROTTLED = "sys/devices/platform/soc/soc:firmware/get_throttled"
ALARM = "sys/class/hwmon/hwmon1/in0_lcrit_alarm"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setattr(machine, "ROOT", tmp_path / "root")

    def write(name: str, content: str | bytes) -> None:
        file = tmp_path / "root" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def test_machine_without_sensors_has_unknown_values(root: Callable[..., None]) -> None:
    """A PC in a container is an example."""
    assert (machine.read_degrees(), machine.read_millivolts(), machine.read_throttling()) == (
        None,
        None,
        None,
    )
    assert (machine.read_system_name(), machine.reset(), machine.read_battery()) == (
        "",
        UNKNOWN,
        None,
    )


def test_values_of_raspberry_pi_are_read(root: Callable[..., None]) -> None:
    root("sys/class/thermal/thermal_zone0/temp", "61200\n")
    root("sys/class/hwmon/hwmon1/in0_input", "4980\n")
    root(THROTTLED, "50005\n")
    root("etc/os-release", 'ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n')
    root("etc/debian_version", "12.9\n")
    root("etc/rpi-issue", "Raspberry Pi reference 2024-11-19\nGenerated using pi-gen\n")
    root(RSTS, (0x1000).to_bytes(4))
    assert (machine.read_degrees(), machine.read_millivolts()) == (61, 4_980)
    assert machine.read_throttling() == 0x50005
    assert machine.read_system_name() == "Debian 12.9, image 2024-11-19"
    assert machine.reset() == POWER
    # A Pi's own reboots also use the watchdog, which may leave the older bit.
    root(RSTS, (0x1020).to_bytes(4))
    assert machine.reset() == RESET


def test_values_of_other_machines_are_read(root: Callable[..., None]) -> None:
    root("etc/os-release", 'ID=arch\nPRETTY_NAME="Arch Linux"\n')
    root("sys/class/hwmon/hwmon1/name", "rpi_volt\n")
    root(ALARM, "1\n")
    root(WATCHDOG0, "32\n")
    assert machine.read_system_name() == "Arch Linux"
    assert machine.read_throttling() == UNDER_VOLTAGE
    assert machine.reset() == WATCHDOG
    root(WATCHDOG0, "16\n")
    assert machine.reset() == POWER


def test_lowest_system_battery_is_reported(root: Callable[..., None]) -> None:
    """The files are as in `Documentation/ABI/testing/sysfs-class-power` of Linux. A mains supply
    has no capacity, and the battery of a mouse does not count.
    """
    root("sys/class/power_supply/AC/online", "1\n")
    assert machine.read_battery() is None
    root("sys/class/power_supply/BAT0/capacity", "81\n")
    root("sys/class/power_supply/BAT0/scope", "System\n")
    root("sys/class/power_supply/BAT1/capacity", "7\n")
    root("sys/class/power_supply/hidpp_battery_0/capacity", "3\n")
    root("sys/class/power_supply/hidpp_battery_0/scope", "Device\n")
    assert machine.read_battery() == 7


@pytest.mark.parametrize("content", ["", "nonsense\n", "-\n"])
def test_invalid_system_files_give_unknown_values(root: Callable[..., None], content: str) -> None:
    for name in (THROTTLED, WATCHDOG0, "sys/class/thermal/thermal_zone0/temp"):
        root(name, content)
    root("etc/os-release", b"PRETTY_NAME=\xff\x1b[2J\n")
    root(RSTS, b"")
    assert (machine.read_throttling(), machine.read_degrees()) == (None, None)
    assert (machine.read_system_name(), machine.reset()) == ("", UNKNOWN)


class ElapsedClock:
    """Elapsed time that a test sets."""

    def __init__(self) -> None:
        self.now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


def start(
    folder: Path, boot: str, elapsed: ElapsedClock, reset: int = UNKNOWN, *commanded: str
) -> Logbook:
    book = Logbook(folder, boot, elapsed, reset=reset, commanded_boots=commanded)
    book.write_file()
    return book


def test_cause_of_machine_start_is_determined(tmp_path: Path) -> None:
    elapsed = ElapsedClock()

    def cause(boot: str, reset: int = UNKNOWN, *commanded: str, leaves: bool = False) -> str:
        book = start(tmp_path, boot, elapsed, reset, *commanded)
        if leaves:
            book.record_stop()
        return CAUSES[book.cause]

    assert cause("first") == "unknown"
    assert cause("cut") == "cut-off"
    assert cause("reset", RESET) == "reset"
    # A start of only the agent is not a start of the machine.
    assert cause("reset") == "reset"
    assert cause("dog", WATCHDOG) == "watchdog"
    assert cause("power", POWER, leaves=True) == "power"
    assert cause("in order", RESET) == "shutdown"
    # The agent started after that and was not stopped.
    assert cause("power again", POWER) == "power"
    assert cause("told", RESET, "power again") == "command"


def test_cause_of_first_start_is_reset_reason_of_hardware(tmp_path: Path) -> None:
    assert start(tmp_path, "first", ElapsedClock(), POWER).cause == POWER


def test_starts_of_last_day_are_counted(tmp_path: Path) -> None:
    elapsed = ElapsedClock()
    for _ in range(4):
        book = start(tmp_path, "this", elapsed)
        elapsed.now += DAY / 4
    assert book.count_starts() == 3
    known = json.loads(read_slots(tmp_path / NAME))
    crowded = json.dumps({**known, "starts": [int(elapsed.now)] * 200})
    write_in_slots(tmp_path / NAME, crowded.encode())
    assert start(tmp_path, "this", elapsed).count_starts() == 100


def test_largest_logbook_fits_in_slot(tmp_path: Path) -> None:
    elapsed = ElapsedClock()
    elapsed.now = 1_795_849_712.123456
    for _ in range(100):
        book = start(tmp_path, "0f8fad5b-d9cb-469f-a165-70867728950e", elapsed)
    links = {name: ChannelLink() for name in (*Channel, "SMS", "people's radio")}
    for hour in range(30):
        elapsed.now += HOUR
        for link in links.values():
            link.signals.append((hour * HOUR, 5))
        book.close_hour(links, (hour + 1) * HOUR)
    book.write_file()
    known = json.loads(read_slots(tmp_path / NAME))
    assert (len(known["starts"]), len(known["hours"]["Satellite"])) == (100, 24)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "7", '{"boot": "x"}', '{"boot": 1, "cause": 99, "starts": "", "hours": []}'],
)
def test_damaged_logbook_is_replaced(tmp_path: Path, content: str) -> None:
    for write in (Path.write_bytes, write_in_slots):
        write(tmp_path / NAME, content.encode())
        book = start(tmp_path, "this", ElapsedClock())
        assert (book.cause, book.count_starts()) == (UNKNOWN, 1)
        assert json.loads(read_slots(tmp_path / NAME))["boot"] == "this"


def test_unwritable_logbook_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        book = start(tmp_path / "nowhere", "this", ElapsedClock())
    assert book.count_starts() == 1 and "cannot be stored" in caplog.text


def test_signal_median_is_weighted_by_duration() -> None:
    signals = [(0.0, 5), (100.0, 1), (3_000.0, None), (3_500.0, 4)]
    assert compute_median(signals, 0, 3_600) == 1
    assert compute_median(signals, 3_000, 3_600) == 4
    assert compute_median(signals, 3_000, 3_500) is None
    assert compute_median(signals, 9_000, 9_100) == 4
    assert compute_median([], 0, 3_600) is None


async def test_hourly_signals_survive_restart_and_expire_after_day(
    tmp_path: Path, clock: MockClock
) -> None:
    elapsed, link = ElapsedClock(), ChannelLink()
    elapsed.now -= elapsed.now % HOUR
    book = start(tmp_path, "this", elapsed)
    links = {"satellite": link, "cellular": ChannelLink()}
    assert book.compute_signals(links, trio.current_time()) == {}
    for bars in (3, 0, None):
        link.record_signal(bars)
        assert book.compute_time_to_hour() == HOUR
        clock.jump(HOUR)
        elapsed.now += HOUR
        book.close_hour(links, trio.current_time())
    book.write_file()
    link.record_signal(5)
    clock.jump(60)
    elapsed.now += 60
    again = start(tmp_path, "this", elapsed)
    (hours,) = again.compute_signals(links, trio.current_time()).values()
    assert len(hours) == REPORTED_HOURS and hours[-5:] == [None, 3, 0, None, 5]
    elapsed.now += 30 * HOUR
    again.close_hour({}, trio.current_time())
    assert again.compute_signals({"satellite": ChannelLink()}, trio.current_time()) == {}


async def test_condition_is_reported_over_each_link_and_at_changes(
    tmp_path: Path, clock: MockClock
) -> None:
    conditions = [KitCondition(STATUS)]
    notes = KitNotes(tmp_path, {}, "", condition=ConditionNews(lambda: conditions[-1]))
    notes.watch_until = trio.current_time()
    reports: list[tuple[float, Any]] = []

    async def listen() -> None:
        while True:
            body = await notes.wait_for_next()
            reports.append((trio.current_time() - began, decode(body)))

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await trio.sleep(REPORT_INTERVAL_MIN_S / 2)
        assert [at for at, _ in reports] == [0]
        # Changes within the tolerance are not news.
        conditions.append(
            replace(conditions[-1], status=STATUS._replace(disk_used=64, uptime=9_000))
        )
        await trio.sleep(3 * REPORT_INTERVAL_MIN_S)
        assert len(reports) == 1
        conditions.append(replace(conditions[-1], throttled=UNDER_VOLTAGE))
        await trio.sleep(REPORT_INTERVAL_MIN_S / 4)
        assert len(reports) == 1, "not before the hour is over"
        await trio.sleep(REPORT_INTERVAL_MIN_S)
        assert reports[1] == (4 * REPORT_INTERVAL_MIN_S, replace(conditions[-1], signals={}))
        await trio.sleep(REPORT_INTERVAL_MAX_S + REPORT_INTERVAL_MIN_S)
        assert len(reports) == 3, "the hourly signals have changed"
        nursery.cancel_scope.cancel()
    notes.begin()
    with trio.fail_after(1):
        assert decode(await notes.wait_for_next()) == reports[-1][1]


@pytest.mark.parametrize(
    "other",
    [
        {"system": "Debian 13.2"},
        {"cause": POWER},
        {"starts": 1},
        {"throttled": 0},
        {"throttled": CAPPED << 16},
        {"clock": 31},
        {"clock": None},
        {"signals": {}},
        {"signals": {"satellite": [*[None] * 22, 0, 3]}},
        {"status": STATUS._replace(disk_used=66)},
        {"status": STATUS._replace(degrees=70)},
        {"status": STATUS._replace(degrees=None)},
        {"status": STATUS._replace(millivolts=4_500)},
        {"status": STATUS._replace(credits_left=0)},
        {"status": STATUS._replace(clock="nobody")},
        {"status": STATUS._replace(faults=2)},
        {"status": STATUS._replace(trouble=True)},
    ],
)
async def test_relevant_change_of_condition_is_reported(
    clock: MockClock, other: dict[str, Any]
) -> None:
    first = KitCondition(STATUS, clock=0, signals={"satellite": [None] * 23 + [3]})
    conditions = [first]
    news = ConditionNews(lambda: conditions[-1])
    assert news.encode_due_note() == first.encode()
    conditions.append(replace(first, signals={"satellite": [*[None] * 22, 3, 4]}))
    clock.jump(REPORT_INTERVAL_MIN_S)
    assert news.encode_due_note() is None
    conditions.append(replace(conditions[-1], **other))
    clock.jump(REPORT_INTERVAL_MIN_S)
    assert news.encode_due_note() == conditions[-1].encode()


async def test_failed_condition_check_is_logged_and_retried(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """statvfs fails like this on a failing disk."""
    dying = [OSError("Input/output error")]

    def look() -> KitCondition:
        if dying:
            raise dying.pop()
        return KitCondition(STATUS)

    news = ConditionNews(look)
    assert news.encode_due_note() is None and "cannot be sent" in caplog.text
    assert news.encode_due_note() is None, "not before the hour is over"
    clock.jump(REPORT_INTERVAL_MIN_S)
    assert news.encode_due_note() == KitCondition(STATUS).encode()


async def test_condition_of_agent_with_hub_is_complete(
    tmp_path: Path, root: Callable[..., None], clock: MockClock
) -> None:
    root("etc/os-release", 'ID=debian\nVERSION_ID="13"\n')
    text = f"state-directory={tmp_path}\nhub-address=https://hub.example.org\nhub-token=fa_t\n"
    for boot, cause in (("one", "unknown"), ("two", "cut-off")):
        reading = Reading(boot, 1_000.0, 1_790_000_000.0, "network")
        journal = Journal(tmp_path / "journal.sqlite3", lambda reading=reading: reading)  # type: ignore[misc]
        agent = assemble_agent(parse(text, tmp_path), journal, print)
        assert agent.logbook is not None
        agent.logbook.write_file()
        condition = agent.read_condition()
        assert (condition.system, CAUSES[condition.cause]) == ("Debian 13", cause)
        assert condition.clock is not None and condition.status.clock == "network"
        assert decode(condition.encode()) is not None
        journal.close()
    alone = assemble_agent(
        parse(f"state-directory={tmp_path}\n", tmp_path), Journal(tmp_path / "j"), print
    )
    assert alone.logbook is None
    alone.parts.journal.close()


@pytest.mark.parametrize("fails", [False, True])
async def test_start_after_reboot_command_has_cause_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """A command that was not carried out explains no start."""
    if fails:
        monkeypatch.setattr(acts, "REBOOT_TIMEOUT_S", 0.0)
    async with at_work(tmp_path, ALL, "this") as kit:
        assert kit.agent.logbook is not None
        kit.agent.logbook.write_file()
        await kit.hears(NOW, "reboot")
        if fails:
            (answer,) = await kit.answered(1)
            assert answer.outcome is CommandOutcome.FAILED
        else:
            with trio.fail_after(PATIENCE):
                while not commands.read_ended_boots(kit.journal):
                    await trio.sleep(0.01)
    async with at_work(tmp_path, ALL, "the next") as kit:
        assert kit.agent.logbook is not None
        assert (CAUSES[kit.agent.logbook.cause] == "command") is not fails
