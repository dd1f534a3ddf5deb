"""The product in use: real processes, HTTP on a socket, and a modem on a pty."""

from __future__ import annotations

import json
import re
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from random import randbytes
from typing import Any

import pytest

from fieldagent.system.exit_codes import ERROR
from tests.processes import (
    MODULE,
    PATIENCE,
    ZIPAPP,
    Agent,
    administer,
    agent,
    free_port,
    hub,
    sky,
    started,
    until,
)

HOOK = "printf 'hook: '; cat"


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """Yield an agent with a modem that always succeeds."""
    home = tmp_path_factory.mktemp("kit")
    with sky(home), agent(home) as running:
        yield running


def test_posted_message_is_delivered(kit: Agent) -> None:
    answer = kit.post("Camp reached")
    assert answer.status == 200
    assert answer.body == {
        "id": answer.body["id"],
        "status": "Delivered",
        "data": {"payload": ""},
        "channels": {"Satellite": {"status": "Delivered"}},
    }


@pytest.mark.parametrize(
    "document",
    [
        {"data": {"payload": "AP8="}},
        {"location": {"latitude": "47.1", "longitude": 8, "altitude": 400.5}},
        {"waypoint": {"latitude": 47.1, "longitude": "8", "name": "Hut", "notes": "water"}},
        {"message": {"content": "x"}, "workspaceId": "7", "priority": 100},
    ],
)
def test_every_kind_of_item_is_delivered(kit: Agent, document: Any) -> None:
    answer = kit.call("POST", "/api/package", document)
    assert (answer.status, answer.body["status"]) == (200, "Delivered")


def test_async_post_returns_location_of_package(kit: Agent) -> None:
    answer = kit.call("POST", "/api/package/async", {"message": {"content": "later"}})
    assert answer.status == 202
    assert answer.headers["location"] == f"/api/package/{answer.body['id']}"
    joined = kit.post("later", id=answer.body["id"])
    assert joined.body["status"] == "Delivered"
    assert kit.call("GET", answer.headers["location"]).body["status"] == "Delivered"


MESSAGE = b'{"message": {"content": "x"}}'
REFUSALS: list[tuple[str, str, bytes | None, dict[str, str], int]] = [
    ("POST", "/api/package", b"{", {}, 400),
    ("POST", "/api/package", b'{"message": {}}', {}, 422),
    ("POST", "/api/package", MESSAGE, {"Content-Type": "text/plain"}, 415),
    ("POST", "/api/package", MESSAGE, {"Host": "evil.example"}, 403),
    ("POST", "/api/package", MESSAGE, {"Host": "127.evil.com"}, 403),
    ("POST", "/api/package", MESSAGE, {"Origin": "http://evil.example"}, 403),
    ("POST", "/api/package", MESSAGE, {"Sec-Fetch-Site": "cross-site"}, 403),
    ("POST", "/api/package", MESSAGE, {"Idempotency-Key": "\x7f"}, 400),
    ("POST", "/api/package", b"x" * 2_000_000, {}, 413),
    ("POST", "/api/package", MESSAGE, {"Expect": "bogus"}, 417),
    ("PUT", "/api/package", MESSAGE, {}, 405),
    ("GET", "/api/package", None, {}, 405),
    ("GET", "/api/parcels", None, {}, 404),
    ("GET", "/api/package/4711", None, {}, 404),
    ("GET", "/api/package/4711000000000", None, {}, 404),
    ("GET", "/api/package/x", None, {}, 404),
    ("POST", "/api/package/4711/cancel", None, {}, 404),
    ("POST", "/api/package/1/cancel", b'{"now": true}', {}, 400),
    ("DELETE", "/api/queue?channel=Pigeon", None, {}, 400),
    ("DELETE", "/api/queue?chanel=Radio", None, {}, 400),
    ("POST", "/api/inbound/none/replay", None, {}, 409),
    ("GET", "/api/inbound?state=lost", None, {}, 400),
    ("GET", "/api/events?topics=weather", None, {}, 400),
    ("BREW", "/api/status", None, {}, 501),
]


@pytest.mark.parametrize(("method", "path", "body", "headers", "status"), REFUSALS)
def test_rejected_requests_return_problem_details(
    kit: Agent,
    method: str,
    path: str,
    body: bytes | None,
    headers: dict[str, str],
    status: int,
) -> None:
    before = kit.call("GET", "/api/queue").body["queued"]
    answer = kit.call(method, path, body, **headers)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.body["status"] == status
    assert answer.body["title"]
    assert answer.body["detail"]
    assert kit.call("GET", "/api/queue").body["queued"] == before


