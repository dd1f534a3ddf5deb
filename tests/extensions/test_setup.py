"""`fieldagent setup` finds connected devices and writes their settings: real processes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fieldagent.kit.serial_ports import find_lasting_name, list_serial_ports
from fieldagent.system.exit_codes import MISSING, OK, SETTINGS
from fieldagent.system.java_properties import read_pairs
from tests.extensions.lab.simulator.test_simulate_node import kit, nodes
from tests.extensions.test_detection import KNOWN, check_harmless
from tests.gps_log import nmea
from tests.processes import MODULE, PATIENCE, Agent, free_port, sky, until
from tests.serial_device import serial_device

MODEMS = ["sbd"]
VALUES = {
    "radio-station": "7",
    "hub-token": "secret-of-this-kit",
    "-frequency": "869.525",
    "-share": "10",
}
"""Values that no device reports, by the ending of the setting's name."""


def setup(home: Path, *arguments: str | Path) -> tuple[int, str]:
    """Return the exit code and the output."""
    command = [*MODULE, "setup", "--config", str(home / "agent.properties"), *map(str, arguments)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
    )
    return done.returncode, done.stdout + done.stderr


def find_devices(home: Path, *arguments: str | Path) -> Any:
    command = ["setup", "--config", str(home / "agent.properties"), *map(str, arguments)]
    done = subprocess.run(
        [*MODULE, *command, "--json", "--dry-run"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return json.loads(done.stdout)


def settings(home: Path) -> dict[str, str]:
    return dict(read_pairs((home / "agent.properties").read_text()))


def begin(home: Path, **more: str) -> None:
    lines = {"api-port": "0", "state-directory": str(home / "state"), **more}
    text = "".join(f"{name}={value}\n" for name, value in lines.items())
    (home / "agent.properties").write_text(f"# of this kit\n{text}")


@contextmanager
def simulated_device(kind: str, home: Path) -> Iterator[Path]:
    """Yield the port of a simulated device."""
    with ExitStack() as stack:
        if kind == "sbd":
            stack.enter_context(sky(home))
        else:
            stack.enter_context(nodes(home, "--kind", kind, "--nodes", "1"))
        yield home / "modem" if kind in MODEMS else home / "air" / "node-1"


def is_ready(status: Mapping[str, Any], port: str) -> bool:
    """Return True if the device of that setting works."""
    channels = status["channels"]
    states = {
        "satellite-port": lambda: channels["Satellite"]["state"],
        "radio-port": lambda: channels["Radio"]["state"],
        "mesh-port": lambda: status["mesh"]["state"],
    }
    return str(states[port]()) == "ready"


def check_written(
    home: Path,
    kind: str,
    port: Path,
    works: Callable[[Mapping[str, Any], str], bool] = is_ready,
    **own: str,
) -> None:
    """`setup` recognises the device at the port, and an agent works with what it writes. `own` are
    settings that only this device needs.
    """
    survey = find_devices(home, port)
    assert [each["kind"] for each in survey["ports"]] == [kind]
    values = {**VALUES, **own, "hub-address": f"http://127.0.0.1:{free_port()}"}
    more = []
    for name in (each for names in survey["needed"].values() for each in names):
        value = next(value for ending, value in values.items() if name.endswith(ending))
        more += ["--set", f"{name}={value}"]
    code, text = setup(home, port, "--yes", *more)
    assert code == OK, text
    assert VALUES["hub-token"] not in text
    (seat,) = (name for name, value in settings(home).items() if value == str(port))
    with Agent(home, {"satellite-port": None, **settings(home)}) as agent:
        until(lambda: works(agent.call("GET", "/api/status").body, seat))
        # It finds its own port in use and does not touch it.
        code, text = setup(home, "--yes")
        assert f"{port} is in use by the agent (process {agent.process.pid})" in text
        assert f"{seat}={port} stays" in text
        assert code == OK


@pytest.mark.full
@pytest.mark.parametrize("kind", [*KNOWN, *MODEMS])
def test_agent_works_with_the_settings_that_setup_wrote(kind: str, tmp_path: Path) -> None:
    begin(tmp_path)
    with simulated_device(kind, tmp_path) as port:
        check_written(tmp_path, kind, port)


@pytest.mark.full
def test_working_radio_is_not_replaced_by_another(tmp_path: Path) -> None:
    """Another radio is connected in addition to the configured one."""
    with nodes(tmp_path, "--kind", "node"):
        one, other = (tmp_path / "air" / f"node-{number}" for number in (1, 2))
        begin(tmp_path, **{"radio-port": str(other), "radio-station": "7"})
        before = (tmp_path / "agent.properties").read_text()
        code, text = setup(tmp_path, one, other.resolve(), "--yes")
        assert code == OK
        assert f"radio-port={other} stays" in text
        assert "nothing to set" in text
    assert (tmp_path / "agent.properties").read_text() == before


@pytest.mark.full
def test_missing_settings_of_a_device_are_asked_for(tmp_path: Path) -> None:
    """If a setting is missing, setup leaves out this device, but not the others."""
    begin(tmp_path)
    with nodes(tmp_path, "--kind", "rnode"), sky(tmp_path):
        ports = (tmp_path / "air" / "node-1", tmp_path / "modem")
        code, text = setup(tmp_path, *ports, "--yes")
        assert code == SETTINGS
        needed = "rnode-frequency, rnode-share, radio-station"
        assert f"radio-port is left out, as it needs {needed}" in text
        assert settings(tmp_path).keys() >= {"satellite-port"}
        assert "radio-port" not in settings(tmp_path)
        code, text = setup_at_terminal(tmp_path, ports, END_OF_INPUT)
        assert code == SETTINGS
        assert "nothing to set" in text
        code, text = setup_at_terminal(tmp_path, ports, "869.525\n10\n7\nyes\n")
        assert code == OK, text
        assert "rnode-frequency (radio frequency in MHz, such as 869.525" in text
        assert settings(tmp_path)["rnode-frequency"] == "869.525"
        wrong = ("--set", "rnode-frequency=high", "--set", "rnode-share=10")
        (tmp_path / "agent.properties").write_text("")
        code, text = setup(tmp_path, *ports, "--yes", *wrong, "--set", "radio-station=7")
        assert code == SETTINGS
        assert "rnode-frequency must be in MHz" in text
        assert not settings(tmp_path), "what the agent would not take is not written"


END_OF_INPUT = "\x04"
"""Ctrl-D."""


def setup_at_terminal(home: Path, ports: tuple[Path, ...], lines: str) -> tuple[int, str]:
    """Run `fieldagent setup` at a terminal with this input, and return the exit code and the
    output.
    """
    ours, theirs = os.openpty()
    command = [*MODULE, "setup", "--config", str(home / "agent.properties"), *map(str, ports)]
    os.write(ours, lines.encode())
    try:
        done = subprocess.run(
            command, stdin=theirs, capture_output=True, text=True, timeout=PATIENCE
        )
    finally:
        os.close(ours)
        os.close(theirs)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.full
def test_unsupported_devices_are_reported_and_not_configured(tmp_path: Path) -> None:
    """The devices are connected at once: they are silent, echo, send garbage, are unplugged, or are
    in use.
    """
    noise = [
        b"ets Jul 29 2019 12:21:46\r\n\r\nrst:0x1 (POWERON_RESET),boot:0x13\r\nOKAY\r\n",
        bytes(range(256)) * 4,
        b"\xc0\x00noise\xc0\xc0\x06\xc0\x94\xc3\x00\x05\x22\x03abc>\x05\x00\x05hello\x00\x05\r\n",
        b"\xff" * 500,
        b"$GPGGA,120000,4723.0,N,00832.0,E,1,08,1.0,400,M,,M,,*00\r\n",
    ]
    begin(tmp_path)
    with ExitStack() as stack:
        enter = stack.enter_context
        silent, echo, gone = (
            enter(serial_device(answer))
            for answer in (lambda data: b"", lambda data: data, lambda data: None)
        )
        garbage = [enter(serial_device(partial(_say, each), each)) for each in noise]
        position = enter(serial_device(hums=nmea([(47.0, 8.0, 400.0)]).encode()))
        enter(nodes(tmp_path))
        agent = enter(kit(tmp_path, 1))
        agent.expect("node sim-1 answers")
        ports = [silent.port, echo.port, gone.port, *(each.port for each in garbage)]
        used = str(tmp_path / "air" / "node-1")
        survey = find_devices(tmp_path, *ports, position.port, used, tmp_path / "nothing")
        assert survey["settings"] == {}
        findings = {each["port"]: each for each in survey["ports"]}
        assert "accepts bytes and does not answer, as a KISS TNC" in findings[silent.port]["why"]
        check_harmless(bytes(silent.sent))
        assert "the device echoes its input" in findings[echo.port]["why"]
        assert "went away" in findings[gone.port]["why"]
        for each in garbage:
            assert "an unknown device answers" in findings[each.port]["why"]
        assert findings[position.port]["kind"] == "gnss"
        assert not position.sent, "it is listened to, and asked nothing"
        assert "in use by the agent" in findings[used]["why"]
        assert "does not exist" in findings[str(tmp_path / "nothing")]["why"]


def _say(what: bytes, data: bytes) -> bytes:
    return what


def test_setup_without_devices_writes_nothing(tmp_path: Path) -> None:
    code, text = setup(tmp_path, tmp_path / "nothing", "--yes")
    assert code == MISSING
    assert "nothing to set" in text
    assert not (tmp_path / "agent.properties").exists()


def test_setup_does_not_change_faulty_settings(tmp_path: Path) -> None:
    (tmp_path / "agent.properties").write_text("satelite-port=/dev/ttyUSB0\n")
    with nodes(tmp_path):
        code, text = setup(
            tmp_path, tmp_path / "air" / "node-1", "--yes", "--set", "radio-station=7"
        )
    assert code == SETTINGS
    assert "satelite-port" in text
    assert settings(tmp_path) == {"satelite-port": "/dev/ttyUSB0"}


def test_serial_ports_are_listed_by_their_persistent_names(tmp_path: Path) -> None:
    """Each device is listed by one name. A PC's built-in port is listed only if it has a chip."""
    dev, tty = tmp_path / "dev", tmp_path / "tty"
    by_id = dev / "serial" / "by-id"
    by_id.mkdir(parents=True)
    for name in ("ttyUSB0", "ttyACM0", "ttyAMA0", "ttyS0", "ttyS1", "ttyS2"):
        (dev / name).touch()
    for name, kind in (("ttyS0", "4"), ("ttyS1", "0")):
        (tty / name).mkdir(parents=True)
        (tty / name / "type").write_text(f"{kind}\n")
    (by_id / "usb-Heltec_1-if00").symlink_to(dev / "ttyUSB0")
    assert list_serial_ports(dev, tty) == [
        str(by_id / "usb-Heltec_1-if00"),
        *(str(dev / name) for name in ("ttyACM0", "ttyAMA0", "ttyS0")),
    ]
    assert find_lasting_name(str(dev / "ttyUSB0"), dev) == str(by_id / "usb-Heltec_1-if00")
    assert find_lasting_name(str(dev / "ttyACM0"), dev) == str(dev / "ttyACM0")
    assert find_lasting_name("tcp://192.168.4.7", dev) == "tcp://192.168.4.7"
