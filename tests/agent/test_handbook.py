"""The kit's handbook has the same content in each language, uses the texts of the page, and
is served.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from fieldagent.agent.handbook import NAMES
from fieldagent.page.files import CATALOGUES
from fieldagent.page.language import LANGUAGES
from tests.processes import Agent, agent

ROOT = Path(__file__).parents[2]
PLACE = re.compile(r"\{\w+\}")


def source(language: str) -> str:
    return (ROOT / f"docs/handbook/{language}.md").read_text()


def named(language: str) -> list[str]:
    """Return the bold texts in order. Each is a text of the page."""
    return re.findall(r"\*\*(.+?)\*\*", source(language))


def shape(language: str) -> list[str]:
    """Return the beginning of each line."""
    return [re.match(r"#+|\d\.|-|\||", line)[0] for line in source(language).splitlines()]  # type: ignore[index]


def begins(text: str) -> str:
    """Return the words of a text before its first place, without the final punctuation."""
    return PLACE.split(text)[0].strip().rstrip(":.").strip()


def words(language: str) -> dict[str, set[str]]:
    """Return the possible names of each text of the page: its beginning, by that of the English
    text.
    """
    catalogue = json.loads(files("fieldagent.agent.page").joinpath(f"{language}.json").read_bytes())
    said: dict[str, set[str]] = {"SOS": {"SOS"}}
    for text, there in {**catalogue["texts"], **catalogue["terms"]}.items():
        if isinstance(there, str):
            for english, own in ((text, there), (text.partition(":")[0], there.partition(":")[0])):
                said.setdefault(begins(english), set()).add(begins(own))
    return said


def test_handbook_pages_are_generated_from_sources() -> None:
    subprocess.run([sys.executable, ROOT / "build/handbook.py", "--check"], check=True)
    assert {f"{each}.json" for each in LANGUAGES} == {*CATALOGUES, "en.json"}


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_translated_handbook_has_same_structure_and_terms_of_page(language: str) -> None:
    assert shape(language) == shape("en")
    known, english, own = words(language), named("en"), named(language)
    assert len(english) > 30
    wrong = [
        (text, said)
        for text, said in zip(english, own, strict=True)
        if said.rstrip(" :.") not in known.get(text.rstrip(" :."), ())
    ]
    assert wrong == []


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with agent(tmp_path_factory.mktemp("kit"), {"satellite-port": None}) as running:
        yield running


def test_only_handbook_pages_are_served(kit: Agent) -> None:
    folder = Path(str(files("fieldagent.agent.handbook")))
    assert {path.name for path in folder.iterdir() if path.suffix in (".html", ".css")} == {*NAMES}
    described = kit.call("GET", "/openapi.json").body["paths"]["/help/{name}"]["get"]
    assert described["parameters"][0]["schema"]["enum"] == sorted(NAMES)
    for name in NAMES:
        answer = kit.call("GET", f"/help/{name}")
        assert answer.status == 200
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    for name in ("index.html", "page.css", "leaflet.js", "..", "__init__.py", "it.html"):
        assert kit.call("GET", f"/help/{name}").status == 404, name


@pytest.mark.parametrize(
    ("accepted", "there"),
    [("", "en"), ("it", "en"), ("uk-UA,uk;q=0.9,en;q=0.8", "uk"), ("it, fr-CH;q=0.7, *", "fr")],
)
def test_handbook_redirects_to_language_of_browser(kit: Agent, accepted: str, there: str) -> None:
    answer = kit.call("GET", "/help", **{"Accept-Language": accepted})
    assert (answer.status, answer.headers["location"]) == (303, f"/help/{there}.html")
