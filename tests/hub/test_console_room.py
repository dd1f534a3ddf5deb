"""The operations room in Chromium: kits by their troubles, the map, and the conversations."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fieldagent.hub.records import contact
from fieldagent.hub.store.opening import open_store
from fieldagent.wire.kit_note import UpdateReport
from tests import browser
from tests.hub import crowd
from tests.hub.test_console import (
    NEVER_BY_ITSELF,
    SECRET,
    call,
    console,
    settle_in,
    sign_in,
    sign_in_as_olga,
)
from tests.hub.test_console_order import lose
from tests.processes import administer, hub, until

pytestmark = pytest.mark.full

NOW = 1_800_000_000.0
WELL: dict[str, Any] = {
    "id": 7,
    "name": "kit 7",
    "user": {"id": "8", "name": "Ada"},
    "imei": "300234010000001",
    "disabled": False,
    "linked": False,
    "lastContact": NOW - 60,
    "checkIn": None,
    "modems": [],
    "credits": None,
    "lastUpdate": str(UpdateReport("2", "1")),
    "settings": "3 taken",
    "trouble": None,
    "satelliteTrouble": None,
    "rebuild": None,
}
BACK = {"state": "done", "missing": 129, "back": 120, "gone": 9}
RESTORED = "other: the hub's database was restored:"
LATE = {"rule": "every 12 hours", "due": NOW - 60, "state": "late"}
DAY = 86_400
SOS = {"id": 5, "short": "377", "kind": "sos", "calledOff": None}
CASES: list[tuple[dict[str, Any], list[dict[str, Any]], float | None, list[str]]] = [
    ({}, [], NOW, []),
    ({}, [SOS], None, ["sos: SOS 377"]),
    ({}, [{**SOS, "calledOff": NOW}], None, ["sos: SOS 377, called off"]),
    ({"disabled": True, "lastContact": None}, [SOS], None, ["sos: SOS 377"]),
    ({"checkIn": LATE}, [{**SOS, "kind": "overdue"}], None, ["silent: check-in late"]),
    ({}, [{**SOS, "kind": "operator"}], None, ["other: alarm 377 about its operator"]),
    ({}, [{**SOS, "kind": "fence"}], None, ["other: alarm 377 about a fence"]),
    ({"lastContact": None}, [], None, ["silent: never heard"]),
    ({"lastContact": NOW - DAY - 1}, [], None, ["silent: not heard for a day"]),
    ({"lastContact": NOW - DAY - 1, "linked": True}, [], None, []),
    # A kit with a check-in counts as silent by its check-in.
    ({"lastContact": NOW - DAY - 1, "checkIn": {**LATE, "state": "in time"}}, [], None, []),
    (
        {"modems": [{"channel": "satellite", "battery": each} for each in (None, 20, 19)]},
        [],
        None,
        ["battery: battery of satellite at 19 %"],
    ),
    ({"credits": {"perDay": 20, "sosReserve": 5, "spent": 11}}, [], None, []),
    (
        {"credits": {"perDay": 20, "sosReserve": 5, "spent": 12}},
        [],
        None,
        ["budget: 3 of 15 credits left today"],
    ),
    (
        {"credits": {"perDay": 20, "sosReserve": 5, "spent": 18}},
        [],
        None,
        ["budget: 0 of 15 credits left today"],
    ),
    (
        {"lastUpdate": str(UpdateReport("2", "1", "no link"))},
        [],
        None,
        ["update: update: 2 fell back to 1: no link"],
    ),
    (
        {"settings": "3 refused: no such port"},
        [],
        None,
        ["update: settings: 3 refused: no such port"],
    ),
    ({"settings": "3 back"}, [], None, ["update: settings: 3 back"]),
    ({}, [], NOW + 121, ["clock: its clock is ahead"]),
    ({"trouble": "another key"}, [], None, ["other: another key"]),
    (
        {"rebuild": {**BACK, "state": "open"}},
        [],
        None,
        [f"{RESTORED} this kit has not returned its items yet"],
    ),
    (
        {"rebuild": BACK},
        [],
        None,
        [f"{RESTORED} 129 items were missing, 120 came back, 9 are lost"],
    ),
    (
        {"trouble": "another key", "lastContact": None},
        [SOS],
        NOW + DAY,
        ["sos: SOS 377", "silent: never heard", "clock: its clock is ahead", "other: another key"],
    ),
]


@pytest.fixture
def pure() -> Iterator[Callable[..., Any]]:
    """Yield a function that calls the page's module for troubles as a browser runs it, by name and
    arguments.
    """
    root = Path(crowd.__file__).parents[2] / "fieldagent"

    def alone(text: str) -> str:
        return "data:text/javascript," + "".join(f"%{byte:02x}" for byte in text.encode())

    language = alone((root / "page/language.js").read_text())
    text = (root / "hub/console/trouble.js").read_text().replace("./language.js", language)
    with browser.browser() as opened:
        shown = opened.new_page()
        url = alone(text)

        def call(name: str, *arguments: Any) -> Any:
            return shown.evaluate(
                "([url, name, given]) => import(url).then(those => those[name](...given))",
                [url, name, list(arguments)],
            )

        yield call


def test_troubles_of_a_kit_are_listed_worst_first(pure: Any) -> None:
    for members, incidents, dated, expected in CASES:
        troubles = pure("troubles", {**WELL, **members}, incidents, dated, NOW)
        assert [f"{each['kind']}: {each['text']}" for each in troubles] == expected, members


def make_kit(number: int, name: str, *kinds: str, heard: float | None = 1.0) -> dict[str, Any]:
    troubles = [{"kind": each, "text": each} for each in kinds]
    whole = {**WELL, "id": number, "name": name, "lastContact": heard, "troubles": troubles}
    return whole | {"user": {"id": "1", "name": f"User of {name}"}, "imei": f"{number:015}"}


KITS = [
    make_kit(1, "kit 10", heard=9.0),
    make_kit(2, "kit 9", "battery", heard=5.0),
    make_kit(3, "Berta", "clock", heard=None),
    make_kit(4, "kit 2", "sos", "battery", heard=7.0),
    make_kit(5, "kit 1", "silent", heard=1.0),
]


FOUND: list[tuple[dict[str, str], list[int]]] = [
    ({}, [4, 5, 2, 3, 1]),
    ({"sort": "name"}, [3, 5, 4, 2, 1]),
    ({"sort": "heard"}, [3, 5, 2, 4, 1]),
    ({"sort": "whatever an address has"}, [4, 5, 2, 3, 1]),
    ({"show": "battery"}, [4, 2]),
    ({"show": "any"}, [4, 5, 2, 3]),
    ({"find": "kit 1"}, [5, 1]),
    ({"find": "  BERTA user "}, [3]),
    ({"find": "0000004"}, [4]),
    ({"find": "nobody"}, []),
]


def test_kits_are_searched_filtered_and_sorted(pure: Any) -> None:
    for how, expected in FOUND:
        assert [each["id"] for each in pure("listed", KITS, how)] == expected, how


def test_map_points_in_one_square_are_clustered(pure: Any) -> None:
    points = [{"x": x, "y": y} for x, y in ((1, 1), (3, 5), (49, 1), (-1, 1))]
    clusters = pure("clusters", points, 48)
    assert sorted((each["x"], each["y"], len(each["those"])) for each in clusters) == [
        (-1, 1, 1),
        (2, 3, 2),
        (49, 1, 1),
    ]


def enter(shown: Any) -> None:
    shown.get_by_label("User number").fill("olga@example.org")
    shown.get_by_label("Password", exact=True).fill(SECRET.strip())
    shown.get_by_role("button", name="Sign in").click()
    shown.locator("#kits a").first.wait_for()


def settle(database: str, kits: int) -> None:
    administer(database, "init", "Alps")
    administer(
        database,
        *("user", "add", "Olga", "--email", "olga@example.org", "--password"),
        secret=SECRET,
    )
    administer(database, "user", "role", "Olga", "administrator")
    crowd.settle(database, kits)


PARTS = {"Map": "chart", "Conversation": "talk", "Kits": "fleet", "Send": "write", "SOS": "desk"}
SCREENS_HIGH = 6
"""Maximum height of a phone's page in screens, for any number of kits."""


