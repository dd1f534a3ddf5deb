"""Each disk call of the agent fails in turn, once or permanently. Real processes.

Acknowledged Packages survive and arrive under one number, and no file is set aside. People get the
reason as text. If the agent ends, the exit code shows a disk fault.
"""

from __future__ import annotations

import errno
import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from tests import disk
from tests.breaking import Put, environment
from tests.disk import Fault
from tests.processes import MODULE, Agent, Answer, NeverReady, Running, agent, ended, sky, until

QUICK = [
    Put("fieldagent.agent.journal.journal:FULL_PAUSE_S", 0.2),
    Put("fieldagent.system.supervisor:PAUSES", [0.05]),
]
ORDINARY = {"message": {"content": "ordinary"}}
TEXTS = [*(f"text {number}" for number in range(4)), "SOS here", "last"]


def hooked(home: Path) -> dict[str, str]:
    return {"inbound-hook": f"cat >>{home}/came && echo handed"}


def post(kit: Agent, text: str) -> Answer | None:
    """Return the answer, or None if there is none. Because of the key, a second post is safe."""
    body = {"message": {"content": text}, "priority": 100 if text == "SOS here" else 12}
    try:
        return kit.call("POST", "/api/package/async", body, **{"Idempotency-Key": text})
    except (OSError, HTTPException):
        return None


def use(kit: Agent) -> dict[str, int]:
    """Return the ids of acknowledged Packages, when all is done or has become impossible."""
    accepted = {}
    for text in TEXTS:
        answer = post(kit, text)
        if answer is not None and answer.status == 202:
            if "notOnDisk" not in answer.body:
                accepted[text] = answer.body["id"]
            else:
                assert text == "SOS here", "only an SOS is accepted in memory"
        elif answer is not None:
            assert answer.status in (503, 507), answer
            assert "disk" in answer.body["detail"], answer
    until(lambda: kit.process.poll() is not None or done(kit, accepted))
    return accepted


def is_delivered(kit: Agent, number: int) -> bool:
    return bool(kit.call("GET", f"/api/package/{number}").body["status"] == "Delivered")


def came(kit: Agent) -> bool:
    """Return True if its hook has got a payload."""
    return (kit.home / "came").exists()


def done(kit: Agent, accepted: dict[str, int]) -> bool:
    with suppress(OSError, HTTPException):
        if kit.call("GET", "/api/status").body["journal"]["full"]:
            return True
        packages = [kit.call("GET", f"/api/package/{id_}").body for id_ in accepted.values()]
        # Only the hook knows a payload that was delivered from memory.
        handed = kit.call("GET", "/api/inbound?state=handed").body["payloads"] or came(kit)
        return bool(handed) and all(each["status"] for each in packages)
    return False


def run_with(home: Path, above: Running, **env: str) -> tuple[dict[str, int], str, int]:
    """Return the acknowledged Packages of one run, its output, and its exit code."""
    above.type("mt hello")
    try:
        with agent(home, hooked(home), MODULE, **env) as kit:
            accepted = use(kit)
            code = ended(kit)
            return accepted, "\n".join(kit.lines), code
    except NeverReady as error:
        return {}, str(error), error.code


def survive(home: Path, library: Path, fault: Fault) -> bool:
    """Return True if the fault occurred."""
    state = home / "state"
    quick = environment(home, *QUICK)
    with sky(home, 0.02) as above:
        accepted, output, code = run_with(
            home, above, **quick, **disk.faulty(library, state, fault)
        )
        assert "Traceback" not in output, output
        assert code in (0, 74), output
        if code:
            assert re.search("the disk|cannot be used: .*is not changed", output), output
        from_memory = "only an SOS is accepted, in memory" in output
        sos_on_disk = "SOS here" in accepted
        assert not list(state.glob("*.bad"))
        with agent(home, hooked(home), MODULE, **quick) as kit:
            for text in TEXTS:
                answer = post(kit, text)
                assert answer is not None
                assert answer.status == 202, answer
                assert answer.body["id"] == accepted.setdefault(text, answer.body["id"])
            until(lambda: done(kit, accepted))
            packages = [kit.call("GET", f"/api/package/{id_}").body for id_ in accepted.values()]
            assert [each["status"] for each in packages] == ["Delivered"] * len(TEXTS)
            assert kit.call("GET", "/api/status").body["journal"]["losses"] == []
            assert kit.stop() == 0
        arrived = Counter(
            text
            for line in above.output()
            if "(again)" not in line
            for text in TEXTS
            if text in line
        )
        expected = Counter(TEXTS)
        # An SOS that was only in memory is not on the disk, and neither is its key. A second post
        # after the start raises it again with another date, so it arrives at most twice.
        twice = Counter(["SOS here"] if from_memory and not sos_on_disk else [])
        assert expected <= arrived <= expected + twice
    came = [json.loads(line)["requestId"] for line in (home / "came").read_text().splitlines()]
    assert len(set(came)) == 1
    assert len(came) <= 2
    assert not list(state.glob("*.bad"))
    return disk.has_failed(state)


def calls_of_a_run(home: Path, library: Path) -> Counter[str]:
    """Return the number of calls of each kind in a run without faults."""
    home.mkdir()
    record = home / "record"
    with sky(home, 0.02) as above:
        _, output, code = run_with(home, above, **disk.recorded(library, home / "state", record))
    assert code == 0, output
    return disk.counts(record)


