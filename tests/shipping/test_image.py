"""The booted image of a kit's card: tests that need a real kernel, a real systemd and a real power
cut. Each test continues after the previous one, like the life of a kit.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.machine import unavailable
from tests.processes import Running
from tests.shipping.board import ANSWER, BOOT, ENTRY, Board
from tests.shipping.conftest import build
from tests.shipping.update_kit import rebuilt, version
from tests.signer import Signer

pytestmark = [pytest.mark.full, pytest.mark.machine]

TOKEN = "the-token-of-a-link-that-nobody-answers"
HOOK = "cat >>/var/lib/fieldagent/came; echo >>/var/lib/fieldagent/came"
SETTINGS = f"""\
satellite-port=/dev/fieldagent-satellite
hub-address=https://127.0.0.1:9
hub-token={TOKEN}
inbound-hook={HOOK}
"""
Changes = Mapping[str, tuple[str, str]]
DEAD: Changes = {
    "fieldagent/cli/kit/run.py": (
        "    start_logging(arguments.verbose)\n",
        "    raise SystemExit('no')\n",
    )
}
UPDATE = 1500.0
"""Maximum seconds of an update on an emulated processor."""
HUB = "python3 /tmp/hub.pyz hub"
"""The board's own hub beside the agent: a separate program, which no update replaces."""
STORE = "--database /tmp/hub.sqlite3 --json"
SOON = r"[Service]\nExecStart=\nExecStart=/usr/bin/fieldagent settings --go-on --within 2\n"
"""For wrong settings: the real unit waits 15 minutes."""
WATCHDOG = 600.0
AFTER_START = 180
"""Seconds after a boot until its writes have ended."""
SECTORS = "awk '$3 == \"vda\" { print $10 }' /proc/diskstats"
"""Written sectors of 512 bytes (the kernel's Documentation/admin-guide/iostats.rst)."""


@pytest.fixture(scope="module")
def board(image: Path, sim: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """Yield a board after its first boot with settings on its card."""
    made = Board(tmp_path_factory.mktemp("board"), image, Path(sim.ready.partition("=")[2]))
    try:
        made.write("::/fieldagent.properties", SETTINGS.encode())
        made.boot()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def python_of_the_card(python_313: str | None) -> str:
    return python_313 or unavailable("no Python 3.13 here to compile for the card's")


@pytest.fixture(scope="module")
def signer(board: Board, tmp_path_factory: pytest.TempPathFactory) -> Signer:
    """Return the signer that the kit trusts."""
    made = Signer(tmp_path_factory.mktemp("keys") / "of-the-team")
    (board.share / "update.pub").write_text(made.public)
    board.run("install -m 644 /mnt/update.pub /etc/fieldagent/update.pub")
    return made


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, python_of_the_card: str) -> Path:
    """Return the program on the card."""
    made = tmp_path_factory.mktemp("program") / "fieldagent.pyz"
    return build(made, "--for", python_of_the_card, stdout=subprocess.DEVNULL)


Signed = Callable[..., None]


@pytest.fixture(scope="module")
def signed(board: Board, signer: Signer, program: Path, python_of_the_card: str) -> Signed:
    """Return a function that puts the program at /mnt/VERSION.pyz, with that version and these
    changes.
    """

    def make(number: str, changes: Changes) -> None:
        new = board.share / f"{number}.pyz"
        rebuilt(program, new, {**version(number), **changes}, python_of_the_card)
        signer.release(new)

    return make


def until_ready(board: Board) -> None:
    board.until("fieldagent status | grep -q 'Satellite: ready'")


def until_sent(board: Board, seconds: float = ANSWER) -> None:
    """Wait until nothing is queued for satellite. Each of the other links has its own
    empty queue.
    """
    board.until("fieldagent status | grep -A 1 '^Satellite:' | grep -q ' 0 queued'", seconds)


def pid(board: Board) -> str:
    return board.run("systemctl show --value --property MainPID fieldagent")


def arrived(sim: Running, text: str) -> list[str]:
    """Return the arrivals at the operator's gateway, which recognises repetitions."""
    return [line for line in sim.output() if text in line and "message" in line]


