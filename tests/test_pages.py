"""The pages in docs/ work: the tests run their commands and settings in order.

They only replace values that a reader replaces: keys and tokens with the shown ones, and /tmp,
/root and /var/lib with a folder of the test.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.own_network import own_network
from tests.processes import MODULE, PATIENCE, Running

DOCS = Path(__file__).parents[1] / "docs"
RADIO, SATELLITE, COMMANDS, BACK_UP, FIELD_KIT = (
    (DOCS / f"{name}.md").read_text()
    for name in (
        *("how-to/radio", "how-to/satellite", "reference/cli"),
        *("how-to/back-up", "start/first-kit"),
    )
)
HUB = "\n".join(
    (DOCS / f"{name}.md").read_text()
    for name in (
        *("start/first-hub", "explain/message-routing", "how-to/webhooks", "how-to/dead-letters"),
        *("how-to/check-the-bill", "how-to/passkeys", "how-to/load-test"),
    )
)
"""The pages of the hub that have commands, in the order in which a reader types them."""
SETUP = (DOCS.parent / "setup.cfg").read_text()
PATH = f"{Path(MODULE[0]).parent}{os.pathsep}{os.environ['PATH']}"
RECEIVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        print(self.rfile.read(int(self.headers["Content-Length"])).decode(), flush=True)
        self.send_response(204)
        self.end_headers()
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 8080), Handler)
print("ready", flush=True)
server.serve_forever()
"""


GPSD = """
import socket
listener = socket.create_server(("127.0.0.1", 2947))
print("ready", flush=True)
peer, _ = listener.accept()
peer.recv(100)
fix = b'{"class":"TPV","mode":3,"time":"2026-11-21T10:00:00Z","lat":47.1,"lon":8.2,"altMSL":400}'
peer.sendall(fix + b"\\r\\n")
peer.recv(100)
"""


