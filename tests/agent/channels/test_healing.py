"""Recovery of a modem that does not answer: the time, the number and the kind of steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.agent.channels import gpio, healing_steps
from fieldagent.agent.channels.contract import ChannelLink, LinkState
from fieldagent.agent.channels.healing import (
    HOUR,
    PAUSE_S,
    ROUND_PAUSE,
    SILENCE_S,
    STEPS_AN_HOUR,
    Healing,
    HealingLadder,
    HealingStep,
    read_steps,
    read_steps_of_link,
)
from fieldagent.agent.channels.healing_steps import Healer, check_step
from fieldagent.system.properties import WrongProperty
from tests.breaking import Put, environment, until
from tests.hub.memory_mailbox import TOKEN
from tests.machine import tool
from tests.processes import MODULE, PATIENCE, Running, agent, free_port, sky

DTR, PIN, USB, COMMAND = read_steps("dtr gpio:17,usb command")


@pytest.mark.parametrize(
    "value",
    [
        *("rockblock", "rockblock:24", "rockblock:24/", "rockblock:/16", "rockblock:24/x/1"),
        *("gpio", "gpio:", "gpio:x", "gpio:99999", "dtr:1", "command:reboot"),
        "usb:../..",
        "usb:a",
    ],
)
def test_invalid_healing_step_is_rejected_with_example(value: str) -> None:
    with pytest.raises(WrongProperty, match="gpio:17") as refusal:
        read_steps(f"dtr {value}")
    assert repr(value) in str(refusal.value)


def test_healing_steps_are_parsed_in_order() -> None:
    assert read_steps("none") == ()
    assert [str(step) for step in (DTR, PIN, USB, COMMAND)] == ["dtr", "gpio:17", "usb", "command"]
    assert read_steps("usb:1-1.2 gpio:gpiochip4/5") == (
        HealingStep("usb", "1-1.2"),
        HealingStep("gpio", "gpiochip4/5"),
    )
    assert read_steps("rockblock:24/16") == (HealingStep("rockblock", "24/16"),)


def step_times_until(ladder: HealingLadder, end: float, away_since: float = 0.0) -> list[float]:
    """Return the times of the steps, with a look at each second."""
    moments = []
    for now in range(int(end)):
        if ladder.find_due_step(away_since, now, now) is not None:
            ladder.record_step(now, now)
            moments.append(float(now))
    return moments


def test_pauses_between_rounds_of_healing_steps_grow() -> None:
    moments = step_times_until(HealingLadder((DTR, PIN)), 3 * HOUR)
    first = SILENCE_S
    second = first + PAUSE_S
    third = second + ROUND_PAUSE
    fourth = third + PAUSE_S
    fifth = fourth + 2 * ROUND_PAUSE
    assert moments[:5] == [first, second, third, fourth, fifth]


def test_healing_restarts_at_first_step_after_modem_answers() -> None:
    ladder = HealingLadder((DTR, PIN))
    assert ladder.find_due_step(0.0, SILENCE_S, 0) == DTR
    ladder.record_step(SILENCE_S, 0)
    assert ladder.find_due_step(None, SILENCE_S + PAUSE_S, 1) is None
    assert ladder.find_due_step(1000.0, 1000.0 + SILENCE_S - 1, 1) is None
    assert ladder.find_due_step(1000.0, 1000.0 + SILENCE_S, 1) == DTR


@given(st.lists(st.floats(0, 900), max_size=40), st.integers(1, 4))
def test_healing_steps_per_hour_are_limited_across_restarts(lives: list[float], steps: int) -> None:
    """An agent that restarts knows the earlier steps from the disk."""
    moments: list[float] = []
    now = 0.0
    for life in lives:
        ladder = HealingLadder((PIN,) * steps, list(moments))
        began, end = now, now + life
        while now < end:
            if ladder.find_due_step(began, now, now) is not None:
                ladder.record_step(now, now)
                moments.append(now)
            now += 5
    for moment in moments:
        assert len([at for at in moments if moment - HOUR < at <= moment]) <= STEPS_AN_HOUR


async def test_healing_step_is_stored_on_disk_before_execution(tmp_path: Path) -> None:
    link = ChannelLink()
    link.state = LinkState.ABSENT
    link.away_since = trio.current_time() - SILENCE_S
    done = tmp_path / "done"
    healing = Healing("satellite", "/nowhere", (COMMAND,), f"cp {tmp_path}/healing* {done}")
    healer = Healer(healing, link, tmp_path, lambda: 5000.0)
    assert await healer.run_due_step()
    assert done.read_text() == "[5000.0]"
    assert link.facts["healingSteps"] == 1
    assert not await healer.run_due_step()
    full = Healer(healing, link, tmp_path, lambda: 5000.0)
    full._ladder.step_times *= STEPS_AN_HOUR
    assert not await full.run_due_step()


# With real processes.


@pytest.mark.full
def test_hung_modem_is_healed_by_command_and_sos_is_delivered(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    quick = environment(
        tmp_path,
        Put("fieldagent.agent.channels.healing:Healing._field_defaults.silent", 1.0),
        Put("fieldagent.agent.channels.healing:Healing._field_defaults.pause", 1.0),
        Put("fieldagent.agent.channels.sbd_modem:REPLY_TIMEOUT_S", 1.0),
        Put("fieldagent.agent.agent:AWAY_REPORTED_AFTER_S", 2.0),
    )
    settings = {
        "satellite-heal": "dtr command",
        "satellite-recovery-command": f"touch {asked}",
    }
    with sky(tmp_path) as simulator, agent(tmp_path, settings, MODULE, **quick) as kit:
        assert kit.post("before").body["status"] == "Delivered"
        assert kit.call("GET", "/api/health").body == {"status": "UP"}
        simulator.type("hang on")
        id_ = kit.call(
            "POST", "/api/package/async", {"message": {"content": "help"}, "priority": 100}
        ).body["id"]
        kit.expect("the satellite modem stays silent: step 1 of 2, dtr")
        # A pty has no DTR line.
        kit.expect("dtr could not be done")
        kit.expect("step 2 of 2, command")
        kit.expect("satellite-recovery-command has ended")
        assert asked.exists()
        health = kit.call("GET", "/api/health")
        assert (health.status, health.body["status"]) == (200, "DEGRADED")
        assert health.body["reason"].startswith("satellite: ")
        status = kit.call("GET", "/api/status").body["channels"]["Satellite"]
        assert status["healing"].startswith("step 2 of 2, command")
        counted = 'fieldagent_healing_steps_total{channel="Satellite"} 2'
        assert counted in str(kit.call("GET", "/metrics").body)
        simulator.type("hang off")
        until(lambda: kit.call("GET", f"/api/package/{id_}").body["status"] == "Delivered")
        assert kit.call("GET", "/api/health").body == {"status": "UP"}


@pytest.fixture(scope="module")
def chip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the library that answers like a GPIO chip."""
    library = tmp_path_factory.mktemp("gpio") / "gpio.so"
    command = [tool("gcc", "gcc libc6-dev"), "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    subprocess.run([*command, SOURCE, "-o", library, "-ldl"], check=True)
    return library


SOURCE = Path(__file__).parents[2] / "peers/gpio.c"
SLEEPS = """
import sys
from pathlib import Path
from fieldagent.agent.channels import gpio, healing_steps
gpio.DEVICE_FOLDER, healing_steps.SLEEP_LOW_S = Path(sys.argv[1]), 0.01
healing_steps._sleep(sys.argv[2])
"""


@pytest.mark.parametrize("label", gpio.PI_CHIPS)
@pytest.mark.parametrize("where", ["17", "gpiochip0/5"])
def test_gpio_step_sets_sleep_pin_low_and_high_again(
    tmp_path: Path, chip: Path, label: str, where: str
) -> None:
    """The calls use the kernel's own structs, which the C compiler lays out."""
    (tmp_path / "gpiochip0").touch()
    done = tmp_path / "log"
    variables = {"LD_PRELOAD": str(chip), "GPIO_LOG": str(done), "GPIO_LABEL": label}
    command = [sys.executable, "-c", SLEEPS, str(tmp_path), where]
    subprocess.run(command, check=True, env={**os.environ, **variables})
    assert done.read_text() == f"low {where.rpartition('/')[2]}\nhigh 1\n"


def test_gpio_step_needs_chip_name_on_other_machines(tmp_path: Path, chip: Path) -> None:
    (tmp_path / "gpiochip0").touch()
    variables = {
        "LD_PRELOAD": str(chip),
        "GPIO_LOG": str(tmp_path / "log"),
        "GPIO_LABEL": "INT34C6:00",
    }
    command = [sys.executable, "-c", SLEEPS, str(tmp_path), "17"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables})
    assert "name one, gpio:gpiochip0/17" in done.stderr
    assert not (tmp_path / "log").exists()