def test_first_boot_applies_the_settings_from_the_card(board: Board) -> None:
    assert board.run("systemctl --failed --quiet") == ""
    assert board.run("systemctl is-active fieldagent") == "active"
    until_ready(board)
    result = board.read("::/fieldagent-result.txt")
    assert "hub-address, hub-token, inbound-hook, satellite-port" in result
    assert not [name for name in board.files() if "properties" in name or "taken" in name]
    assert TOKEN in board.run("cat /etc/fieldagent/agent.properties")
    owner = board.run("stat -c '%a %U:%G' /etc/fieldagent/agent.properties")
    assert owner == "640 root:fieldagent"
    board.run("sync")
    assert not board.shows(TOKEN.encode())


def test_agent_unit_runs_unprivileged_with_its_watchdog(board: Board) -> None:
    board.until("systemctl show fieldagent --property WatchdogTimestamp | grep -q 20")
    board.until("systemctl show fieldagent --property StatusText | grep -q 'Satellite ready'")
    assert board.run("systemctl show --value --property NRestarts fieldagent") == "0"
    rights = board.run(f"cat /proc/{pid(board)}/status")
    assert "CapEff:\t0000000000000000" in rights
    assert "NoNewPrivs:\t1" in rights
    assert board.run(f"stat -c %U /proc/{pid(board)}") == "fieldagent"


@pytest.mark.soak
def test_card_at_rest_writes_less_than_5_mb_a_day(board: Board) -> None:
    """The test counts the writes of all programs at the block device. Hourly writes occur once per
    hour.
    """
    until_ready(board)
    board.run(f"sleep {AFTER_START}", AFTER_START + ANSWER)
    before, after = (
        int(each) for each in board.run(f"{SECTORS}; sleep 3600; {SECTORS}", 3600 + ANSWER).split()
    )
    assert (after - before) * 512 * 24 <= 5_000_000


def test_network_time_reported_by_the_kernel_is_trusted(board: Board) -> None:
    """timesyncd and chrony report the time to the kernel. The agent may read this state, but not
    set it.
    """
    (board.share / "set_by_network.py").write_text(SET_BY_NETWORK)
    board.run("python3 /mnt/set_by_network.py")
    board.until('fieldagent status --json | grep -q \'"source": "network"\'')


SET_BY_NETWORK = """\
import ctypes, struct
told = bytearray(512)
# adjtimex(2): ADJ_STATUS, ADJ_MAXERROR and ADJ_ESTERROR; what the clock is, STA_PLL.
struct.pack_into("i", told, 0, 0x10 | 0x4 | 0x8)
struct.pack_into("qq", told, 24, 1000, 1000)
struct.pack_into("i", told, 40, 1)
assert ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(bytes(told), 512)) == 0
"""


def test_wrong_clock_is_set_from_the_satellite_network(board: Board) -> None:
    """This includes the system's clock, which TLS uses."""
    until_ready(board)
    board.run("date --set @1700000000")
    board.until("test $(date +%s) -gt 1767225600", WATCHDOG)
    journal = board.run("journalctl --unit fieldagent-clock --output cat")
    assert "(source: satellite)" in journal
    assert board.run("ls /var/lib/fieldagent/clock.offer || echo taken").endswith("taken")


def test_message_is_delivered_and_the_hook_receives_one(board: Board, sim: Running) -> None:
    assert "Delivered" in board.run("fieldagent send message 'the kit is up' --channel Satellite")
    assert len(arrived(sim, "the kit is up")) == 1
    sim.type("mt hello kit")
    board.until("grep -q 'hello kit' /var/lib/fieldagent/came")


def test_power_cut_in_a_session_delivers_each_message_once(board: Board, sim: Running) -> None:
    until_ready(board)
    sim.type("latency 60")
    sent = [f"before the cut {number}" for number in range(3)]
    for text in sent:
        board.run(f"fieldagent send message '{text}' --channel Satellite --no-wait")
    board.until("fieldagent status | grep -q 'Satellite: busy'")
    board.cut()
    sim.type("latency 3")
    board.boot()
    until_sent(board, BOOT)
    assert [len(arrived(sim, text)) for text in sent] == [1, 1, 1]
    # Changes of the system are lost, and the kit's data is there.
    assert "Delivered" in board.run("fieldagent sent")


