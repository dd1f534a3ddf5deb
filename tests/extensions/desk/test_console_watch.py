"""Two dispatchers at their consoles: the watch and an SOS go from one to the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import browser
from tests.hub.raising import kit_of
from tests.hub.test_console import SECRET, console, settle_in, sign_in_as_olga
from tests.hub.test_console_administration import sign_in
from tests.processes import administer, agent, hub, until

pytestmark = pytest.mark.full


def test_watch_is_handed_over_between_dispatchers(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    ben = str(administer(database, "user", "add", "Ben")["id"])
    administer(database, "user", "password", "Ben", secret=SECRET)
    administer(database, "user", "role", "Ben", "dispatcher")
    administer(database, "contact", "watch", "hours", "always")
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, "390-dark") as olgas,
        console(opened, running, "1280-light") as bens,
    ):
        sign_in_as_olga(olgas)
        notice = olgas.locator("#watch-told")
        notice.get_by_text("No one is on watch, but someone must be: always.").wait_for()
        olgas.get_by_role("button", name="Take the watch for 8 hours").click()
        notice.get_by_text("On watch: Olga until").wait_for()
        olgas.get_by_text("Hand over my watch").click()
        olgas.locator("#watch-to option", has_text="Ben").wait_for(state="attached")
        assert olgas.locator("#watch-to option").all_inner_texts() == ["Ben"]
        olgas.get_by_label("Information for them").fill("Ada is <b>late</b>")
        olgas.get_by_role("button", name="Ask them").click()
        notice.get_by_text("hand-over to Ben requested: Ada is <b>late</b>").wait_for()
        assert browser.faults(olgas) == []
        # The watch stays with Olga until Ben has taken it.
        sign_in(bens, ben, SECRET.strip())
        bens.locator("#watch-told").get_by_text("On watch: Olga").wait_for()
        bens.get_by_role("button", name="Take the watch from Olga").click()
        bens.locator("#watch-told").get_by_text("On watch: Ben until").wait_for()
        bens.get_by_text("Earlier watches").click()
        bens.locator("#watch-list").get_by_text("Ada is <b>late</b>").wait_for()
        assert browser.faults(bens) == []
        browser.keep(bens, "console-watch-1280-light")
        bens.get_by_role("button", name="End my watch").click()
        bens.locator("#watch-told.fault, #watch-told").get_by_text("No one is on watch").wait_for()


def test_sos_is_handed_over_between_dispatchers(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    ben = str(administer(database, "user", "add", "Ben")["id"])
    administer(database, "user", "password", "Ben", secret=SECRET)
    administer(database, "user", "role", "Ben", "dispatcher")
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, "390-dark") as olgas,
        console(opened, running, "1280-light") as bens,
        agent(tmp_path, kit_of(running, token)) as kit,
    ):
        sign_in_as_olga(olgas)
        sign_in(bens, ben, SECRET.strip())
        kit.call("POST", "/api/sos", {"text": "leg broken"})
        olgas.get_by_role("button", name="Acknowledge").click()
        olgas.get_by_role("button", name="Hand over").click()
        olgas.locator("#sos-heir-1").select_option("Ben")
        olgas.locator("#sos-heir-note-1").fill("heli at 14:00")
        olgas.get_by_role("button", name="Request a hand-over").click()
        asked = bens.locator("#sos .thread").get_by_text("handed over by Olga")
        asked.get_by_text("to Ben, once they take it: heli at 14:00").wait_for()
        rings = "document.title.startsWith('1 SOS')"
        bens.wait_for_function(f"() => {rings}")
        olgas.locator("#sos").get_by_text("hand-over to Ben requested").wait_for()
        assert not olgas.evaluate(rings)
        assert browser.faults(olgas) == []
        # The SOS stays with Olga, and the kit shows her name, until Ben has taken it.
        assert administer(database, "sos", "list")[0]["seen"]["by"]["name"] == "Olga"
        bens.get_by_role("button", name="Take it over").click()
        olgas.locator("#sos").get_by_text("Seen by Ben").wait_for()
        bens.wait_for_function(f"() => !{rings}")
        until(lambda: "Ben" in json.dumps(kit.call("GET", "/api/sos").body))
