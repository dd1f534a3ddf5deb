"""The documents as a web site: complete, self-contained, and with a search that needs no server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import browser

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r'<(?:script|link|img)\b[^>]*\b(?:src|href)="([^"]+)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "site"
    subprocess.run([sys.executable, ROOT / "build/web_site.py", folder], check=True)
    return folder


@pytest.mark.full
def test_site_contains_every_document_and_no_external_resource(site: Path) -> None:
    documents = [
        path.relative_to(ROOT).with_suffix(".html")
        for pattern in ("*.md", "docs/**/*.md", "examples/*.md")
        for path in ROOT.glob(pattern)
    ]
    assert len(documents) > 30
    assert [path for path in documents if not (site / path).is_file()] == []
    for path in site.rglob("*.html"):
        assert [each for each in LOADED.findall(path.read_text()) if "//" in each] == [], path


@pytest.mark.full
def test_search_works_offline_from_a_folder(site: Path) -> None:
    with browser() as opened:
        shown = opened.new_context(offline=True).new_page()
        shown.goto(f"{site.as_uri()}/index.html")
        shown.locator("input[name=q]").first.fill("air-time")
        shown.keyboard.press("Enter")
        shown.locator("#search-results a", has_text="radio").first.click()
        shown.get_by_role("heading", level=1).first.wait_for()
        assert "/docs/how-to/radio.html" in shown.url


@pytest.mark.full
def test_api_pages_contain_each_call_and_schema(site: Path) -> None:
    hub, local = ((site / f"api/{name}.html").read_text() for name in ("hub", "local"))
    for text in ("POST /api/package", "PATCH /api/devices/{id}", 'href="#push"', 'id="push"'):
        assert text in hub, text
    for text in ("GET /api/status", "Idempotency-Key", 'href="#package"', 'id="package"'):
        assert text in local, text