class Reader:
    """A person with the page open, and with any number of terminals."""

    def __init__(self, home: Path, inside: list[str]) -> None:
        self.home = home
        self.inside = inside
        self.environment = {
            "PATH": PATH,
            **{f"XDG_{kind}_HOME": str(home / kind) for kind in ("STATE", "CONFIG")},
        }

    def blocks(self, page: str) -> list[str]:
        return [
            re.sub(r"/(?:tmp|root|var/lib)/", f"{self.home}/", re.sub(r"(?m)^ {4}", "", block))
            for block in re.findall(r"(?:^ {4}.*\n)+", page, re.MULTILINE)
        ]

    def types(self, commands: str, typed: str = "", **environment: str) -> str:
        """Run commands and return their output. `typed` is the input that they read."""
        done = subprocess.run(
            [*self.inside, "sh", "-e", "-c", commands],
            cwd=self.home,
            input=typed,
            env={**os.environ, **self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, (commands, done.stdout, done.stderr)
        return done.stdout

    def starts(self, command: str, ready: str) -> Running:
        there = ["env", "-C", str(self.home), *command.split("#")[0].split()]
        return Running([*self.inside, *there], ready, **self.environment)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with own_network() as inside:
        yield Reader(tmp_path, inside)


def find_printed_value(text: str, name: str) -> str:
    match = re.search(rf"^{name}: (.+)$", text, re.MULTILINE)
    assert match is not None, text
    return match[1]


@contextmanager
def kit(reader: Reader, settings: str, command: str) -> Iterator[Running]:
    file = reader.home / "agent.properties"
    file.write_text(f"inbound-hook=cat\n{settings}\n")
    with reader.starts(command, "the local API answers at") as running:
        yield running


SESSIONS = "IMEI,Date,Credits\n300234010000001,2026-09-21,4\n"


@pytest.mark.full
def test_commands_of_the_hub_page_work(reader: Reader) -> None:
    blocks = reader.blocks(HUB)
    set_up, push, settings, programs, groups, webhook, letters, usage, passkeys, fleet = blocks
    # The page installs for the whole machine. The test uses the requested version without that.
    (wanted,) = re.findall(r"'(webauthn[^']+)'", passkeys)
    assert wanted in SETUP.replace("webauthn ", "webauthn")
    *first, run_hub = set_up.strip().splitlines()
    output = reader.types("\n".join(first))
    proof: Any = {
        "FIELDAGENT_API_KEY": find_printed_value(output, "apiKey"),
        "FIELDAGENT_TOKEN": find_printed_value(output, "token"),
    }
    token = f"hub-token={find_printed_value(output, 'hub-token')}"
    (address,) = re.findall(r"`(hub-address=[^`]+)`", HUB)
    hub_again, sky, agent = programs.strip().splitlines()

    with (
        reader.starts(run_hub, "the hub answers at"),
        kit(reader, f"{address}\n{token}", agent) as running,
    ):
        reader.types(push, **proof)
        for _ in ("curl", "fieldagent push"):
            running.expect("Storm at noon")

    (reader.home / "hub.properties").write_text(settings)
    with ExitStack() as terminals:
        terminals.enter_context(reader.starts(hub_again, "the hub answers at"))
        terminals.enter_context(reader.starts(sky, "satellite-port="))
        running = terminals.enter_context(kit(reader, f"satellite-port={reader.home}/modem", agent))
        reader.types(push, **proof)
        for _ in ("curl", "fieldagent push"):
            running.expect("Storm at noon")
        receiver = Running([*reader.inside, sys.executable, "-c", RECEIVER], "ready")
        terminals.enter_context(receiver)
        assert "rescue" in reader.types(groups)
        reader.types(webhook)
        receiver.expect("From the ice")
        reader.types(letters, typed=f"{'5a' * 32}\n")
        (reader.home / "sessions.csv").write_text(SESSIONS)
        assert "kit-ada" in reader.types(usage)
        for shown_there, tried in (("10000", "20"), ("--every 60 --minutes 5", "--minutes 0.05")):
            assert shown_there in fleet
            fleet = fleet.replace(shown_there, tried)
        assert "links: 20 of 20 open at the end" in reader.types(fleet)


@pytest.mark.full
def test_two_kits_communicate_with_the_settings_of_the_radio_page(reader: Reader) -> None:
    simulator, settings, *_ = reader.blocks(RADIO)
    (send,) = re.findall(r"`(fieldagent send [^`]+)`", RADIO)
    other = settings.replace("node-1", "node-2").replace("station=1", "station=2")
    other = other.replace("9101", "9102").replace("/hut", "/camp").replace("Hut", "Camp")
    for name, text in (("hut", settings), ("camp", other)):
        (reader.home / f"{name}.properties").write_text(f"inbound-hook=cat\n{text}")
    up = "the local API answers at"
    with (
        reader.starts(simulator.strip(), "node-2"),
        reader.starts("fieldagent run --config hut.properties", up),
        reader.starts("fieldagent run --config camp.properties", up) as camp,
    ):
        assert reader.types(send) == "Package 1: Delivered\n"
        assert '"content":"hello"' in camp.expect("hello")


LORA = [each for each in re.findall(r"(?m)^    radio-protocol=(\S+)$", RADIO) if each != "kiss"]


@pytest.mark.full
@pytest.mark.parametrize("name", LORA)
def test_two_kits_communicate_with_the_lora_settings_of_the_radio_page(
    reader: Reader, name: str
) -> None:
    (settings,) = (each for each in reader.blocks(RADIO) if f"radio-protocol={name}\n" in each)
    settings, _, _ = settings.partition("      antenna")
    (simulator,) = re.findall(rf"`(fieldagent simulate node --kind {name} [^`]+)`", RADIO)
    for number, kit_name in enumerate(("hut", "camp"), 1):
        text = re.sub("radio-port=.*", f"radio-port={reader.home}/air/node-{number}", settings)
        text = text.replace("radio-station=7", f"radio-station={number}")
        text += (
            f"\ninbound-hook=cat\napi-port=910{number}\nstate-directory={reader.home}/{kit_name}\n"
        )
        (reader.home / f"{kit_name}.properties").write_text(text)
    up = "the radio works"
    with (
        reader.starts(simulator.replace("/tmp/", f"{reader.home}/"), "node-2"),
        reader.starts("fieldagent run --config hut.properties", up),
        reader.starts("fieldagent run --config camp.properties", up) as camp,
    ):
        said = reader.types("fieldagent send message hello --port 9101")
        assert said == "Package 1: Delivered\n"
        assert '"content":"hello"' in camp.expect("hello")


TNC = """
import socket
listener = socket.create_server(("127.0.0.1", 8001))
print("ready", flush=True)
peer, _ = listener.accept()
while data := peer.recv(4096):
    print(data.hex(), flush=True)
"""


def test_kiss_modem_is_reached_with_the_dire_wolf_settings(reader: Reader) -> None:
    (settings,) = (each for each in reader.blocks(RADIO) if "radio-protocol=kiss" in each)
    with (
        Running([*reader.inside, sys.executable, "-c", TNC], "ready") as tnc,
        kit(reader, settings, "fieldagent run --config agent.properties"),
    ):
        # A text would be compressed.
        reader.types("printf hello >greeting && fieldagent send data greeting --no-wait")
        tnc.expect(b"hello".hex())


@contextmanager
def simulated_kit(reader: Reader) -> Iterator[Running]:
    """Run a kit with the modem that docs/how-to/satellite.md puts on a pty."""
    (simulator,) = reader.blocks(SATELLITE)
    (setting,) = re.findall(r"`(satellite-port=/tmp/[^`]+)`", SATELLITE)
    setting = setting.replace("/tmp/", f"{reader.home}/")
    with (
        reader.starts(simulator.strip(), "satellite-port="),
        kit(reader, setting, "fieldagent run --config agent.properties") as running,
    ):
        yield running


@pytest.mark.full
def test_commands_of_the_local_api_page_work(reader: Reader) -> None:
    *_, commands, track, batched = reader.blocks(COMMANDS)
    text, place, dry_run, by, *more = commands.strip().splitlines()
    to_ada, people, read, sos, grid, seen, answer, words, cancel, *looks = more
    sent, show, status, neighbours = looks
    with simulated_kit(reader):
        assert reader.types(text) == "Package 1: Delivered\n"
        assert reader.types(place) == "Package 2: Delivered\n"
        assert "1 credit" in reader.types(dry_run)
        assert reader.types(by) == "Package 3: Delivered\n"
        assert reader.types(to_ada) == "Package 4: Delivered\n"
        assert "works without it" in reader.types(people)
        assert "no inbound payload" in reader.types(f"{read.split('#')[0]} 2>&1 || true")
        for asking in (sos, grid):
            assert "left by Satellite" in reader.types(wrap_in_terminal(asking), typed="SOS\n")
        with reader.starts(f"{seen.split('#')[0]} --yes", "left by") as waiting:
            assert "two are injured" in reader.types(answer)
            assert "two are injured" in reader.types(words)
            assert "called off" in reader.types(cancel)
            waiting.expect(" called off")
        assert "Camp reached" in reader.types(sent)
        assert "accepted" in reader.types(show)
        assert "Satellite" in reader.types(status)
        assert "radio" in reader.types(neighbours)
        for command in (track, batched):
            with (
                Running([*reader.inside, sys.executable, "-c", GPSD], "ready"),
                reader.starts(command.strip(), "Package"),
            ):
                pass


def wrap_in_terminal(command: str) -> str:
    """Return the command wrapped in a terminal by util-linux's `script`."""
    return f"script --quiet --return --command {shlex.quote(command.split('#')[0])} /dev/null"


@pytest.mark.full
def test_backup_commands_copy_a_running_hub(reader: Reader) -> None:
    backup, restored = reader.blocks(BACK_UP)
    folder = reader.home / "fieldagent-hub"
    folder.mkdir()
    with reader.starts(f"fieldagent hub run --database {folder}/hub.sqlite3", "the hub answers"):
        reader.types(f"fieldagent hub init Alps --database {folder}/hub.sqlite3")
        reader.types(backup)
        assert "devices" in reader.types(restored)
    copy = f"--database {folder / 'copy.sqlite3'}"
    assert "Alps" in reader.types(f"fieldagent hub workspace list {copy}")


ELSEWHERE = {
    "build/deb": "tests/shipping/test_packages.py runs it",
    "scp dist/*.deb kit:": "it asks for a second machine",
    "sudo apt install ./fieldagent-common_*.deb ./fieldagent_*.deb": "tests/shipping/packages.sh",
    "sudo build/image amd64": "tests/run full",
    "sudo build/image arm64": "tests/shipping/test_pi_card.py",
    "sudo dd if=dist/fieldagent-amd64.img of=/dev/sdX bs=4M conv=fsync": "it asks for a card",
    "cp ~/.ssh/id_ed25519.pub /media/BOOTFS/authorized_keys": "tests/run full puts one there",
    "ssh root@kit": "it asks for a board",
    "scp minisign.pub root@kit:/etc/fieldagent/update.pub": "tests/run full puts one there",
}
"""Commands of the steps that the test does not run, each with the reason."""


def steps(page: str) -> list[list[str]]:
    """Return the commands and settings of each numbered step, one list per step."""
    paragraphs = re.findall(r"(?m)^[0-9]+\. (.*(?:\n   .*)*)", page)
    begins = r"`((?:fieldagent |sudo |scp |ssh |cp |build/|satellite-port=)[^`]+)`"
    return [re.findall(begins, re.sub(r"\s+", " ", step)) for step in paragraphs]


@contextmanager
def hub_for_ada(reader: Reader) -> Iterator[str]:
    """Run a hub with a user Ada and yield its address."""
    reader.types("fieldagent hub init Alps; fieldagent hub user add ada")
    with reader.starts("fieldagent hub run", "the hub answers at") as running:
        yield running.ready.split()[-1]


@pytest.mark.full
def test_field_kit_steps_lead_to_the_first_package(reader: Reader) -> None:
    """Run the ten steps of both ways. The test does by hand what the card's system does at its
    start.
    """
    all_steps = steps(FIELD_KIT)
    assert len(all_steps) > 20, "each way has ten steps"
    assert not any(all_steps[20:]), "what a Pi does at its start, nobody types"
    assert ELSEWHERE.keys() <= {command for step in all_steps for command in step}
    pi, image = (
        [command for step in way for command in step if command not in ELSEWHERE]
        for way in (all_steps[:10], all_steps[10:20])
    )
    assert [re.sub("sudo ", "", each).lower() for each in pi] == [each.lower() for each in image]
    add, setting, check, send = pi
    (card := reader.home / "card").mkdir()
    config = reader.home / "agent.properties"
    (simulator,) = reader.blocks(SATELLITE)
    with hub_for_ada(reader) as address, ExitStack() as terminals:
        terminals.enter_context(reader.starts(simulator.strip(), "satellite-port="))
        line = re.sub(r"/media/\w+", str(card), add).replace("https://hub.example.org", address)
        reader.types(line)
        port = setting.replace("/dev/fieldagent-satellite", f"{reader.home}/modem")
        with (card / "fieldagent.properties").open("a") as settings:
            settings.write(f"{port}\n")
        # fieldagent-provision.service does the same, and so does the package at its installation.
        reader.types(f"fieldagent provision --card {card} --config {config}")
        assert {file.name for file in card.iterdir()} == {"fieldagent-result.txt"}
        asked = check.removeprefix("sudo ").replace("/etc/fieldagent/agent.properties", str(config))
        assert "modem" in reader.types(asked)
        run = f"fieldagent run --config {config}"
        terminals.enter_context(reader.starts(run, "the local API answers at"))
        assert reader.types(send).startswith("Package 1: Delivered")
