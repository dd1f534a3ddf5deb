"""Makes the files of a release for tests of later ones: `python -m tests.kept.leave FOLDER`.

Each release runs it once per minor version. A team works for a short time: a hub, first on SQLite
and then on PostgreSQL, and a kit with a link and a modem.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.hub.test_cluster import push
from tests.hub.test_journey import IMEI, behind_directip, folder, message_to, sky
from tests.hub.test_rebuilt import by_postgres
from tests.postgres import new_database, server
from tests.processes import PATIENCE, Agent, Hub, administer, agent, free_port, hub, until

ROOT = Path(__file__).parents[2]
DATE = "2026-11-20T10:00:00Z"
POSTED: tuple[dict[str, Any], ...] = (
    {"message": {"content": "Camp reached"}, "priority": 20},
    {"location": {"latitude": 46.5, "longitude": 7.25, "altitude": 1408, "timestamp": DATE}},
    {"waypoint": {"latitude": 46.6, "longitude": 7.3, "name": "Hut", "timestamp": DATE}},
    {"data": {"payload": "AP8Q"}},
    {"message": {"content": "to Olga"}, "to": "Olga", "receipt": "read"},
)
WAITS: tuple[dict[str, Any], ...] = (
    {"message": {"content": "an older word"}, "collapseKey": 7},
    {"message": {"content": "a newer word"}, "collapseKey": 7},
    {"message": {"content": "no longer"}},
)
"""Packages that the kit gets while the hub is away, only for its link."""


def people(database: str) -> dict[str, Any]:
    """Return the credentials of an administrator, the pushing user, and the settings of the kit."""
    first: dict[str, Any] = administer(database, "init", "Alps")
    whose = {}
    for name, *how in (("Ada", "--over-satellite"), ("Ben",), ("Olga",)):
        whose[name] = administer(database, "user", "add", name, *how)["id"]
    administer(database, "user", "role", "Olga", "administrator")
    token = administer(database, "user", "token", "add", "kept", "--user", "Olga")["token"]
    kinds = ("--kind", "message", "--read", "--administer")
    key = administer(database, "key", "add", "kept", *kinds)["apiKey"]
    administer(database, "group", "add", "Rescue", "Ada", "Olga")
    kit = ("kit-ada", "--user", "Ada", "--imei", IMEI, "--tagged")
    device = administer(database, "device", "add", *kit)
    administer(database, "device", "add", "kit-ben", "--user", "Ben")
    administer(database, "contact", "add", "Eve", "eve@example.org", "--after", "30s")
    administer(database, "webhook", "add", "http://127.0.0.1:9/", "--untried")
    administer(database, "fence", "add", "Glacier", "--circle", "46.5,7.25,500")
    administer(database, "tracker", "source", "add", "Balloons")
    return {
        **first,
        **device,
        "sourceUserId": whose["Olga"],
        "ada": whose["Ada"],
        "token": token,
        "apiKey": key,
    }


def ask(running: Hub, proof: dict[str, str], path: str) -> dict[str, Any]:
    """Return the hub's answer to an administrator."""
    connection = HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
    connection.request("GET", path, headers=proof)
    answer = connection.getresponse()
    document: dict[str, Any] = json.loads(answer.read())
    connection.close()
    assert answer.status == 200, (path, document)
    return document


LISTS: dict[str, tuple[str, ...]] = {
    "users": ("/api/users", "id", "name", "role", "devices"),
    "groups": ("/api/groups", "name", "members"),
    "devices": ("/api/devices", "id", "name", "imei", "operator", "version", "tagged"),
    "items": ("/api/items", "id", "sender", "accepted", "sos", "event", "to", "reached"),
    "deliveries": ("/api/deliveries?device=2", "item", "kind", "state", "ended"),
    "sos": ("/api/sos", "id", "number", "state", "raised", "items"),
    "contacts": ("/api/contacts", "name", "address", "after", "language"),
    "webhooks": ("/api/webhooks", "url", "signed"),
    "fences": ("/api/fences", "name", "circle"),
}
"""Path and members of each list of the hub's API, without ages."""


