"""The kit's page during its use: new content does not disturb the person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.agent.test_browser import HERE, NEWEST_FIX, hold
from tests.browser import page
from tests.hub.test_console import Held
from tests.hub.test_console_in_use import DRAWN, Twice
from tests.processes import Agent, agent, until

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    home = tmp_path_factory.mktemp("kit")
    with agent(home, {"satellite-port": str(home / "nobody")}) as running:
        yield running


EVENT = {"type": "Message", "content": "come down"}
RECEIVED: dict[str, Any] = {
    "requestId": "1f", "received": 1, "asks": True, "readBy": None,
    "body": {"payloads": [{"identity": {"id": "Ben", "name": "Ben"}, "events": [EVENT]}]},
}  # fmt: skip
"""An incoming message in the agent's list, whose sender wants a read receipt."""


def heard(number: int, name: str) -> dict[str, Any]:
    raised = {"state": "raised", "channel": None, "at": 1, "text": "", "unauthenticated": False}
    sos = {"station": number, "number": number, "name": name, "raised": 1, "came": 1, "age": None}
    return {**sos, "state": "open", "text": "__proto__", "steps": [raised]}


def test_text_for_one_sos_is_not_kept_for_another(chromium: Any, kit: Agent) -> None:
    def two(route: Any) -> None:
        body = route.fetch().json()
        body["sos"]["heard"] = [heard(1, "Ada"), heard(2, "constructor")]
        route.fulfill(json=body)

    with page(chromium, kit.port) as shown:
        shown.route("**/api/status", two)
        shown.reload()
        # Names such as `constructor` are safe.
        shown.locator("#alarms .heard", has_text="from constructor").wait_for()
        assert shown.locator("#alarms .heard span", has_text="__proto__").count() == 2
        shown.locator("#take-1-1").click()
        shown.locator("#take-text").fill("we bring a stretcher")
        shown.locator("#take-by").fill("Ben")
        shown.locator("#take-back").click()
        shown.locator("#take-2-2").click()
        assert shown.locator("#take-text").input_value() == ""
        assert shown.locator("#take-by").input_value() == "Ben"


def test_typed_position_is_not_replaced_by_browser(chromium: Any, kit: Agent) -> None:
    places = [{**HERE, "latitude": each} for each in (46.1, 46.2)]
    with page(chromium, kit.port, permissions=["geolocation"]) as shown:
        hold(shown)
        latitude, longitude = (shown.locator(f"#sos-{each}") for each in ("latitude", "longitude"))
        longitude.fill("8.5")
        shown.context.set_geolocation(places[0])
        until(lambda: shown.evaluate(NEWEST_FIX) == "46.100000")
        assert (latitude.input_value(), longitude.input_value()) == ("", "8.5")
        # A position of the browser that the person has removed does not return.
        shown.locator("#sos-back").click()
        hold(shown)
        assert latitude.input_value() == "46.100000"
        latitude.fill("")
        longitude.fill("")
        shown.locator("#sos-text").click()
        shown.context.set_geolocation(places[1])
        until(lambda: shown.evaluate(NEWEST_FIX) == "46.200000")
        assert (latitude.input_value(), longitude.input_value()) == ("", "")


def test_second_sos_text_survives_answer_to_first(chromium: Any, kit: Agent) -> None:
    """The first request is still in transit. Its answer neither closes the dialog nor delays
    anything.
    """
    with page(chromium, kit.port) as shown:
        held = Held(shown, "**/api/sos")
        hold(shown)
        shown.locator("#sos-text").fill("leg broken")
        shown.locator("#sos-send").click()
        held.wait()
        shown.locator("#sos-back").click()
        hold(shown)
        shown.locator("#sos-text").fill("two of us")
        assert shown.locator("#sos-send").is_enabled()
        held.release()
        shown.locator("#alarms .own").wait_for()
        assert shown.locator("#sos-text").input_value() == "two of us"
        shown.locator("#sos-send").click()
        shown.locator("#confirm[open]").wait_for(state="detached")
    items = kit.call("GET", "/api/sos").body["incident"]["items"]
    said = [each["text"] for each in items if each.get("text")]
    assert said == ["leg broken", "two of us"]
    kit.call("DELETE", "/api/sos")


def test_empty_map_notice_waits_for_answer_of_agent(chromium: Any, kit: Agent) -> None:
    with page(chromium, kit.port) as shown:
        held = Held(shown, "**/api/positions?*")
        shown.reload()
        held.wait()
        shown.evaluate(DRAWN)
        assert not shown.locator("#map-nobody").is_visible()
        held.release()