def test_each_fault_of_package_has_json_pointer(kit: Agent) -> None:
    document = {"colapseKey": 1, "location": {"latitude": 99}}
    answer = kit.call("POST", "/api/package", document)
    pointers = [fault["pointer"] for fault in answer.body["errors"]]
    assert pointers == ["/colapseKey", "/location/latitude", "/location/longitude"]


def test_health_status_metrics_and_page_are_served(kit: Agent) -> None:
    kit.post("x")
    assert kit.call("GET", "/api/health").body == {"status": "UP"}
    status = kit.call("GET", "/api/status").body
    satellite = status["channels"]["Satellite"]
    assert satellite["configured"]
    assert satellite["creditsToday"] > 0
    assert satellite["lastSuccess"] > 0
    assert not status["channels"]["Radio"]["configured"]
    metrics = kit.call("GET", "/metrics").body
    assert 'fieldagent_configured{channel="Satellite"} 1' in metrics
    assert "fieldagent</h1>" in kit.call("GET", "/").body


def test_idempotency_key_makes_retry_safe(kit: Agent) -> None:
    answers = [
        kit.call("POST", "/api/package", {"message": {"content": "key"}}, **{"Idempotency-Key": k})
        for k in ("k1", '"k1"')
    ]
    assert answers[0].body == answers[1].body
    other = kit.call("POST", "/api/package", MESSAGE, **{"Idempotency-Key": "k1"})
    assert other.status == 422


def command(running: Agent, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MODULE, *arguments, "--port", str(running.port)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["send", "message", "hello"], 0, "Delivered"),
        (["send", "location", "47.1", "-8.2", "--altitude", "400"], 0, "Delivered"),
        (["send", "waypoint", "47.1", "8.2", "Hut"], 0, "Delivered"),
        (["send", "data", str(Path(__file__).with_name("test_events.py"))], 0, "Delivered"),
        (["send", "message", "x", "--channel", "Radio"], 1, "not configured"),
        (["send", "location", "95", "8"], 65, "/location/latitude"),
        (["send", "data", "/nonexistent"], 2, "cannot read"),
        (["send", "message", "x", "--no-wait"], 0, "queued"),
        (["sos"], 2, "no SOS was sent"),
        (["sos", "--yes", "--position", "47,1", "8° 12' 0\" E"], 0, "left by Satellite"),
        (["sos", "--take", "5", "6"], 2, "--take needs --by NAME"),
        (
            ["sos", "--take", "5", "6", "--by", "Zoe"],
            65,
            "this kit has not received SOS 6 of station 5",
        ),
        (["sos", "--cancel"], 0, "is called off; everyone who may have received it is notified"),
        (["sos", "--cancel"], 0, "no SOS of this kit is open"),
        (["cancel", "4711"], 65, "no Package has the id"),
        (["queue"], 0, "waits"),
        (["queue", "--clear"], 0, "canceled"),
        (["status"], 0, "Satellite: "),
        (["inbound", "list"], 0, "nothing came in yet"),
        (["inbound", "list", "--state", "dead"], 0, "no payload has the state dead"),
        (["inbound", "replay"], 2, "name a requestId"),
    ],
)
def test_commands_print_result_and_return_exit_code(
    kit: Agent, arguments: list[str], code: int, said: str
) -> None:
    done = command(kit, *arguments)
    assert said in done.stdout + done.stderr
    assert done.returncode == code


def test_dry_run_prints_cost_and_sends_nothing(kit: Agent, tmp_path: Path) -> None:
    queued = kit.call("GET", "/api/status").body["channels"]["Satellite"]["bytesToday"]
    (tmp_path / "large").write_bytes(bytes(500))
    done = command(kit, "send", "data", str(tmp_path / "large"), "--dry-run")
    assert done.stdout.startswith("Satellite: 2 parts, "), done.stdout
    done = command(kit, "send", "--dry-run", "message", "x")
    assert done.stdout.startswith("Satellite: 1 part, ")
    assert done.stdout.splitlines()[0].endswith(", 1 credit")
    cost = json.loads(command(kit, "send", "--dry-run", "message", "x", "--json").stdout)
    assert cost["channels"]["Satellite"]["credits"] == 1
    assert kit.call("GET", "/api/status").body["channels"]["Satellite"]["bytesToday"] == queued


