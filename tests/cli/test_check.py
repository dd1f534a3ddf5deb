"""`fieldagent check` queries the modem, or the agent that uses it: real processes, ptys, and modems
with scripted lines.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import tty
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from fieldagent.agent.kit_part import get_device_parts
from tests.breaking import Put, environment
from tests.other_user import ENVIRONMENT, open_place, python
from tests.processes import MODULE, PATIENCE, Agent, agent, free_port, sky, until

IMEI = "300234010000001"
ANSWERS = {"AT+CGSN": IMEI, "AT+CGMR": "TA16005", "AT+CSQF": "+CSQF:3", "AT+CULK?": "+CULK:0"}


def check(
    properties: Path,
    before: Sequence[str] = (),
    words: Sequence[str] = ("check",),
    **environment: str,
) -> tuple[int, list[str], list[str]]:
    """Run `fieldagent` with these words. Return the exit code, the good and the bad findings."""
    done = subprocess.run(
        [*before, *MODULE, *words, "--json", "--config", str(properties)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **environment},
    )
    findings = json.loads(done.stdout)["findings"]
    good = [each["text"] for each in findings if each["good"]]
    bad = [each["text"] for each in findings if not each["good"]]
    return done.returncode, good, bad


def settings(home: Path, port: str, api_port: int = 0) -> Path:
    properties = home / "agent.properties"
    properties.write_text(
        f"satellite-port={port}\napi-port={api_port}\nstate-directory={home}/state\n"
    )
    return properties


@contextmanager
def modem(answers: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Yield a pty with these answers, OK by default, and none for an empty one. Also yield its
    commands.
    """
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    asked: list[str] = []

    def serve() -> None:
        line = b""
        while True:
            try:
                line += os.read(ours, 100)
            except OSError:
                return
            while b"\r" in line:
                command, _, line = line.partition(b"\r")
                asked.append(command.decode())
                if answers:
                    answer = answers.get(asked[-1], "")
                    last = "ERROR" if answer == "ERROR" else "OK"
                    text = f"\r\n{answer}\r\n" if answer not in ("", "ERROR") else ""
                    os.write(ours, f"{text}\r\n{last}\r\n".encode())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield os.ttyname(theirs), asked
    finally:
        os.close(theirs)
        thread.join(PATIENCE)
        os.close(ours)


@pytest.mark.parametrize(
    ("changed", "good", "bad"),
    [
        ({}, [f"modem {IMEI} answers, TA16005", "signal 3 of 5", "not locked"], []),
        ({"AT+CSQF": "+CSQF:0"}, ["signal 0 of 5; under the open sky"], []),
        ({"AT+CSQF": "ERROR", "AT+CULK?": "ERROR"}, ["does not report its signal"], []),
        ({"AT+CULK?": "+CULK:1"}, [], ["is locked and makes no sessions: have its seller"]),
        ({"AT+CULK?": "+CULK:2"}, [], ["is locked and makes no sessions: return it"]),
        ({"AT+CGSN": "no", "AT+GSN": "no"}, [], ["which is not an IMEI"]),
    ],
)
def test_check_reports_the_modems_answers_and_sends_nothing(
    tmp_path: Path, changed: dict[str, str], good: list[str], bad: list[str]
) -> None:
    with modem({**ANSWERS, **changed}) as (port, asked):
        code, told_good, told_bad = check(settings(tmp_path, port))
    assert code == (78 if bad else 0)
    for wanted, findings in ((good, told_good), (bad, told_bad)):
        assert all(any(each in text for text in findings) for each in wanted), findings
    # The check sends, reads and clears nothing.
    assert not [
        each for each in asked if each.startswith(("AT+SBDI", "AT+SBDR", "AT+SBDD", "AT+SBDW"))
    ]


def test_check_reports_the_credits_reserved_for_an_sos(tmp_path: Path) -> None:
    for reserve in (0, 5):
        with modem(ANSWERS) as (port, _):
            properties = settings(tmp_path, port)
            with properties.open("a") as more:
                more.write(f"satellite-credits-per-day=20\nsatellite-sos-reserve={reserve}\n")
            code, good, _ = check(properties)
        assert code == 0
        (finding,) = [text for text in good if "reserved for an SOS" in text]
        assert finding.startswith(
            f"satellite: {reserve} of 20 credits a day are reserved for an SOS"
        )
        assert ("set satellite-sos-reserve" in finding) == (reserve == 0)


@pytest.mark.full
def test_check_reports_a_port_without_an_answer(tmp_path: Path) -> None:
    with modem({}) as (port, _):
        code, _, bad = check(settings(tmp_path, port))
    assert code == 78
    assert (
        f"{port}: no answer to AT: is this the modem's port, and does the modem have power?" in bad
    )


