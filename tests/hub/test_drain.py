"""A stopping hub passes its kits on: first its probes fail, then the links are informed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.hub.alps import Alps
from tests.hub.test_cluster import balancer, contents
from tests.hub.test_outage import call
from tests.postgres import new_database
from tests.processes import Hub, hub, until


def test_kits_and_pushes_move_from_a_stopping_hub_to_another(postgres: str, tmp_path: Path) -> None:
    database = new_database(postgres)
    alps = Alps(database)
    with ExitStack() as stack:
        hubs: list[Hub] = []
        for number in range(2):
            home = tmp_path / f"hub{number}"
            home.mkdir()
            settings = {"database": database, "drain-seconds": "60"}
            hubs.append(stack.enter_context(hub(home, settings)))
        front = stack.enter_context(balancer([each.port for each in hubs]))
        kit = stack.enter_context(alps.kit(tmp_path, f"http://127.0.0.1:{front.port}"))
        kit.expect("linked to the hub")

        def has_the_link(each: Hub) -> bool:
            return any("kit is linked" in line for line in each.output())

        stays, stops = sorted(hubs, key=has_the_link)
        alps.push(front.port, "before")

        stops.process.terminate()
        until(lambda: call(stops, "GET", "/healthz")[0] == 503)
        # Requests before the balancer notices are still accepted, except links.
        alps.push(stops.port, "meanwhile")
        bearer = {"Authorization": f"Bearer {alps.token}"}
        status, answered, text = call(stops, "GET", "/link", bearer)
        assert (status, "stopping" in text) == (503, True)
        assert int(answered["retry-after"]) > 0
        until(lambda: len(contents(kit)) == 2)
        assert not any("no link" in line for line in kit.output())

        front.ports.remove(stops.port)
        stops.process.terminate()  # immediately
        assert stops.wait() == 0
        kit.expect("no link to the hub: the link ended: this end stops; trying again")
        kit.expect("linked to the hub")
        until(lambda: has_the_link(stays))
        alps.push(front.port, "after")
        until(lambda: len(contents(kit)) == 3)
        assert sorted(contents(kit)) == ["after", "before", "meanwhile"]
