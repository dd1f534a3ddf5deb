"""Each MO status of the manual with a real agent on a real clock: the agent keeps running, and the
Package ends correctly.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fieldagent.wire.sbd import MO_STATUS, SessionVerdict
from tests.processes import MODULE, PATIENCE, Agent, Running, agent, sky, until

SENT = [n for n, status in MO_STATUS.items() if status.verdict is SessionVerdict.SENT]
DOUBTFUL = [n for n, status in MO_STATUS.items() if status.verdict is SessionVerdict.DOUBTFUL]
REFUSED = [n for n, status in MO_STATUS.items() if status.verdict is SessionVerdict.REFUSED]
LONG_WAIT = [
    n
    for n, status in MO_STATUS.items()
    if status.wait_s is not None or status.verdict is SessionVerdict.FAULT
]
RETRIED = [
    n for n, s in MO_STATUS.items() if s.verdict is SessionVerdict.NOT_SENT and s.wait_s is None
]
RESERVED = [n for n in range(66) if n not in MO_STATUS]


class Field:
    """A kit under a sky, as two processes. If the last kit did not survive, a new one starts."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._runs = 0
        self._open = ExitStack()
        self.sky: Running
        self.kit: Agent

    def ready(self) -> Field:
        if not self._runs or self.kit.process.poll() is not None:
            self.close()
            self._runs += 1
            home = self._home / str(self._runs)
            home.mkdir()
            self.sky = self._open.enter_context(sky(home, latency=0))
            self.kit = self._open.enter_context(agent(home))
        return self

    def close(self) -> None:
        self._open.close()

    def next_session_ends(self, status: str) -> None:
        self.sky.type(f"status {status}")
        self.sky.expect("the next session ends")

    def satellite(self) -> Any:
        return self.kit.call("GET", "/api/status").body["channels"]["Satellite"]

    def story(self, id_: int) -> list[tuple[str, str]]:
        lines = self.kit.call("GET", f"/api/package/{id_}").body["history"]
        return [(line["event"], line["detail"]) for line in lines]

    def arrivals(self, content: str) -> int:
        """Return the number of arrivals at the gateway, after the next Package has arrived too."""
        assert self.kit.post(f"after {content}").body["status"] == "Delivered"
        self.sky.expect(f'"after {content}"')
        return len([line for line in self.sky.lines if f'"{content}"' in line])


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    site = Field(tmp_path_factory.mktemp("field"))
    yield site
    site.close()


def test_mo_status_table_contains_all_numbers_of_manual() -> None:
    """ISU AT Command Reference, +SBDIX: 0 to 4, 10 to 19, 32 to 38, 64, 65. Others are reserved."""
    assert set(MO_STATUS) == {*range(5), *range(10, 20), *range(32, 39), 64, 65}
    groups = [SENT, DOUBTFUL, REFUSED, LONG_WAIT, RETRIED, RESERVED]
    assert sorted(number for group in groups for number in group) == list(range(66))


@pytest.mark.parametrize("number", SENT)
def test_package_arrives_once_after_sent_status(field: Field, number: int) -> None:
    content = f"sent {number}"
    field.ready().next_session_ends(str(number))
    assert field.kit.post(content).body["status"] == "Delivered"
    assert field.arrivals(content) == 1


@pytest.mark.full
@pytest.mark.parametrize("delivered", ["", " delivered"])
@pytest.mark.parametrize("number", [*DOUBTFUL, *RETRIED, *RESERVED])
def test_package_arrives_once_after_uncertain_status(
    field: Field, number: int, delivered: str
) -> None:
    content = f"again {number}{delivered}"
    field.ready().next_session_ends(f"{number}{delivered}")
    assert field.kit.post(content).body["status"] == "Delivered"
    assert field.arrivals(content) == 1


@pytest.mark.parametrize("number", DOUBTFUL)
def test_history_contains_reason_of_doubtful_status(field: Field, number: int) -> None:
    field.ready().next_session_ends(str(number))
    answer = field.kit.post(f"in doubt {number}").body
    doubt, sent = [line for line in field.story(answer["id"]) if line[0] != "accepted"][:2]
    assert doubt == ("may have left", MO_STATUS[number].description)
    assert sent[0] == "sent"


@pytest.mark.parametrize("number", REFUSED)
def test_package_ends_with_error_after_refused_status(field: Field, number: int) -> None:
    content = f"refused {number}"
    field.ready().next_session_ends(str(number))
    answer = field.kit.post(content).body
    assert answer["status"] == "Error"
    assert answer["channels"]["Satellite"]["reason"] == MO_STATUS[number].description
    assert field.arrivals(content) == 0


@pytest.mark.parametrize("number", LONG_WAIT)
def test_package_waits_after_long_wait_status_and_is_canceled(tmp_path: Path, number: int) -> None:
    """The wait is longer than a test. The test checks the state meanwhile, and a cancel ends the
    wait.
    """
    field = Field(tmp_path)
    try:
        field.ready().next_session_ends(str(number))
        id_ = field.kit.call("POST", "/api/package/async", {"message": {"content": "x"}}).body["id"]
        until = time.monotonic() + PATIENCE
        while not any(event == "not sent" for event, _ in field.story(id_)):
            assert time.monotonic() < until, field.kit.output()
        assert ("not sent", MO_STATUS[number].description) in field.story(id_)
        assert field.kit.call("GET", f"/api/package/{id_}").body["status"] is None
        if MO_STATUS[number].verdict is SessionVerdict.FAULT:
            link = field.satellite()
            assert (link["state"], link["reason"]) == ("fault", MO_STATUS[number].description)
        assert field.kit.call("GET", "/api/health").status == 200
        canceled = field.kit.call("POST", f"/api/package/{id_}/cancel")
        assert canceled.body["status"] == "Canceled"
        assert field.kit.stop() == 0
    finally:
        field.close()


@pytest.mark.full
def test_satellite_retry_command_ends_pause(field: Field) -> None:
    """After status 16 the modem pauses for ten minutes."""
    field.ready().next_session_ends("16")
    kit = field.kit
    id_ = kit.call("POST", "/api/package/async", {"message": {"content": "sky"}}).body["id"]
    until(lambda: any(event == "not sent" for event, _ in field.story(id_)))
    done = subprocess.run(
        [*MODULE, "satellite", "retry", "--port", str(kit.port)], capture_output=True, text=True
    )
    assert done.stdout == "the satellite modem tries now: 1 Package to send\n", done
    until(lambda: kit.call("GET", f"/api/package/{id_}").body["status"] == "Delivered")