def test_large_text_fits_narrowest_screen_without_sideways_scrolling(
    chromium: Any, kit: Agent
) -> None:
    """The language has long words. The page and the dialog of an SOS are checked."""
    kit.call("POST", "/api/sos", {"text": "Donaudampfschifffahrtsgesellschaft"})
    with page(chromium, kit.port, locale="de") as shown:
        shown.set_viewport_size({"width": 320, "height": 900})
        shown.locator("#alarms .own").wait_for()
        for each in ("#choices summary", "#form details summary"):
            shown.locator(each).click()
        shown.evaluate("document.documentElement.style.fontSize = '200%'")
        for each in ("html", "#confirm"):
            if each == "#confirm":
                shown.locator("#raise").press("Enter")
                shown.locator("#sos-words button").first.wait_for()
            element = f"document.querySelector('{each}')"
            assert shown.evaluate(f"{element}.scrollWidth - {element}.clientWidth") == 0, each
    kit.call("DELETE", "/api/sos")


def test_double_press_sends_once(chromium: Any, kit: Agent) -> None:
    """Check all buttons of the page that send."""

    def with_heard(route: Any) -> None:
        body = route.fetch().json()
        body["sos"]["heard"] = [heard(1, "Ada")]
        route.fulfill(json=body)

    kit.call("POST", "/api/sos", {"text": "leg broken"})
    kit.call("POST", "/api/package/async", {"message": {"content": "waits"}})
    with page(chromium, kit.port) as shown:
        twice = Twice(shown)
        shown.route("**/api/status", with_heard)
        shown.reload()
        shown.locator("#take-1-1").wait_for()
        for name, field in (("take", "#take-by"), ("answer", "#answer-text"), ("call-off", "")):
            shown.locator("#take-1-1" if name == "take" else f"#{name}-open").click()
            if field:
                shown.locator(field).fill("Ben")
            twice.press(shown.locator(f"#{name}-send"))
            shown.locator(f"#{name}-back").click()
        hold(shown)
        twice.press(shown.locator("#sos-send"))
        shown.locator("#sos-back").click()
        shown.locator("#field-content").fill("here")
        twice.press(shown.locator("#submit"))
        twice.press(shown.locator("[id^=cancel-]").first)
    kit.call("DELETE", "/api/sos")


@pytest.mark.parametrize("which", ["cancel", "read"])
def test_failed_press_is_reported_after_redraws(chromium: Any, kit: Agent, which: str) -> None:
    """The row of the button is redrawn during the request and afterwards. The press counts once,
    and its result is shown.
    """
    reason = ["first"]
    key = {"cancel": "packages", "read": "payloads"}[which]
    path = {"cancel": "**/api/packages?*", "read": "**/api/inbound?*"}[which]

    def change(route: Any) -> None:
        body = route.fetch().json()
        if key == "packages":
            body[key] = [{**each, "reason": reason[0]} for each in body[key]]
        else:
            body[key] = [
                {**RECEIVED, "hooks": {"script": {"state": "failed", "reason": reason[0]}}}
            ]
        route.fulfill(json=body)

    with page(chromium, kit.port) as shown:

        def redraw(because: str) -> None:
            reason[0] = because
            kit.call("POST", "/api/package/async", {"message": {"content": because}})
            row.get_by_text(because).wait_for()

        shown.route(path, change)
        kit.call("POST", "/api/package/async", {"message": {"content": "the first of them"}})
        shown.reload()
        control = shown.locator(f"[id^={which}-]").last
        control.wait_for()
        mine = f"{which}-{control.get_attribute('id').partition('-')[2]}"
        control = shown.locator(f"[id='{mine}']")
        row = shown.locator("#conversation li", has=control)
        held = Held(shown, "**/api/package/*/cancel" if which == "cancel" else "**/read")
        control.focus()
        control.press("Enter")
        held.wait()
        redraw("second")
        assert control.is_disabled()
        held.lose()
        row.locator(".fault", has_text="does not answer").wait_for()
        assert control.is_enabled()
        redraw("third")
        assert row.locator(".fault", has_text="does not answer").count() == 1
        assert shown.evaluate("document.activeElement.id") == mine


def test_late_answer_for_one_list_does_not_appear_in_another(chromium: Any, kit: Agent) -> None:
    text = {"message": {"content": "not before noon"}}
    number = kit.call("POST", "/api/package/async", text).body["id"]
    with page(chromium, kit.port) as shown:
        shown.locator("#conversation", has_text="not before noon").wait_for()
        held = Held(shown, f"**/api/package/{number}")
        kit.call("POST", f"/api/package/{number}/cancel", {})
        held.wait()
        with shown.expect_response("**/api/packages?*state=Error*"):
            shown.locator("[data-show=failed]").click()
        held.release()
        shown.evaluate(DRAWN)
        assert not shown.get_by_text("not before noon").count()