FLUSHED = """
import logging, sys, trio
from pathlib import Path
from fieldagent.agent.channels import gpio, healing_steps
from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.healing import Healing, read_steps
from fieldagent.agent.channels.sbd_modem import open_modem
home, port = Path(sys.argv[1]), sys.argv[2]
gpio.DEVICE_FOLDER, healing_steps.SLEEP_LOW_S = home, 0.01
healing_steps.FLUSH_TIMEOUT_S = float(sys.argv[3])
logging.basicConfig(level="INFO")
link = ChannelLink()
healing = Healing("satellite", port, read_steps("gpio:17"), None, silent=0.0)
async def main():
    async with open_modem(port, 19200, link):
        print("open", flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)
    link.away_since = trio.current_time()
    await healing_steps.Healer(healing, link, home, lambda: 5000.0).run_due_step()
trio.run(main)
"""


@pytest.mark.parametrize("hangs", [False, True])
def test_sbd_modem_finishes_its_writes_before_its_sleep_pin_is_set_low(
    tmp_path: Path, chip: Path, hangs: bool
) -> None:
    """A modem that hangs is switched off too."""
    (tmp_path / "gpiochip0").touch()
    done = tmp_path / "log"
    variables = {"LD_PRELOAD": str(chip), "GPIO_LOG": str(done), "GPIO_LABEL": gpio.PI_CHIPS[0]}
    with sky(tmp_path) as simulator:
        port, patience = str(tmp_path / "modem"), "0.5" if hangs else str(PATIENCE)
        command = [sys.executable, "-c", FLUSHED, str(tmp_path), port, patience]
        with Running(command, "open", **variables) as healer:
            simulator.type(f"hang {'on' if hangs else 'off'}")
            simulator.expect("answers nothing" if hangs else "answers again")
            healer.type("go")
            healer.expect("does not answer AT*F" if hangs else "modem has finished its writes")
            until(lambda: done.exists() and done.read_text() == "low 17\nhigh 1\n")


