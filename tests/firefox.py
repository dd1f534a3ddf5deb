"""Debian's Firefox, controlled by WebDriver BiDi, to test the pages in a second browser engine.

There is no driver in between: Firefox itself listens (https://w3c.github.io/webdriver-bidi/).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.machine import tool
from tests.processes import PATIENCE, Running, until

HELD = 1_700
"""Milliseconds for which a test holds a button: longer than the page requires."""
KEYS = {"Tab": "\ue004", "Enter": "\ue006", "Space": " ", "Escape": "\ue00c", "Shift": "\ue008"}
"""WebDriver's key names (https://www.w3.org/TR/webdriver2/#keyboard-actions)."""


class Firefox:
    """One Firefox window. `troubles` contains errors of the page's scripts, and requests that the
    browser has refused.
    """

    def __init__(self, there: ClientConnection) -> None:
        self._there = there
        self._last = 0
        self.troubles: list[str] = []
        self._ask("session.new", capabilities={"alwaysMatch": {"acceptInsecureCerts": True}})
        self._ask("session.subscribe", events=["log.entryAdded"])
        self._window = self._ask("browsingContext.create", type="tab")["context"]

    def close(self) -> None:
        self._ask("browser.close")

    def _ask(self, method: str, **parameters: Any) -> Any:
        self._last += 1
        self._there.send(json.dumps({"id": self._last, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._there.recv(PATIENCE))
            if message.get("method") == "log.entryAdded":
                self._note(message["params"])
            elif message.get("id") == self._last:
                assert message["type"] == "success", (method, message)
                return message["result"]

    def _note(self, entry: dict[str, Any]) -> None:
        # An agent that refuses or is away is not an error of the page.
        if entry["level"] == "error" and "NetworkError" not in (entry["text"] or ""):
            self.troubles.append(entry["text"])

    def goes_to(self, address: str) -> None:
        self._ask("browsingContext.navigate", context=self._window, url=address, wait="complete")

    def size(self, width: int, height: int) -> None:
        viewport = {"width": width, "height": height}
        self._ask("browsingContext.setViewport", context=self._window, viewport=viewport)

    def evaluate(self, expression: str) -> Any:
        """Return the value of the expression, after its promise has resolved."""
        answer = self._ask(
            "script.evaluate",
            expression=f"Promise.resolve({expression})"
            ".then(found => JSON.stringify(found ?? null))",
            target={"context": self._window},
            awaitPromise=True,
        )
        assert answer["type"] == "success", answer
        return json.loads(answer["result"]["value"])

    def text(self, mark: str) -> str:
        """Return the text of the first element that matches a CSS selector, or "" if it is missing
        or hidden.
        """
        shown: str = self.evaluate(f"document.querySelector({json.dumps(mark)})?.innerText ?? ''")
        return shown

    def sees(self, mark: str, words: str = "") -> None:
        """Wait until the element is visible and contains these words."""
        selector = json.dumps(mark)
        is_there = f"Boolean(document.querySelector({selector})?.checkVisibility())"
        until(lambda: self.evaluate(is_there) and words in self.text(mark))

    @property
    def focused(self) -> str:
        """Return the id of the focused element, or its text if it has no id."""
        here: str = self.evaluate("document.activeElement.id || document.activeElement.innerText")
        return here

    def presses(self, *keys: str, shifted: bool = False) -> None:
        """Press keys one after the other. Each is a name in `KEYS`, or text to type. With
        `shifted`, hold Shift.
        """
        shift = {"type": "keyDown", "value": KEYS["Shift"]}
        actions: list[dict[str, Any]] = [shift] * shifted
        for key in keys:
            for letter in (KEYS[key],) if key in KEYS else key:
                actions.append({"type": "keyDown", "value": letter})
                actions.append({"type": "keyUp", "value": letter})
        actions += [{**shift, "type": "keyUp"}] * shifted
        self._act({"type": "key", "id": "keyboard", "actions": actions})

    def goes_by_tab_to(self, wanted: str, most: int = 80, *, back: bool = False) -> None:
        """Move the focus with the Tab key only, like a person without a pointer. Do not go past
        either end: the window itself then has the focus, and keys sent to the page have no
        effect.
        """
        way = []
        for _ in range(most):
            if self.focused == wanted:
                return
            self.presses("Tab", shifted=back)
            way.append(self.focused)
        raise AssertionError(f"{wanted} is not reached by Tab: {way}")

    def holds(self, mark: str, milliseconds: int = HELD, *, words: str = "") -> None:
        """Touch the first element that matches the selector, or the one with exactly these
        words.
        """
        elements = f"[...document.querySelectorAll({json.dumps(mark)})]"
        x, y = self.evaluate(
            f"(() => {{ const it = {elements}.find(each => ['', each.innerText].includes("
            f"{json.dumps(words)})); it.scrollIntoView({{ block: 'center' }});"
            " const at = it.getBoundingClientRect();"
            " return [at.x + at.width / 2, at.y + at.height / 2]; })()"
        )
        self._act(
            {
                "type": "pointer",
                "id": "finger",
                "parameters": {"pointerType": "touch"},
                "actions": [
                    {"type": "pointerMove", "x": round(x), "y": round(y)},
                    {"type": "pointerDown", "button": 0},
                    {"type": "pause", "duration": milliseconds},
                    {"type": "pointerUp", "button": 0},
                ],
            }
        )

    def _act(self, *sources: dict[str, Any]) -> None:
        self._ask("input.performActions", context=self._window, actions=list(sources))


@contextmanager
def firefox(home: Path) -> Iterator[Firefox]:
    """Open a window of a fresh profile."""
    program = tool("firefox-esr", "firefox-esr")
    profile = home / "firefox"
    profile.mkdir()
    command = [
        *(program, "--headless", "--no-remote"),
        *("--profile", str(profile), "--remote-debugging-port", "0"),
    ]
    with (
        Running(command, "WebDriver BiDi listening on") as there,
        connect(f"{there.ready.rpartition(' ')[2]}/session", max_size=None) as connection,
    ):
        window = Firefox(connection)
        try:
            yield window
            assert not window.troubles, window.troubles
        finally:
            window.close()
