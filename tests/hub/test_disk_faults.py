"""Each disk call of the hub fails in turn, once or permanently: real processes on SQLite.

Answered items are there afterwards. Receivers get them once, or again with the same id if their
answer could not be stored. People get the reason as text. If the hub ends, the exit code shows a
disk fault.
"""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
from collections import Counter
from contextlib import ExitStack, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from tests import disk
from tests.breaking import Put, environment
from tests.disk import Fault
from tests.hub.alps import Alps
from tests.hub.test_journey import Receiver, folder, receiver
from tests.hub.test_outage import call
from tests.processes import (
    MODULE,
    PATIENCE,
    Agent,
    Hub,
    NeverReady,
    administer,
    agent,
    ended,
    free_port,
    until,
)
from tests.soak.ledger import texts

QUICK = [
    Put("fieldagent.system.supervisor:PAUSES", [0.05]),
    Put("fieldagent.hub.store.persist:RETRY_AFTER_S", 0.1),
    Put("fieldagent.hub.webhook.deliveries:CLAIM_S", 2.0),
    Put("fieldagent.hub.idle:BUSY_INTERVAL_S", 0.2),
    Put("fieldagent.agent.channels.cellular:PAUSE_MAX", 0.2),
]
POSTS = [f"post {number}" for number in range(3)]
PUSHES = [f"push {number}" for number in range(3)]


class Coast:
    """A kit linked to a hub with its database in `store`, and a webhook's receiver."""

    def __init__(self, home: Path, hooked: Receiver) -> None:
        self.home = home
        self.hooked = hooked
        self.store = folder(home / "store")
        self.database = str(self.store / "hub.sqlite3")
        self.alps = Alps(self.database)
        self.port = free_port()
        self.quick = environment(home, *QUICK)
        administer(self.database, "webhook", "add", hooked.url, "--untried")
        self.accepted: set[str] = set()

    def hub(self, **env: str) -> Hub:
        settings = {
            "database": self.database,
            "port": str(self.port),
            "webhook-allow": "127.0.0.0/8",
        }
        return Hub(self.home, settings, MODULE, **{**self.quick, **env})

    def post(self, kit: Agent, text: str) -> bool:
        """Post a text. The key makes a second post safe."""
        body = {"message": {"content": text}}
        answer = kit.call("POST", "/api/package/async", body, **{"Idempotency-Key": text})
        return answer.status == 202

    def push(self) -> None:
        """Push the texts that are not yet accepted."""
        headers = {"Content-Type": "application/json", **self.alps.proof}
        for text in PUSHES:
            body = json.dumps({**self.alps.body, "message": {"content": text}})
            connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
            try:
                connection.request(
                    "POST", "/api/package", body, {**headers, "Idempotency-Key": text}
                )
                answer = connection.getresponse()
                said = answer.read().decode()
            except (OSError, HTTPException):
                continue
            finally:
                connection.close()
            if answer.status == 200:
                self.accepted.add(text)
            else:
                assert answer.status in (503, 507), said
                assert re.search("disk|database|with the same Idempotency-Key", said), said

    def came(self) -> list[tuple[str, str]]:
        """Return id and text of each delivery to the kit's hook."""
        file = self.home / "came"
        bodies = map(json.loads, file.read_text().splitlines() if file.exists() else [])
        return [(body["requestId"], *texts(body)) for body in bodies]

    def posted(self) -> list[tuple[str, str]]:
        """Return id and text of each post to the webhook."""
        pairs = zip([*self.hooked.headers], [*self.hooked.got], strict=False)
        return [(headers["webhook-id"], *texts(body)) for headers, body in pairs]

    def is_all_there(self, posts: list[str], pushes: set[str]) -> bool:
        posted, came = ({text for _, text in pairs} for pairs in (self.posted(), self.came()))
        return posted >= set(posts) and came >= pushes

    def is_done(self, running: Hub) -> bool:
        """Return True if nothing more comes: the hub has ended, all items have arrived, or the disk
        accepts nothing, which the hub reports.
        """
        if running.process.poll() is not None or self.is_all_there(POSTS, self.accepted):
            return True
        with suppress(OSError, HTTPException):
            return "the disk is full" in call(running, "GET", "/healthz")[2]
        return False


