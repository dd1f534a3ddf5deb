"""Two dispatchers at their consoles: who is on watch, handed over with a note, and nobody."""

from __future__ import annotations

from pathlib import Path

from tests import browser
from tests.hub.test_console import SECRET, console, settle_in, sign_in_as_olga
from tests.hub.test_console_administration import sign_in
from tests.processes import administer, hub


def test_the_watch_goes_from_one_to_the_next(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    ben = str(administer(database, "user", "add", "Ben")["id"])
    administer(database, "user", "password", "Ben", secret=SECRET)
    administer(database, "user", "role", "Ben", "dispatcher")
    administer(database, "watch", "hours", "always")
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, "390-dark") as olgas,
        console(opened, running, "1280-light") as bens,
    ):
        sign_in_as_olga(olgas)
        told = olgas.locator("#watch-told")
        told.get_by_text("Nobody is on watch, and somebody is to be: always.").wait_for()
        olgas.get_by_role("button", name="Take the watch for 8 hours").click()
        told.get_by_text("On watch: Olga until").wait_for()
        olgas.get_by_text("Hand over my watch").click()
        olgas.locator("#watch-to option", has_text="Ben").wait_for(state="attached")
        assert olgas.locator("#watch-to option").all_inner_texts() == ["Ben"]
        olgas.get_by_label("What they must know").fill("Ada is <b>late</b>")
        olgas.get_by_role("button", name="Ask them").click()
        told.get_by_text("who asks Ben to take it: Ada is <b>late</b>").wait_for()
        assert browser.faults(olgas) == []
        # Until he has taken it, it is hers.
        sign_in(bens, ben, SECRET.strip())
        bens.locator("#watch-told").get_by_text("On watch: Olga").wait_for()
        bens.get_by_role("button", name="Take the watch from Olga").click()
        bens.locator("#watch-told").get_by_text("On watch: Ben until").wait_for()
        bens.get_by_text("Who was on watch").click()
        bens.locator("#watch-list").get_by_text("Ada is <b>late</b>").wait_for()
        assert browser.faults(bens) == []
        browser.keep(bens, "console-watch-1280-light")
        bens.get_by_role("button", name="End my watch").click()
        bens.locator("#watch-told.fault, #watch-told").get_by_text("Nobody is on watch").wait_for()