def test_dry_run_reports_item_that_is_too_large(tmp_path: Path) -> None:
    """The message would cost 0, but that is not its price."""
    (tmp_path / "huge").write_bytes(randbytes(100_000))
    with sky(tmp_path), agent(tmp_path) as kit:
        done = command(kit, "send", "data", str(tmp_path / "huge"), "--dry-run")
        assert re.fullmatch(
            r"Satellite: too large: \d+ bytes need more than 255 fragments\n", done.stdout
        )
        ended = command(kit, "send", "data", str(tmp_path / "huge"))
        assert ended.returncode == ERROR
        assert done.stdout.strip() in ended.stdout


def test_cost_estimate_equals_bytes_and_credits_of_transmission(tmp_path: Path) -> None:
    with sky(tmp_path), agent(tmp_path) as kit:
        # The first message also asks for the directory, at no extra cost.
        assert kit.call("POST", "/api/package", MESSAGE).body["status"] == "Delivered"
        estimate = kit.call("POST", "/api/package/cost", MESSAGE).body["channels"]["Satellite"]
        answer = kit.call("POST", "/api/package", MESSAGE).body
        story = kit.call("GET", f"/api/package/{answer['id']}").body["history"]
        sent = next(line for line in story if line["event"] == "sent")
        assert estimate["credits"] == 1
        assert sent["detail"].startswith(f"{estimate['bytes']} bytes, 1 credit")


def test_dry_run_prints_expected_delivery_time_after_deliveries(kit: Agent) -> None:
    for _ in range(5):
        assert kit.call("POST", "/api/package", MESSAGE).body["status"] == "Delivered"
    _, said = command(kit, "send", "--dry-run", "message", "x").stdout.splitlines()
    form = r"  expected: half within \d+ s, 9 of 10 within \d+ s \(from the last (\d+)\)"
    match = re.fullmatch(form, said)
    forecast = kit.call("GET", "/api/forecast").body["channels"]["Satellite"]
    assert match is not None and int(match[1]) == forecast["expected"]["samples"] >= 5
    assert forecast["accuracy"]["within"] <= forecast["accuracy"]["forecasts"]
    assert said in command(kit, "status").stdout


def test_show_command_prints_history_of_package(kit: Agent) -> None:
    package = json.loads(command(kit, "send", "message", "x", "--json").stdout)
    done = command(kit, "show", str(package["id"]))
    assert done.stdout.startswith(f"Package {package['id']}: Delivered\nmessage  x\n")
    events = [line.split("  ", 1)[1].partition(":")[0] for line in done.stdout.splitlines()[2:]]
    assert events == ["accepted", "Satellite sent", "Satellite Delivered", "answered"]
    assert command(kit, "show", "4711").returncode == 65


def test_commands_print_waiting_package_as_queued(tmp_path: Path) -> None:
    with agent(tmp_path) as kit:  # without a modem
        sent = command(kit, "send", "message", "x", "--no-wait").stdout
        assert (
            command(kit, "show", "1").stdout.splitlines()[0] == sent.strip() == "Package 1: queued"
        )


def test_call_off_notifies_recipients_of_sos(tmp_path: Path) -> None:
    with sky(tmp_path) as above, agent(tmp_path) as kit:
        assert command(kit, "sos", "--yes", "Leg broken").returncode == 0
        number = kit.call("GET", "/api/sos").body["incident"]["number"]
        for more in range(5):
            kit.post(f"still here, {more}", priority=100)
        # The delivery time of the first message does not predict the others.
        assert kit.call("GET", "/api/forecast").body["channels"]["Satellite"]["expected"] is None
        done = command(kit, "sos", "--cancel")
        assert "called off; everyone who may have received it" in done.stdout
        above.expect(f'incident {{"number": {number}, "state": "called off"')
        sos = kit.call("GET", "/api/sos").body
        assert (sos["active"], sos["incident"]["state"]) == (0, "called off")
        assert [each["state"] for each in sos["incident"]["steps"]] == [
            "raised",
            "left",
            "called off",
        ]
        assert "no SOS of this kit is open" in command(kit, "sos", "--cancel").stdout


def test_json_option_prints_json(kit: Agent) -> None:
    done = command(kit, "send", "message", "x", "--json")
    assert json.loads(done.stdout)["status"] == "Delivered"
    assert json.loads(command(kit, "status", "--json").stdout)["version"]