def test_check_ends_at_its_deadline_if_the_modem_hangs(tmp_path: Path) -> None:
    changed = environment(tmp_path, Put("fieldagent.agent.satellites.sbd:CHECK_TIMEOUT_S", 0.5))
    with modem({}) as (port, _):
        code, _, bad = check(settings(tmp_path, port), **changed)
    assert code == 78
    assert f"{port}: the modem does not answer within 0.5 s" in bad


def state(kit: Agent) -> str:
    return str(kit.call("GET", "/api/status").body["channels"]["Satellite"]["state"])


def test_check_queries_the_running_agent_instead_of_its_port(tmp_path: Path) -> None:
    api_port = free_port()
    own = {"api-port": str(api_port)}
    with sky(tmp_path, latency=0) as above, agent(tmp_path, own) as kit:
        kit.post("so that it knows its modem")
        properties = tmp_path / "agent.properties"
        code, good, bad = check(properties)
        assert (code, bad) == (0, [])
        assert any(f"runs and answers on port {api_port}" in each for each in good)
        assert any(f"the running agent reports for modem {IMEI}: ready" in each for each in good)
        before = properties.read_text()
        for key in ("satellite-port", *({"mesh-port"} & get_device_parts().keys())):
            lines = [each for each in before.splitlines() if not each.startswith(f"{key}=")]
            properties.write_text("\n".join([*lines, f"{key}=/dev/ttyNOPE", ""]))
            code, good, bad = check(properties)
            assert code == 78 and not any("ttyNOPE" in each for each in good)
            assert any(f"{key} is /dev/ttyNOPE, but the running agent uses" in b for b in bad)
        properties.write_text(before)
        above.type("unplug")
        until(lambda: state(kit) == "absent")
        code, _, bad = check(properties)
        assert code == 78
        assert any(
            "the running agent reports for modem" in each and "absent" in each for each in bad
        )


def test_check_leaves_the_modem_to_an_agent_on_an_unknown_port(tmp_path: Path) -> None:
    with sky(tmp_path, latency=0), agent(tmp_path) as kit:
        properties = tmp_path / "agent.properties"
        code, good, bad = check(properties)
        assert (code, bad) == (0, [])
        assert any("so it was not opened" in each for each in good)
        assert kit.post("undisturbed").body["status"] == "Delivered"
        properties.write_text(
            properties.read_text().replace("api-port=0", f"api-port={free_port()}")
        )
        code, _, bad = check(properties)
        assert code == 78
        assert any("if api-port was changed, restart the agent" in each for each in bad)


def test_check_reports_another_program_on_the_api_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, modem(ANSWERS) as (port, _):
        taken = other.getsockname()[1]
        changed = environment(tmp_path, Put("fieldagent.cli.kit.check:AGENT_TIMEOUT_S", 0.5))
        code, _, bad = check(settings(tmp_path, port, taken), **changed)
    assert code == 78
    (finding,) = bad
    assert finding.startswith(f"port {taken} is in use: another program uses it")


def test_check_reports_an_agent_with_another_state_directory(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with agent(tmp_path, {"satellite-port": None}) as kit, modem(ANSWERS) as (port, _):
        code, _, bad = check(settings(tmp_path / "here", port, kit.port))
    assert code == 78
    assert any("used by an agent with another state-directory" in each for each in bad)


@pytest.mark.parametrize(
    ("mode", "group", "remedy"),
    [
        (
            0o600,
            0,
            "its mode is 0600, only for root. If it is a console, run `sudo systemctl disable",
        ),
        (0o660, 64_243, "`sudo usermod --append --groups 64243 $USER`, and log in again"),
    ],
)
def test_check_reports_a_port_without_permission_and_its_remedy(
    mode: int, group: int, remedy: str
) -> None:
    """If root runs the check, it checks as the agent's user, to whom the permissions apply."""
    with open_place() as away, modem({}) as (port, _):
        os.chown(port, 0, group)
        Path(port).chmod(mode)
        properties = settings(away, port)
        os.chown(away, 65534, 65534)
        away.chmod(0o555)
        done = subprocess.run(
            [python(), "-m", "fieldagent", "check", "--json", "--config", str(properties)],
            capture_output=True, text=True, env=ENVIRONMENT, cwd="/", timeout=PATIENCE,
        )  # fmt: skip
    assert done.returncode == 78, done.stderr
    bad = [each["text"] for each in json.loads(done.stdout)["findings"] if not each["good"]]
    assert any(f"{port} may not be opened: {remedy}" in text for text in bad), bad
    wanted = (
        f"{away}/state does not exist, and nobody cannot create it: run `sudo install --directory"
    )
    assert any(wanted in text for text in bad), bad
