"""The kit's page in the person's language, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from math import cos, hypot, radians, remainder
from pathlib import Path
from typing import Any

import mgrs
import pytest
import utm

from tests.agent.test_browser import hold, raise_sos, sos_texts
from tests.browser import SCREENS, WITH_WORKER, close, faults, keep, page
from tests.processes import Agent, agent, sky, until

pytestmark = pytest.mark.full

LEFT_IN_ENGLISH = """
english => {
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.replace(/\\s+/g, " ").trim();
    if (english.includes(text)) found.push(text);
  }
  return found;
}
"""
NOT_ANSWERED = (
    "The agent does not answer. Leave this open: the page tries again. If you have another"
    " emergency device, use it."
)
NOT_SIDEWAYS = "document.documentElement.scrollWidth <= innerWidth"


def catalogue(language: str) -> dict[str, dict[str, Any]]:
    path = files("fieldagent.agent.page").joinpath(f"{language}.json")
    loaded: dict[str, dict[str, Any]] = json.loads(path.read_bytes())
    return loaded


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    home = tmp_path_factory.mktemp("kit")
    with sky(home, 0), agent(home, {"satellite-credits-per-day": "200"}) as running:
        where = {"latitude": "47.3769", "longitude": "8.5417"}
        running.call("POST", "/api/package", {"location": where})
        yield running


@pytest.mark.parametrize(
    ("locale", "word", "state"),
    [("de-CH", "Lawine", "ausgelöst"), ("uk-UA", "лавина", "подано")],
)
def test_sos_is_raised_and_called_off_in_language_of_browser(
    chromium: Any, kit: Agent, locale: str, word: str, state: str
) -> None:
    language = locale[:2]
    said = catalogue(language)
    texts = said["texts"]
    with page(chromium, kit.port, locale=locale, timezone_id="Europe/Kyiv") as shown:
        shown.locator("#conversation li").first.wait_for()
        assert shown.evaluate("document.documentElement.lang") == language
        shown.locator("#links article.good", has_text=said["terms"]["Satellite"]).wait_for()
        english = [
            text
            for text, own in (texts | said["terms"]).items()
            if isinstance(own, str) and own != text
        ]
        assert shown.evaluate(LEFT_IN_ENGLISH, english) == []
        assert shown.evaluate(NOT_SIDEWAYS)
        keep(shown, f"page-{language}")
        assert not faults(shown)
        hold(shown)
        assert shown.locator("#confirm-title").inner_text() == texts["Send an SOS?"]
        shown.get_by_role("button", name=word, exact=False).first.click()
        assert shown.locator("#sos-text").input_value() == word
        # A decimal comma, as on a keyboard of that language.
        shown.locator("#sos-latitude").fill("47,3769")
        shown.locator("#sos-longitude").fill("8,5417")
        assert shown.evaluate(NOT_SIDEWAYS)
        keep(shown, f"confirm-{language}")
        shown.locator("#sos-send").click()
        alarm = shown.locator("#alarms .own .ladder li", has_text=state)
        alarm.wait_for()
        # The sent form is the same in all languages, and each reader sees it in their own.
        assert sos_texts(kit)[-1] == "avalanche"
        shown.locator("#conversation li.alarm .said", has_text=word).first.wait_for()
        assert "UTC" not in alarm.inner_text()
        assert shown.evaluate(NOT_SIDEWAYS)
        keep(shown, f"sos-{language}")
        shown.locator("#call-off-open").click()
        shown.locator("#call-off-send").click()
        called_off = said["terms"]["called off"]
        shown.locator("#alarms .own.over .ladder", has_text=called_off).wait_for()


def test_display_choices_survive_reload(chromium: Any, kit: Agent) -> None:
    with page(chromium, kit.port, locale="fr-FR") as shown:
        place = shown.locator("#conversation .position").first
        shown.locator("#places li", has_text="ce kit").first.wait_for()
        for form, text in (("utm", "32T 465"), ("mgrs", "32T MT 65"), ("dms", "47°22′36.8″N 8°3")):
            choose(shown, "positions", form)
            place.filter(has_text=text).wait_for()
        choose(shown, "lengths", "ft")
        shown.locator("#map .leaflet-control-scale", has_text="ft").or_(
            shown.locator("#map .leaflet-control-scale", has_text="mi")
        ).wait_for()
        began = shown.locator("#conversation time").first
        assert re.fullmatch("[0-9]{2}:[0-9]{2} UTC", began.get_attribute("title"))
        assert re.fullmatch("[0-9]{2}:[0-9]{2}", began.inner_text())
        choose(shown, "times", "utc")
        began.filter(has_text=" UTC").wait_for()
        choose(shown, "language", "es")
        shown.locator("#submit", has_text="Enviar").wait_for()
        shown.reload()
        shown.locator("#submit", has_text="Enviar").wait_for()
        # Check the layout for a language that is written from right to left.
        shown.evaluate("document.documentElement.dir = 'rtl'")
        assert shown.evaluate(NOT_SIDEWAYS)
        sent = shown.locator("#conversation li.sent").first.bounding_box()
        assert sent["x"] + sent["width"] < 390 - sent["x"] + sent["width"] / 2
        keep(shown, "page-rtl")
        assert not faults(shown)


STAGES = {
    "stored": "",
    "programs": "",
    "handed_over": "Gmail",
    "nobody": "no such address",
    "radio": "",
    "read": "Bo",
}


def test_delivery_stages_are_shown_in_language_of_browser(chromium: Any, kit: Agent) -> None:
    """Each stage by its name in the API. A later version's stage appears in its own text."""
    steps = [
        {"at": 0, "stage": stage, "who": "Ada", "detail": detail, "text": "in English"}
        for stage, detail in STAGES.items()
    ]
    steps += [{**steps[0], "stage": "read", "who": "", "detail": ""}]

    def tell(route: Any) -> None:
        body = route.fetch().json()
        for package in body["packages"]:
            package["reached"] = steps
        route.fulfill(json=body)

    texts = catalogue("fr")["texts"]
    wanted = [
        texts["with {who}'s programs"],
        texts["passed on to {detail}, for {who}"],
        texts["{who} cannot be reached: {detail}"],
        texts["on {who}'s radio"],
        texts["read by {detail}, at {who}'s kit"],
        texts["read at {who}'s kit"].replace("{who}", texts["the addressee"]),
    ]
    context = chromium.new_context(locale="fr-FR", service_workers="block")
    shown = context.new_page()
    shown.route("**/api/packages*", tell)
    shown.goto(f"http://127.0.0.1:{kit.port}/")
    far = shown.locator("#conversation li.sent .hint", has_text="Gmail").first
    far.wait_for()
    said = far.inner_text()
    close(context, shown)
    phrases = [each.replace("{who}", "Ada") for each in wanted]
    details = dict(zip(phrases, ["", "Gmail", "no such address", "", "Bo", ""], strict=True))
    for text, detail in details.items():
        assert text.replace("{detail}", detail) in said, said
    assert "in English" not in said


