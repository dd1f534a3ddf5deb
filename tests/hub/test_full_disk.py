"""A hub on a disk that other programs have filled reports that to its monitoring."""

from __future__ import annotations

import json
from pathlib import Path

from tests.hub.alps import Alps
from tests.hub.test_outage import call
from tests.machine import fill, small_disk
from tests.processes import hub, until


def test_hub_starts_on_a_full_disk_after_a_clean_stop(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        database = str(disk / "hub.sqlite3")
        Alps(database)
        with hub(tmp_path, {"database": database}) as running:
            assert running.stop() == 0
        fill(disk)
        with hub(tmp_path, {"database": database}) as running:
            assert call(running, "GET", "/livez")[0] == 200
            assert call(running, "GET", "/console")[0] == 200
            assert running.stop() == 0


def test_probes_and_metrics_report_a_full_disk_until_space_is_free(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        database = str(disk / "hub.sqlite3")
        alps = Alps(database)
        with hub(tmp_path, {"database": database}) as running:

            def pushed() -> int:
                headers = {"Content-Type": "application/json", **alps.proof}
                body = json.dumps({**alps.body, "message": {"content": "a message"}})
                return call(running, "POST", "/api/package", headers, body)[0]

            others = fill(disk)
            until(lambda: pushed() == 507)
            status, _, text = call(running, "GET", "/healthz")
            assert status == 503
            assert "the disk is full: the agent waits until you free space" in text
            assert "fieldagent_hub_disk_full 1" in call(running, "GET", "/metrics")[2]
            assert call(running, "GET", "/livez")[0] == 200
            assert call(running, "GET", "/console")[0] == 200, "there is something to read still"
            # A balancer without requests uses the hub again only after a successful probe.
            others.unlink()
            assert call(running, "GET", "/healthz")[0] == 200
            assert "fieldagent_hub_disk_full 0" in call(running, "GET", "/metrics")[2]
            assert pushed() == 200
            assert running.stop() == 0