@pytest.mark.parametrize(
    ("screen", "kits"),
    [
        ("390-light", 200),
        ("1280-dark", 200),
        pytest.param("390-dark", 1_000, marks=pytest.mark.full),
        pytest.param("1280-light", 1_000, marks=pytest.mark.full),
    ],
)
def test_console_with_many_kits_fits_each_screen(tmp_path: Path, screen: str, kits: int) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle(database, kits)
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, screen) as shown,
    ):
        # Loads that happen each minute are not caused by a press.
        shown.add_init_script(NEVER_BY_ITSELF)
        shown.reload()
        enter(shown)
        rows = shown.locator("#kits a")
        assert rows.count() == 100 and "SOS 005" in rows.first.inner_text()
        assert "check-in late" in rows.nth(1).inner_text()
        shown.locator("#map .cluster").first.wait_for()
        shown.locator("#map .name span", has_text="SOS 005: Person 1").wait_for()
        shown.locator("#sos li.open .words", has_text="leg broken").wait_for()
        browser.keep(shown, f"console-room-{kits}-{screen}")
        assert browser.faults(shown) == []
        assert fits(shown, screen)
        # Search and filter send no request to the hub.
        asked: list[str] = []
        shown.on("request", lambda request: asked.append(request.url.removeprefix(running.address)))
        shown.get_by_label("Show", exact=True).select_option("battery")
        until(lambda: rows.count() == kits // 10)
        shown.get_by_label("Find a kit").fill(f"kit {kits - 7}")
        until(lambda: rows.count() == 1)
        assert not [each for each in asked if "?device=" in each or "device=" in each]
        # A selection loads messages, their states, and the trail once each. The complete lists are
        # not loaded again.
        del asked[:]
        rows.first.click()
        shown.get_by_role("heading", name=f"Conversation with kit {kits - 7}").wait_for()
        talk = shown.locator("#items > li")
        talk.filter(has_text=f"all well at {kits - 7}").wait_for()
        out = talk.filter(has_text=f"Olga: hello {kits - 7}")
        out.get_by_text(f"waits for kit {kits - 7}").wait_for()
        talk.filter(has_text="2 positions since").wait_for()
        chosen = [
            each.partition("?")[0] for each in asked if "device=" in each or "sender=" in each
        ]
        assert sorted(chosen) == ["/api/deliveries", "/api/items", "/api/positions"]
        shown.locator("#map .track").wait_for(state="attached")
        until(lambda: is_in_view(shown, "#talk-title"))
        assert shown.url.startswith(f"{running.address}/console/kit/")
        assert "show=battery" in str(shown.url)
        assert browser.faults(shown) == []
        browser.keep(shown, f"console-kit-{kits}-{screen}")
        # The receiver is the kit's user. Others are found by name, and the chosen ones are shown.
        people = shown.locator("#people label")
        alone = [f"Person {kits - 7}"]
        until(lambda: [each.strip() for each in people.all_inner_texts()] == alone)
        shown.get_by_label("Find people or groups").fill("Person 12")
        people.nth(8).wait_for()
        shown.get_by_label("Person 12", exact=True).check()
        shown.get_by_label("Find people or groups").fill("")
        until(lambda: people.count() == 2)
        shown.get_by_text("2 receivers chosen").wait_for()
        # A reload keeps the place, and the back button leads to the previous one.
        shown.reload()
        shown.get_by_role("heading", name=f"Conversation with kit {kits - 7}").wait_for()
        rows.first.wait_for()
        assert rows.count() == 1 and shown.get_by_label("Find a kit").input_value()
        shown.go_back()
        shown.get_by_role("heading", name="All messages").wait_for()
        assert fits(shown, screen)
        if screen.startswith("390"):
            for part in PARTS:
                shown.locator("#parts").get_by_role("link", name=part, exact=True).click()
                until(partial(is_in_view, shown, f"#{PARTS[part]} h2"))


def fits(shown: Any, screen: str) -> bool:
    """Return True if nothing is wider than the screen, and the page is at most a few
    screens long.
    """
    width, height = shown.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    )
    high = shown.viewport_size["height"]
    return bool(width <= int(screen.partition("-")[0]) and height <= SCREENS_HIGH * high)


