"""The kit's page in a real browser: all its controls, on a phone and on a desktop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fieldagent.package.distress import Call
from tests import disk
from tests.browser import SCREENS, SIGN_OF_LIFE, WITH_WORKER, close, faults, keep, page
from tests.disk import Fault
from tests.package import test_distress as distress_cases
from tests.page.test_map_file import write_map
from tests.processes import MODULE, Agent, Running, administer, agent, frozen, hub, sky, until

SETTINGS: dict[str, str | None] = {
    "satellite-credits-per-day": "200",
    "satellite-sos-reserve": "20",
    "sos-repeat": "600",
    "inbound-hook": "cat >/dev/null",
}


def choose(shown: Any, what: str) -> None:
    shown.locator(f"[data-show={what}]").click()


def fill(shown: Any, kind: str, **fields: str) -> None:
    choice = shown.locator(f"label:has([value={kind}])")
    if not choice.is_visible():
        shown.locator("#more-kinds").click()
    choice.click()
    for name, text in fields.items():
        shown.locator(f"#field-{name}").fill(text)


def hold(shown: Any, *, long: bool = True) -> None:
    """Hold the button like a finger, which leaves when it sees the effect, or immediately."""
    button = shown.locator("#raise")
    for _ in range(9):
        button.scroll_into_view_if_needed()
        button.hover()
        shown.mouse.down()
        # On a slow machine, the button was held long enough before the page could show it.
        if button.evaluate("it => it.matches('.held') || document.querySelector('#confirm').open"):
            break
        # New content above has moved the button away before the finger arrived.
        shown.mouse.up()
    if long:
        shown.locator("#confirm[open]").wait_for()
    shown.mouse.up()


class World:
    """One sky and one kit for all screens. Each screen finds the messages of the previous ones."""

    def __init__(self, above: Running, kit: Agent) -> None:
        self.sky = above
        self.kit = kit


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[World]:
    home = tmp_path_factory.mktemp("kit")
    with sky(home, 0) as above, agent(home, SETTINGS) as kit:
        kit.post("Camp reached")
        yield World(above, kit)


@pytest.mark.full
@pytest.mark.parametrize("screen", SCREENS)
def test_every_control_of_page_works(chromium: Any, world: World, screen: str) -> None:
    with page(chromium, world.kit.port, screen) as shown:
        send_each_kind(shown, screen)
        check_faults_beside_fields(shown)
        check_question_for_sos_priority(shown)
        check_question_for_sos_text(shown, screen)
        check_received_message_appears(shown, world, f"hello {screen} <b>\u202e")
        check_filters_and_history(shown)
        check_signal_plot(shown, world)
        check_positions_on_map(shown, world)
        keep(shown, f"map-{screen}")
        keep(shown, f"page-{screen}")
        assert not faults(shown)
        check_double_text_size_fits_width(shown)
        raise_and_call_off(shown, screen)


def send_each_kind(shown: Any, screen: str) -> None:
    entries = shown.locator("#conversation li.sent")
    fill(shown, "message", content=f"from {screen}")
    shown.locator("#cost", has_text="Satellite: 1 part").wait_for()
    assert "left today" in shown.locator("#cost").inner_text()
    shown.locator("#submit").click()
    shown.locator("#done", has_text="in the queue").wait_for()
    assert shown.locator("#field-content").input_value() == ""
    entries.filter(has_text=f"from {screen}").filter(has_text="Delivered").wait_for()
    fill(shown, "location", latitude="47.3769", longitude="8.5417", altitude="400")
    shown.locator("#submit").click()
    entries.filter(has_text="47.3769, 8.5417").first.wait_for()
    fill(shown, "waypoint", latitude="47.1", longitude="8.2", name=f"Hut {screen}", notes="cold")
    shown.locator("#submit").click()
    entries.filter(has_text=f"Hut {screen}: cold").wait_for()
    fill(shown, "data", payload="AAE=")
    before = entries.filter(has_text="you · data").count()
    shown.locator("#submit").click()
    entries.filter(has_text="you · data").nth(before).wait_for()


def check_faults_beside_fields(shown: Any) -> None:
    fill(shown, "location", latitude="95")
    shown.locator("#field-latitude-fault", has_text="must be from -90 to 90 degrees").wait_for()
    # A field is not marked as wrong before the person has visited it or sends the form.
    assert shown.locator("#field-longitude-fault").inner_text() == ""
    shown.locator("summary", has_text="Sending options").click()
    shown.locator("#field-timeToLive").fill("0")
    shown.locator("#submit").click()
    shown.locator("#field-longitude-fault", has_text="is required").wait_for()
    assert "1 second or more" in shown.locator("#field-timeToLive-fault").inner_text()
    assert shown.evaluate("document.activeElement.id") == "field-latitude"
    for name in ("latitude", "longitude", "timeToLive"):
        assert shown.locator(f"#field-{name}").get_attribute("aria-invalid") == "true"
    shown.locator("#field-timeToLive").fill("")
    shown.locator("summary", has_text="Sending options").click()
    shown.locator("label:has([value=message])").click()


def check_question_for_sos_priority(shown: Any) -> None:
    fill(shown, "message", content="not that urgent")
    shown.locator("summary", has_text="Sending options").click()
    shown.locator("#field-priority").fill("100")
    for leave in ("#urgent-back", "Escape"):
        shown.locator("#submit").click()
        shown.locator("#urgent[open]").wait_for()
        assert shown.evaluate("document.activeElement.id") == "urgent-back"
        if leave == "Escape":
            shown.keyboard.press(leave)
        else:
            shown.locator(leave).click()
        shown.locator("#urgent[open]").wait_for(state="detached")
        assert shown.locator("#field-content").input_value() == "not that urgent"
    for name in ("priority", "content"):
        shown.locator(f"#field-{name}").fill("")
    shown.locator("summary", has_text="Sending options").click()


def check_question_for_sos_text(shown: Any, screen: str) -> None:
    for call, texts in distress_cases.CASES.items():
        for text in texts:
            asks = "text => import('/page/send.js').then(all => all.isCall(text))"
            assert shown.evaluate(asks, text) is (call is Call.SOS), text
    said = f"SOS {screen}, a song"
    fill(shown, "message", content=said)
    for leave in ("urgent-back", "urgent-message"):
        shown.locator("#submit").click()
        shown.locator("#urgent-words", has_text="reads like a call for help").wait_for()
        assert not shown.locator("#urgent-priority").is_visible()
        shown.locator(f"#{leave}").click()
        shown.locator("#urgent[open]").wait_for(state="detached")
    sent = shown.locator("#conversation li.sent").filter(has_text=said)
    sent.filter(has_text="Delivered").wait_for()
    assert shown.locator("#alarms .own:not(.over)").count() == 0, "an SOS was raised"


def check_double_text_size_fits_width(shown: Any) -> None:
    shown.evaluate("document.documentElement.style.fontSize = '200%'")
    shown.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
    shown.evaluate("document.documentElement.style.fontSize = ''")


def check_received_message_appears(shown: Any, world: World, text: str) -> None:
    world.sky.type(f"mt {text}")
    # The text is shown as text, without characters that change the direction of the line.
    written = text.replace("\u202e", "\\x202e")
    shown.locator("#conversation li.received", has_text=written).wait_for()
    shown.locator("#news", has_text=written).wait_for(state="attached")
    assert not shown.locator("#conversation li.received b").filter(has_text="\\x202e").count()


@pytest.mark.full
def test_first_received_message_is_announced(chromium: Any, tmp_path: Path) -> None:
    """A screen reader announces the first message like any other."""
    with sky(tmp_path, 0) as above, agent(tmp_path) as kit, page(chromium, kit.port) as shown:
        shown.locator("#nothing", has_text="Nothing sent or received yet.").wait_for()
        above.type("mt storm at noon")
        shown.locator("#conversation li.received", has_text="storm at noon").wait_for()
        shown.locator("#news", has_text="storm at noon").wait_for(state="attached")


def check_filters_and_history(shown: Any) -> None:
    choose(shown, "received")
    shown.locator("#conversation li.received").first.wait_for()
    shown.locator("#conversation li.sent").first.wait_for(state="detached")
    choose(shown, "failed")
    shown.locator("#nothing", has_text="No failures").wait_for()
    choose(shown, "waiting")
    shown.locator("#nothing", has_text="Nothing is waiting").wait_for()
    choose(shown, "all")
    entry = shown.locator("#conversation li.sent").first
    entry.locator("summary").focus()
    shown.keyboard.press("Enter")
    entry.locator(".story", has_text="accepted").wait_for()
    shown.keyboard.press("Enter")


def check_signal_plot(shown: Any, world: World) -> None:
    for bars in (2, 5):
        world.sky.type(f"signal {bars}")
        shown.locator("#links .signal", has_text=f"signal {bars} of 5").wait_for()
    label = shown.locator("#links .plot").get_attribute("aria-label")
    assert "of 5 bars" in label


def check_positions_on_map(shown: Any, world: World) -> None:
    world.sky.type("mt-location 46.5 7.25")
    places = shown.locator("#places li")
    places.filter(has_text="this kit 47.37690, 8.54170").wait_for()
    there = places.filter(has_text="46.50000, 7.25000")
    there.wait_for()
    shown.locator("#map path.track.own").wait_for(state="attached")
    shown.locator("#map path.grid").first.wait_for(state="attached")
    shown.locator("#map .degree", has_text="°").first.wait_for()
    shown.locator("#map").press("-")
    degrees = shown.locator("#map .degree").all_inner_texts()
    assert all(abs(float(each.rstrip("°"))) <= 180 for each in degrees), degrees
    assert shown.locator("#map .leaflet-control-scale").inner_text().endswith("m")
    there.get_by_role("button").focus()
    shown.keyboard.press("Enter")
    shown.locator("#map .name", has_text="Hut").first.wait_for(state="attached")
    shown.locator("#map").focus()
    shown.keyboard.press("+")
    with shown.expect_download() as saved:
        shown.locator("#chart a", has_text="GPX").first.click()
    assert saved.value.suggested_filename == "fieldagent.gpx"


@pytest.mark.full
def test_page_warns_while_journal_is_in_memory(
    chromium: Any, tmp_path: Path, disk_library: Path
) -> None:
    """The page shows the reason, beside an SOS that leaves in any case, and as the cause of a
    refused text.
    """
    broken = disk.faulty(disk_library, tmp_path / "state", Fault("sync", 20, times=0))
    why = "the disk cannot store data"
    with (
        sky(tmp_path, 0) as above,
        agent(tmp_path, {}, MODULE, **broken) as kit,
        page(chromium, kit.port) as shown,
    ):
        until(lambda: kit.post("ordinary").status == 507)
        notices = shown.locator("#notices", has_text="in memory, and not on the disk")
        notices.wait_for()
        assert why in notices.inner_text()
        fill(shown, "message", content="ordinary")
        shown.locator("#submit").click()
        shown.locator("#fault", has_text=why).wait_for()
        hold(shown)
        shown.locator("#confirm").wait_for()
        shown.locator("#sos-text").fill("Leg broken")
        shown.locator("#sos-send").click()
        lost = f"not on the disk, and lost if power fails: {why}"
        shown.locator("#alarms", has_text=lost).wait_for()
        above.expect("Leg broken")
        keep(shown, "journal-in-memory")


@pytest.mark.full
def test_raster_map_of_kit_is_shown(chromium: Any, tmp_path: Path) -> None:
    place = tmp_path / "alps.mbtiles"
    write_map(place)
    settings: dict[str, str | None] = {"satellite-port": None, "map-file": str(place)}
    with agent(tmp_path, settings) as kit, page(chromium, kit.port, "1280-dark") as shown:
        kit.post("nothing yet")
        shown.locator("#map img.leaflet-tile-loaded").first.wait_for()
        shown.locator("#map-source", has_text="Alps a surveyor").wait_for()
        kit.call("POST", "/api/package/async", {"location": {"latitude": 47, "longitude": 8}})
        shown.locator("#places li", has_text="47.00000, 8.00000").wait_for()
        # Beyond the map's levels, its last one is enlarged.
        shown.locator("#map .leaflet-control-zoom-in").click()
        shown.locator("#map img.leaflet-tile-loaded").first.wait_for()
        shown.locator("#map").scroll_into_view_if_needed()
        keep(shown, "map")
        assert not faults(shown)


def raise_and_call_off(shown: Any, screen: str) -> None:
    hold(shown, long=False)
    assert not shown.locator("#confirm").is_visible()
    hold(shown)
    shown.locator("#confirm").wait_for()
    keep(shown, f"confirm-{screen}")
    # A key that is held down raises nothing, because Back has the focus.
    for _ in range(5):
        shown.keyboard.down("Enter")
    shown.keyboard.up("Enter")
    shown.locator("#confirm").wait_for(state="hidden")
    # A keyboard or a screen reader presses it.
    shown.locator("#raise").focus()
    shown.keyboard.press("Enter")
    shown.locator("#confirm").wait_for()
    shown.get_by_role("button", name="Injury").click()
    assert shown.locator("#sos-text").input_value() == "injury"
    shown.locator("#sos-text").fill("Leg broken")
    shown.locator("#sos-latitude").fill("99")
    shown.locator("#sos-longitude").fill("8.5")
    shown.locator("#sos-send").click()
    shown.locator("#sos-fault", has_text="is raised, but its position is invalid").wait_for()
    shown.locator("#sos-latitude").fill("47° 6,5'")
    shown.locator("#sos-send").click()
    shown.locator("#confirm").wait_for(state="hidden")
    shown.locator("#alarms .ladder li", has_text="raised").wait_for()
    shown.locator("#conversation li.alarm", has_text="47.10833").first.wait_for()
    assert shown.locator("#alarms .own").count() == 1, "one incident"
    assert "SOS" in shown.title()
    keep(shown, f"sos-{screen}")
    assert not faults(shown)
    shown.locator("#call-off-open").click()
    shown.locator("#call-off-back").click()
    shown.locator("#call-off").wait_for(state="hidden")
    shown.locator("#call-off-open").click()
    shown.locator("#call-off-send").click()
    shown.locator("#alarms .own.over .ladder li", has_text="called off").wait_for()
    shown.locator("#conversation li.sent", has_text="SOS called off").last.wait_for()


@contextmanager
def two_people(
    home: Path,
) -> Iterator[tuple[str, Callable[[str], AbstractContextManager[Agent]]]]:
    """Yield a hub's database, and a function that starts Ada's or Ben's kit with a link to that
    hub.
    """
    database = str(home / "hub.sqlite3")
    administer(database, "init", "Alps")
    tokens = {}
    for name in ("Ada", "Ben"):
        (home / name).mkdir()
        user = administer(database, "user", "add", name)["id"]
        device = administer(database, "device", "add", f"kit of {name}", "--user", str(user))
        tokens[name] = device["hub-token"]
    with hub(home, {"database": database}) as cloud:

        def kit_of(name: str) -> AbstractContextManager[Agent]:
            link = {"hub-address": cloud.address, "hub-token": tokens[name]}
            hooked = {"satellite-port": None, "inbound-hook": "cat >/dev/null"}
            return agent(home / name, hooked | link)

        yield database, kit_of


def test_sos_from_page_reaches_page_of_other_kit(chromium: Any, tmp_path: Path) -> None:
    with (
        two_people(tmp_path) as (database, kit_of),
        kit_of("Ada") as kit,
        page(chromium, kit.port) as shown,
    ):
        shown.locator("#links article.good").wait_for()
        hold(shown)
        shown.locator("#sos-send").click()
        ladder = shown.locator("#alarms .ladder li")
        ladder.filter(has_text="at the hub").wait_for()
        with kit_of("Ben") as other, page(chromium, other.port) as his:
            ladder.filter(has_text="heard by Ben").wait_for()
            his.locator("#conversation li.received.alarm", has_text="SOS").wait_for()
            his.locator("#alarms.active .heard", has_text="SOS").wait_for()
            keep(his, "sos-heard")
            assert not faults(his)
            his.get_by_role("button", name="Take over").click()
            his.locator("#take-by").fill("Ben")
            his.locator("#take-send").click()
            his.locator("#alarms .heard .ladder", has_text="seen by Ben").wait_for()
            # Another kit's news has no effect at a kit with a hub.
            ladder.filter(has_text="seen by Ben").filter(has_text="(unauthenticated)").wait_for()
            assert kit.call("GET", "/api/sos").body["incident"]["state"] == "open"
            administer(database, "user", "role", "Ben", "dispatcher")
            administer(database, "sos", "acknowledge", "1", "heli is up", "--by", "Ben")
            ladder.filter(has_text="seen by Ben").filter(has_text="heli is up").wait_for()
            shown.locator("#alarms.active").wait_for()
            administer(database, "sos", "close", "1", "in hospital", "--by", "Ben")
            shown.locator("#alarms:not(.active)").wait_for()
            keep(shown, "sos-seen")
            assert not shown.locator("#call-off-open").count()


@pytest.mark.full
def test_message_from_page_reaches_page_of_other_kit(chromium: Any, tmp_path: Path) -> None:
    """The view of both at each moment, while Ben's kit is away and returns."""
    with (
        two_people(tmp_path) as (_, kit_of),
        kit_of("Ada") as kit,
        page(chromium, kit.port) as shown,
    ):
        until(lambda: kit.call("GET", "/api/people").body["complete"])
        shown.reload()
        shown.locator("#people option[value=Ben]").wait_for(state="attached")
        shown.locator("#field-to").fill("ben")
        shown.locator("#field-content").fill("Are you there?")
        shown.get_by_label("Request a read receipt").check()
        keep(shown, "send-to-a-person")
        assert not faults(shown)
        shown.locator("#submit").click()
        entry = shown.locator("#conversation li.sent", has_text="Are you there?")
        entry.filter(has_text="to Ben").filter(has_text="Delivered").wait_for()
        assert "Ben's" not in entry.inner_text()
        with kit_of("Ben") as other, page(chromium, other.port) as his:
            entry.filter(has_text="with Ben's programs").wait_for()
            assert "read" not in entry.inner_text()
            came = his.locator("#conversation li.received", has_text="Are you there?")
            came.filter(has_text="Ada").wait_for()
            keep(his, "asked-whether-it-is-read")
            assert not faults(his)
            came.get_by_role("button", name="Mark as read").click()
            came.filter(has_text="read; receipt is sent").wait_for()
            entry.filter(has_text="read at Ben's kit").wait_for()
            keep(shown, "read-by-a-person")
        # No person has this name: the page reports it, and the text stays.
        shown.locator("#field-to").fill("dora")
        shown.locator("#field-content").fill("Hello?")
        shown.locator("#submit").click()
        shown.locator("#field-to-fault", has_text="no such person: dora").wait_for()
        assert shown.locator("#field-content").input_value() == "Hello?"


