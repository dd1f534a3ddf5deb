"""Debian's Chromium, used as a person uses it: by the visible content, with keyboard and
pointer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests import leftovers
from tests.machine import tool
from tests.processes import PATIENCE

SHOTS = Path(__file__).parents[1] / "dist/screenshots"
"""Folder of the screenshots."""
SERIOUS = ("serious", "critical")
"""Impact levels of axe-core at which a fault makes a page unusable for some people."""
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
"""Script that resolves after the page has noticed that its server is alive."""

WITH_WORKER: dict[str, Any] = {"service_workers": "allow"}


class Chromium:
    """Debian's Chromium, shared by all tests of this process, because a start costs seconds of
    processor time.

    Playwright leaves its event loop running in this thread between two calls, and other asyncio
    code would find it. `used` therefore removes the loop after each use.
    """

    def __init__(self) -> None:
        self._ends = ExitStack()
        driver = import_module("playwright.sync_api")
        with pytest.MonkeyPatch.context() as unmarked:
            # Without its mark, the driver is not reported as left running by the first test.
            unmarked.delenv(leftovers.MARK, raising=False)
            playwright = self._ends.enter_context(driver.sync_playwright())
        program = tool("chromium", "chromium")
        how: dict[str, Any] = {"executable_path": program, "env": leftovers.unmarked()}
        if os.geteuid() == 0:
            # Chromium refuses to run as root with its sandbox.
            how["args"] = ["--no-sandbox"]
        self.opened = playwright.chromium.launch(**how)
        self._loop = asyncio._get_running_loop()
        self._ends.callback(self.opened.close)

    @contextmanager
    def used(self) -> Iterator[Any]:
        asyncio._set_running_loop(self._loop)
        try:
            yield self.opened
        finally:
            for context in self.opened.contexts:
                context.close()
            asyncio._set_running_loop(None)

    def close(self) -> None:
        asyncio._set_running_loop(self._loop)
        self._ends.close()


_kept: list[Chromium | None] = []


def keep_open() -> None:
    """Share one Chromium among all uses of `browser` in this process, until `close_kept` is
    called.
    """
    _kept.append(None)


def close_kept() -> None:
    while _kept:
        if chromium := _kept.pop():
            chromium.close()


@contextmanager
def browser() -> Iterator[Any]:
    """Yield Debian's Chromium without an open context."""
    chromium = _kept[0] if _kept else None
    if chromium is None or not chromium.opened.is_connected():
        chromium = Chromium()
    if _kept:
        _kept[0] = chromium
    with chromium.used() as opened:
        yield opened
    if not _kept:
        chromium.close()


@contextmanager
def page(opened: Any, port: int, screen: str = "390-light", **how: Any) -> Iterator[Any]:
    """Yield the kit's page. The test fails if the browser refuses something or a script fails.
    `how` contains further options of Playwright's context.

    The page's service worker is blocked unless `how` is `WITH_WORKER`. Requests at the moment when
    the worker takes over would bypass every route of a test (Playwright, "Network": "missing
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
    """Remove the routes of the context, then close it. A route that answered a request of a closing
    page would fail, and the error would appear in the next test.
    """
    shown.unroute_all(behavior="ignoreErrors")
    context.close()


def is_trouble(line: Any) -> bool:
    """Return True for an error of the page itself. An agent that refuses or is away causes no such
    error.
    """
    return line.type == "error" and "Failed to load resource" not in line.text


def keep(shown: Any, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    shown.screenshot(path=SHOTS / f"{name}.png")


def look_of(shown: Any, mark: str, *names: str) -> list[str]:
    """Return computed CSS styles of the first element that matches the selector `mark`. They are
    read in one step, because the page could redraw the element between two steps.
    """
    shown.locator(mark).first.wait_for(state="attached")
    styles: list[str] = shown.evaluate(
        "([mark, names]) => { const is = getComputedStyle(document.querySelector(mark));"
        " return names.map((name) => is[name]); }",
        [mark, names],
    )
    return styles


def faults(shown: Any) -> list[tuple[str, list[str]]]:
    """Return the serious faults that axe-core finds in the page: pairs of a rule and the selectors
    of its elements.
    """
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs extra `test`")
    violations = axe.Axe().run(shown).response["violations"]
    return [
        (each["id"], [str(node["html"])[:200] for node in each["nodes"]])
        for each in violations
        if each["impact"] in SERIOUS
    ]