LENGTHS = "drawn => drawn.map(one => one.getAttribute('d').length)"


def has_lines_after_zoom(shown: Any) -> bool:
    """Press once more if possible. Return True if coasts and borders are visible now."""
    zoom_out = shown.get_by_role("button", name="Zoom out")
    # A busy machine draws after the last press, and then the button cannot be pressed.
    if zoom_out.is_enabled():
        zoom_out.click()
    drawn = [shown.locator(f"#map path.{lines}") for lines in ("coast", "border")]
    # The lines appear only where they are exact enough, once for each turn of the earth. Check them
    # at once: while the map moves, they may disappear.
    return all(any(length > 100 for length in each.evaluate_all(LENGTHS)) for each in drawn)


def is_in_view(shown: Any, mark: str) -> bool:
    box = shown.locator(mark).first.bounding_box()
    return bool(box and 0 <= box["y"] < shown.viewport_size["height"])


def test_url_of_an_sos_opens_its_card_also_when_closed(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle(database, 12)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE item SET restored = accepted")
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, "1280-light") as shown,
    ):
        enter(shown)
        # Coasts and borders need no map file.
        until(partial(has_lines_after_zoom, shown))
        # Only with the keyboard: from the card to the kit's conversation and back.
        shown.locator("#sos").get_by_role("link", name="conversation with kit 1").focus()
        shown.keyboard.press("Enter")
        shown.get_by_role("heading", name="Conversation with kit 1").wait_for()
        for place in ("#items", "#sos"):
            shown.locator(place).get_by_text("(brought back by a kit)").first.wait_for()
        shown.locator("#items").get_by_text("leg broken").wait_for()
        shown.get_by_role("link", name="Show SOS 005").focus()
        shown.keyboard.press("Enter")
        shown.wait_for_url(f"{running.address}/console/sos/1")
        shown.go_back()
        assert shown.url.endswith("/console/kit/1")
        administer(database, "sos", "close", "1", "found", "--by", "Olga")
        shown.get_by_text("No SOS is open.").wait_for()
        shown.locator("#kit-1 .badge").wait_for(state="detached")
        shown.go_forward()
        shown.locator("#named").get_by_text("closed by Olga “found”").first.wait_for()
        shown.goto(f"{running.address}/console/sos/99")
        shown.get_by_text("There is no SOS 99 here.").wait_for()
        shown.goto(f"{running.address}/console/kit/99")
        shown.get_by_text("No kit 99 is here").wait_for()