HERE = {"latitude": 46.5, "longitude": 7.25, "accuracy": 12}
NEWEST_FIX = "import('/page/sos.js').then(sos => sos.fixOfBrowser()?.latitude)"
LAST = {"latitude": 47.1, "longitude": 8.2, "timestamp": "2026-01-02T03:04:05Z"}


def leave_unanswered(shown: Any) -> None:
    """Leave the permission question unanswered."""


def refuse(shown: Any) -> None:
    shown.context.new_cdp_session(shown).send(
        "Browser.setPermission", {"permission": {"name": "geolocation"}, "setting": "denied"}
    )


def find_nothing(shown: Any) -> None:
    """Grant the permission, but without any position."""
    shown.context.grant_permissions(["geolocation"])
    shown.context.new_cdp_session(shown).send("Emulation.setGeolocationOverride", {})


def time_out(shown: Any) -> None:
    shown.context.add_init_script(
        "navigator.geolocation.watchPosition = (found, failed) =>"
        " setTimeout(() => failed({code: 3, message: 'Timeout expired'}), 50)"
    )


@pytest.mark.full
@pytest.mark.parametrize("fate", [leave_unanswered, refuse, find_nothing, time_out])
def test_sos_contains_last_posted_position_if_browser_has_none(
    chromium: Any, tmp_path: Path, fate: Any
) -> None:
    """The last posted position has its own time and source."""
    with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
        kit.call("POST", "/api/package/async", {"location": LAST})
        with page(chromium, kit.port) as shown:
            fate(shown)
            shown.reload()
            shown.locator("#links article, #links .notice").first.wait_for()
            hold(shown)
            assert shown.locator("#sos-latitude").input_value() == ""
            shown.locator("#sos-send").click()
            shown.locator("#alarms .own strong", has_text="raised").wait_for()

        def positions() -> list[dict[str, Any]]:
            items = kit.call("GET", "/api/sos").body["incident"]["items"]
            return [each["position"] for each in items if "position" in each]

        # The page shows the SOS when its text is on disk. The position follows.
        until(positions)
        assert positions() == [{**LAST, "source": "last posted"}]