def test_texts_of_kit_are_shown_in_language_of_browser(chromium: Any, tmp_path: Path) -> None:
    """The update of an incident and a default canned message are texts of the kit itself."""

    def update(route: Any) -> None:
        body = route.fetch().json()
        for payload in body["payloads"]:
            (event,) = payload["body"]["payloads"][0]["events"]
            event["incident"] = {"number": 7, "state": "seen", "by": "Olga", "text": "we come"}
        route.fulfill(json=body)

    settings: dict[str, str | None] = {"inbound-hook": "true"}
    with sky(tmp_path) as above, agent(tmp_path, settings) as kit:
        above.type("mt SOS seen by Olga: we come")
        until(lambda: kit.call("GET", "/api/inbound").body["payloads"])
        context = chromium.new_context(locale="de", service_workers="block")
        shown = context.new_page()
        shown.route("**/api/inbound*", update)
        shown.goto(f"http://127.0.0.1:{kit.port}/")
        shown.locator(".entry.received", has_text="SOS gesehen von Olga: we come").wait_for()
        shown.locator("#canned").get_by_role("button", name="Alles gut", exact=True).click()
        assert shown.locator("#field-content").input_value() == "Alles gut"
        close(context, shown)


def choose(shown: Any, name: str, value: str) -> None:
    shown.locator("#choices summary").click()
    with shown.expect_navigation():
        shown.locator(f"#choice-{name}").select_option(value)


def test_sos_button_stays_held_when_page_moves(chromium: Any, kit: Agent) -> None:
    """The page moves while it loads. A pointer that leaves or is released raises nothing."""
    move = "by => { document.getElementById('choices').style.marginBottom = by; }"
    with page(chromium, kit.port) as shown:
        button = shown.locator("#raise")
        for leave in (lambda: shown.mouse.move(200, 5, steps=4), shown.mouse.up):
            button.hover()
            shown.mouse.down()
            shown.evaluate(move, "12rem")
            leave()
            shown.locator("#raise:not(.held)").wait_for()
            shown.mouse.up()
            shown.evaluate(move, "0")
        button.hover()
        shown.mouse.down()
        shown.evaluate(move, "12rem")
        shown.locator("#confirm[open]").wait_for()
        shown.mouse.up()
        shown.locator("#sos-back").click()
        shown.locator("#confirm[open]").wait_for(state="detached")


