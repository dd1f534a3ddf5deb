"""The kit's page with answers and events in any order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import browser
from tests.agent.test_browser import hold, raise_sos, sos_texts
from tests.agent.test_network_page import PHRASE, Camp, answers
from tests.agent.test_network_page import page as set_up_page
from tests.hub.test_console import Held
from tests.hub.test_console_in_use import DRAWN
from tests.processes import PATIENCE, Agent, agent, free_port, frozen, until

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    home = tmp_path_factory.mktemp("kit")
    with agent(home, {"satellite-port": str(home / "nobody")}) as running:
        yield running


def test_lost_answer_of_abandoned_sos_is_not_shown_for_next_sos(chromium: Any, kit: Agent) -> None:
    """The first SOS gets no answer, and the second SOS was not sent yet."""
    with browser.page(chromium, kit.port) as shown:
        held = Held(shown, "**/api/sos")
        raise_sos(shown, "a mistake")
        held.wait()
        shown.locator("#sos-back").click()
        hold(shown)
        shown.locator("#sos-text").fill("leg broken")
        with shown.expect_event("requestfailed", lambda call: call.url.endswith("/api/sos")):
            held.lose()
        shown.evaluate(DRAWN)
        assert shown.locator("#sos-fault").inner_text() == ""
        # The first SOS is not tried again.
        shown.locator("#sos-send").click()
        shown.locator("#confirm[open]").wait_for(state="detached")
    assert sos_texts(kit) == ["leg broken"]
    kit.call("DELETE", "/api/sos")


def test_sos_button_shows_loading_until_button_works(chromium: Any, kit: Agent) -> None:
    context = chromium.new_context(**browser.SCREENS["390-light"])
    shown = context.new_page()
    held = Held(shown, "**/page/start.js")
    shown.goto(f"http://127.0.0.1:{kit.port}/", wait_until="commit")
    held.wait()
    button, how = shown.locator("#raise"), shown.locator("#raise-how")
    assert button.is_disabled() and how.inner_text().startswith("Loading.")
    held.release()
    shown.locator("#raise:not([aria-disabled])").wait_for()
    assert how.inner_text().startswith("Hold for 1.5 seconds")
    hold(shown)
    browser.close(context, shown)


def test_press_before_script_has_loaded_opens_sos_dialog(chromium: Any, kit: Agent) -> None:
    context = chromium.new_context(**browser.SCREENS["390-light"])
    shown = context.new_page()
    held = Held(shown, "**/page/start.js")
    shown.goto(f"http://127.0.0.1:{kit.port}/", wait_until="commit")
    held.wait()
    shown.locator("#raise").hover()
    shown.mouse.down()
    held.release()
    shown.locator("#confirm[open]").wait_for()
    shown.mouse.up()
    browser.close(context, shown)


def test_retried_call_off_does_not_end_newer_sos(chromium: Any, kit: Agent) -> None:
    """The kit has ended the first SOS, but the answer was lost."""
    asked: list[str] = []

    def lose_one_answer(route: Any) -> None:
        if route.request.method != "DELETE":
            route.continue_()
            return
        asked.append(route.request.url)
        if len(asked) > 1:
            route.continue_()
            return
        assert route.fetch().ok
        kit.call("POST", "/api/sos", {"text": "leg broken"})
        route.abort()

    kit.call("POST", "/api/sos", {"text": "a mistake"})
    with browser.page(chromium, kit.port) as shown:
        shown.route("**/api/sos?*", lose_one_answer)
        shown.locator("#call-off-open").click()
        shown.locator("#call-off-send").click()
        shown.locator("#call-off[open]").wait_for(state="detached")
        shown.locator("#alarms .own", has_text="raised").wait_for()
    assert len(asked) == 2
    assert kit.call("GET", "/api/sos").body["incident"]["ended"] is None
    kit.call("DELETE", "/api/sos")


def test_new_entry_is_drawn_while_pointer_stays_down(chromium: Any, kit: Agent) -> None:
    """The browser reports no release of the pointer, for example after a scroll bar was dragged."""
    with browser.page(chromium, kit.port) as shown:
        shown.locator("h1").hover()
        shown.mouse.down()
        kit.call("POST", "/api/package/async", {"message": {"content": "while a finger is down"}})
        shown.locator("#conversation", has_text="while a finger is down").wait_for()


def test_conversation_keeps_limited_number_of_entries(chromium: Any, kit: Agent) -> None:
    """Each load has forty new entries, up to a thousand. A person who reads earlier entries keeps
    them.
    """
    newest = [0]

    def forty_more(route: Any) -> None:
        body = route.fetch().json()
        one = body["packages"][0]
        newest[0] += 40
        numbers = range(newest[0], newest[0] - 50, -1)
        body["packages"] = [{**one, "id": 10_000 + n, "accepted": 1e9 + n} for n in numbers]
        route.fulfill(json={**body, "next": "/api/packages?limit=50&before=1"})

    kit.call("POST", "/api/package/async", {"message": {"content": "again and again"}})
    with browser.page(chromium, kit.port) as shown:
        shown.route("**/api/packages?*", forty_more)
        shown.reload()
        entries = shown.locator("#conversation > li")
        look = "import('/page/conversation.js').then(each => each.look())"
        until(lambda: shown.evaluate(look) is not None and newest[0] >= 1_000)
        shown.evaluate(DRAWN)
        assert 50 <= entries.count() < 600
        shown.locator("#entries").evaluate("place => { place.scrollTop = 0; }")
        before = entries.count()
        until(lambda: shown.evaluate(look) is not None and newest[0] >= 2_000)
        shown.evaluate(DRAWN)
        assert entries.count() > before + 900


def test_clock_change_of_kit_duplicates_no_entry(chromium: Any, kit: Agent) -> None:
    """All earlier entries get another date, for example when a GPS receiver finds satellites."""
    ahead = [0.0]

    def dated(route: Any) -> None:
        body = route.fetch().json()
        for each in body["packages"]:
            each["accepted"] += ahead[0]
        route.fulfill(json=body)

    for text in ("before the clock was set", "so was this"):
        kit.call("POST", "/api/package/async", {"message": {"content": text}})
    with browser.page(chromium, kit.port) as shown:
        shown.route("**/api/packages?*", dated)
        shown.reload()
        row = shown.locator("#conversation > li", has_text="before the clock was set")
        row.locator("summary").click()
        row.locator(".story", has_text="accepted").wait_for()
        key = row.get_attribute("data-key")
        ahead[0] = 86_400.25
        kit.call("POST", "/api/package/async", {"message": {"content": "since then"}})
        shown.locator("#conversation > li", has_text="since then").wait_for()
        shown.evaluate(DRAWN)
        for text in ("before the clock was set", "so was this", "since then"):
            assert shown.locator("#conversation > li", has_text=text).count() == 1, text
        assert row.get_attribute("data-key") == key
        assert row.locator("details").get_attribute("open") is not None


def test_file_missing_in_cache_is_waited_for(chromium: Any, tmp_path: Path) -> None:
    """Over a slow line or from a busy agent, the file arrives later than the cached file."""
    with (
        agent(tmp_path, {"satellite-port": None}) as kit,
        browser.page(chromium, kit.port, **browser.WITH_WORKER) as shown,
    ):
        kept = "caches.open('page').then(kept => kept.keys()).then(all => all.length)"
        until(lambda: shown.evaluate(kept) > 15)
        shown.reload()
        until(lambda: shown.evaluate("navigator.serviceWorker.controller !== null"))
        shown.evaluate("caches.open('page').then(kept => kept.delete('/page/grid.js'))")
        asking = """
            window.told = {};
            for (const name of ["text.js", "grid.js"])
              fetch(`/page/${name}`, { cache: "reload" })
                .then(answer => answer.ok, () => false).then(is => { window.told[name] = is; });
        """
        with frozen(kit):
            shown.evaluate(f"() => {{ {asking} }}")
            # By then the page has waited for the other file as long as it ever does.
            until(lambda: shown.evaluate("window.told['text.js']"))
            shown.evaluate(DRAWN)
            assert shown.evaluate("window.told['grid.js']") is None
        until(lambda: shown.evaluate("window.told['grid.js']"))


def test_refresh_keeps_date_that_is_being_typed(chromium: Any, kit: Agent) -> None:
    with browser.page(chromium, kit.port) as shown:
        shown.goto(f"http://127.0.0.1:{kit.port}/track")
        day = shown.locator("#track-day")
        until(day.input_value)
        day.focus()
        shown.keyboard.press("Delete")
        assert day.input_value() == ""
        look = "import('/page/track.js').then(track => track.lookAtTrack())"
        shown.evaluate(look)
        assert day.input_value() == ""
        day.blur()
        shown.evaluate(look)
        assert day.input_value() != ""


@contextmanager
def phone(chromium: Any, port: int) -> Iterator[Any]:
    """Yield a phone that is signed in at the kit's page for the network."""
    how: dict[str, Any] = {**browser.SCREENS["390-light"], "ignore_https_errors": True}
    context = chromium.new_context(**how)
    context.set_default_timeout(PATIENCE * 1000)
    shown = context.new_page()
    try:
        shown.goto(f"https://127.0.0.1:{port}/")
        enter(shown)
        shown.locator("#links .notice").wait_for()
        yield shown
    finally:
        browser.close(context, shown)


