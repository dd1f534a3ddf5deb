"""A running program keeps its file when another one replaces it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.processes import PATIENCE, administer, agent, hub
from tests.shipping.conftest import ROOT
from tests.shipping.test_zipapp import MODULES
from tests.shipping.update_kit import rebuilt, version

pytestmark = pytest.mark.full

LATE = {
    "fieldagent/cli/manual.py": (
        '    print("\\n".join(_format_page()))\n',
        "    import importlib\n"
        "    print('runs', flush=True)\n"
        "    for name in input().split():\n"
        "        importlib.import_module(name)\n"
        "    print(__version__)\n",
    )
}
"""A program that imports all modules on command."""


def make_garbage(zipapp: Path, place: Path) -> bytes:
    return b"no program at all\n" * 200_000


def make_another_program(zipapp: Path, place: Path) -> bytes:
    """Return a program with the same files at other offsets."""
    content = rebuilt(zipapp, place / "another.pyz", version("9.0.0")).read_bytes()
    assert content != zipapp.read_bytes()
    return content


@pytest.fixture(params=[make_garbage, make_another_program], ids=["garbage", "another version"])
def replace(
    request: pytest.FixtureRequest, zipapp: Path, tmp_path: Path
) -> Iterator[tuple[Path, Callable[[], None]]]:
    """Yield a program, and a function that replaces it as an update does."""
    place = tmp_path / "programs"
    place.mkdir()
    program = place / "fieldagent.pyz"
    program.write_bytes(zipapp.read_bytes())

    def put() -> None:
        (place / "new").write_bytes(request.param(zipapp, place))
        (place / "new").rename(program)

    yield program, put


def files(folder: str) -> list[str]:
    return [path.name for path in (ROOT / folder).iterdir() if path.suffix in PAGE]


PAGE = (".css", ".html", ".js", ".json", ".png", ".svg")
SHARED = ["leaflet.css", "leaflet.js", "protomaps-leaflet.js"]


def pages(page: str, below: str, folder: str) -> Iterator[str]:
    yield from (page, "/openapi.json")
    for name in [*files(folder), *files("fieldagent/page"), *SHARED]:
        if name != "index.html":
            yield f"{below}/{name}"


def status_of(port: int, path: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.read()
    connection.close()
    return answer.status


def test_agent_and_hub_serve_all_pages_after_their_file_is_replaced(
    replace: tuple[Path, Callable[[], None]], tmp_path: Path
) -> None:
    program, put = replace
    command = [sys.executable, str(program)]
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    with (
        agent(tmp_path, {"satellite-port": None}, command) as kit,
        hub(tmp_path, {"database": database}, command) as cloud,
    ):
        put()
        served = {
            (name, path): status_of(port, path)
            for name, port, paths in (
                ("agent", kit.port, pages("/", "/page", "fieldagent/agent/page")),
                ("hub", cloud.port, pages("/console", "/console/file", "fieldagent/hub/console")),
            )
            for path in paths
        }
        assert kit.call("POST", "/api/package/async", {"message": {"content": "x"}}).status == 202
    assert len(served) > 30
    assert {each: code for each, code in served.items() if code != 200} == {}


def test_late_import_uses_the_replaced_programs_own_modules(
    replace: tuple[Path, Callable[[], None]], zipapp: Path
) -> None:
    program, put = replace
    rebuilt(zipapp, program, LATE)
    command = [sys.executable, "-I", "-S", str(program), "manual"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        put()
        output, complained = process.communicate(" ".join(MODULES) + "\n", timeout=PATIENCE)
    assert process.returncode == 0, complained
    assert output.strip() != "9.0.0"