@pytest.mark.full
def test_position_of_browser_reaches_dispatcher_with_sos(chromium: Any, tmp_path: Path) -> None:
    """The position has its own time and source. Suggested texts are buttons in both directions."""
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "user", "add", "Ada")
    administer(database, "user", "add", "Olga")
    administer(database, "user", "role", "Olga", "dispatcher")
    token = administer(database, "device", "add", "kit", "--user", "Ada")["hub-token"]
    with hub(tmp_path, {"database": database}) as cloud:
        linked: dict[str, str | None] = {
            "satellite-port": None,
            "hub-address": cloud.address,
            "hub-token": token,
        }
        there: dict[str, Any] = {"geolocation": HERE, "permissions": ["geolocation"]}
        with agent(tmp_path, linked) as kit, page(chromium, kit.port, **there) as shown:
            hold(shown)
            shown.locator("#sos-place", has_text="from this browser").wait_for()
            assert shown.locator("#sos-latitude").input_value() == "46.500000"
            # Each position of the browser has other decimals. The position in the field does not
            # belong to these.
            shown.context.set_geolocation({**HERE, "latitude": 46.500009})
            until(lambda: shown.evaluate(NEWEST_FIX) == "46.500009")
            shown.get_by_role("button", name="Injury").click()
            keep(shown, "sos-with-position")
            assert not faults(shown)
            shown.locator("#sos-send").click()
            ladder = shown.locator("#alarms .ladder li")
            ladder.filter(has_text="at the hub").wait_for()
            administer(database, "sos", "acknowledge", "1", "how many are injured?")
            ladder.filter(has_text="“how many are injured?”").wait_for()
            shown.get_by_role("button", name="Answer").click()
            shown.get_by_role("button", name="Two are injured").click()
            keep(shown, "sos-answer")
            assert not faults(shown)
            shown.locator("#answer-send").click()
            shown.locator("#conversation li.alarm", has_text="two are injured").wait_for()

            def at_the_desk() -> list[dict[str, Any]]:
                (incident,) = administer(database, "sos", "list")
                return [each["event"] for each in incident["items"]]

            until(lambda: len(at_the_desk()) == 3)
            said = [each["content"] for each in at_the_desk() if "content" in each]
            assert said == ["injury", "two are injured"]
            (place,) = [each for each in at_the_desk() if "latitude" in each]
            assert (place["latitude"], place["source"]) == ("46.5", "browser")
            assert abs(datetime.fromisoformat(place["timestamp"]).timestamp() - time.time()) < 300