def test_adding_a_device_asks_for_operator_credits_and_check_in(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle(database, 1)
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, "1280-light") as shown,
    ):
        enter(shown)
        shown.goto(f"{running.address}/console/administration/devices")
        shown.get_by_label("Name of the new device").fill("kit of Mia")
        shown.get_by_label("IMEI of its modem, if it has one").fill("300234010000070")
        shown.get_by_label("Satellite operator").select_option("rockblock")
        shown.get_by_label("Maximum credits per UTC day for messages to the device").fill("40")
        shown.get_by_label("Credits of these that only an SOS may use").fill("10")
        shown.get_by_label("Check-in").select_option("every 12 hours")
        shown.get_by_role("button", name="Add the device").click()
        shown.locator("#act-done").get_by_text("kit of Mia is added").wait_for()
        made = fetch_device(shown, "kit of Mia")
        assert (made["operator"], made["checkIn"]["rule"]) == ("rockblock", "every 12 h")
        assert made["credits"] == {"perDay": 40, "sosReserve": 10, "spent": 0}
        shown.get_by_role("button", name="I have saved it").click()
        shown.get_by_label("Name of the new device").fill("kit of Eve")
        shown.get_by_label("Check-in").select_option("each day by a time")
        shown.get_by_label("That time, in UTC").fill("18:30")
        shown.get_by_role("button", name="Add the device").click()
        shown.locator("#act-done").get_by_text("kit of Eve is added").wait_for()
        assert fetch_device(shown, "kit of Eve")["checkIn"]["rule"] == "by 18:30 UTC"
        shown.get_by_role("button", name="I have saved it").click()
        shown.get_by_label("Name of the new device").fill("kit of Dan")
        shown.get_by_label("That time, in UTC").fill("25:00")
        shown.get_by_role("button", name="Add the device").click()
        shown.locator("#act-fault").get_by_text("That time must be a time such as 18:00").wait_for()


