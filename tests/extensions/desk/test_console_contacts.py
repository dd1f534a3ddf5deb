"""Contacts and the watch in the console, in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import browser
from tests.hub.relay import Relay, mail_relay
from tests.hub.test_console import SECRET, Held, console
from tests.hub.test_console_administration import Office, settle_in_as_administrator, sign_in
from tests.hub.test_console_in_use import Twice, World, inside, press_each_twice, settled, subject
from tests.hub.test_console_order import Late, leave_during_request
from tests.processes import administer, hub

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with settled(tmp_path_factory.mktemp("hub")) as scene:
        yield scene


@pytest.fixture
def desk(world: World) -> Iterator[Any]:
    """Yield Olga's console."""
    with inside(world, "olga@example.org") as shown:
        yield shown


@pytest.fixture
def office(world: World) -> Iterator[Any]:
    """Yield Ben's console."""
    with inside(world, world.ben) as shown:
        yield shown


class ContactsOffice(Office):
    def contacts(self, relay: Relay) -> None:
        self.open("Contacts for an SOS")
        self.shown.get_by_text("an SOS rings only at an open console").wait_for()
        self.fill("Name of the person or duty; kits show it", "Bergwacht")
        address = "E-mail address, or telephone number such as +41791234567"
        self.fill(address, "tgram://token/chat")
        self.press("Add the contact")
        self.refused("is not accepted here, because apprise connects")
        self.fill(address, "bw@example.org")
        self.fill(
            "Time without an answer until the notification, such as 30s or 5m (empty: at once)",
            "90s",
        )
        self.fill("Number of notifications until someone answers (empty: 1)", "3")
        self.press("Add the contact")
        self.done("Bergwacht is added. Test it.")
        self.shown.get_by_text("up to 3 times, every 5 minutes").wait_for()
        self._quiet_hours()
        relay.answers = ["550 no such mailbox"]
        self.press("Test", "#admin-contacts")
        self.refused("did not accept the test message: the mail relay 127.0.0.1 answered 550")
        self.shown.get_by_text("This step cannot notify anyone now.").wait_for()
        self.press("Test", "#admin-contacts")
        self.done("The test for Bergwacht was handed over")
        assert "This is a test" in relay.mail().get_content()
        relay.answers = ["550 no such mailbox"]
        self.press("Test all steps")
        self.done("1 test sent, 1 not accepted.")
        self.shown.get_by_text(
            "Step 1, Bergwacht: the mail relay 127.0.0.1 answered 550"
        ).wait_for()
        self.press("Remove", "#admin-contacts")
        self.done("Bergwacht is removed")

    def _quiet_hours(self) -> None:
        hours = (
            "From and until, such as 22:00-06:00; none: no quiet hours;"
            " empty: the workspace's hours"
        )
        self.shown.get_by_text("Contacts get alarms at any hour.").wait_for()
        for said, zone, done in (
            ("22:00-06:00", "Europe/Zuerich", ""),
            ("22:00-06:00", "Europe/Zurich", "The quiet hours are set."),
        ):
            self.fill(hours, said)
            self.fill("Time zone, such as Europe/Zurich", zone)
            self.press("Set the quiet hours")
            if done:
                self.done(done)
            else:
                self.refused("does not know the time zone")
        notice = "Alarms wait during these hours: 22:00-06:00 Europe/Zurich."
        self.shown.get_by_text(notice).wait_for()
        for said, done, shown in (
            ("none", "There are no quiet hours.", "no quiet hours"),
            ("", "It uses the workspace's hours.", ""),
        ):
            self.shown.get_by_label("Whose").select_option(label="Bergwacht")
            self.fill(hours, said)
            self.press("Set the quiet hours")
            self.done(done)
            listed = self.shown.locator("#admin-contacts").inner_text()
            assert ("no quiet hours" in listed) is bool(shown)