ROCKBLOCK = """
import sys
from pathlib import Path
from fieldagent.agent.channels import gpio, healing_steps
gpio.DEVICE_FOLDER, healing_steps.ROCKBLOCK_OFF = Path(sys.argv[1]), 0.01
healing_steps.ROCKBLOCK_FOLLOWS = 0.1
healing_steps._power_rockblock("24/16")
"""


@pytest.mark.parametrize("stuck", [False, True])
def test_rockblock_9704_is_switched_on_only_after_power_off(
    tmp_path: Path, chip: Path, stuck: bool
) -> None:
    """Power before that may damage the module."""
    (tmp_path / "gpiochip0").touch()
    done = tmp_path / "log"
    label = {"GPIO_LABEL": gpio.PI_CHIPS[0], **({"GPIO_STUCK": "1"} if stuck else {})}
    variables = {"LD_PRELOAD": str(chip), "GPIO_LOG": str(done), **label}
    command = [sys.executable, "-c", ROCKBLOCK, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables})
    assert ("I_BTD did not become low" in ran.stderr) == stuck, ran.stderr
    assert done.read_text() == ("low 24\n" if stuck else "low 24\nhigh 1\n")


@pytest.fixture
def usb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a tree like /sys for a serial adapter, and return its device."""
    device = tmp_path / "devices/usb1/1-1/1-1.2"
    tty = device / "1-1.2:1.0/ttyUSB7"
    tty.mkdir(parents=True)
    for name in ("authorized", "devnum"):
        (device / name).write_text("1")
    for folder, target in (("class/tty/ttyUSB7/device", tty), ("bus/usb/devices/1-1.2", device)):
        (tmp_path / folder).parent.mkdir(parents=True)
        (tmp_path / folder).symlink_to(target)
    monkeypatch.setattr(healing_steps, "TTYS", tmp_path / "class/tty")
    monkeypatch.setattr(healing_steps, "USB_DEVICES", tmp_path / "bus/usb/devices")
    return device


@pytest.mark.parametrize("where", ["", "1-1.2"])
def test_usb_device_is_found_by_port_or_name(usb: Path, where: str) -> None:
    switch = healing_steps.find_usb_switch("/dev/ttyUSB7", where)
    assert switch.resolve() == usb / "authorized"


def test_check_reports_unusable_healing_steps(usb: Path) -> None:
    healing = Healing("satellite", "/dev/ttyUSB7", (DTR, PIN, USB, COMMAND), "true")
    pin, usb_step = check_step(healing, PIN), check_step(healing, USB)
    assert not pin.good or "gpiochip" in pin.text
    assert usb_step.good and str(usb) in str(Path(usb_step.text.rpartition(" ")[2]).resolve())
    lost = check_step(healing._replace(port="/dev/ttyUSB8"), USB)
    assert not lost.good and "ttyUSB8" in lost.text


KILLED = """
import sys, trio
from pathlib import Path
from fieldagent.agent.channels import gpio, healing_steps
from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.healing import Healing, read_steps
home, steps, low = Path(sys.argv[1]), read_steps(sys.argv[2]), float(sys.argv[3])
gpio.DEVICE_FOLDER, healing_steps.SLEEP_LOW_S = home, low
healing_steps.ROCKBLOCK_OFF = low
healing_steps.TTYS = home / "class/tty"
link = ChannelLink()
healing = Healing("satellite", "/dev/ttyUSB7", steps, None, silent=0.0)
async def main():
    link.away_since = trio.current_time() if low > 1 else None
    await healing_steps.Healer(healing, link, home, lambda: 5000.0).run_due_step()