def test_update_applies_a_working_program_and_rolls_back_a_dead_one(
    board: Board, sim: Running, signed: Signed
) -> None:
    until_ready(board)
    signed("9.0.0", {})
    signed("9.0.1", DEAD)
    output = board.run("fieldagent update /mnt/9.0.0.pyz --steady 5", UPDATE)
    assert "9.0.0 runs" in output
    assert "fieldagent 9.0.0" in board.run("fieldagent status")

    sim.type("service 0")
    board.run("fieldagent send message 'over two updates' --channel Satellite --no-wait")
    code, output = board.ask("fieldagent update /mnt/9.0.1.pyz --within 3 --steady 5", UPDATE)
    assert code == 1, output
    assert "9.0.1 did not work, and 9.0.0 runs again: no agent answers" in output
    board.until("fieldagent status | grep -q 'fieldagent 9.0.0'")
    sim.type("service 1")
    until_ready(board)
    until_sent(board)
    assert len(arrived(sim, "over two updates")) == 1


def test_program_signed_with_an_unknown_key_is_refused(
    board: Board, signer: Signer, program: Path, tmp_path: Path
) -> None:
    before = board.run("sha256sum </usr/lib/fieldagent/fieldagent.pyz")
    stranger = Signer(tmp_path / "of-a-stranger")
    new = board.share / "stranger.pyz"
    new.write_bytes(program.read_bytes())
    stranger.release(new)
    code, output = board.ask("fieldagent update /mnt/stranger.pyz")
    assert (code, "nothing was changed" in output) == (65, True), output
    assert board.run("sha256sum </usr/lib/fieldagent/fieldagent.pyz") == before


@pytest.fixture(scope="module")
def linked(board: Board, signer: Signer) -> Board:
    """Return the board, linked to a hub that sends settings signed by `signer`."""
    board.run("cp /usr/lib/fieldagent/fieldagent.pyz /tmp/hub.pyz")
    board.run(f"{HUB} init Alps {STORE}")
    board.run(f"{HUB} user add ada {STORE}")
    token = json.loads(board.run(f"{HUB} device add kit-ada --user ada {STORE}"))["hub-token"]
    settings = r"listen=127.0.0.1\nport=9100\ndatabase=/tmp/hub.sqlite3\n"
    board.run(f"printf '{settings}' >/tmp/hub.properties")
    board.run(f"systemd-run --quiet --unit hub {HUB} run --config /tmp/hub.properties")
    link = rf"hub-address=http://127.0.0.1:9100\nhub-token={token}\n"
    kit = "/etc/fieldagent/agent.properties"
    board.run(f"sed -i '/^hub-/d' {kit} && printf '{link}' >>{kit}")
    board.run("systemctl restart fieldagent")
    board.until("fieldagent status | grep -q 'Cellular: ready'")
    until_ready(board)
    return board


def send_settings(board: Board, signer: Signer, settings: str) -> int:
    """Return the number of the hub's offer, after the operator has signed these settings."""
    there = board.run(f"{HUB} device set kit-ada {settings} --file /tmp/change {STORE}")
    file = board.share / "change"
    file.write_text(board.run(f"cat {json.loads(there)['file']}") + "\n")
    signer.sign(file)
    answer: Any = json.loads(board.run(f"{HUB} device set kit-ada --file /mnt/change {STORE}"))
    return int(answer["number"])


def wait_for_offer_state(board: Board, state: str, seconds: float = UPDATE) -> None:
    """Wait until the hub shows this state of its offer."""
    board.until(f"{HUB} device list {STORE} | grep -q '{state}'", seconds)


