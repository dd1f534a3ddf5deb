"""An incident at the desk in Chromium: its trail on the map, its end, and the history."""

from __future__ import annotations

import csv
import json
import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fieldagent.hub.records import sos
from fieldagent.hub.store.opening import open_store
from tests import browser
from tests.hub.raising import kit_of
from tests.hub.test_console import call, console, settle_in, sign_in, sign_in_as_olga
from tests.processes import administer, agent, hub, until

pytestmark = pytest.mark.full

TRAIL = ((46.5, 7.25), (46.51, 7.26), (46.52, 7.27))


def is_red(shown: Any, mark: str, name: str = "stroke") -> bool:
    alarm = "getComputedStyle(document.documentElement).getPropertyValue('--alarm')"
    red = shown.evaluate(
        f"(() => {{ const one = document.createElement('i'); one.style.color = {alarm};"
        " document.body.append(one); const is = getComputedStyle(one).color; one.remove();"
        " return is; })()"
    )
    return browser.look_of(shown, mark, name) == [red]


@pytest.mark.parametrize("screen", ["390-dark", "1280-light"])
def test_map_shows_incident_trail_and_called_off_sos_is_not_red(
    tmp_path: Path, screen: str
) -> None:
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, screen) as shown,
    ):
        sign_in_as_olga(shown)
        with agent(tmp_path, kit_of(running, token)) as kit:
            kit.call("POST", "/api/sos", {"text": "leg broken"})
            for latitude, longitude in TRAIL:
                place = {"latitude": latitude, "longitude": longitude}
                kit.call("POST", "/api/sos", {"position": place})
                shown.locator("#sos .thread li", has_text=f"{latitude}, {longitude}").wait_for()
            shown.locator("#map .trail.alarm").wait_for()
            assert is_red(shown, "#map .trail")
            until(lambda: is_red(shown, "#map .spot", "fill"))
            short = kit.call("GET", "/api/sos").body["incident"]["short"]
            shown.locator("#map .name span", has_text=f"SOS {short}: Ada (kit-ada)").wait_for()
            shown.locator("#places", has_text=f"SOS {short}: Ada (kit-ada)").wait_for()
            assert browser.faults(shown) == []
            shown.locator("#chart").scroll_into_view_if_needed()
            browser.keep(shown, f"console-trail-{screen}")
            assert kit.call("DELETE", "/api/sos").status == 200
            shown.get_by_text("Called off from the kit").wait_for()
            shown.locator("#map .trail.off").wait_for(state="attached")
            assert not is_red(shown, "#map .trail")
            assert not is_red(shown, "#map .spot", "fill")
            assert not is_red(shown, "#sos > li", "backgroundColor")
            shown.locator("#places", has_text="called off").wait_for()
            shown.get_by_label("Reason to close").fill("found well")
            shown.get_by_role("button", name="Close", exact=True).click()
            shown.get_by_text("No SOS is open.").wait_for()
            shown.locator("#map .trail").wait_for(state="detached")
            shown.locator("#places", has_text="called off").wait_for(state="detached")
            assert not is_red(shown, "#map .spot", "fill"), "its positions were of an SOS"


@pytest.mark.parametrize("screen", ["390-light", "1280-dark"])
def test_incident_text_position_and_buttons_stay_first_with_97_kits(
    tmp_path: Path, screen: str
) -> None:
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, screen) as shown,
    ):
        sign_in_as_olga(shown)
        with agent(tmp_path, kit_of(running, token)) as kit:
            place = {"latitude": 46.5, "longitude": 7.25}
            kit.call("POST", "/api/sos", {"text": "leg broken", "position": place})
            shown.locator("#sos .thread li", has_text="46.5, 7.25").wait_for()
        with closing(sqlite3.connect(database, timeout=30)) as db, db:
            step = "INSERT INTO sos_event (sos, at, event, name, detail) VALUES (1, 2e9, ?, ?, '')"
            db.executemany(step, [("heard by", f"Kit {number}") for number in range(97)])
        shown.reload()
        shown.locator("#sos").get_by_text("(and 96 more)").wait_for()
        card = shown.locator("#sos > li")
        first = [
            card.locator(".words", has_text="leg broken"),
            card.get_by_text("Last seen: 46.5"),
            card.get_by_role("button", name="Acknowledge"),
        ]
        card.scroll_into_view_if_needed()
        tops = [each.bounding_box()["y"] - card.bounding_box()["y"] for each in first]
        assert tops == sorted(tops), "text, place, button"
        assert tops[-1] < 300
        card.get_by_text("What happened").click()
        card.locator("details").get_by_text("(and 96 more)").wait_for()
        assert card.locator("#timeline-1 > li").count() < 9
        browser.keep(shown, f"console-crowd-{screen}")
        assert browser.faults(shown) == []
        shown.goto(f"{running.address}/console/sos/1")
        shown.locator("#sos .words", has_text="leg broken").wait_for()
        card.get_by_label("Reason to close").fill("found well")
        card.get_by_role("button", name="Close", exact=True).click()
        shown.get_by_text("No SOS is open.").wait_for()
        shown.goto(f"{running.address}/console/sos/1")
        shown.locator("#named .words", has_text="leg broken").wait_for()
        assert shown.locator("#named").get_by_text("(and 96 more)").count() == 2