def fetch_device(shown: Any, name: str) -> Any:
    document = shown.evaluate("fetch('/api/devices').then(answer => answer.json())")
    (match,) = [each for each in document["devices"] if each["name"] == name]
    return match


def test_all_receivers_get_the_text_at_the_time_of_sending(tmp_path: Path) -> None:
    """A person types or selects other receivers while the hub is slow."""
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    administer(database, "user", "add", "Ben")
    administer(database, "device", "add", "kit-ben", "--user", "Ben")
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, "1280-light") as shown,
    ):
        sign_in_as_olga(shown)
        held: list[Any] = []
        shown.route("**/api/package", lambda route: held.append(route))
        text = shown.get_by_label("Text")
        text.fill("Storm at noon")
        shown.get_by_label("Everyone").check()
        shown.get_by_role("button", name="Send").click()
        until(lambda: shown.title() and len(held) == 1)
        text.fill("Storm at noon. St")
        held.pop().continue_()
        until(lambda: shown.title() and len(held) == 1)
        assert held[0].request.post_data_json["message"] == {"content": "Storm at noon"}
        held.pop().continue_()
        shown.get_by_text("Sent to Ada, Ben.").wait_for()
        assert text.input_value() == "Storm at noon. St"
        # The hub has accepted the first message, and its answer is lost. Another selection does not
        # double it.
        shown.get_by_label("Everyone").check()
        shown.get_by_role("button", name="Send").click()
        until(lambda: shown.title() and len(held) == 1)
        held[0].fetch()
        held.pop().abort()
        shown.locator("#write-fault", has_text="Press Send again").wait_for()
        shown.unroute("**/api/package")
        shown.locator("#people").get_by_label("Ben").uncheck()
        shown.get_by_role("button", name="Send").click()
        shown.get_by_text("Sent to Ada.").wait_for()
        cookie = sign_in(running, "olga@example.org")[1]["Set-Cookie"].partition(";")[0]
        pushed = call(running, "GET", "/api/pushes", Cookie=cookie)[2]
        said = [each["event"]["content"] for each in json.loads(pushed)["pushes"]]
        assert sorted(said) == ["Storm at noon"] * 2 + ["Storm at noon. St"]


def test_map_settings_are_requested_again_after_a_failure(tmp_path: Path) -> None:
    """A failure must disappear when the hub answers again."""
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, "1280-light") as shown,
    ):
        again = lose(shown, "**/api/map")
        sign_in_as_olga(shown)
        shown.locator("#away", has_text="does not answer").wait_for()
        again()
        shown.locator("#map .degree").first.wait_for(state="attached")
        shown.locator("#away").wait_for(state="hidden")


AHEAD = "const right = Date.now; Date.now = () => right() + 25 * 3600_000;"
"""A computer whose clock is set to tomorrow."""


def test_age_of_a_contact_uses_the_clock_of_the_hub(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    store = open_store(database)
    store.run_once(lambda db: contact.record_contact(db, 1, "ip", time.time() - 300))
    store.close()
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, "1280-light") as shown,
    ):
        shown.add_init_script(AHEAD)
        shown.reload()
        sign_in_as_olga(shown)
        kit = shown.locator("#kits li", has_text="kit-ada")
        kit.get_by_text("minutes ago").wait_for()
        assert "not heard for a day" not in kit.inner_text()


def test_sign_out_removes_all_content_of_the_user(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, "1280-light") as shown,
    ):
        sign_in_as_olga(shown)
        shown.locator("#kits li", has_text="kit-ada").wait_for()
        shown.get_by_label("Text").fill("for nobody else")
        # If the hub did not get the request, the user is still signed in.
        shown.route("**/console/session", lambda route: route.abort(), times=1)
        shown.get_by_role("button", name="Sign out").click()
        shown.locator("#away", has_text="does not answer").wait_for()
        assert shown.locator("#desk").is_visible()
        shown.get_by_role("button", name="Sign out").click()
        shown.get_by_role("button", name="Sign in").wait_for()
        assert shown.locator("#kits li").count() == 0
        assert shown.locator("#field-content").input_value() == ""
