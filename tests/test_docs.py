"""The documents are true where a machine can tell: what they name is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED = re.compile(r"(?<![\w./~-])((?:fieldagent|tests|docs|build|systemd|examples)/[\w./-]*\w/?)")


def ids(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def headings(page: Path) -> set[str]:
    """As GitHub makes anchors of them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in found}


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        there = (page.parent / target) if target else page
        assert there.exists(), link
        assert not anchor or anchor in headings(there), link


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_path_of_the_tree_is_there(page: Path) -> None:
    """Not those of an installed kit, which begin with a slash."""
    missing = [path for path in NAMED.findall(page.read_text()) if not (ROOT / path).exists()]
    assert not missing


def test_the_settings_page_says_what_the_code_does() -> None:
    subprocess.run([sys.executable, ROOT / "build/settings_doc.py", "--check"], check=True)
