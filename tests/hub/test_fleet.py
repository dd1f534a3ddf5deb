"""`fieldagent simulate fleet` with a real hub: its report agrees with the hub's data."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fieldagent.extensions.lab.simulator.fleet_tokens import HEADING
from fieldagent.hub.store.opening import open_store
from tests.own_network import own_network
from tests.processes import MODULE, PATIENCE, Hub, Running, administer, hub, until

KITS = 50
FLEET = [*MODULE, "simulate", "fleet"]


class Made:
    """A hub's database with test kits."""

    def __init__(self, database: str, folder: Path, kits: int = KITS) -> None:
        self.database = database
        self.folder = folder
        self.tokens = folder / "tokens"
        administer(database, "init", "Alps")
        self.told = self.make("Load test", self.tokens, kits)

    def make(self, workspace: str, tokens: Path, kits: int) -> Any:
        arguments = ["--workspace", workspace, "--tokens", str(tokens)]
        return administer(self.database, "device", "make", str(kits), *arguments)

    def hub(self, port: int = 0) -> Any:
        settings = {"database": self.database, "access-log": "none", "port": str(port)}
        return hub(self.folder, settings)

    def items(self) -> int:
        store = open_store(self.database)
        ((count,),) = store.run_once(lambda db: db.execute("SELECT count(*) FROM item"))
        store.close()
        return int(count)

    def command(self, running: Hub, *arguments: str) -> list[str]:
        where = ["--hub", running.address, "--tokens", str(self.tokens), "--every", "1"]
        return [*FLEET, *where, "--json", *arguments]


def interrupt_and_report(running: Running) -> Any:
    """Return the report after Ctrl-C."""
    running.process.send_signal(signal.SIGINT)
    return read_report(running)


def read_report(running: Running) -> Any:
    code = running.wait()
    report = json.loads(next(line for line in running.lines if line.startswith("{")))
    links, items = report["links"], report["items"]
    whole = links["open"] == report["kits"] and items["unconfirmed"] == items["notSent"] == 0
    assert code == (0 if whole else 1)
    return report


@pytest.mark.full
def test_confirmed_items_of_the_simulated_fleet_are_at_the_hub(
    database: str, tmp_path: Path
) -> None:
    made = Made(database, tmp_path)
    with made.hub() as running, Running(made.command(running)) as kits:
        kits.expect(f"{KITS} of {KITS} links open")
        until(lambda: made.items() >= KITS)
        report = interrupt_and_report(kits)
    links, items = report["links"], report["items"]
    assert (links["open"], links["opened"], links["refused"], links["lost"]) == (KITS, KITS, {}, {})
    assert items["confirmed"] == items["sent"] == made.items() >= KITS
    after = report["confirmedAfter"]
    assert 0 < after["median"] <= after["p95"] <= after["worst"]
    assert report["tool"]["memoryPerKitBytes"] < 128 * 1024


@pytest.mark.full
def test_killed_hub_loses_links_but_no_confirmed_item(database: str, tmp_path: Path) -> None:
    made = Made(database, tmp_path)
    with ExitStack() as stack:
        with made.hub() as first:
            kits = stack.enter_context(Running(made.command(first)))
            kits.expect(f"{KITS} of {KITS} links open")
            until(lambda: made.items() >= KITS)
            first.process.kill()
            first.process.wait()
        stack.enter_context(made.hub(first.port))
        kits.expect(f" {KITS} links lost")
        kits.expect(f"{KITS} of {KITS} links open")
        report = interrupt_and_report(kits)
    assert sum(report["links"]["lost"].values()) == KITS
    assert report["links"]["opened"] == 2 * KITS
    items = report["items"]
    assert items["confirmed"] == items["sent"] == made.items()
    assert items["unconfirmed"] == items["notSent"] == 0


def test_unknown_tokens_are_reported_once_with_their_number(tmp_path: Path) -> None:
    made = Made(str(tmp_path / "hub.sqlite3"), tmp_path, kits=10)
    for name in ("test kit 3", "test kit 7"):
        administer(made.database, "device", "delete", name, "--yes", "--workspace", "Load test")
    arguments = ["--minutes", "0.05", "--connect-rate", "1000"]
    with made.hub() as running, Running(made.command(running, *arguments)) as kits:
        report = read_report(kits)
    assert report["links"]["refused"] == {"the hub refuses the token: correct hub-token": 2}
    assert (report["links"]["givenUp"], report["links"]["open"]) == (2, 8)
    assert report["advice"] == [
        "2 kits gave up, for the reasons above: their tokens are not of this hub any more, or"
        " somebody else uses them."
    ]
    assert "Traceback" not in "\n".join(kits.lines)