def hub_says(running: Hub, proof: dict[str, str]) -> dict[str, Any]:
    """Return the content of the hub's lists, without those of deleted extensions."""
    served = ask(running, proof, "/openapi.json")["paths"]

    def look(path: str, *members: str) -> list[list[Any]]:
        (rows,) = (each for each in ask(running, proof, path).values() if isinstance(each, list))
        return sorted(([each.get(name) for name in members] for each in rows), key=str)

    return {
        name: look(*asked) for name, asked in LISTS.items() if asked[0].partition("?")[0] in served
    }


def kit_says(running: Agent) -> dict[str, Any]:
    """Return the same for a kit."""
    packages = running.call("GET", "/api/packages").body["packages"]
    inbound = running.call("GET", "/api/inbound").body["payloads"]
    return {
        "packages": [[each[name] for name in ("id", "status", "kind")] for each in packages],
        "inbound": [each["requestId"] for each in inbound],
        "incident": running.call("GET", "/api/sos").body["incident"]["state"],
    }


def proof_of(first: dict[str, Any]) -> dict[str, str]:
    return {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}


@contextmanager
def team(database: str, home: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the final answers of the hub and of the kit."""
    first = people(database)
    ports = free_port(), free_port()
    proof, said = proof_of(first), {}
    settings = behind_directip(database, *ports) | {"satellite-grace": "600"}
    with sky(home, *ports):
        with hub(folder(home / "hub"), settings) as running:
            linked = {
                "satellite-port": str(home / "modem"),
                "satellite-key": first["satellite-key"],
                "hub-address": running.address,
                "hub-token": first["hub-token"],
                "inbound-hook": "false",
            }
            with agent(folder(home / "kit"), linked) as kit:
                kit.expect("linked to the hub")
                for package in POSTED:
                    assert kit.call("POST", "/api/package", package).body["status"] == "Delivered"
                assert kit.call("POST", "/api/sos", {"text": "help"}).status == 201
                push(running.port, proof, message_to(first["ada"], first, "come down"))
                kit.expect("inbound-hook")
                until(lambda: ask(running, proof, "/api/sos")["sos"])
                assert running.stop() == 0
                for package in WAITS:
                    how = {"channels": ["Cellular"]}
                    last = kit.call("POST", "/api/package/async", {**package, **how}).body["id"]
                kit.call("POST", f"/api/package/{last}/cancel")
                said["kit"] = kit_says(kit)
                assert kit.stop() == 0
        with hub(home / "hub", settings) as running:
            said["hub"] = hub_says(running, proof)
            assert running.stop() == 0
    yield first, said


def put(target: Path, content: bytes) -> None:
    target.write_bytes(gzip.compress(content, mtime=0))


def vectors() -> dict[str, str]:
    """Return the examples of the documents: their names and bytes."""
    air, link = (
        json.loads((ROOT / f"docs/reference/{name}-vectors.json").read_text())
        for name in ("on-air", "ip-link")
    )
    examples = {"on-air": air["envelopes"], "ip-link": link}
    return {f"{name}: {what}": each[what] for name, each in examples.items() for what in each}


def main(target: Path) -> None:
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="fieldagent-kept-") as made:
        home = folder(Path(made) / "sqlite")
        database = str(home / "hub.sqlite3")
        with team(database, home) as (first, said):
            copy = home / "copy.sqlite3"
            administer(database, "database", "backup", str(copy))
            put(target / "hub.sqlite3.gz", copy.read_bytes())
            for name in ("journal.sqlite3", "journal.sqlite3-mark"):
                put(target / f"{name}.gz", (home / "kit/state" / name).read_bytes())
        answers = {"sqlite": {"proof": proof_of(first), **said}}
        home = folder(Path(made) / "postgresql")
        with server() as running:
            database = new_database(running.address)
            with team(database, home) as (first, said):
                dumped = home / "hub.sql"
                how = ("--no-owner", "--no-privileges", f"--file={dumped}")
                by_postgres("pg_dump", *how, f"--dbname={database}")
                put(target / "hub.postgresql.sql.gz", dumped.read_bytes())
        answers["postgresql"] = {"proof": proof_of(first), **said}
    (target / "said.json").write_text(json.dumps(answers, indent=1) + "\n")
    (target / "bytes.json").write_text(json.dumps(vectors(), indent=1) + "\n")
    nodes = (ROOT / "docs/reference/node-link-vectors.json").read_bytes()
    put(target / "node-link-vectors.json.gz", nodes)
    subprocess.run(["ls", "-l", target], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