def enter(shown: Any) -> None:
    shown.get_by_label("Passphrase").fill(PHRASE)
    shown.get_by_role("button", name="Sign in").click()


def test_typed_texts_survive_sign_in_after_kit_restart(chromium: Any, tmp_path: Path) -> None:
    """The texts of an SOS and a message are there after the sign-in, and are sent once."""
    port = free_port()
    settings: dict[str, str | None] = {"satellite-port": None, "page-listen": "127.0.0.0/8"}
    settings["page-port"] = str(port)
    with agent(tmp_path, settings) as kit:
        until(partial(answers, Camp(kit, port, tmp_path)))
        assert set_up_page(tmp_path, "--set", phrase=f"{PHRASE}\n").returncode == 0
        with phone(chromium, port) as shown:
            shown.locator("#field-content").fill("the hut is full")
            hold(shown)
            shown.locator("#sos-text").fill("leg broken")
            shown.locator("#sos-latitude").fill("46.5")
            shown.locator("#sos-longitude").fill("7.25")
            kit.kill()
            shown.locator("#sos-send").click()
            shown.locator("#sos-fault", has_text="Leave this open").wait_for()
            with agent(tmp_path, settings) as again:
                enter(shown)
                shown.locator("#sos-fault", has_text="Press Send SOS now").wait_for()
                assert shown.locator("#sos-text").input_value() == "leg broken"
                shown.locator("#sos-send").click()
                shown.locator("#confirm[open]").wait_for(state="detached")
                items = again.call("GET", "/api/sos").body["incident"]["items"]
                assert sos_texts(again) == ["leg broken"]
                (position,) = [each["position"] for each in items if "position" in each]
                assert (position["latitude"], position["longitude"]) == (46.5, 7.25)
                assert shown.locator("#field-content").input_value() == "the hut is full"
                # The restored texts appear once.
                shown.reload()
                shown.locator("#links .notice").wait_for()
                assert shown.locator("#field-content").input_value() == ""
                assert not shown.locator("#confirm").is_visible()


def test_failed_sign_out_is_reported(chromium: Any, tmp_path: Path) -> None:
    """The session would continue for any person who loads the page again. The warning stays visible
    in any case.
    """
    port = free_port()
    settings: dict[str, str | None] = {"satellite-port": None, "page-listen": "127.0.0.0/8"}
    settings["page-port"] = str(port)
    with agent(tmp_path, settings) as kit:
        until(partial(answers, Camp(kit, port, tmp_path)))
        assert set_up_page(tmp_path, "--set", phrase=f"{PHRASE}\n").returncode == 0
        with phone(chromium, port) as shown:
            shown.route("**/enter/session", lambda route: route.abort())
            shown.get_by_role("button", name="Sign out").click()
            notice = shown.locator("header .fault", has_text="does not answer")
            notice.wait_for()
            kit.post("heard meanwhile")
            shown.locator("#conversation li", has_text="heard meanwhile").wait_for()
            assert notice.is_visible()
            assert shown.locator("#talk").is_visible()
            browser.keep(shown, "not-signed-out")
            shown.unroute("**/enter/session")
            shown.get_by_role("button", name="Sign out").click()
            shown.get_by_label("Passphrase").wait_for()