def has_count(entries: Any, many: int) -> bool:
    return bool(entries.count() == many)


def test_incident_history_is_searched_printed_and_exported(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, "1280-light") as shown,
    ):
        sign_in_as_olga(shown)
        with agent(tmp_path, kit_of(running, token)) as kit:
            names: list[str] = []
            for number, (text, reason) in enumerate(
                [("=leg broken", "in hospital"), ("lost in fog", "found at the hut")], 1
            ):
                kit.call("POST", "/api/sos", {"text": text})
                until(lambda: administer(database, "sos", "list", "--state", "open"))
                administer(database, "sos", "close", str(number), reason, "--by", "Olga")
                until(lambda: kit.call("GET", "/api/sos").body["incident"]["state"] == "closed")
                names.append(f"SOS {kit.call('GET', '/api/sos').body['incident']['short']}")
        shown.get_by_text("Closed SOS and alarms").click()
        entries = shown.locator("#history-list > li")
        entries.nth(1).wait_for()
        for search, left, many in (
            ("FOG", names[1], 1),
            ("hospital", names[0], 1),
            ("kit-ada", names[1], 2),
        ):
            shown.get_by_label("Find in the history").fill(search)
            shown.get_by_label("Find in the history").press("Enter")
            entries.first.get_by_text(left).wait_for()
            until(partial(has_count, entries, many))
        # A late answer belongs to an earlier search.
        held: list[Any] = []
        shown.route("**/api/sos?*text=fog", lambda route: held.append(route), times=1)
        for search in ("fog", "hospital"):
            shown.get_by_label("Find in the history").fill(search)
            shown.get_by_label("Find in the history").press("Enter")
        entries.first.get_by_text(names[0]).wait_for()
        until(lambda: shown.title() and len(held) == 1)
        with shown.expect_response("**/api/sos?*text=fog"):
            held.pop().continue_()
        shown.evaluate("fetch('/api/sos/words').then(told => told.text())")
        assert entries.count() == 1 and names[0] in entries.inner_text()
        entries.first.locator("summary").click()
        card = entries.first.locator("article")
        card.get_by_text("closed by Olga “in hospital”").first.wait_for()
        assert "=leg broken" in card.inner_text()
        assert browser.faults(shown) == []
        browser.keep(shown, "console-history")
        shown.emulate_media(media="print")
        assert card.locator(".thread li", has_text="=leg broken").is_visible()
        labels = ("#history label >> nth=0", "#history label >> nth=1")
        for hidden in ("header", "#room", "#parts", "#history button >> nth=0", *labels):
            assert not shown.locator(hidden).is_visible(), hidden
        browser.keep(shown, "console-history-print")
        shown.emulate_media(media="screen")
        with shown.expect_download() as saved:
            shown.get_by_role("link", name="CSV", exact=True).click()
        (row,) = csv.DictReader(Path(saved.value.path()).read_text("utf-8-sig").splitlines())
        assert (row["id"], row["device"], row["closed by"]) == ("1", "kit-ada", "Olga")
        assert (row["reason"], row["said"]) == ("in hospital", "'=leg broken")
        _, headers, _ = sign_in(running, "olga@example.org")
        mine = {"Cookie": headers["Set-Cookie"].partition(";")[0]}
        whole = json.loads(call(running, "GET", "/api/sos/export", **mine)[2])["sos"]
        assert [each["id"] for each in whole] == [2, 1]
        assert [step["event"] for step in whole[1]["thread"]][-1] == "closed"


