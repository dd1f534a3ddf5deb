"""The SOS from a finger to a dispatcher's screen and back, in Debian's Firefox: a second browser
engine, a reload at each step, and only the keyboard.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.agent.test_wrong_clock import DAY, FAKETIME, environment
from tests.firefox import Firefox, firefox
from tests.hub.test_console import SECRET, settle_in
from tests.machine import needs
from tests.processes import MODULE, agent, hub, until

pytestmark = pytest.mark.full

YEAR = 31_557_600
"""Seconds."""


def open_page(shown: Firefox, address: str) -> None:
    """Open the page twice, so that no shown content is left from before."""
    shown.goes_to(address)
    shown.goes_to(address)


def press_button(
    shown: Firefox, by: str, mark: str, key: str = "Enter", *, words: str = ""
) -> None:
    """Press the button with that selector or these words, with a finger or only with the
    keyboard.
    """
    if by == "finger":
        shown.holds(mark, 50, words=words)
    else:
        shown.goes_by_tab_to(words or mark.removeprefix("#"))
        shown.presses(key)


def sign_in(desk: Firefox) -> None:
    """Sign in with the keyboard."""
    desk.sees("#enter")
    desk.evaluate("document.querySelector('[name=username]').focus()")
    desk.presses("olga@example.org", "Tab", SECRET.strip(), "Enter")
    desk.sees("#desk", "No SOS is open.")


@pytest.mark.parametrize("by", ["finger", "keyboard"])
def test_sos_from_page_is_answered_at_console_and_called_off(tmp_path: Path, by: str) -> None:
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    (tmp_path / "Olga").mkdir()
    with (
        hub(tmp_path, {"database": database}) as cloud,
        agent(
            tmp_path,
            {"satellite-port": None, "hub-address": cloud.address, "hub-token": token},
        ) as kit,
        firefox(tmp_path) as ada,
        firefox(tmp_path / "Olga") as olga,
    ):
        ada.size(390, 844)
        page = f"http://127.0.0.1:{kit.port}/"
        olga.goes_to(f"{cloud.address}/console")
        sign_in(olga)
        open_page(ada, page)
        ada.sees("#links article.good")
        assert ada.evaluate("document.documentElement.scrollWidth") <= 390
        if by == "finger":
            ada.holds("#raise", 400)
            assert not ada.evaluate("document.getElementById('confirm').open"), "too short"
            ada.holds("#raise")
        else:
            ada.goes_by_tab_to("raise")
            ada.presses("Space")
        ada.sees("#confirm", "Send an SOS?")
        if by == "keyboard":
            # An accidental key press has sent nothing.
            assert ada.focused == "sos-back"
            ada.goes_by_tab_to("sos-text", back=True)
            ada.presses("leg broken")
        press_button(ada, by, "#sos-send")
        ada.sees("#alarms .own", "at the hub")
        open_page(ada, page)
        ada.sees("#alarms .own", "at the hub")

        words = "leg broken" if by == "keyboard" else ""
        olga.sees("#sos li.open", words)
        assert olga.evaluate("document.title") == "1 SOS · fieldagent console"
        open_page(olga, f"{cloud.address}/console")
        olga.sees("#sos li.open", words)
        press_button(olga, by, "#sos li.open button", words="Acknowledge")
        olga.sees("#sos li.seen", "Seen by Olga")
        ada.sees("#alarms .own", "seen by Olga")
        open_page(ada, page)
        ada.sees("#alarms .own", "seen by Olga")

        press_button(ada, by, "#call-off-open")
        ada.sees("#call-off", "Call off the SOS?")
        press_button(ada, by, "#call-off-send", "Space")
        ada.sees("#alarms .own.over", "called off")
        until(lambda: kit.call("GET", "/api/status").body["sos"]["active"] == 0)
        olga.sees("#sos li", "called off")


def test_message_is_sent_and_handbook_opens_by_keyboard(tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": None}) as kit, firefox(tmp_path) as shown:
        open_page(shown, f"http://127.0.0.1:{kit.port}/")
        shown.sees("#links")
        shown.goes_by_tab_to("field-content")
        shown.presses("hut reached")
        shown.goes_by_tab_to("submit")
        shown.presses("Enter")
        shown.sees("#conversation", "hut reached")
        shown.goes_by_tab_to("help")
        shown.presses("Enter")
        shown.sees("h1", "Handbook of the kit")


@needs(FAKETIME, "apt-get install faketime")
@pytest.mark.parametrize("wrong", ["-1y", "+1y"])
def test_page_works_when_kit_clock_is_wrong_by_one_year(tmp_path: Path, wrong: str) -> None:
    """The kit does not know the time. The SOS is sent, with the times of the kit's clock."""
    away = {"satellite-port": str(tmp_path / "nobody")}
    of_today = re.compile(r"raised [0-9]{2}:[0-9]{2}\b")
    clock = environment(tmp_path, wrong)
    with agent(tmp_path, away, MODULE, **clock) as kit, firefox(tmp_path) as shown:
        there = kit.call("GET", "/api/status").body["clock"]["time"]
        assert abs(abs(there - time.time()) - YEAR) < DAY, "the kit's clock is not wrong"
        pace = {"interval": 600, "movingInterval": 60, "satelliteFactor": 2, "costly": False}
        body = {**pace, "batch": None, "moving": False, "due": there + 300}
        kit.call("POST", "/api/track/tracker", body)
        page = f"http://127.0.0.1:{kit.port}"
        open_page(shown, f"{page}/")
        shown.sees("#links")
        shown.holds("#raise")
        shown.sees("#confirm", "Send an SOS?")
        press_button(shown, "finger", "#sos-send")
        shown.sees("#alarms .own", "raised")
        until(lambda: of_today.search(shown.text("#alarms .own")))
        assert kit.call("GET", "/api/sos").body["active"] == 1
        open_page(shown, f"{page}/track")
        shown.sees("#track-due", "The next position is due at")
        assert "-" not in shown.text("#track-due"), "the next position is due today, without a date"
        ages = f"import('/page/text.js').then(text => [{YEAR}, {2 * YEAR}, -60].map(text.ago))"
        assert shown.evaluate(ages) == ["1 year ago", "2 years ago", "less than a minute ago"]
