"""A third-party extension adds a part to a real hub."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

from tests import offline
from tests.processes import administer, hub

PART = """
from fieldagent.http.message import Response
from fieldagent.http.routes import Route
from fieldagent.hub.part import HubCheck, HubPart
from fieldagent.system.extension import Extension


async def answer(request):
    return Response(200, b"from the own part")


def look(db, now):
    return ["the own part has looked"]


PART = HubPart(
    routes=lambda host: [Route("GET", "/own", answer)],
    checks=(HubCheck(lambda db: 0.0, look),),
    console="own_console",
)
EXTENSION = Extension("own", hub_parts={"own": "own_part:PART"})
"""


def test_third_party_part_adds_route_check_and_console_script(tmp_path: Path) -> None:
    home, database = tmp_path / "own", str(tmp_path / "hub.sqlite3")
    page = home / "own_console"
    page.mkdir(parents=True)
    (home / "own_part.py").write_text(PART)
    (page / "__init__.py").touch()
    (page / "own.js").write_text("export {};\n")
    administer(database, "init", "Alps")
    settings = {"database": database, "extensions": "own_part:EXTENSION"}
    with hub(tmp_path, settings, PYTHONPATH=offline.path(str(home))) as running:

        def get(path: str) -> bytes:
            with urlopen(f"{running.address}{path}") as there:
                content: bytes = there.read()
                return content

        assert get("/own") == b"from the own part"
        assert b'import * as own from "./own.js";' in get("/console/file/parts.js")
        assert get("/console/file/own.js") == b"export {};\n"
        running.expect("the own part has looked")