@pytest.mark.parametrize("fate", ["lost", "broken", "never there"])
def test_sos_is_sent_without_translation_catalogue(
    chromium: Any, tmp_path: Path, fate: str
) -> None:
    with sky(tmp_path, 0), agent(tmp_path) as kit:
        context = chromium.new_context(**SCREENS["390-light"], locale="de-DE")
        shown = context.new_page()

        def answer(route: Any) -> None:
            if fate == "lost":
                route.abort()
            elif fate == "broken":
                route.fulfill(content_type="application/json", body="{")

        shown.route("**/de.json", answer)
        shown.goto(f"http://127.0.0.1:{kit.port}/", wait_until="commit")
        shown.locator("#sos-words button").first.wait_for(state="attached")
        raise_sos(shown, "avalanche")
        shown.locator("#alarms .ladder", has_text="left by Satellite").wait_for()
        if fate != "never there":
            shown.locator("#links article").first.wait_for()
        close(context, shown)


def test_cached_page_keeps_language_while_agent_is_down(chromium: Any, tmp_path: Path) -> None:
    texts = catalogue("uk")["texts"]
    settings: dict[str, str | None] = {"satellite-port": None}
    with (
        agent(tmp_path, settings) as kit,
        page(chromium, kit.port, locale="uk-UA", **WITH_WORKER) as shown,
    ):
        kept = (
            "caches.open('page').then(kept => kept.keys()).then(all => all.map(each => each.url))"
        )
        # Not `wait_for_function`, which treats a promise as true.
        until(lambda: len(shown.evaluate(kept)) > 15)
        assert [each[-7:] for each in shown.evaluate(kept) if ".json" in each] == ["uk.json"]
        shown.reload()
        shown.locator("#links .notice").first.wait_for()
        kit.kill()
        shown.reload(wait_until="commit")
        shown.locator("#away", has_text=texts["The agent does not answer."]).wait_for()
        raise_sos(shown, "лавина")
        leave = texts[NOT_ANSWERED]
        shown.locator("#sos-fault", has_text=leave).wait_for()
        with agent(tmp_path, {**settings, "api-port": str(kit.port)}) as again:
            until(lambda: sos_texts(again) == ["avalanche"])


PLACES = [
    # GeoConvert(1) of GeographicLib, its own examples.
    (33.3, 44.4, (38, "S", 444140.54, 3684706.36), "38S MB 44140 84706"),
    (33.33424, 44.40363, (38, "S", 444500, 3688500), None),
    (-1, 3, (31, "M", 500000, 9889470), None),
    (-79.9, 6.1, None, "32C MS 43"),
    # The CN Tower, by Wikipedia's "Universal Transverse Mercator coordinate system".
    (43.642567, -79.387139, (17, "T", 630084, 4833438), None),
]


def test_grid_references_match_published_examples(chromium: Any, kit: Agent) -> None:
    """To the metre of each example, also around Norway and near the poles."""
    module = "import('/page/coordinates.js')"

    def asked(what: str, places: list[tuple[float, float]]) -> list[Any]:
        ask = f"places => {module}.then(all => places.map({what}))"
        results: list[Any] = shown.evaluate(ask, places)
        return results

    with page(chromium, kit.port) as shown:
        where = [(latitude, longitude) for latitude, longitude, *_ in PLACES]
        grids = asked("place => all.utmOf(...place)", where)
        squares = asked("place => all.FORMS.mgrs(...place)", where)
        for (_, _, utm, mgrs), grid, square in zip(PLACES, grids, squares, strict=True):
            if utm is not None:
                zone, band, easting, northing = utm
                assert (grid["zone"], grid["band"]) == (zone, band)
                assert abs(grid["easting"] - easting) < 1
                assert abs(grid["northing"] - northing) < 1
            assert mgrs is None or square.startswith(mgrs)
        bergen, svalbard = (60.39, 5.32), (78.22, 15.65)
        zones = asked("place => all.utmOf(...place).zone", [bergen, svalbard])
        assert zones == [32, 33]
        pole = asked("place => all.FORMS.mgrs(...place)", [(-85.5, 10.25)])
        assert pole == ["-85.5, 10.25"]
        minutes = asked("place => all.FORMS.dms(...place)", [(-33.99999, 151.2)])
        assert minutes == ["34°00′00.0″S 151°12′00.0″E"]


SPOTS = (
    *(
        (latitude + 0.7, longitude + 1.3)
        for latitude in range(-80, 83, 4)
        for longitude in range(-180, 180, 6)
    ),
    # Both poles, by UPS.
    *(
        (side * latitude, longitude)
        for side in (1, -1)
        for latitude in (84.2, 87.5, 89.9)
        for longitude in range(-179, 180, 29)
    ),
    # The equator, the antimeridian, both limits of the zones, Norway and Svalbard.
    *(
        (0, 0),
        (-1e-5, 0),
        (0, 180 - 1e-6),
        (45, 179.9999),
        (45, -179.9999),
        (-79.999, 6),
        (83.999, 41.99),
    ),
    *((56, 3), (55.999, 5.99), (63.9999, 11.999), (64, 6.0001), (72, 0), (83.9, 20.9), (72, 33)),
)