trio.run(main)
"""


@pytest.mark.parametrize(
    ("step", "before", "after"),
    [
        ("usb", "0", "1"),
        ("gpio:17", "low 17\n", "low 17\nlow 17\nhigh 1\n"),
        ("rockblock:24/16", "low 24\n", "low 24\nlow 24\nhigh 1\n"),
    ],
)
def test_modem_switched_off_by_killed_agent_is_switched_on_at_start(
    tmp_path: Path, usb: Path, chip: Path, step: str, before: str, after: str
) -> None:
    """This works even if the modem's port has disappeared and no longer names a device."""
    (tmp_path / "gpiochip0").touch()
    done = usb / "authorized" if step == "usb" else tmp_path / "log"
    variables = {"GPIO_LOG": str(tmp_path / "log"), "GPIO_LABEL": gpio.PI_CHIPS[0]}
    environ = {**os.environ, **variables, "LD_PRELOAD": str(chip)}
    command = [sys.executable, "-c", KILLED, str(tmp_path), step]
    with subprocess.Popen([*command, "1000"], env=environ) as process:
        until(lambda: done.exists() and done.read_text() == before)
        process.kill()
    (tmp_path / "class/tty/ttyUSB7/device").unlink()
    for _ in range(2):
        subprocess.run([*command, "0.01"], env=environ, check=True)
        assert done.read_text() == after
    assert not [*tmp_path.glob("healing-*-off")]


# An IP link has no serial port.

LINKS = """
import json, sys, trio, trio.testing
from pathlib import Path
from fieldagent.agent.channels import gpio, healing_steps
from fieldagent.agent.channels.hub_connection import HubAddress
from fieldagent.agent.modem_healing import make_healing
from fieldagent.agent.settings import load
from tests import autojump
from tests.agent.channels.test_cellular import agent, until
home = Path(sys.argv[1])
gpio.DEVICE_FOLDER, healing_steps.SLEEP_LOW_S = home, 0.01
healing_steps.USB_DEVICES = home / "bus/usb/devices"
settings = load(home / "agent.properties")
async def main():
    hub = HubAddress(settings.hub_address, settings.hub_token)
    async with agent(home, hub, recovery=make_healing(settings)["cellular"]) as k:
        facts, told, began = k.outbox.link.facts, [], trio.current_time()
        while len(told) < int(sys.argv[2]):
            await until(lambda: facts.get("healingSteps", 0) > len(told), within=7200)
            told.append([round(trio.current_time() - began), facts["healing"]])
        print(json.dumps(told))
autojump.install()
trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
"""