EIO, ENOSPC = errno.EIO, errno.ENOSPC
FAULTS = [
    *(Fault("sync", first) for first in (1, 7, 9, 12, 13, 20)),
    *(Fault("write", first, ENOSPC) for first in (3, 40, 130)),
    *(Fault("write", first) for first in (90, 150)),
    Fault("make", 3),
    Fault("truncate", 2),
    Fault("unlink", 1),
    Fault("any", 150, EIO, times=0),
    Fault("any", 160, ENOSPC, times=0),
]
"""During the start, the work and the end of a run."""


@pytest.mark.parametrize(
    "fault",
    [
        each if n % 2 else pytest.param(each, marks=pytest.mark.full)
        for n, each in enumerate(FAULTS)
    ],
    ids=str,
)
def test_disk_fault_loses_no_acknowledged_package(
    tmp_path: Path, disk_library: Path, fault: Fault
) -> None:
    assert survive(tmp_path, disk_library, fault)


PERMANENT_FAULTS = [
    Fault("write", 155, times=0),
    Fault("sync", 20, times=0),
    Fault("write", 180, times=0),
    Fault("any", 200, EIO, times=0),
]
"""During the work. In the first case only the tables were written before."""


@pytest.mark.full
@pytest.mark.parametrize("fault", PERMANENT_FAULTS, ids=str)
def test_sos_is_sent_from_memory_after_failed_commit(
    tmp_path: Path, disk_library: Path, fault: Fault
) -> None:
    """The SOS leaves from memory in the same process, and callers are informed. The agent does not
    refuse everything. It restarts when the disk accepts writes and nothing is only in memory.
    """
    state = tmp_path / "state"
    quick = environment(tmp_path, Put("fieldagent.agent.agent:DISK_RETRY_INTERVAL_S", 0.2))
    with (
        sky(tmp_path, 0.02) as above,
        agent(tmp_path, {}, MODULE, **quick, **disk.faulty(disk_library, state, fault)) as kit,
    ):
        until(lambda: kit.post("ordinary").status != 200)
        # By then the agent has checked the disk, which accepts nothing.
        until(lambda: kit.call("GET", "/api/status").body["uptime"] > 2)
        refused = kit.post("ordinary")
        assert (refused.status, "disk" in refused.body["detail"]) == (507, True)
        answer = kit.post("SOS here", priority=100)
        assert (answer.status, answer.body["status"]) == (200, "Delivered"), answer.body
        assert "the disk cannot store data" in answer.body["notOnDisk"]
        above.expect("SOS here")
        health = kit.call("GET", "/api/health")
        assert (health.status, "in memory" in health.body["reason"]) == (503, True)
        assert any("in memory" in each for each in kit.call("GET", "/api/status").body["notices"])
        assert kit.stop() == 0
    assert disk.has_failed(state)
    assert not list(state.glob("*.bad"))


def test_stop_informs_caller_of_sos_that_is_only_in_memory(
    tmp_path: Path, disk_library: Path
) -> None:
    """The SOS has not left. It would be false to report that it is kept."""
    fault = disk.faulty(disk_library, tmp_path / "state", Fault("write", 180, times=0))
    nobody = {"satellite-port": str(tmp_path / "nobody")}
    with agent(tmp_path, nobody, MODULE, **fault) as kit, ThreadPoolExecutor(1) as pool:
        until(lambda: kit.call("POST", "/api/package/async", ORDINARY).status == 507)
        waits = pool.submit(kit.post, "SOS here", priority=100)
        until(lambda: kit.call("GET", "/api/status").body["sos"]["active"])
        assert kit.stop() == 0
        assert waits.result().status == 503
        assert "is lost if it is only in memory; post it again" in waits.result().body["detail"]
        output = "\n".join(kit.output())
        assert "items that are only in memory are lost" in output
        assert "is kept, and continues" not in output


@pytest.mark.full
def test_agent_restarts_with_stored_packages_after_failed_commit(
    tmp_path: Path, disk_library: Path
) -> None:
    state = tmp_path / "state"
    quick = environment(tmp_path, Put("fieldagent.agent.agent:DISK_RETRY_INTERVAL_S", 0.2))
    fault = disk.faulty(disk_library, state, Fault("sync", 20))
    with sky(tmp_path, 0.02):
        accepted = []
        with agent(tmp_path, {}, MODULE, **quick, **fault) as kit:
            with suppress(OSError, HTTPException):
                while (answer := kit.post("ordinary")).status == 200:
                    accepted.append(answer.body["id"])
            assert any("the disk cannot store data" in each for each in kit.output())
            kit.expect("the disk works again; the agent restarts")
            assert kit.wait() == 74
        with agent(tmp_path) as kit:
            until(lambda: all(is_delivered(kit, number) for number in accepted))
            assert kit.call("GET", "/api/health").status == 200


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(EIO, marks=pytest.mark.full, id="EIO"),
        pytest.param(ENOSPC, marks=pytest.mark.soak, id="ENOSPC"),
    ],
)
def test_agent_survives_failure_of_each_disk_call(
    tmp_path: Path, disk_library: Path, number: int
) -> None:
    """At some calls the disk fails permanently."""
    counted = calls_of_a_run(tmp_path / "counted", disk_library)
    disk.fail_in_turn(
        tmp_path, counted, number, lambda home, fault: survive(home, disk_library, fault)
    )
