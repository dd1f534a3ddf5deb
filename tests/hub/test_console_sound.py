"""The sound of the desk: Chromium plays nothing before a person has clicked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import browser
from tests.hub.raising import kit_of
from tests.hub.test_console import console, settle_in, sign_in_as_olga
from tests.processes import agent, hub, until

pytestmark = pytest.mark.full

HEARD = """
window.heard = 0;
const create = AudioContext.prototype.createOscillator;
AudioContext.prototype.createOscillator = function () {
  const tone = create.call(this);
  // A tone ends by the clock of what is played: it stands still where nothing is.
  tone.addEventListener("ended", () => { window.heard += 1; });
  return tone;
};
"""


def heard(shown: Any, more_than: int) -> int:
    """Wait until more than that number of tones were played, and return their number."""
    until(lambda: shown.evaluate("heard") > more_than)
    return int(shown.evaluate("heard"))


def test_console_reports_silence_after_a_reload_until_a_click(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, "1280-light") as shown,
    ):
        shown.add_init_script(HEARD)
        shown.reload()
        silent = shown.get_by_role("alert").filter(has_text="Sound is off")
        # The sign-in was a click, so the test is audible.
        sign_in_as_olga(shown)
        silent.wait_for(state="hidden")
        shown.get_by_role("button", name="Test the sound").click()
        heard(shown, 0)

        shown.reload()
        silent.wait_for()
        with agent(tmp_path, kit_of(running, token)) as kit:
            kit.call("POST", "/api/sos", {"text": "leg broken"})
            shown.locator("#sos li.open .words", has_text="leg broken").wait_for()
            assert shown.title() == "1 SOS · fieldagent console"
            assert silent.is_visible() and shown.evaluate("heard") == 0
            red = "getComputedStyle(document.getElementById('silent')).backgroundColor"
            alarm = "getComputedStyle(document.querySelector('#sos li.open')).backgroundColor"
            assert shown.evaluate(red) == shown.evaluate(alarm)
            assert browser.faults(shown) == []
            browser.keep(shown, "console-silent")
            # After one button, the waiting SOS sounds repeatedly.
            shown.get_by_role("button", name="Turn it on").click()
            silent.wait_for(state="hidden")
            first = heard(shown, 0)
            heard(shown, first)
            shown.get_by_role("button", name="Acknowledge").click()
            shown.locator("#sos li.seen").wait_for()

        shown.reload()
        silent.wait_for()
        # *Test the sound* turns it on, too.
        shown.get_by_role("button", name="Test the sound").click()
        heard(shown, 0)
        silent.wait_for(state="hidden")


IPHONE = """
Object.defineProperty(Navigator.prototype, "standalone", { get: () => false });
delete window.PushManager;
"""
"""Safari on iOS, with a page that is not on the home screen."""


def test_console_is_installable_on_iphone_and_shows_a_hint(tmp_path: Path) -> None:
    """iOS gives web push only to a page with a web manifest that is on the home screen."""
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, "1280-light") as shown,
    ):
        asked = shown.context.new_cdp_session(shown)
        answer = asked.send("Page.getAppManifest")
        assert answer["url"].endswith("/console/file/console.webmanifest")
        assert answer["errors"] == []
        manifest = json.loads(answer["data"])
        assert (manifest["start_url"], manifest["display"]) == ("/console", "standalone")
        named = shown.locator("link[rel=apple-touch-icon]").get_attribute("href")
        for icon in {named, *(each["src"] for each in manifest["icons"])}:
            size = shown.evaluate(
                "async address => { const drawn = new Image(); drawn.src = address;"
                " await drawn.decode(); return drawn.naturalWidth; }",
                icon,
            )
            assert size == (180 if str(icon).endswith(".png") else size) > 0
        assert shown.locator("#home-screen").is_hidden()
        shown.add_init_script(IPHONE)
        shown.reload()
        sign_in_as_olga(shown)
        shown.locator("#home-screen", has_text="add this page to the home screen").wait_for()
        assert shown.locator("#push").is_hidden()
        assert browser.faults(shown) == []