@pytest.mark.full
def test_page_keeps_text_while_agent_is_down(chromium: Any, tmp_path: Path) -> None:
    settings: dict[str, str | None] = {"satellite-port": str(tmp_path / "nobody")}
    with agent(tmp_path, settings) as kit, page(chromium, kit.port) as shown:
        kit.call("POST", "/api/package/async", {"message": {"content": "hut"}})
        fill(shown, "message", content="kept")
        cancel = shown.get_by_role("button", name="Cancel Package 1")
        shown.route("**/api/package/1**", lambda route: route.abort())
        cancel.click()
        shown.locator("#conversation .fault", has_text="does not answer").wait_for()
        shown.locator("[id^='cancel-1@']:enabled").wait_for()
        # Several presses show one fault.
        for _ in range(2):
            cancel.click()
            shown.locator("[id^='cancel-1@']:enabled").wait_for()
        assert shown.locator("#conversation .fault").count() == 1
        shown.unroute("**/api/package/1**")
        kit.kill()
        shown.locator("#away", has_text="has not answered since").wait_for()
        keep(shown, "away")
        assert not faults(shown)
        shown.locator("#submit").click()
        shown.locator("#fault", has_text="Your text is still here").wait_for()
        with agent(tmp_path, {**settings, "api-port": str(kit.port)}) as again:
            shown.locator("#away").wait_for(state="hidden")
            shown.locator("#submit").click()
            shown.locator("#conversation li", has_text="kept").wait_for()
            packages = again.call("GET", "/api/packages").body["packages"]
            assert [each["text"] for each in packages] == ["kept", "hut"]


