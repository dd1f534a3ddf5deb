"""The agent notices an outdated mirror of updates: real agents, and signatures of the real minisign
with earlier dates.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fieldagent.agent.update_news import APT, DAY_S, HUB, News, _read_list_dates
from tests.agent.test_wrong_clock import Gpsd
from tests.file_server import file_server
from tests.processes import MODULE, Agent, agent, until
from tests.signer import Signer

NOT = "no news of updates for"
PROGRAM = b"a program, which is not fetched for it"


@contextmanager
def kit(home: Path, address: str) -> Iterator[Agent]:
    """Yield a kit that knows the time, from a receiver if this machine's clock is not trusted."""
    with closing(Gpsd()) as gpsd:
        settings = {
            "satellite-port": str(home / "nobody"),
            "gpsd": gpsd.address,
            "update-address": address,
            "update-key": str(home / "update.pub"),
        }
        with agent(home, settings) as running:
            until(lambda: running.call("GET", "/api/status").body["clock"]["trusted"])
            yield running


def told(running: Agent) -> list[str]:
    notices = running.call("GET", "/api/status").body["notices"]
    return [each for each in notices if each.startswith(NOT)]


def status(running: Agent) -> str:
    """Return the status as people see it."""
    command = [*MODULE, "status", "--port", str(running.port)]
    return subprocess.run(command, capture_output=True, text=True).stdout


def text(days: float, kind: str = "program") -> str:
    """Return the comment of a signature that is that many days old."""
    day = (datetime.now(UTC) - timedelta(days)).date()
    return f"fieldagent {kind} 9.0.0, signed {day}, expires {day + timedelta(365)}"


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    made = Signer(tmp_path / "keys")
    (tmp_path / "update.pub").write_text(made.public)
    return made


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (folder := tmp_path / "served").mkdir()
    (made := folder / "fieldagent.pyz").write_bytes(PROGRAM)
    return made


def test_outdated_update_mirror_is_reported(tmp_path: Path, signer: Signer, program: Path) -> None:
    """The warning stays after a restart while the mirror is away, and ends when it has a
    new file.
    """
    signer.sign(program, "-t", text(days=61))
    with file_server(program.parent) as address:
        url = f"{address}/{program.name}"
        with kit(tmp_path, url) as running:
            until(lambda: told(running))
            (notice,) = told(running)
            assert f"{NOT} 61 days: {url} was last signed on" in notice
            assert notice in status(running)
    with kit(tmp_path, url) as running:
        assert told(running) == [notice]
    signer.sign(program, "-t", text(days=59))
    port = int(address.rpartition(":")[2])
    with file_server(program.parent, port), kit(tmp_path, url) as running:
        assert told(running) == [notice]
        until(lambda: not told(running))


@pytest.mark.full
@pytest.mark.parametrize("wrong", ["other key", "changed", "of settings", "missing"])
def test_untrusted_signature_is_not_counted_as_update_news(
    tmp_path: Path, signer: Signer, program: Path, wrong: str
) -> None:
    if wrong == "other key":
        signer = Signer(tmp_path / "stranger")
    signed = signer.sign(
        program, "-t", text(1, "settings" if wrong == "of settings" else "program")
    )
    signature = program.with_name(f"{program.name}.minisig")
    if wrong == "changed":
        signature.write_text(signed.replace("9.0.0", "9.0.1"))
    if wrong == "missing":
        signature.unlink()
    news = tmp_path / "state/update-news.json"
    with file_server(program.parent) as address:
        url = f"{address}/{program.name}"
        with kit(tmp_path, url):
            until(news.exists)
        kept = json.loads(news.read_text())
        news.write_text(json.dumps({**kept, "since": time.time() - 61 * DAY_S}))
        with kit(tmp_path, url) as running:
            assert f"{NOT} 61 days: {url} has provided none" in told(running)[0]


def test_update_date_of_packages_is_read_from_apt_lists(tmp_path: Path) -> None:
    """The lists are as `build/repository` writes them and apt keeps them."""
    other = "Origin: Debian\nDate: Mon, 23 Nov 2026 14:00:00 UTC\n"
    (tmp_path / "mirror.example.org_dists_trixie_InRelease").write_text(other)
    assert [*_read_list_dates(tmp_path)] == []
    head = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\nOrigin: fieldagent\n"
    signed = f"{head}Label: fieldagent\nDate: Fri, 02 Jan 2026 03:04:05 UTC\n"
    (tmp_path / "example.org_apt_._InRelease").write_text(signed)
    (tmp_path / "example.org_broken_._InRelease").write_text(head)
    (date,) = _read_list_dates(tmp_path)
    assert date == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()
    silent = News(APT, date, date).describe_silence(date + 61 * DAY_S)
    assert silent.startswith(f"{NOT} 61 days: `sudo apt update` fetches apt's lists")


@pytest.mark.parametrize(
    ("news", "days", "says"),
    [
        (News(HUB, 0.0), 59, ""),
        (
            News(HUB, 0.0),
            61,
            "the hub has never offered a program: use `fieldagent hub update offer`",
        ),
        (News("x", 9 * DAY_S, 1 * DAY_S, offered=9 * DAY_S), 68, ""),
        (
            News("x", 9 * DAY_S, 1 * DAY_S, offered=9 * DAY_S),
            70,
            "x was offered by the hub on 1970-01-10",
        ),
        (
            News("x", 9 * DAY_S, 20 * DAY_S, offered=9 * DAY_S),
            81,
            "x was last signed on 1970-01-21",
        ),
    ],
)
def test_missing_update_news_is_reported_after_sixty_days(news: News, days: int, says: str) -> None:
    silent = news.describe_silence(days * DAY_S)
    assert says in silent and bool(says) == bool(silent)