def _heal_a_link(home: Path, chip: Path, steps: str, count: int) -> list[tuple[int, str]]:
    """Return the times of the steps and their messages when no hub is in range."""
    (home / "agent.properties").write_text(
        f"hub-address=http://127.0.0.1:{free_port()}\nhub-token={TOKEN}\n"
        f"state-directory={home}\ncellular-heal={steps}\ncellular-recovery-after=600\n"
        f"cellular-recovery-command=echo command >> {home}/log\n"
    )
    (home / "gpiochip0").touch()
    variables = {
        "LD_PRELOAD": str(chip),
        "GPIO_LOG": str(home / "log"),
        "GPIO_LABEL": gpio.PI_CHIPS[0],
        **environment(home),
    }
    command = [sys.executable, "-c", LINKS, str(home), str(count)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **variables}, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return [(at, said) for at, said in json.loads(done.stdout)]


@pytest.mark.full
def test_ip_link_modem_is_reset_by_pin_usb_and_command_in_turn(tmp_path: Path, chip: Path) -> None:
    """The hub is out of range for ten minutes before the first step, and ten minutes lie between
    two steps.
    """
    switch = tmp_path / "bus/usb/devices/1-1.2/authorized"
    switch.parent.mkdir(parents=True)
    os.mkfifo(switch)
    line = os.open(switch, os.O_RDWR)
    try:
        steps = _heal_a_link(tmp_path, chip, "gpio:17 usb:1-1.2 command", 4)
        assert os.read(line, 9) == b"01", "the device is switched off and on"
    finally:
        os.close(line)
    assert (tmp_path / "log").read_text() == "low 17\nhigh 1\ncommand\nlow 17\nhigh 1\n"
    assert [said.partition(";")[0] for _, said in steps] == [
        "step 1 of 3, gpio:17",
        "step 2 of 3, usb:1-1.2",
        "step 3 of 3, command",
        "step 1 of 3, gpio:17",
    ]
    moments = [at for at, _ in steps]
    assert moments[0] >= 600
    assert all(after - before >= 600 for before, after in pairwise(moments))


@pytest.mark.full
def test_failed_healing_step_of_ip_link_is_reported_and_skipped(tmp_path: Path, chip: Path) -> None:
    steps = _heal_a_link(tmp_path, chip, "usb:1-1.3, gpio:gpiochip7/4, command", 3)
    (_, usb), (_, pin), (_, command) = steps
    assert "usb:1-1.3: could not be done: no USB device 1-1.3 is there" in usb
    assert "gpio:gpiochip7/4: could not be done: " in pin and "gpiochip7" in pin
    assert command.startswith("step 3 of 3, command; 3 of at most 8")
    assert (tmp_path / "log").read_text() == "command\n"


@pytest.mark.parametrize("there", [False, True])
def test_check_reports_unusable_healing_steps_of_ip_link(
    usb: Path, tmp_path: Path, there: bool
) -> None:
    healing = Healing("cellular", "", read_steps_of_link("usb:1-1.2 command"), "true")
    if not there:
        (usb / "authorized").unlink()
    usb_step, command = (check_step(healing, step) for step in healing.steps)
    assert usb_step.good == there
    assert usb_step.text.startswith("cellular-heal: usb:1-1.2")
    assert there or "no USB device 1-1.2 is there" in usb_step.text
    assert command.good


def test_command_step_without_recovery_command_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "agent.properties"
    file.write_text("satellite-port=/dev/x\nsatellite-heal=dtr command\n")
    done = subprocess.run([*MODULE, "check", "--config", file], capture_output=True, text=True)
    assert done.returncode == 78
    assert "satellite-heal needs satellite-recovery-command: set that too" in done.stderr