@pytest.mark.full
def test_page_detects_agent_that_hangs(chromium: Any, tmp_path: Path) -> None:
    """The agent's connections stay open. The page notices the missing signs of life, one each
    3.75 s.
    """
    with agent(tmp_path, {"satellite-port": None}) as kit, page(chromium, kit.port) as shown:
        shown.evaluate(SIGN_OF_LIFE)
        given_up: list[str] = []
        shown.on("requestfailed", lambda call: given_up.append(urlsplit(call.url).path))
        with frozen(kit):
            shown.locator("#away", has_text="has not answered since").wait_for()
            # A call waits 20 s, so it is not the indicator.
            assert set(given_up) <= {"/api/events"}
            # An SOS that is pressed now leaves later by itself, once.
            raise_sos(shown, "leg broken")
            shown.locator("#sos-fault", has_text="use it").wait_for()
            assert "/api/sos" not in given_up, "the advice does not wait for the end of the call"
        shown.locator("#away").wait_for(state="hidden")
        shown.locator("#confirm[open]").wait_for(state="hidden")
        until(lambda: sos_texts(kit) == ["leg broken"])


@pytest.mark.full
def test_cached_page_sends_sos_when_agent_is_back(chromium: Any, tmp_path: Path) -> None:
    """The page works like an app that was opened once before. The browser keeps none of the
    content.
    """
    settings: dict[str, str | None] = {"satellite-port": None}
    with agent(tmp_path, settings) as kit, page(chromium, kit.port, **WITH_WORKER) as shown:
        kit.post("hut reached")
        shown.locator("#conversation li", has_text="hut reached").wait_for()
        kept = "caches.open('page').then(kept => kept.keys()).then(all => all.length)"
        until(lambda: shown.evaluate(kept) > 15)
        # One load through the worker, and another one without an agent.
        shown.reload()
        shown.locator("#conversation li", has_text="hut reached").wait_for()
        kit.kill()
        shown.reload(wait_until="commit")
        shown.locator("#away", has_text="does not answer").wait_for()
        assert shown.locator("#conversation li").count() == 0
        # The handbook opens too and gives advice.
        shown.locator("#help").click()
        shown.get_by_role("heading", name="If nothing is sent").wait_for()
        assert not faults(shown)
        shown.go_back(wait_until="commit")
        shown.locator("#away", has_text="does not answer").wait_for()
        raise_sos(shown, "a mistake")
        shown.locator("#sos-fault", has_text="Leave this open").wait_for()
        # After Back nothing is sent, although the next SOS starts immediately.
        shown.locator("#sos-back").click()
        raise_sos(shown, "avalanche")
        shown.locator("#sos-fault", has_text="Leave this open").wait_for()
        with agent(tmp_path, {**settings, "api-port": str(kit.port)}) as again:
            shown.locator("#alarms .own strong", has_text="raised").wait_for()
            assert sos_texts(again) == ["avalanche"]
            shown.locator("#conversation li", has_text="hut reached").wait_for()
            shown.locator("#map .degree").first.wait_for(state="attached")