def test_simulation_does_not_start_at_another_hub(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    mine = Made(str(home / "hub.sqlite3"), home, kits=5)
    theirs = Made(str(elsewhere / "hub.sqlite3"), elsewhere, kits=1)
    with theirs.hub() as running, Running(mine.command(running)) as kits:
        assert kits.wait() == 65
        assert [line for line in kits.lines if line] == [
            f"fieldagent: no kit was emulated: the hub at {running.address} refuses 3 tokens of the"
            " file: it is another hub, or these test kits were deleted there. Make some at your hub"
            " by `fieldagent hub device make`"
        ]
    with Running(mine.command(running)) as kits:
        assert kits.wait() == 69
    assert "no kit was emulated: 127.0.0.1: connection refused" in kits.lines[0]


@pytest.mark.full
def test_pushes_to_test_kits_are_counted_and_one_command_deletes_all(tmp_path: Path) -> None:
    made = Made(str(tmp_path / "hub.sqlite3"), tmp_path, kits=5)
    inside = ("--workspace", "Load test")
    ada = administer(made.database, "user", "add", "ada", *inside)["id"]
    key = administer(made.database, "key", "add", "push", *inside)["apiKey"]
    token = administer(made.database, "user", "token", "add", "push", "--user", str(ada), *inside)[
        "token"
    ]
    (owner,) = [
        user["id"]
        for user in administer(made.database, "user", "list", *inside)
        if user["name"] == "test kits"
    ]
    with made.hub() as running, Running(made.command(running, "--every", "1000")) as kits:
        kits.expect("5 of 5 links open")
        whom = ["--workspace", "2", "--source", str(ada), "--target", str(owner)]
        subprocess.run(
            [*MODULE, "push", "message", "hello", "--hub", running.address, *whom],
            env={**os.environ, "FIELDAGENT_API_KEY": key, "FIELDAGENT_TOKEN": token},
            check=True,
            timeout=PATIENCE,
        )
        store = open_store(made.database)
        until(
            lambda: store.run_once(
                lambda db: db.execute("SELECT 1 FROM delivery WHERE state = 'waiting'") == []
            )
        )
        store.close()
        report = interrupt_and_report(kits)
    assert report["cameDown"]["kinds"]["Message"] == 5
    assert report["cameDown"]["messages"] >= 5
    administer(made.database, "workspace", "delete", "Load test", "--yes")
    assert made.items() == 0
    assert [each["name"] for each in administer(made.database, "workspace", "list")] == ["Alps"]


def test_test_kits_have_their_own_workspace_and_private_tokens(tmp_path: Path) -> None:
    made = Made(str(tmp_path / "hub.sqlite3"), tmp_path, kits=3)
    assert stat.S_IMODE(made.tokens.stat().st_mode) == 0o600
    with pytest.raises(AssertionError, match="already exists: name another, or move it away"):
        made.make("Second", made.tokens, 3)
    with pytest.raises(AssertionError, match="'Alps' already exists: name a new one"):
        made.make("Alps", tmp_path / "others", 3)
    with pytest.raises(AssertionError, match="cannot be written"):
        made.make("Third", tmp_path / "no" / "tokens", 3)
    workspaces = administer(made.database, "workspace", "list")
    assert [(each["name"], each["devices"]) for each in workspaces] == [
        ("Alps", 0),
        ("Load test", 3),
    ]


@pytest.mark.full
@pytest.mark.parametrize(
    ("more", "open_", "advice"),
    [
        ([], 6, ["Ports ran out: one address of this machine has 6 to one hub"]),
        (["--source", "127.0.0.2", "--source", "127.0.0.3"], 12, []),
    ],
    ids=["one address", "two"],
)
def test_exhausted_ports_are_reported_and_more_addresses_help(
    tmp_path: Path, more: list[str], open_: int, advice: list[str]
) -> None:
    made = Made(str(tmp_path / "hub.sqlite3"), tmp_path, kits=12)
    settings = {"database": made.database, "port": "9443"}
    with own_network() as inside:
        few = "echo 40000 40005 >/proc/sys/net/ipv4/ip_local_port_range"
        subprocess.run([*inside, "sh", "-c", few], check=True, timeout=PATIENCE)
        with (
            hub(tmp_path, settings, [*inside, *MODULE]) as running,
            Running([*inside, *made.command(running, "--minutes", "0.05", *more)]) as kits,
        ):
            if open_ < 12:
                # The simulation waits for the kits without a link.
                kits.expect(f"{open_} of 12 links open")
                report = interrupt_and_report(kits)
            else:
                report = read_report(kits)
    assert report["links"]["open"] == open_
    assert [
        text[: len(part)] for text, part in zip(report["advice"], advice, strict=True)
    ] == advice


def limit_open_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))


@pytest.mark.full
@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("link_abc\n", [], "the file is not from `fieldagent hub device make`"),
        (f"{HEADING}\n", [], "the file has no token"),
        (f"{HEADING}\nlink_a\nlink b\n", [], "token 2 of 2 is damaged"),
        (f"{HEADING}\nlink_a\n", ["--kits", "2"], "has 1 token: from 1 on there are not 2"),
        (f"{HEADING}\nlink_a\n", ["--first", "2"], "has 1 token: from 2 on there are not 1"),
        (f"{HEADING}\nlink_a\n", ["--hub", "http://hub.example"], "--hub must be https://"),
        (f"{HEADING}\nlink_a\n", ["--every", "0.5"], "'0.5' is too short: use 1 second or more"),
        (f"{HEADING}\nlink_a\n", ["--source", "192.0.2.1"], "--source 192.0.2.1 is not an address"),
        (HEADING + "\nlink_a" * 50, [], "50 links take 114 open files, and this process may have"),
    ],
)
def test_invalid_simulation_arguments_are_rejected_before_any_call(
    tmp_path: Path, text: str, arguments: list[str], message: str
) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    where = ["--hub", "http://127.0.0.1:9", "--tokens", str(file)]
    done = subprocess.run(
        [*FLEET, *where, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        preexec_fn=limit_open_files,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