def test_grid_references_of_other_libraries_are_parsed(chromium: Any, kit: Agent) -> None:
    """Each band and zone, against third-party libraries: the result is within the named square."""
    by_mgrs, asked = mgrs.MGRS(), []
    for latitude, longitude in SPOTS:
        for digits in range(1, 6):
            text = by_mgrs.toMGRS(latitude, longitude, MGRSPrecision=digits)
            asked.append((text, latitude, longitude, 10 ** (5 - digits)))
        if not -80 <= latitude < 84:
            continue
        easting, northing, zone, band = utm.from_latlon(latitude, longitude)
        asked.append((f"{zone}{band} {easting:.0f} {northing:.0f}", latitude, longitude, 1))
    with page(chromium, kit.port) as shown:
        read = "texts => import('/page/grid.js').then(all => texts.map(all.readGrid))"
        positions = shown.evaluate(read, [text for text, *_ in asked])
        wrong = [
            "61T MT 65 47",
            "0T MT 65 47",
            "32T MI 65 47",
            "32T AT 65 47",
            "32N 465000 5247000",
        ]
        wrong += ["Z JA 1 1", "ZAZ 11", "A KA", "Z 1999999 2000000", "B 3200000 3200000"]
        wrong += ["32T MT 650 47", "32T MT 65004", "32T 465000", "32TMT", "18S XG 1"]
        assert shown.evaluate(f"texts => ({read})(texts).then(all => all.map(String))", wrong) == (
            ["undefined"] * len(wrong)
        )
        none = ["47.3769", "47° 22' 36.8\" N", "8 32 30 E", "-122,5", ""]
        assert shown.evaluate(f"texts => ({read})(texts).then(all => all.map(String))", none) == (
            ["null"] * len(none)
        )
    for (text, latitude, longitude, side), (north, east) in zip(asked, positions, strict=True):
        across = remainder(east - longitude, 360) * cos(radians((latitude + north) / 2))
        # From the middle to a corner. Libraries differ by less than a metre.
        assert hypot(north - latitude, across) * 111_320 < side * 0.72 + 0.6, text


FILLED = "id => document.getElementById(id).value !== ''"


def test_position_fields_accept_utm_and_mgrs(chromium: Any, kit: Agent) -> None:
    with page(chromium, kit.port, locale="de-DE") as shown:
        shown.locator("[name=kind][value=location]").check(force=True)
        latitude, longitude = (
            shown.locator(f"#field-{each}") for each in ("latitude", "longitude")
        )
        for typed in ("32TMT6535647001", "32t mt 65356 47001", "32T 465356 5247001"):
            latitude.fill(typed)
            latitude.press("Tab")
            shown.wait_for_function(FILLED, arg="field-longitude")
            assert abs(float(latitude.input_value()) - 47.37557) < 1e-4
            assert abs(float(longitude.input_value()) - 8.54107) < 1e-4
            longitude.fill("")
        latitude.fill("32T MI 65356 47001")
        latitude.press("Tab")
        fault = shown.locator("#field-latitude-fault")
        fault.get_by_text(
            "Das ist keine Position in UTM oder MGRS. Schreiben Sie sie wie 32T 465000"
        ).wait_for()
        hold(shown)
        shown.locator("#sos-latitude").fill("32T MT 65356 47001")
        shown.locator("#sos-latitude").press("Tab")
        shown.wait_for_function(FILLED, arg="sos-longitude")
        assert shown.locator("#sos-longitude").input_value().startswith("8.541")


@pytest.mark.parametrize(
    ("locale", "said"), [("en-GB", "9 of 10: 1 minute at most"), ("de-CH", "9 von 10: höchstens 1")]
)
def test_expected_delivery_time_is_shown_beside_cost(
    chromium: Any, tmp_path: Path, locale: str, said: str
) -> None:
    with sky(tmp_path, 0), agent(tmp_path) as running:
        for number in range(5):
            sent = running.call("POST", "/api/package", {"message": {"content": f"hut {number}"}})
            assert sent.body["status"] == "Delivered"
        with page(chromium, running.port, "390-light", locale=locale) as shown:
            shown.locator("#field-content").fill("camp reached")
            shown.locator("#cost").get_by_text(said).wait_for()
            assert shown.evaluate(NOT_SIDEWAYS)
            assert faults(shown) == []