@pytest.mark.full
def test_page_is_installable_as_app(chromium: Any, tmp_path: Path) -> None:
    with (
        agent(tmp_path, {"satellite-port": None}) as kit,
        page(chromium, kit.port, **WITH_WORKER) as shown,
    ):
        asked = shown.context.new_cdp_session(shown)
        answer = asked.send("Page.getAppManifest")
        assert (answer["url"].rpartition("/")[2], answer["errors"]) == ("kit.webmanifest", [])
        assert json.loads(answer["data"])["start_url"] == "/"
        # iOS accepts no SVG, and no icon of the manifest if the page names one.
        named = shown.locator("link[rel=apple-touch-icon]").get_attribute("href")
        for icon in {named, *(each["src"] for each in json.loads(answer["data"])["icons"])}:
            size = shown.evaluate(
                "async address => { const drawn = new Image(); drawn.src = address;"
                " await drawn.decode(); return drawn.naturalWidth; }",
                icon,
            )
            assert size == (180 if str(icon).endswith(".png") else size) > 0
        until(lambda: shown.evaluate("navigator.serviceWorker.ready.then(kept => !!kept.active)"))
        # A test's window keeps nothing, like a private one.
        private = {"in-incognito"}
        answer = asked.send("Page.getInstallabilityErrors")["installabilityErrors"]
        assert {each["errorId"] for each in answer} <= private


