"""Debian's Chromium, as a person uses it: by what is to be seen, and by keyboard and pointer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests import leftovers
from tests.machine import tool
from tests.processes import PATIENCE

SHOTS = Path(__file__).parents[1] / "dist/screenshots"
"""Where what was seen is kept, to be looked at."""
SERIOUS = ("serious", "critical")
"""What axe calls the faults that keep people from using a page."""
SCREENS = {
    f"{width}-{scheme}": {
        "viewport": {"width": width, "height": height},
        "color_scheme": scheme,
    }
    for width, height in ((390, 844), (1280, 900))
    for scheme in ("light", "dark")
}


SIGN_OF_LIFE = """
new Promise(heard => {
  const source = new EventSource("/api/events?alive=1");
  source.addEventListener("alive", () => { source.close(); setTimeout(heard, 3750); });
})
"""
"""What a page does until it has been told that its server lives."""

WITH_WORKER: dict[str, Any] = {"service_workers": "allow"}


@contextmanager
def browser() -> Iterator[Any]:
    """Start Debian's Chromium."""
    driver = import_module("playwright.sync_api")
    program = tool("chromium", "chromium")
    with driver.sync_playwright() as playwright:
        how: dict[str, Any] = {"executable_path": program, "env": leftovers.unmarked()}
        if os.geteuid() == 0:
            # Chromium's sandbox refuses to be root's.
            how["args"] = ["--no-sandbox"]
        opened = playwright.chromium.launch(**how)
        try:
            yield opened
        finally:
            opened.close()


@contextmanager
def page(opened: Any, port: int, screen: str = "390-light", **how: Any) -> Iterator[Any]:
    """The kit's page. Nothing that the browser refuses, or a script fails at, passes unseen. `how`
    else the browser is set up is Playwright's.

    The page's worker is left out unless `how` is `WITH_WORKER`: what leaves at the moment at which
    it takes the page over goes past every route of a test (Playwright, "Network": "missing
    network events and service workers").
    """
    context = opened.new_context(**SCREENS[screen], **{"service_workers": "block", **how})
    context.set_default_timeout(PATIENCE * 1000)
    shown = context.new_page()
    troubles: list[str] = []
    shown.on("pageerror", lambda error: troubles.append(str(error)))
    shown.on("console", lambda line: troubles.append(line.text) if is_trouble(line) else None)
    try:
        shown.goto(f"http://127.0.0.1:{port}/")
        shown.locator("#links article, #links .notice").first.wait_for()
        yield shown
        assert not troubles
    finally:
        close(context, shown)


def close(context: Any, shown: Any) -> None:
    """What a page asks for as it is closed is answered by nobody: a route that was about to fails
    then, and would do so in the test that comes next."""
    shown.unroute_all(behavior="ignoreErrors")
    context.close()


def is_trouble(line: Any) -> bool:
    """An agent that refuses, or is away, is no trouble of the page's own."""
    return line.type == "error" and "Failed to load resource" not in line.text


def keep(shown: Any, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    shown.screenshot(path=SHOTS / f"{name}.png")


def look_of(shown: Any, mark: str, *names: str) -> list[str]:
    """Styles of the first that a CSS `mark` finds, in one step: what is drawn anew between finding
    and asking has none."""
    shown.locator(mark).first.wait_for(state="attached")
    styles: list[str] = shown.evaluate(
        "([mark, names]) => { const is = getComputedStyle(document.querySelector(mark));"
        " return names.map((name) => is[name]); }",
        [mark, names],
    )
    return styles


def faults(shown: Any) -> list[tuple[str, list[str]]]:
    """What axe-core has against it that is serious, and where."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs extra `test`")
    violations = axe.Axe().run(shown).response["violations"]
    return [
        (each["id"], [str(node["html"])[:200] for node in each["nodes"]])
        for each in violations
        if each["impact"] in SERIOUS
    ]
