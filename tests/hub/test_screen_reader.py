"""A screen reader's output for an SOS, step by step, on the kit's page and at the console.

The test compares Chromium's accessibility tree of both with `screen_reader.txt`. After an intended
change, the new output is in dist/screen_reader.txt: read it aloud, and copy it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests import browser
from tests.agent.test_browser import hold
from tests.hub.test_console import SECRET, console, settle_in
from tests.processes import agent, frozen, hub

EXPECTED = Path(__file__).with_name("screen_reader.txt")
HEARD = Path(__file__).parents[2] / "dist/screen_reader.txt"
NUMBER = re.compile(r"(SOS|to close|about) [0-9]{3}\b")
"""Number of a kit's own SOS, which comes from its clock."""
MOMENT = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2} )?[0-9]{2}:[0-9]{2}(:[0-9]{2})?\b")


class Listener:
    """Records the audible content."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def hears(self, step: str, shown: Any, *marks: str) -> None:
        """Record a step: the accessibility trees of the places with these CSS selectors."""
        tree = "\n".join(shown.locator(mark).aria_snapshot() for mark in marks)
        tree = NUMBER.sub(r"\1 377", MOMENT.sub("12:34", tree))
        self.heard.append(f"# {step}\n\n{tree}\n")


def wait_for_stage(shown: Any, words: str) -> None:
    """Wait until the kit's own SOS shows that as its last stage."""
    shown.locator("#alarms .own strong", has_text=words).wait_for()


def raise_sos(ada: Any, words: str) -> None:
    hold(ada)
    ada.locator("#sos-text").fill(words)
    ada.locator("#sos-send").click()
    ada.locator("#confirm").wait_for(state="hidden")


@pytest.mark.full
def test_screen_reader_output_of_an_sos_matches_the_stored_text(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    listener = Listener()
    with (
        hub(tmp_path, {"database": database}) as cloud,
        agent(
            tmp_path,
            {"satellite-port": None, "hub-address": cloud.address, "hub-token": token},
        ) as kit,
        browser.browser() as opened,
        browser.page(opened, kit.port) as ada,
        console(opened, cloud, "1280-light") as olga,
    ):
        olga.get_by_label("User number").fill("olga@example.org")
        olga.get_by_label("Password", exact=True).fill(SECRET.strip())
        olga.get_by_role("button", name="Sign in").click()
        olga.get_by_text("No SOS is open.").wait_for()
        ada.locator("#links article.good").first.wait_for()
        listener.hears("Kit: idle", ada, "#sos")
        listener.hears("Console: idle", olga, "#calm")
        hold(ada)
        ada.locator("#sos-words button").first.wait_for()
        listener.hears("Kit: held", ada, "#confirm")
        ada.locator("#sos-back").click()
        with frozen(cloud):
            raise_sos(ada, "the rope is cut")
            wait_for_stage(ada, "raised")
            ada.locator("#alarms .again", has_text="Next try").wait_for()
            listener.hears("Kit: sent, and nobody has it", ada, "#alarms", "#sos")
        wait_for_stage(ada, "at the hub")
        listener.hears("Kit: the hub has it", ada, "#alarms", "#sos")
        card = olga.locator("#sos li.open")
        card.get_by_text("the rope is cut").first.wait_for()
        listener.hears("Console: open", olga, "#sos")
        card.get_by_role("button", name="Acknowledge").click()
        olga.locator("#sos li.seen").get_by_text("Seen by Olga,").wait_for()
        listener.hears("Console: seen", olga, "#sos")
        wait_for_stage(ada, "seen by Olga")
        listener.hears("Kit: seen by Olga", ada, "#alarms", "#sos")
        olga.get_by_label("Reason to close").fill("all are down")
        olga.get_by_role("button", name="Close", exact=True).click()
        olga.get_by_text("No SOS is open.").wait_for()
        listener.hears("Console: closed", olga, "#calm")
        wait_for_stage(ada, "closed by Olga")
        listener.hears("Kit: closed", ada, "#alarms", "#sos")
        raise_sos(ada, "again")
        wait_for_stage(ada, "at the hub")
        ada.locator("#call-off-open").click()
        listener.hears("Kit: called off?", ada, "#call-off")
        ada.locator("#call-off-send").click()
        wait_for_stage(ada, "called off")
        listener.hears("Kit: called off", ada, "#alarms", "#sos")
        olga.locator("#sos li.off").get_by_text("Called off from the kit").wait_for()
        listener.hears("Console: called off", olga, "#sos")
    HEARD.parent.mkdir(exist_ok=True)
    HEARD.write_text("\n".join(listener.heard))
    assert HEARD.read_text() == EXPECTED.read_text()