def test_settings_from_the_hub_are_applied_by_their_unit(linked: Board, signer: Signer) -> None:
    number = send_settings(linked, signer, "sos-repeat=900")
    wait_for_offer_state(linked, f"{number} taken")
    assert "are in force" in linked.run("fieldagent settings")
    kept = linked.run("cat /etc/fieldagent/agent.properties")
    assert "sos-repeat=900" in kept
    owner = linked.run("stat -c '%a %U:%G' /etc/fieldagent/agent.properties")
    assert owner == "640 root:fieldagent"
    # The waiting offer started the unit once, not repeatedly.
    assert linked.run("systemctl is-active fieldagent-settings.path") == "active"
    assert linked.run("journalctl --boot --unit fieldagent-settings | grep -c Starting") == "1"


def test_settings_that_break_the_link_are_rolled_back(linked: Board, signer: Signer) -> None:
    before = linked.run("cat /etc/fieldagent/agent.properties")
    drop_in = "/run/systemd/system/fieldagent-settings.service.d"
    linked.run(f"mkdir -p {drop_in} && printf '{SOON}' >{drop_in}/soon.conf")
    linked.run("systemctl daemon-reload")
    number = send_settings(linked, signer, "cellular-interface=nosuch0 sos-repeat=")
    wait_for_offer_state(linked, f"{number} back: Cellular was ready, and is absent")
    assert linked.run("cat /etc/fieldagent/agent.properties") == before
    until_ready(linked)


def test_stopped_agent_is_restarted_by_the_watchdog(board: Board, sim: Running) -> None:
    until_ready(board)
    before = pid(board)
    board.run(f"kill -STOP {before}")
    board.until(
        f"[ $(systemctl show --value --property MainPID fieldagent) -gt {before} ]", WATCHDOG
    )
    assert "Watchdog timeout" in board.run("journalctl --boot --unit fieldagent")
    board.until("fieldagent status")
    until_ready(board)
    assert "Delivered" in board.run("fieldagent send message 'alive again' --channel Satellite")
    assert len(arrived(sim, "alive again")) == 1


def test_sos_is_sent_from_a_full_disk(board: Board, sim: Running) -> None:
    until_ready(board)
    before = pid(board)
    board.ask("dd if=/dev/zero of=/var/lib/kit/full bs=64k conv=fsync")
    assert board.run("df --output=avail /var/lib/kit | tail -1").strip() == "0"
    code, output = board.ask("fieldagent send message 'no room' --channel Satellite --no-wait")
    assert code != 0, output
    board.run("fieldagent sos --yes --no-wait 'from a full disk'")
    sim.expect("from a full disk")
    assert pid(board) == before
    board.run("rm /var/lib/kit/full; sync")
    board.until("fieldagent send message 'room again' --channel Satellite")
    assert len(arrived(sim, "room again")) == 1


def test_ssh_login_works_with_a_key_from_the_card(board: Board) -> None:
    board.run("ssh-keygen -q -t ed25519 -N '' -f /tmp/key")
    reach = "ssh -o BatchMode=yes -o StrictHostKeyChecking=no -i /tmp/key root@127.0.0.1"
    assert board.ask(f"{reach} true")[0] != 0
    board.run("cp /tmp/key.pub /boot/firmware/authorized_keys; systemctl restart ssh")
    assert "Satellite" in board.run(f"{reach} fieldagent status")


def test_faulty_settings_on_the_card_change_nothing(board: Board) -> None:
    """A person types them at a laptop and puts the card back."""
    board.shut_down()
    board.write("::/fieldagent.properties", b"satelite-port=/dev/ttyUSB0\n")
    board.boot()
    until_ready(board)
    report = board.read("::/fieldagent-result.txt")
    assert "'satelite-port' is not a setting; the nearest is satellite-port" in report
    assert "::/fieldagent.properties" in board.files()


def test_failed_boot_is_retried(board: Board) -> None:
    board.shut_down()
    entry = board.read(ENTRY)
    board.write(ENTRY, f"{entry.rstrip()} systemd.unit=emergency.target\n".encode())
    board.boot_in_vain()
    board.write(ENTRY, entry.encode())
    board.boot()
    until_ready(board)