def arrived_once(pairs: list[tuple[str, str]], wanted: list[str]) -> bool:
    """Return True if each text came under one id, and at most once more under it."""
    ids = {text: {id_ for id_, each in pairs if each == text} for _, text in pairs}
    often = Counter(text for _, text in pairs)
    once = all(len(each) == 1 for each in ids.values()) and max(often.values()) <= 2
    return once and set(often) == set(wanted)


def run_hub_once(coast: Coast, kit: Agent, **env: str) -> tuple[str, int]:
    """Return the output of one run and its exit code."""
    try:
        with coast.hub(**env) as running:
            accepted = [coast.post(kit, text) for text in POSTS]
            assert all(accepted)
            coast.push()
            until(lambda: coast.is_done(running))
            code = ended(running)
            return "\n".join(running.lines), code
    except NeverReady as error:
        return str(error), error.code


def run_with_fault(
    home: Path, library: Path, fault: Fault | None, record: Path | None = None
) -> bool:
    """Return True if the fault occurred."""
    with ExitStack() as stack:
        coast = Coast(home, stack.enter_context(receiver()))
        settings = {
            "satellite-port": None,
            "hub-address": f"http://127.0.0.1:{coast.port}",
            "hub-token": coast.alps.token,
            "inbound-hook": f"cat >>{home}/came",
        }
        kit = stack.enter_context(agent(folder(home / "kit"), settings, MODULE, **coast.quick))
        env = {}
        if fault is not None:
            env = disk.faulty(library, coast.store, fault)
        if record is not None:
            env = disk.recorded(library, coast.store, record)
        output, code = run_hub_once(coast, kit, **env)
        assert "Traceback" not in output, output
        assert code in ((0, 74) if fault else (0,)), (code, output)
        if code:
            assert re.search("the disk|cannot be used: .*is not changed", output), output
        with coast.hub() as running:
            for text in POSTS:
                coast.post(kit, text)
            coast.push()
            assert coast.accepted == set(PUSHES)
            until(lambda: coast.is_all_there(POSTS, set(PUSHES)))
            assert running.stop() == 0
        assert arrived_once(coast.posted(), POSTS), coast.posted()
        assert arrived_once(coast.came(), PUSHES), coast.came()
        return disk.has_failed(coast.store)


EIO, ENOSPC = errno.EIO, errno.ENOSPC
SOME = [
    *(Fault("sync", first) for first in (2, 6, 9)),
    *(Fault("write", first, ENOSPC) for first in (20, 60)),
    Fault("write", 80),
    Fault("any", 70, EIO, times=0),
]
"""During the start, the work and the end of a run."""


@pytest.mark.full
@pytest.mark.parametrize("fault", SOME, ids=str)
def test_disk_fault_loses_no_answered_item(
    tmp_path: Path, disk_library: Path, fault: Fault
) -> None:
    assert run_with_fault(tmp_path, disk_library, fault)


@pytest.mark.parametrize("number", [EIO, ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("call", ["write", "sync"])
def test_disk_fault_is_reported_to_the_administrator(
    tmp_path: Path, disk_library: Path, call: str, number: int
) -> None:
    store = folder(tmp_path / "store")
    database = str(store / "hub.sqlite3")
    administer(database, "init", "Alps")
    fault = disk.faulty(disk_library, store, Fault(call, 1, number, times=0))
    done = subprocess.run(
        [*MODULE, "hub", "user", "add", "Ada", "--database", database],
        env={**os.environ, **fault},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr.count("\n")) == (74, 1), done.stderr
    assert "the disk" in done.stderr
    assert administer(database, "user", "add", "Ada")["id"] == 2


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(EIO, marks=pytest.mark.full, id="EIO"),
        pytest.param(ENOSPC, marks=pytest.mark.soak, id="ENOSPC"),
    ],
)
def test_failure_of_each_disk_call_loses_no_answered_item(
    tmp_path: Path, disk_library: Path, number: int
) -> None:
    """At some calls the disk fails permanently."""
    record = tmp_path / "record"
    run_with_fault(folder(tmp_path / "counted"), disk_library, None, record)
    disk.fail_in_turn(
        tmp_path,
        disk.counts(record),
        number,
        lambda home, fault: run_with_fault(home, disk_library, fault),
    )