@pytest.mark.full
def test_canned_message_is_sent_with_two_presses(chromium: Any, tmp_path: Path) -> None:
    settings: dict[str, str | None] = {"canned-messages": "All well; Storm, <b>we stay</b>"}
    with sky(tmp_path), agent(tmp_path, settings) as kit, page(chromium, kit.port) as shown:
        shown.get_by_role("button", name="Storm, <b>we stay</b>").click()
        # The price is shown before it is sent, as for a typed message.
        shown.locator("#cost", has_text="1 credit").wait_for()
        shown.locator("#submit").click()
        shown.locator("#conversation li.sent", has_text="Storm, <b>we stay</b>").wait_for()
        shown.locator("label:has([value=location])").click()
        assert not shown.locator("#canned").is_visible()
        assert not faults(shown)


@pytest.mark.full
def test_position_is_filled_in_only_by_button(chromium: Any, tmp_path: Path) -> None:
    here: dict[str, Any] = {
        "geolocation": {"latitude": 46.5, "longitude": 7.9, "accuracy": 12},
        "permissions": ["geolocation"],
    }
    other = {"location": {"latitude": "47.1", "longitude": "8.2"}}
    with sky(tmp_path), agent(tmp_path) as kit:
        kit.call("POST", "/api/package", other)
        with page(chromium, kit.port, **here) as shown:
            fill(shown, "location")
            kits = shown.get_by_role("button", name="Position of this kit")
            browsers = shown.get_by_role("button", name="Here, from this browser, within 12 m")
            kits.wait_for()
            browsers.wait_for()
            assert shown.locator("#field-latitude").input_value() == ""
            kits.click()
            assert shown.locator("#field-latitude").input_value() == "47.1"
            browsers.click()
            # A comma from a phone's keyboard is accepted. One that may separate thousands causes a
            # question.
            shown.locator("#field-altitude").fill("2,450")
            shown.locator("#field-altitude-fault", has_text="must be a number").wait_for()
            shown.locator("#field-altitude").fill("2450,5")
            shown.locator("#field-altitude-fault", has_text="must be").wait_for(state="hidden")
            with shown.expect_request("**/api/package/async") as asked:
                shown.locator("#submit").click()
            assert asked.value.post_data_json["location"]["altitude"] == 2450.5
            shown.locator("#conversation li.sent", has_text="46.5, 7.9").wait_for()
            fill(shown, "message")
            assert not kits.is_visible()
        # The kit's own place is the first on the list.
        with page(chromium, kit.port) as shown:
            shown.locator("#places li").first.wait_for()
            assert "46.5" in shown.locator("#places li").first.inner_text()