def test_every_control_of_contacts_works(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle_in_as_administrator(database)
    with (
        browser.browser() as opened,
        mail_relay() as relay,
        hub(tmp_path, {"database": database, **relay.settings}) as running,
        console(opened, running, "1280-light") as shown,
    ):
        shown.on("dialog", lambda question: question.accept())
        sign_in(shown, "olga@example.org", SECRET.strip())
        ContactsOffice(shown).contacts(relay)


@pytest.mark.parametrize("screen", ["390-dark", "1280-light"])
def test_contacts_fit_the_screen_and_are_accessible(world: World, screen: str) -> None:
    with console(world.opened, world.hub, screen) as shown:
        sign_in(shown, world.ben, SECRET.strip())
        Office(shown).open("Contacts for an SOS")
        shown.locator("#subject :is(li, form)").first.wait_for()
        assert browser.faults(shown) == []
        width = int(screen.partition("-")[0])
        assert shown.evaluate("document.documentElement.scrollWidth") <= width


def test_chosen_contact_survives_a_finished_request(world: World, office: Any) -> None:
    for name in ("Duty", "Mia"):
        administer(world.database, "contact", "add", name, f"{name}@example.org")
    subject(office, "Contacts for an SOS")
    office.locator("#admin-contacts li.row").first.wait_for()
    held = Held(office, "**/test")
    office.get_by_role("button", name="Test", exact=True).first.click()
    held.wait()
    office.get_by_label("Whose").select_option("Mia")
    held.release()
    office.locator("#act-fault, #act-done").get_by_text("e").first.wait_for()
    assert office.locator("#quiet-whose option:checked").inner_text() == "Mia"


def test_double_press_sends_once_in_contacts(world: World, office: Any) -> None:
    administer(world.database, "contact", "add", "Pager", "pager@example.org")
    press_each_twice(office, {"Contacts for an SOS": 4})


def test_double_press_sends_once_in_the_watch(desk: Any) -> None:
    Twice(desk).press(desk.locator("#watch-take"))
    desk.unroute_all()
    desk.locator("#watch-take").click()
    desk.get_by_text("Hand over my watch").click()
    desk.locator("#watch-to option").first.wait_for(state="attached")
    twice = Twice(desk)
    for button in ("#watch-form button", "#watch-end"):
        twice.press(desk.locator(button))
    desk.unroute_all()
    desk.locator("#watch-end").click()
    desk.get_by_role("button", name="Take the watch for 8 hours").wait_for()


@pytest.mark.parametrize(
    ("deed", "which"),
    [
        ("#chain-test", "**/api/chain/test"),
        ("#admin-contacts [id$=-test]", "**/api/contacts/*/test"),
    ],
)
def test_late_answer_about_contacts_shows_no_error_on_another_page(
    world: World, office: Any, deed: str, which: str
) -> None:
    administer(world.database, "contact", "add", "Duty", "duty@example.org")
    leave_during_request(office, "Contacts for an SOS", deed, which)


def test_failed_watch_handover_keeps_the_typed_text(desk: Any) -> None:
    desk.get_by_role("button", name="Take the watch for 8 hours").click()
    desk.get_by_text("Hand over my watch").click()
    desk.locator("#watch-to option").first.wait_for(state="attached")
    desk.get_by_label("Information for them", exact=True).fill("Ada is late")
    desk.route("**/hand-over", lambda route: route.abort())
    desk.get_by_role("button", name="Ask them", exact=True).click()
    desk.locator("#away").get_by_text("The hub did not answer").wait_for()
    assert desk.get_by_label("Information for them", exact=True).input_value() == "Ada is late"
    desk.get_by_role("button", name="End my watch").click()
    desk.get_by_role("button", name="Take the watch for 8 hours").wait_for()


def test_started_watch_survives_an_outdated_answer(desk: Any) -> None:
    late = Late(desk, "**/api/watch")
    desk.evaluate("import('/console/file/watch.js').then(watch => { watch.load(); })")
    late.wait()
    desk.get_by_role("button", name="Take the watch for 8 hours").click()
    desk.get_by_role("button", name="Stay on watch for 8 hours").wait_for()
    late.release()
    assert desk.get_by_role("button", name="Stay on watch for 8 hours").is_visible()
    desk.get_by_role("button", name="End my watch").click()
    desk.get_by_role("button", name="Take the watch for 8 hours").wait_for()


def test_watch_and_contacts_fit_the_narrowest_screen(world: World) -> None:
    """The language has long words."""

    def with_hours(route: Any) -> None:
        body = route.fetch().json()
        route.fulfill(json={**body, "hours": "06:00 to 22:00 UTC", "onWatch": []})

    with console(world.opened, world.hub, "390-light", locale="uk") as shown:
        shown.route("**/api/watch", with_hours)
        shown.set_viewport_size({"width": 320, "height": 900})
        shown.locator("[name=username]").fill(world.ben)
        shown.locator("[name=password]").fill(SECRET.strip())
        shown.locator("#enter button").first.click()
        watch = shown.locator("#watch-told", has_text="з 06:00 до 22:00 UTC")
        watch.wait_for()
        for place in ("", "/administration/contacts"):
            shown.goto(f"{world.hub.address}/console{place}")
            watch.wait_for()
            shown.locator("#kits li, #subject :is(li, form)").first.wait_for(state="attached")
            for size in ("100%", "200%"):
                shown.evaluate(f"document.documentElement.style.fontSize = '{size}'")
                wide = "document.documentElement.scrollWidth"
                assert shown.evaluate(wide) == 320, (place, size)