def test_alarm_is_answered_under_its_own_name_and_path(tmp_path: Path) -> None:
    """The alarm is shown beside an open SOS. On the map only the kit in distress is red."""
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, "1280-light") as shown,
    ):
        sign_in_as_olga(shown)
        with closing(open_store(database)) as store:
            store.run_once(lambda db: sos.raise_incident(db, 1, 1, None, time.time(), kind="fence"))
        fence = shown.locator("#sos > li.alarm", has_text="Fence 1")
        fence.wait_for()
        assert "SOS" not in fence.inner_text()
        assert (
            shown.evaluate("import('/console/file/desk.js').then(desk => desk.distressed().length)")
            == 0
        )
        with agent(tmp_path, kit_of(running, token)) as kit:
            kit.call("POST", "/api/sos", {"text": "leg broken"})
            shown.locator("#sos > li:not(.alarm)", has_text="leg broken").wait_for()
            kinds = "desk => desk.distressed().map(each => each.id)"
            assert shown.evaluate(f"import('/console/file/desk.js').then({kinds})") == [2]
        with shown.expect_response("**/api/alarms/1/acknowledge") as answered:
            fence.get_by_role("button", name="Acknowledge").click()
        assert answered.value.headers["fieldagent-alarm"] == "fence"
        fence.get_by_text("Seen by Olga").first.wait_for()
        fence.get_by_label("Reason to close 1").fill("a cow")
        fence.get_by_role("button", name="Close").click()
        fence.wait_for(state="detached")
        shown.goto(f"{running.address}/console/alarm/1")
        shown.locator("#named article", has_text="Fence 1").wait_for()
        shown.goto(f"{running.address}/console/sos/1")
        shown.get_by_text("There is no SOS 1 here.").wait_for()
        shown.get_by_text("Closed SOS and alarms").click()
        entries = shown.locator("#history-list > li")
        entries.get_by_text("None.").wait_for()
        shown.locator("#history-kind").select_option("Alarms")
        entries.get_by_text("Fence 1 (kit-ada)").wait_for()
        with shown.expect_download() as saved:
            shown.get_by_role("link", name="CSV", exact=True).click()
        assert saved.value.suggested_filename == "alarms.csv"
        (row,) = csv.DictReader(Path(saved.value.path()).read_text("utf-8-sig").splitlines())
        assert (row["id"], row["kind"], row["reason"]) == ("1", "fence", "a cow")


def lose_next_answer(shown: Any, path: str) -> None:
    def lose(route: Any) -> None:
        route.fetch()
        route.abort()

    shown.route(path, lose, times=1)


def test_new_messages_do_not_remove_typed_text(tmp_path: Path) -> None:
    """Each message of the kit redraws the kit's card while a person types in the card."""
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, "1280-light") as shown,
    ):
        sign_in_as_olga(shown)
        with agent(tmp_path, kit_of(running, token)) as kit:
            kit.call("POST", "/api/sos", {"text": "leg broken"})
            for label, (latitude, longitude) in zip(
                ("Text to Ada, about", "Reason to close"), TRAIL, strict=False
            ):
                field = shown.get_by_label(label)
                field.fill("wait the hut")
                for _ in "the hut":
                    field.press("ArrowLeft")
                place = {"latitude": latitude, "longitude": longitude}
                kit.call("POST", "/api/sos", {"position": place})
                shown.locator("#sos .thread li", has_text=f"{latitude}, {longitude}").wait_for()
                shown.keyboard.type("at ")
                assert field.input_value() == "wait at the hut"
            # Two quick presses make one message to the kit and one line in the log. So does a third
            # press after the hub's answer was lost.
            lose_next_answer(shown, "**/api/sos/1/answer")
            write = shown.get_by_role("button", name="Write to Ada")
            write.dblclick()
            shown.get_by_text("The hub did not answer, so the result is unknown").wait_for()
            shown.locator("#sos .thread li", has_text="wait at the hut").wait_for()
            write.click()
            shown.get_by_text("What happened").click()
            shown.get_by_label("Note on").fill("two are with her")
            shown.get_by_role("button", name="Note", exact=True).dblclick()
            shown.locator("#sos details li", has_text="noted by Olga").first.wait_for()
            until(lambda: shown.get_by_label("Text to Ada, about").input_value() == "")
            happened = administer(database, "sos", "show", "1")["timeline"]
            hers = [each["event"] for each in happened if each["event"] in ("answered", "note")]
            assert hers == ["answered", "note"]