def raise_sos(shown: Any, text: str) -> None:
    hold(shown)
    shown.locator("#sos-text").fill(text)
    shown.locator("#sos-send").click()


def sos_texts(kit: Agent) -> list[str]:
    incident = kit.call("GET", "/api/sos").body["incident"]
    return [each["text"] for each in incident["items"] if "text" in each] if incident else []


@pytest.mark.full
def test_page_lists_queue_of_thousand_packages(chromium: Any, tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
        with ThreadPoolExecutor(16) as callers:
            bodies = [{"message": {"content": f"log {number}"}} for number in range(1_000)]
            list(callers.map(partial(kit.call, "POST", "/api/package/async"), bodies))
        with page(chromium, kit.port, "1280-dark") as shown:
            entries = shown.locator("#conversation li.sent")
            entries.nth(49).wait_for()
            shown.locator("#waiting", has_text="(1000)").wait_for()
            choose(shown, "waiting")
            entries.nth(49).wait_for()
            assert "nobody" in entries.last.locator(".ways").inner_text()
            for count in range(100, 1_001, 50):
                shown.locator("#earlier").click()
                entries.nth(count - 1).wait_for()
            shown.locator("#earlier").wait_for(state="hidden")
            assert entries.count() == 1_000
            entries.filter(has_text="log 500").locator("button", has_text="Cancel").click()
            entries.filter(has_text="log 500").locator(".pill", has_text="Canceled").wait_for()
            # The SOS is still the first visible thing.
            hold(shown)
            shown.locator("#sos-send").click()
            shown.locator("#alarms .own strong", has_text="raised").wait_for()
            assert shown.locator("#alarms").bounding_box()["y"] == 0
            keep(shown, "queue-of-a-thousand")


SOS_FIRST = ("index.html", "page.css", "start.js", "sos.js", "agent.js", "text.js", "language.js")
SLOW = {"offline": False, "latency": 100, "downloadThroughput": 6_000, "uploadThroughput": 6_000}
"""Bytes per second, as at the edge of a kit's own Wi-Fi."""
ACTS = """
new Promise(found => {
  const painted = () => performance.getEntriesByName("first-contentful-paint")[0]?.startTime;
  let acts = 0;
  const look = () => {
    if (!document.getElementById("confirm").open) document.getElementById("raise").click();
    else acts ||= performance.now();
    if (acts && painted()) found([painted(), acts]);
    else setTimeout(look, 20);
  };
  look();
})
"""


@pytest.mark.full
@pytest.mark.parametrize("others", ["lost", "broken", "slow for ever"])
def test_sos_button_works_without_other_scripts(chromium: Any, tmp_path: Path, others: str) -> None:
    """No other script can stop the SOS, neither by its absence nor by an error."""
    with sky(tmp_path, 0), agent(tmp_path, SETTINGS) as kit:
        context = chromium.new_context(**SCREENS["390-light"])
        shown = context.new_page()

        def answer(route: Any) -> None:
            name = route.request.url.rpartition("/")[2]
            if not name or name in SOS_FIRST:
                route.continue_()
            elif others == "lost":
                route.abort()
            elif others == "broken":
                route.fulfill(content_type="text/javascript", body="throw new Error('broken')")

        shown.route(lambda url: "/api/" not in url, answer)
        shown.goto(f"http://127.0.0.1:{kit.port}/", wait_until="commit")
        # The first script works: it has loaded the canned words.
        shown.locator("#sos-words button").first.wait_for(state="attached")
        hold(shown)
        shown.locator("#sos-text").fill("avalanche")
        shown.locator("#sos-send").click()
        shown.locator("#alarms .ladder", has_text="left by Satellite").wait_for()
        (item,) = kit.call("GET", "/api/sos").body["incident"]["items"]
        assert item["text"] == "avalanche"
        if others != "slow for ever":
            assert "SOS works anyway" in shown.locator("#away").inner_text()
        close(context, shown)


@pytest.mark.full
def test_sos_button_works_within_second_on_slow_network(chromium: Any, tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": None}) as kit:
        context = chromium.new_context(**SCREENS["390-light"])
        shown = context.new_page()
        line = context.new_cdp_session(shown)
        line.send("Network.enable")
        line.send("Network.emulateNetworkConditions", SLOW)
        shown.goto(f"http://127.0.0.1:{kit.port}/", wait_until="commit")
        shown.locator("#raise").wait_for()
        painted, acts = shown.evaluate(ACTS)
        print(f"painted after {painted:.0f} ms, acts after {acts:.0f} ms")
        assert acts - painted < 1_000
        context.close()
