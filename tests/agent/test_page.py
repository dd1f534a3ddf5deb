"""The files of the kit's page and of the console over HTTP: small, and from one origin."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from importlib.resources import files
from itertools import accumulate
from pathlib import Path

import pytest

from fieldagent.agent import page
from fieldagent.hub import console
from fieldagent.page.files import CATALOGUES
from fieldagent.page.language import LANGUAGES, read_catalogue
from tests.processes import PATIENCE, ZIPAPP, Agent, agent

WIRE_MAX = 123_000
REASONS = ("reasons.js", *(f"reasons-{each}" for each in CATALOGUES))
BY_NEED = (
    "world.js",
    "world.json",
    "protomaps-leaflet.js",
    "track.js",
    "grid.js",
    "coordinates.js",
    *REASONS,
)
"""Files that load on demand: for the map, for a vector map, for /track, for a typed place, for
positions in another form than degrees, and for reasons in another language than English."""
COASTS_MAX = 80_000
SHARED = (
    *("choices.js", "coordinates.js", "grid.js", "language.js"),
    *("map.css", "map.js", "picture.js", "reasons.js", "stream.js", "text.js", "world.js"),
)
FILES = (*page.NAMES, *SHARED, *REASONS[1:], "leaflet.css", "leaflet.js", "protomaps-leaflet.js")
PATHS = ["/", "/track", "/worker.js", *(f"/page/{name}" for name in FILES)]
FOLDERS = [Path(str(files(each))) for each in (page, console, "fieldagent.page")]


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with agent(tmp_path_factory.mktemp("kit"), {"satellite-port": None}) as running:
        yield running


def test_compressed_size_of_page_is_limited(kit: Agent) -> None:
    sizes = {}
    for path in PATHS:
        connection = HTTPConnection("127.0.0.1", kit.port, timeout=PATIENCE)
        connection.request("GET", path)
        plain = connection.getresponse().read()
        connection.request("GET", path, headers={"Accept-Encoding": "gzip, br"})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["content-encoding"]) == (200, "gzip")
        content = answer.read()
        assert gzip.decompress(content) == plain
        sizes[path] = len(content) + len(answer.headers.as_bytes())
        connection.close()
    # A browser loads at most one language.
    languages = [sizes.pop(f"/page/{name}") for name in CATALOGUES]
    for name in BY_NEED:
        del sizes[f"/page/{name}"]
    # `/track` is the first page at another address.
    del sizes["/track"]
    assert sum(sizes.values()) + max(languages) <= WIRE_MAX


def test_coastlines_are_small_and_do_not_cross_map() -> None:
    text = files(page).joinpath("world.json").read_bytes()
    assert len(text) <= COASTS_MAX
    world = json.loads(text)
    degree = world["steps"]
    for line in world["coasts"]:
        longitudes, latitudes = (list(accumulate(line[axis::2])) for axis in (0, 1))
        assert len(longitudes) == len(latitudes) > 1
        assert all(abs(step) < 180 * degree for step in line[2::2])
        assert max(map(abs, longitudes)) <= 180 * degree
        assert max(map(abs, latitudes)) < 90 * degree


def test_only_files_of_page_are_served(kit: Agent) -> None:
    for folder, names in zip(FOLDERS, (page.NAMES, console.NAMES, SHARED), strict=True):
        there = {path.name for path in folder.iterdir() if path.suffix not in ("", ".py")}
        assert there - {"index.html"} == {*names}, folder
    path = kit.call("GET", "/openapi.json").body["paths"]["/page/{name}"]["get"]
    assert set(path["parameters"][0]["schema"]["enum"]) == set(FILES)
    for name in ("index.html", "__init__.py", "..", "%2e%2e%2fagent.py", "nothing.js"):
        assert kit.call("GET", f"/page/{name}").status == 404, name


@pytest.mark.parametrize("path", PATHS)
def test_page_files_are_cached_and_served_only_to_own_origin(kit: Agent, path: str) -> None:
    first = kit.call("GET", path)
    policy = first.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert first.headers["x-content-type-options"] == "nosniff"
    tag = first.headers["etag"]
    for known in (tag, f'"other", {tag}', f"W/{tag}"):
        again = kit.call("GET", path, **{"If-None-Match": known})
        assert (again.status, again.body, again.headers["etag"]) == (304, "", tag)
    assert kit.call("GET", path, **{"If-None-Match": '"other"'}).status == 200
    for foreign in (
        {"Host": "kit.example"},
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        assert kit.call("GET", path, **foreign).status == 403


@pytest.mark.parametrize("language", LANGUAGES)
def test_early_texts_are_in_language_of_browser(kit: Agent, language: str) -> None:
    texts = read_catalogue("fieldagent.agent.page", language).get("texts", {})
    asked = {"Accept-Language": f"{language}-CH,{language};q=0.9,en;q=0.1"}
    tags = set()
    with closing(HTTPConnection("127.0.0.1", kit.port, timeout=PATIENCE)) as connection:
        for encoding in ("identity", "gzip"):
            connection.request("GET", "/", headers=asked | {"Accept-Encoding": encoding})
            answer = connection.getresponse()
            content = answer.read()
            html = (gzip.decompress(content) if encoding == "gzip" else content).decode()
            for text in page.EARLY_TEXTS:
                assert f">{texts.get(text, text)}<" in html
            assert answer.headers["vary"] == "Accept-Encoding, Accept-Language"
            tags.add(answer.headers["etag"])
        assert len(tags) == 2
        known = {"If-None-Match": answer.headers["etag"], "Accept-Encoding": "gzip"}
        connection.request("GET", "/", headers=asked | known)
        assert connection.getresponse().status == 304


def test_page_files_use_no_unsafe_markup_or_external_address() -> None:
    for path in (each for folder in FOLDERS for each in folder.iterdir()):
        if path.suffix in (".js", ".html", ".css", ".svg"):
            text = path.read_text()
            for way in ("innerHTML", "insertAdjacent", "document.write", "eval(", "Function("):
                assert way not in text, (path.name, way)
            assert not re.search(r"\son\w+=|style=", text) or path.suffix == ".js", path.name
            outside = re.findall(r"(?:https?:)?//[\w.]+", re.sub(r"^\s*//.*", "", text, flags=re.M))
            assert outside in ([], ["http://www.w3.org"]), path.name


def test_zipapp_serves_all_page_files(tmp_path: Path) -> None:
    if not ZIPAPP.exists():
        pytest.skip("build/zipapp makes it")
    with agent(tmp_path, {"satellite-port": None}, [sys.executable, str(ZIPAPP)]) as running:
        for path in PATHS:
            assert running.call("GET", path).status == 200, path
