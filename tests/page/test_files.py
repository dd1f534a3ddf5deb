"""A page has the scripts and texts that extensions add to it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.http.routes import make_router
from fieldagent.page.files import make_page_routes


def package(home: Path, name: str, **files: str) -> str:
    folder = home / name
    folder.mkdir()
    (folder / "__init__.py").touch()
    for file, content in files.items():
        (folder / file.replace("_", ".")).write_text(content)
    return name


async def get(parts: dict[str, str] | None, name: str) -> str:
    judge = make_router(
        make_page_routes((), "/file", "own_page", ("de.json",), extension_packages=parts)
    )
    request = Request("GET", f"/file/{name}", (), {}, b"")
    return (await (await judge(request)).handler(request)).body.decode()


@pytest.fixture
def part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    package(tmp_path, "own_page", de_json='{"texts": {"Yes": "Ja"}, "terms": {"open": "offen"}}')
    return package(
        tmp_path, "own_part", extra_js="export {};\n", de_json='{"texts": {"No": "Nein"}}'
    )


async def test_page_contains_the_scripts_and_texts_of_its_parts(part: str) -> None:
    parts = {"extra": part}
    assert await get(parts, "parts.js") == (
        'import * as extra from "./extra.js";\nexport const parts = [extra];\n'
    )
    assert await get(parts, "extra.js") == "export {};\n"
    assert json.loads(await get(parts, "de.json")) == {
        "texts": {"Yes": "Ja", "No": "Nein"},
        "terms": {"open": "offen"},
    }


async def test_page_without_parts_contains_only_its_own_texts(part: str) -> None:
    assert await get({}, "parts.js") == "export const parts = [];\n"
    assert json.loads(await get({}, "de.json"))["texts"] == {"Yes": "Ja"}
    with pytest.raises(Problem):
        await get(None, "parts.js")