def test_command_without_agent_explains_how_to_start_agent() -> None:
    done = subprocess.run(
        [*MODULE, "status", "--port", "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 69
    assert "fieldagent run" in done.stderr


def test_hook_gets_received_message_and_replay(tmp_path: Path) -> None:
    with sky(tmp_path) as above, agent(tmp_path, {"inbound-hook": HOOK}) as kit:
        above.type("mt hello kit")
        payload = json.loads(kit.expect("hook: ").removeprefix("hook: "))
        event = payload["payloads"][0]["events"][0]
        assert (event["type"], event["content"]) == ("Message", "hello kit")
        listed = kit.call("GET", "/api/inbound").body["payloads"]
        assert listed[0]["requestId"] == payload["requestId"]
        assert command(kit, "inbound", "replay", payload["requestId"]).returncode == 0
        assert json.loads(kit.expect("hook: ").removeprefix("hook: ")) == payload


def test_session_results_are_logged(tmp_path: Path) -> None:
    with sky(tmp_path) as above, agent(tmp_path) as kit:
        above.type("mt hello")
        assert kit.expect("a message came in").startswith("INFO    session ")
        kit.post("hello")
        assert kit.expect(" ended: ").endswith(" ended: sent")


def test_payload_of_failed_hook_is_listed_as_dead(tmp_path: Path) -> None:
    with sky(tmp_path) as above, agent(tmp_path, {"inbound-hook": "exit 3"}) as kit:
        above.type("mt hello")
        kit.expect("did not accept")
        done = command(kit, "inbound", "list", "--state", "dead")
        assert "dead after 1 attempt " in done.stdout


def test_waiting_package_is_canceled(tmp_path: Path) -> None:
    with agent(tmp_path) as kit:
        answers = []
        caller = threading.Thread(target=lambda: answers.append(kit.post("x", id=9)))
        caller.start()
        while kit.call("GET", "/api/queue").body["queued"] == 0:
            pass
        canceled = kit.call("POST", "/api/package/9/cancel")
        assert (canceled.status, canceled.body["status"]) == (200, "Canceled")
        caller.join(10)
        assert answers[0].body["status"] == "Canceled"
        again = kit.call("DELETE", "/api/package/9")
        assert (again.status, again.body["package"]["status"]) == (409, "Canceled")


def test_newer_package_collapses_older_packages(tmp_path: Path) -> None:
    with agent(tmp_path) as kit:
        path = "/api/package/async"
        ids = [
            kit.call("POST", path, {"message": {"content": str(n)}, "collapseKey": 5}).body["id"]
            for n in range(3)
        ]
        statuses = [kit.call("GET", f"/api/package/{id_}").body["status"] for id_ in ids]
        assert statuses == ["Collapsed", "Collapsed", None]
        assert kit.call("DELETE", "/api/queue").body == {"deleted": 1}


def test_agent_killed_in_session_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with sky(tmp_path) as above:
        # However long the kill takes, the agent does not learn the gateway's state meanwhile.
        above.type("lose-reply")
        above.expect("reply will be lost")
        with agent(tmp_path) as kit:
            kit.call("POST", "/api/package/async", {"message": {"content": "precious"}, "id": 5})
            above.expect("precious")
            kit.kill()
        with agent(tmp_path) as kit:
            assert kit.post("precious", id=5).body["status"] == "Delivered"
            assert kit.post("next").body["status"] == "Delivered"
        above.expect("next")
        assert not [line for line in above.lines if "(again)" in line]
        assert len([line for line in above.lines if "precious" in line]) == 1


def test_stop_answers_waiting_caller_and_keeps_package(tmp_path: Path) -> None:
    with agent(tmp_path) as kit:
        answers = []
        caller = threading.Thread(target=lambda: answers.append(kit.post("kept", id=3)))
        caller.start()
        while kit.call("GET", "/api/queue").body["queued"] == 0:
            pass
        assert kit.stop() == 0
        caller.join(10)
        assert answers[0].status == 503
        assert int(answers[0].headers["retry-after"]) >= 1
        assert "kept" in answers[0].body["detail"]
    with sky(tmp_path), agent(tmp_path) as kit:
        assert kit.post("kept", id=3).body["status"] == "Delivered"


def test_second_agent_with_same_journal_is_rejected(tmp_path: Path) -> None:
    with agent(tmp_path) as kit:
        second = subprocess.run(
            [*MODULE, "run", "--config", str(tmp_path / "agent.properties")],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert second.returncode == 75
        assert "another agent uses" in second.stderr
        assert kit.call("GET", "/api/health").status == 200


def test_api_port_in_use_is_reported(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with agent(tmp_path) as kit:
        (other / "agent.properties").write_text(
            f"api-port={kit.port}\nstate-directory={other}\nsatellite-port=/dev/null\n"
        )
        second = subprocess.run(
            [*MODULE, "run", "--config", str(other / "agent.properties")],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert second.returncode == 75
        assert str(kit.port) in second.stderr


@pytest.mark.parametrize("arguments", [["run"], ["check"], ["hub", "run"], ["hub", "user", "list"]])
def test_missing_settings_file_is_reported_with_exit_code_66(
    tmp_path: Path, arguments: list[str]
) -> None:
    missing = tmp_path / "none.properties"
    done = subprocess.run(
        [*MODULE, *arguments, "--config", str(missing)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 66
    assert f"settings file {missing} not found: correct --config" in done.stderr


def test_agent_without_channel_logs_name_of_settings_file(tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": None}) as kit:
        notice = next(line for line in kit.lines if "no channel is configured" in line)
        assert notice.endswith(f"or hub-address in {tmp_path}/agent.properties")


def test_all_faults_of_settings_are_reported(tmp_path: Path) -> None:
    properties = tmp_path / "agent.properties"
    properties.write_text("satelite-port=/dev/ttyUSB0\napi-port=x\n")
    for name in ("run", "check"):
        done = subprocess.run(
            [*MODULE, name, "--config", str(properties)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 78
        assert "nearest is satellite-port" in done.stderr
        assert "api-port must be" in done.stderr
        hint = f"once corrected, try `fieldagent check --config {properties}`"
        assert (hint in done.stderr) is (name == "run")


def test_check_command_reports_missing_modem(tmp_path: Path) -> None:
    properties = tmp_path / "agent.properties"
    properties.write_text(
        f"satellite-port={tmp_path}/modem\nstate-directory={tmp_path}\napi-port=0\n"
    )
    arguments = [*MODULE, "check", "--config", str(properties)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert "is the modem plugged in?" in done.stderr
    with sky(tmp_path):
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.full
@pytest.mark.parametrize(
    "prefer", ["wait=0", "respond-async, WAIT = 1", 'foo="a,wait=9"; x, wait="0"; y']
)
def test_prefer_header_limits_wait_of_caller(tmp_path: Path, prefer: str) -> None:
    with sky(tmp_path, latency=0) as above, agent(tmp_path) as kit:
        above.type("hang on")
        above.expect("answers nothing")
        document = {"message": {"content": "takes longer"}}
        waiting = kit.call("POST", "/api/package", document, Prefer=prefer)
        assert (waiting.status, waiting.body["status"]) == (202, None)
        assert waiting.headers["preference-applied"] in ("wait=0", "wait=1")
        place = waiting.headers["location"]
        assert place == f"/api/package/{waiting.body['id']}"
        above.type("hang off")
        until(lambda: kit.call("GET", place).body["status"] == "Delivered")
        soon = kit.call("POST", "/api/package", document, Prefer="wait=100")
        assert (soon.status, soon.body["status"]) == (200, "Delivered")
        assert soon.headers["preference-applied"] == "wait=100"
        for nothing in ("wait", "wait=-1", "wait=x", "handling=lenient"):
            plain = kit.call("POST", "/api/package", document, Prefer=nothing)
            assert (plain.status, plain.body["status"]) == (200, "Delivered")
            assert "preference-applied" not in plain.headers


def test_agent_runs_from_isolated_zipapp(tmp_path: Path) -> None:
    if not ZIPAPP.exists():
        pytest.skip("build/zipapp has not been run")
    with sky(tmp_path), agent(tmp_path, command=[sys.executable, "-I", "-S", str(ZIPAPP)]) as kit:
        assert kit.post("from one file").body["status"] == "Delivered"


def test_event_stream_reports_delivered_package(kit: Agent) -> None:
    from http.client import HTTPConnection

    connection = HTTPConnection("127.0.0.1", kit.port, timeout=PATIENCE)
    connection.request("GET", "/api/events?topics=package")
    response = connection.getresponse()
    assert response.getheader("Content-Type") == "text/event-stream"
    assert response.readline() == b": listening\n"
    id_ = kit.post("listened to").body["id"]
    event = None
    while event is None or event["id"] != id_ or event["status"] is None:
        line = response.readline()
        event = json.loads(line.removeprefix(b"data: ")) if line.startswith(b"data: ") else event
    assert event["status"] == "Delivered"
    connection.close()


def test_unread_output_does_not_block_hooks(tmp_path: Path) -> None:
    hook = "yes 'much to say, to nobody' | head -c 300000"
    with sky(tmp_path) as above:
        settings = tmp_path / "agent.properties"
        port = free_port()
        settings.write_text(
            f"api-port={port}\nsatellite-port={tmp_path}/modem\nstate-directory={tmp_path}/state\n"
            f"inbound-hook={hook}\n"
        )
        command = [*MODULE, "run", "--verbose", "--config", str(settings)]
        with started(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as agent:
            for number in range(3):
                above.type(f"mt {number}")
            until(lambda: states(port) == ["handed"] * 3)
            agent.terminate()
            assert agent.wait(PATIENCE) == 0


def states(port: int) -> list[str]:
    """Return the state of each incoming message at the script. Empty before the agent listens."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", "/api/inbound")
        payloads = json.loads(connection.getresponse().read())["payloads"]
        return [payload["hooks"]["script"]["state"] for payload in payloads]
    except ConnectionRefusedError:
        return []
    finally:
        connection.close()


UMASKS = ["000", "022", "077", "777"]


def under(umask: str) -> list[str]:
    """Return the command with that umask."""
    return ["sh", "-c", f'umask {umask}; exec "$@"', "sh", *MODULE]


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}


@pytest.mark.parametrize("umask", UMASKS)
def test_only_owner_can_read_files_of_agent(tmp_path: Path, umask: str) -> None:
    with agent(tmp_path, command=under(umask)) as running:
        running.call("POST", "/api/package/async", {"message": {"content": "private"}})
        kept = {
            "state": 0o700,
            "agent.lock": 0o600,
            "journal.sqlite3": 0o600,
            "journal.sqlite3-mark": 0o600,
            "journal.sqlite3-wal": 0o600,
            "journal.sqlite3-shm": 0o600,
            "trace-satellite.log": 0o600,
        }
        until(lambda: modes(tmp_path / "state") == kept)


def test_agent_removes_access_of_others_to_journal(tmp_path: Path) -> None:
    with agent(tmp_path) as running:
        running.stop()
    journal = tmp_path / "state/journal.sqlite3"
    journal.chmod(0o644)
    with agent(tmp_path) as running:
        running.call("POST", "/api/package/async", {"message": {"content": "private"}})
        assert stat.S_IMODE(journal.stat().st_mode) == 0o640
        assert stat.S_IMODE(journal.with_name("journal.sqlite3-wal").stat().st_mode) == 0o640


@pytest.mark.full
@pytest.mark.parametrize("umask", UMASKS)
def test_only_owner_can_read_files_of_hub(tmp_path: Path, umask: str) -> None:
    database = tmp_path / "of" / "hub" / "hub.sqlite3"
    with hub(tmp_path, {"database": str(database)}, command=under(umask)):
        administer(str(database), "init", "Alps")
        assert modes(tmp_path / "of") == {
            "of": 0o700,
            "hub": 0o700,
            "hub.sqlite3": 0o600,
            "hub.sqlite3-wal": 0o600,
            "hub.sqlite3-shm": 0o600,
        }


@pytest.mark.full
def test_aborted_requests_leave_no_open_connections(tmp_path: Path) -> None:
    """`curl --max-time` in a loop does this without a sky. `nc` ends only its own direction, and
    waits.
    """
    with agent(tmp_path, {"satellite-port": str(tmp_path / "modem")}) as running:
        opened = Path(f"/proc/{running.process.pid}/fd")
        body = b'{"message": {"content": "anybody?"}}'
        head = b"POST /api/package HTTP/1.1\r\nHost: localhost:%d\r\n" % running.port
        head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)

        def count() -> int:
            return len(list(opened.iterdir()))

        before = count()

        def ask() -> socket.socket:
            asking = socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE)
            asking.sendall(head + body)
            return asking

        def leave() -> None:
            """Send a request, and hang up when the agent has accepted it."""
            known = count()
            with ask():
                until(lambda: count() > known)

        with ask() as listening:
            listening.shutdown(socket.SHUT_WR)
            for _ in range(10):
                leave()
            assert count() > before + 5
            # The kernel forgets the connection of a client that left after a minute, and resets it
            # at the next probe, up to 30 s later. The agent looks once a minute.
            until(lambda: count() <= before + 1, within=240)
            with sky(tmp_path):
                assert b'"Delivered"' in listening.recv(65_536)
