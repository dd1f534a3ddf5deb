"""Real agents on machines whose clock is wrong and then set: nothing expires early, no key is
forgotten, and ended things stay ended.

libfaketime sets the clock of one process. The time since the boot stays the machine's own.
"""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
import time
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fieldagent.agent.journal import elapsed_base as place
from tests.hub.test_journey import receiver
from tests.machine import needs
from tests.processes import MODULE, PATIENCE, Agent, administer, agent, hub, sky, until

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
pytestmark = needs(FAKETIME, "apt-get install faketime")

DAY = 86_400
IN_1970 = "@1970-01-02 03:04:05"
CLOCKS = ["-3d", "-1y", "+10y", IN_1970]
"""Clock errors in libfaketime's form."""


def environment(home: Path, shows: str) -> dict[str, str]:
    """Return the environment. The process reads its clock's error from a file, which may change
    while it runs.
    """
    set_clock(home, shows)
    return {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(home / "faketime"),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def set_clock(home: Path, shows: str) -> None:
    new = home / "faketime.new"
    new.write_text(shows + "\n")
    new.rename(home / "faketime")


def agent_with_clock(home: Path, shows: str) -> AbstractContextManager[Agent]:
    """Run an agent whose modem is away."""
    away = {"satellite-port": str(home / "nobody")}
    return agent(home, away, MODULE, **environment(home, shows))


def post_async(kit: Agent, content: str, **members: Any) -> dict[str, Any]:
    headers = {"Idempotency-Key": members.pop("key")} if "key" in members else {}
    body = {"message": {"content": content}, **members}
    answer = kit.call("POST", "/api/package/async", body, **headers)
    assert answer.status == 202, answer
    package: dict[str, Any] = answer.body
    return package


def read_package(kit: Agent, id_: int) -> dict[str, Any]:
    package: dict[str, Any] = kit.call("GET", f"/api/package/{id_}").body
    return package


def shown_now(kit: Agent) -> float:
    return float(kit.call("GET", "/api/status").body["clock"]["time"])


SETTINGS = [
    *((wrong, "+0") for wrong in CLOCKS),
    ("+0", "+10y"),
    ("+0", IN_1970),
    *(
        pytest.param(then, now, marks=pytest.mark.full)
        for then in ["+0", *CLOCKS]
        for now in CLOCKS
        if then != now and (then, now) not in [("+0", "+10y"), ("+0", IN_1970)]
    ),
]
"""The clock at first and after a restart."""


@pytest.mark.full
@pytest.mark.parametrize(("then", "now"), SETTINGS)
def test_waiting_packages_survive_clock_change_at_restart(
    tmp_path: Path, then: str, now: str
) -> None:
    with agent_with_clock(tmp_path, then) as kit:
        waits = post_async(kit, "waits", timeToLive=DAY, key="the same")
        ended = post_async(kit, "ends", key="another")
        kit.call("POST", f"/api/package/{ended['id']}/cancel")
        post_async(kit, "help", priority=100)
        assert abs(waits["accepted"] - shown_now(kit)) < 100
        kit.stop()
    with agent_with_clock(tmp_path, now) as kit:
        assert kit.call("GET", "/api/queue").body["queued"] == 2
        package = read_package(kit, waits["id"])
        assert package["status"] is None
        assert abs(package["accepted"] - shown_now(kit)) < 100, "dated by the current clock"
        assert read_package(kit, ended["id"])["status"] == "Canceled", "the result is kept"
        for row in kit.call("GET", "/api/packages").body["packages"]:
            moments = [row["accepted"]] + [row["ended"]] * (row["ended"] is not None)
            assert all(abs(each - shown_now(kit)) < 100 for each in moments), row
        sos = kit.call("GET", "/api/status").body["sos"]["incident"]
        assert abs(sos["raised"] - shown_now(kit)) < 100
        assert post_async(kit, "waits", timeToLive=DAY, key="the same")["id"] == waits["id"]
        assert post_async(kit, "ends", key="another")["id"] == ended["id"]


@pytest.mark.full
@pytest.mark.parametrize("jump", CLOCKS)
def test_waiting_packages_survive_clock_change_of_running_agent(tmp_path: Path, jump: str) -> None:
    with agent_with_clock(tmp_path, "+0") as kit:
        waits = post_async(kit, "waits", timeToLive=DAY)
        set_clock(tmp_path, jump)
        until(lambda: abs(shown_now(kit) - time.time()) > DAY)
        after = post_async(kit, "posted then", timeToLive=DAY)
        assert abs(after["accepted"] - shown_now(kit)) < 100
        set_clock(tmp_path, "+0")
        until(lambda: abs(shown_now(kit) - time.time()) < 100)
        kit.stop()
    with agent_with_clock(tmp_path, "+0") as kit:
        assert [read_package(kit, each["id"])["status"] for each in (waits, after)] == [None, None]


@pytest.mark.parametrize(
    "shows", ["+10y", *(pytest.param(each, marks=pytest.mark.full) for each in ("-3d", IN_1970))]
)
def test_package_expires_by_elapsed_time_only(tmp_path: Path, shows: str) -> None:
    with agent_with_clock(tmp_path, "+0") as kit:
        short, long = (
            post_async(kit, "short", timeToLive=60),
            post_async(kit, "long", timeToLive=3600),
        )
        kit.stop()
    elapsed(tmp_path, 600)
    with agent_with_clock(tmp_path, shows) as kit:
        until(lambda: read_package(kit, short["id"])["status"] == "Error")
        assert read_package(kit, short["id"])["channels"]["Satellite"]["reason"] == "expired"
        assert read_package(kit, long["id"])["status"] is None


def elapsed(home: Path, seconds: int) -> None:
    """Change the journal as if the machine had run longer since the agent stopped."""
    with closing(sqlite3.connect(home / "state" / "journal.sqlite3")) as journal:
        base = place.read_known(journal)
        assert base is not None
        place.store_base(journal, base._replace(since_boot=base.since_boot - seconds))
        journal.commit()


@pytest.mark.full
@pytest.mark.parametrize("shows", ["-3d", "+10y", IN_1970])
def test_waiting_package_survives_boot_with_wrong_clock(tmp_path: Path, shows: str) -> None:
    with agent_with_clock(tmp_path, "+0") as kit:
        waits = post_async(kit, "waits", timeToLive=10 * 365 * DAY // 2)
        kit.stop()
    with closing(sqlite3.connect(tmp_path / "state" / "journal.sqlite3")) as journal:
        base = place.read_known(journal)
        assert base is not None
        place.store_base(journal, base._replace(boot="another"))
        journal.commit()
    with agent_with_clock(tmp_path, shows) as kit:
        assert read_package(kit, waits["id"])["status"] is None
        assert kit.call("GET", "/api/queue").body["queued"] == 1


HERE = {"latitude": 46.5, "longitude": 8.0}


def is_now(written: str) -> bool:
    """Return True if the date of a JSON document is now."""
    return abs(datetime.fromisoformat(written).timestamp() - time.time()) < 2 * PATIENCE


@pytest.mark.parametrize(
    "how",
    [
        "by modem",
        *(pytest.param(each, marks=pytest.mark.full) for each in ("set", "set at restart")),
    ],
)
def test_date_of_1970_is_corrected_before_transmission(tmp_path: Path, how: str) -> None:
    """The agent dates a position without a time and sends it over satellite. A position with a time
    keeps it.
    """
    modem = {"satellite-port": str(tmp_path / "modem")}
    with ExitStack() as stack:
        fake = environment(tmp_path, IN_1970)
        kit = stack.enter_context(agent(tmp_path, modem, MODULE, **fake))
        clock = kit.call("GET", "/api/status").body["clock"]
        assert (clock["trusted"], clock["source"]) == (False, None)
        own = {**HERE, "timestamp": "2026-01-02T03:04:05Z"}
        for location in (HERE, own):
            kit.call("POST", "/api/package/async", {"location": location})
        if how == "set":
            set_clock(tmp_path, "+0")
        elif how == "set at restart":
            kit.kill()
            fake = environment(tmp_path, "+0")
            kit = stack.enter_context(agent(tmp_path, modem, MODULE, **fake))
        above = stack.enter_context(sky(tmp_path))
        locations = [
            json.loads(above.expect(" location {").partition("location ")[2]) for _ in "12"
        ]
        assert is_now(locations[0]["timestamp"])
        assert locations[1]["timestamp"] == own["timestamp"]
        until(lambda: kit.call("GET", "/api/queue").body["queued"] == 0)
        if how == "by modem":
            clock = kit.call("GET", "/api/status").body["clock"]
            assert (clock["trusted"], clock["source"]) == (True, "satellite")
            assert abs(clock["time"] - time.time()) < 100, "the clock of the agent is wrong"


class Gpsd:
    """A gpsd whose receiver has no fix at first, between lines without meaning for us. `ahead`
    moves its time.
    """

    def __init__(self, ahead: timedelta = timedelta(0)) -> None:
        self._ahead = ahead
        self.told: list[float] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                with caller, suppress(OSError):
                    self._tell(caller)

    def _tell(self, caller: socket.socket) -> None:
        assert caller.recv(100).startswith(b"?WATCH=")
        caller.sendall(b'{"class":"VERSION"}\n$GPGGA,\n{"class":"TPV","mode":1}\n{"class":"TP')
        now = datetime.now(UTC) + self._ahead
        self.told.append(now.timestamp())
        caller.sendall(f'V","mode":2,"time":"{now.isoformat()}","lat":46.5,"lon":8}}\n'.encode())
        caller.recv(1)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE)


@pytest.mark.full
def test_date_is_corrected_by_gpsd(tmp_path: Path) -> None:
    """gpsd has priority over the modem. The agent does not ask gpsd if the system's clock is
    trusted.
    """
    with closing(Gpsd()) as gpsd, sky(tmp_path) as above:
        settings = {"gpsd": gpsd.address, "satellite-port": str(tmp_path / "modem")}
        with agent(tmp_path, settings, MODULE, **environment(tmp_path, IN_1970)) as kit:
            until(lambda: kit.call("GET", "/api/status").body["clock"]["source"] == "GPS")
            clock = kit.call("GET", "/api/status").body["clock"]
            assert clock["trusted"]
            assert abs(clock["time"] - time.time()) < 100
            assert (
                kit.call("POST", "/api/package", {"location": HERE}).body["status"] == "Delivered"
            )
            line = above.expect(" location {")
            assert is_now(json.loads(line.partition("location ")[2])["timestamp"])
            assert kit.call("GET", "/api/status").body["clock"]["source"] == "GPS"
            assert kit.stop() == 0
        assert len(gpsd.told) == 1


@pytest.mark.full
def test_date_is_corrected_by_hub(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    member = administer(database, "user", "add", "kit")["id"]
    device = administer(database, "device", "add", "kit", "--user", str(member))
    settings = {"database": database, "webhook-allow": "127.0.0.0/8"}
    with receiver() as there, hub(tmp_path, settings) as running:
        administer(database, "webhook", "add", there.url, "--untried")
        linked = {
            "satellite-port": None,
            "hub-address": running.address,
            "hub-token": device["hub-token"],
        }
        with agent(tmp_path, linked, MODULE, **environment(tmp_path, IN_1970)) as kit:
            until(lambda: kit.call("GET", "/api/status").body["clock"]["source"] == "hub")
            assert kit.call("POST", "/api/package", {"location": HERE}).status == 200
            until(lambda: there.got)
            (payload,) = there.got[0]["payloads"]
            assert is_now(payload["events"][0]["timestamp"])


def test_satellite_time_is_offered_to_system_clock(tmp_path: Path) -> None:
    """One offer is stored until it is used. If the clock is correct, no offer is stored."""
    left = tmp_path / "state" / "clock.offer"
    fed = {"WATCHDOG_USEC": "300000", "NOTIFY_SOCKET": str(tmp_path / "nobody")}
    modem = {"satellite-port": str(tmp_path / "modem")}
    with sky(tmp_path), agent(tmp_path, modem, MODULE, **environment(tmp_path, IN_1970), **fed):
        until(left.exists)
        offer = json.loads(left.read_text())
        assert offer["source"] == "satellite"
        since = time.clock_gettime(time.CLOCK_BOOTTIME) - offer["sinceBoot"]
        assert abs(offer["unix"] + since - time.time()) < 100
        set_clock(tmp_path, "+0")
        left.unlink()
