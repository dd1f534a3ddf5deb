"""The console's administration in Chromium, with each of its controls."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from fieldagent.hub.contract import Bearer
from fieldagent.hub.field import dead_letters
from fieldagent.hub.records import audit, usage
from fieldagent.hub.records.usage_file import CountedDay
from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.opening import open_store
from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry, encode
from tests import browser
from tests.hub.test_console import SECRET, console, settle_in
from tests.hub.test_journey import receiver
from tests.processes import administer, hub

pytestmark = pytest.mark.full

IMEI = "300234010000077"
SUBJECTS = (
    *(
        "Devices",
        "Radio key",
        "Users",
        "API keys",
        "Tokens of programs",
        "Webhooks",
    ),
    *("Dead letters", "Audit log"),
)


def settle_in_as_administrator(database: str) -> None:
    settle_in(database)
    administer(database, "user", "role", "Olga", "administrator")

    def come(db: Db) -> None:
        now = time.time()
        said = encode([Entry(1, Message("found again"), int(now))])
        for body, imei, device in ((said, IMEI, None), (b"\xffnoise", "2" * 15, 1)):
            bearer, why = Bearer.SATELLITE, "nobody has it"
            dead_letters.store_letter(
                db, body, why, imei=imei, device=device, bearer=bearer, now=now
            )
        for _ in range(20):
            audit.write_line(db, 1, audit.HUB, "of long ago", "", now - 9_000)

    store = open_store(database)
    store.run_once(come)
    store.close()


def record_sessions(database: str) -> None:
    """Record one session of kit-ada here, and two by its operator."""

    def cost(db: Db) -> None:
        today, imei = usage.format_day(time.time()), "3" * 15
        db.execute("UPDATE device SET imei = ?, operator = 'directip' WHERE id = 1", imei)
        db.execute(
            "INSERT INTO mo_session (device, session, day, bytes, credits)"
            " VALUES (1, '7', ?, 9, 1)",
            today,
        )
        counted = CountedDay(imei, today, 2, 3, 60, ("7", "8"))
        usage.store_counts(db, "directip", [counted])

    store = open_store(database)
    store.run_once(cost)
    store.close()


def sign_in(shown: Any, user: str, password: str) -> None:
    shown.get_by_label("User number").fill(user)
    shown.get_by_label("Password", exact=True).fill(password)
    shown.get_by_role("button", name="Sign in").click()


class Office:
    """Acts on the page by its visible content."""

    def __init__(self, shown: Any) -> None:
        self.shown = shown
        self.secrets: list[str] = []

    def press(self, name: str, within: str = "#administration") -> None:
        self.shown.locator(within).get_by_role("button", name=name, exact=True).first.click()

    def done(self, text: str) -> None:
        self.shown.locator("#act-done").get_by_text(text).wait_for()

    def refused(self, text: str) -> None:
        self.shown.locator("#act-fault").get_by_text(text).wait_for()

    def fill(self, label: str, text: str) -> None:
        self.shown.get_by_label(label, exact=True).fill(text)

    def kept(self) -> str:
        """Return the secret, which is shown once and then disappears from the page."""
        secret = str(self.shown.locator("#once-text").input_value())
        self.secrets += re.findall(r"(?:link|key|token|whsec)_\S+|[0-9a-f]{64}", secret) or [secret]
        self.press("I have saved it")
        assert not self.shown.locator("#once").is_visible()
        assert all(each not in self.shown.content() for each in self.secrets)
        return secret

    def open(self, subject: str) -> None:
        """Open a subject with the keyboard."""
        administration = self.shown.locator("header").get_by_role("link", name="Administration")
        for link in (administration, self.shown.locator("#subjects").get_by_text(subject)):
            link.focus()
            self.shown.keyboard.press("Enter")
        self.shown.get_by_role("heading", name=f"Administration: {subject}").wait_for()

    def unfold(self, title: str) -> str:
        """Open an entry of a list and return its selector."""
        entry = self.shown.locator("#subject li > details", has_text=title).first
        entry.wait_for()
        if entry.get_attribute("open") is None:
            entry.locator("summary").first.click()
        return f"#{entry.get_attribute('id')}"

    def devices(self) -> None:
        self.open("Devices")
        kit = self.unfold("kit-ada")
        self.shown.locator(kit).get_by_label("Name").fill("kit of Ada")
        self.shown.locator(kit).get_by_label("IMEI of its modem").fill("12")
        self.press("Save", kit)
        self.refused("IMEI of its modem must be 15 digits")
        self.shown.locator(kit).get_by_label("May relay items of other kits").check()
        self.shown.locator(kit).get_by_label("IMEI of its modem").fill("")
        self.press("Save", kit)
        self.done("is changed")
        self.press("Disable", kit)
        self.done("is disabled")
        self.press("Enable", kit)
        self.done("is enabled")
        self.press("Revoke (stolen)", kit)
        self.done("is revoked")
        self.press("Restore", kit)
        self.done("is enabled")
        self.press("New token", kit)
        assert re.fullmatch(r"hub-address=\S+\nhub-token=link_\S+\n", self.kept())
        self.press("New satellite-key", kit)
        assert "\nsatellite-key=" in self.kept()
        self.fill("Name of the new device", "kit of Mia")
        self.shown.get_by_label("Whose it is").select_option("Mia")
        self.fill("IMEI of its modem, if it has one", "300234010000070")
        self.shown.get_by_label("Authenticate its satellite messages").check()
        self.press("Add the device")
        with self.shown.expect_download() as saved:
            self.press("Save as fieldagent.properties")
        card = Path(saved.value.path()).read_text()
        assert re.fullmatch("hub-address=.*\nhub-token=.*\nsatellite-key=.*\n", card)
        assert self.kept() == card
        self.done("kit of Mia is added")
        self.press("Delete", self.unfold("kit of Mia"))
        self.done("kit of Mia is deleted")

    def radio_key(self) -> None:
        self.open("Radio key")
        self.shown.get_by_text("It was never changed from here.").wait_for()
        self.press("Change the key of all kits")
        self.done("The change has begun")
        notice = self.shown.locator("#radio-key-told")
        notice.get_by_text(re.compile(r"Step 1 of 3 since .*; behind: 1 kit of 1")).wait_for()
        self.press("Ask again")
        self.done("kit of Ada is asked again")
        self.press("Continue without it")
        self.done("The change continues without kit of Ada")
        notice.get_by_text("All kits use only the new key").wait_for()
        self.shown.get_by_text("kit of Ada, step 0, left out").wait_for()

    def users(self) -> str:
        """A password for Mia."""
        self.open("Users")
        self.fill("Name of the new user", "Eve")
        self.fill("E-mail address, to sign in with", "olga@example.org")
        self.shown.get_by_label("Role of the new user").select_option("dispatcher")
        self.press("Add the user")
        self.refused("a user with olga@example.org already exists")
        self.fill("E-mail address, to sign in with", "eve@example.org")
        self.press("Add the user")
        assert len(self.kept()) == 19
        eve = self.unfold("Eve")
        self.shown.locator(eve).get_by_label("Role").select_option("administrator")
        self.press("Save", eve)
        self.done("Eve is changed")
        self.press("Disable", eve)
        self.done("Eve is disabled")
        self.press("Enable", eve)
        self.done("Eve is enabled")
        self.press("Delete", eve)
        self.done("Eve is deleted")
        mine = self.unfold("Olga")
        self.shown.locator(mine).get_by_label("Role").select_option("member")
        self.press("Save", mine)
        self.refused("you cannot change your own role")
        self.press("New password", self.unfold("Mia"))
        return self.kept()

    def keys(self) -> None:
        self.open("API keys")
        self.fill("Name of the new key", "desk")
        self.fill("Days until it expires (empty: never)", "30")
        for each in ("message", "location", "waypoint", "data"):
            self.shown.get_by_label(each, exact=True).uncheck()
        self.shown.get_by_label("read", exact=True).check()
        self.press("Add the key")
        assert self.kept().startswith("key_")
        desk = self.unfold("desk")
        self.shown.locator(desk).get_by_label("Calls a minute").fill("9")
        self.press("Save", desk)
        self.done("The key desk is changed")
        self.press("Revoke", desk)
        self.done("The key desk is revoked")
        self.shown.locator("#admin-keys").get_by_text(re.compile("desk.*read.*revoked")).wait_for()
        self.open("Tokens of programs")
        self.fill("Name of the new token", "bot")
        self.shown.get_by_label("For whom").select_option("push")
        self.press("Add the token")
        assert self.kept().startswith("token_")
        self.shown.locator("#admin-tokens li", has_text="bot").get_by_role("button").click()
        self.done("The token bot is revoked")

    def webhooks(self, url: str, database: str) -> None:
        self.open("Webhooks")
        self.fill("URL, beginning with https://", "http://127.0.0.1:1/")
        self.press("Test and add")
        self.refused("did not accept the test message")
        self.fill("URL, beginning with https://", url)
        self.fill("Only for an SOS that has had no answer for this many minutes", "5")
        self.press("Test and add")
        assert self.kept().startswith("whsec_")
        self.press("Test")
        self.done("accepted the test message")
        self.press("New secret")
        assert self.kept().startswith("whsec_")
        self.done("are signed with this secret, and with the old secret until the next change")
        store = open_store(database)
        store.run_once(
            lambda db: db.execute(
                "INSERT INTO webhook_delivery (webhook, item, state, attempts, reason)"
                " SELECT webhook.id, item.id, 'dead', 9, 'it was full' FROM webhook, item"
            )
        )
        store.run_once(lambda db: db.execute("UPDATE webhook SET disabled = 1, reason = 'gone'"))
        store.close()
        self.shown.reload()
        self.shown.get_by_text("after 9 tries: it was full").wait_for()
        self.press("Enable")
        self.done("Waiting items are posted now")
        self.press("Post it again")
        self.done("1 post tried again")
        self.press("Remove", "#admin-webhooks")
        self.done(f"{url} is removed")

    def letters(self, database: str) -> None:
        """This is first, because imported messages are posted to the webhooks."""
        self.open("Dead letters")
        self.shown.locator("#admin-letters li").wait_for()
        assert IMEI not in self.shown.content()
        self.shown.get_by_text("fieldagent hub device dead-letter list").wait_for()
        # Messages from an unknown modem belong to the operator, who assigns them.
        assert administer(database, "device", "imei", "kit-ada", IMEI)["deadLettersTaken"] == 1
        self.press("Process those that can be used now")
        self.done("0 were processed")
        self.press("Remove", "#admin-letters")
        self.shown.get_by_text(
            "No dead letters: all messages from your devices could be used."
        ).wait_for()

    def audit(self) -> None:
        self.open("Audit log")
        lines = self.shown.locator("#admin-audit li")
        lines.filter(has_text="Olga: dead-letter remove").wait_for()
        self.press("Older lines")
        lines.filter(has_text="at the hub's machine: workspace add").wait_for()


def test_every_control_of_the_administration_works(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle_in_as_administrator(database)
    settings = {"database": database, "webhook-allow": "127.0.0.0/8"}
    with (
        browser.browser() as opened,
        receiver() as hooked,
        hub(tmp_path, settings) as running,
        console(opened, running, "1280-light") as shown,
    ):
        shown.on("dialog", lambda question: question.accept())
        sign_in(shown, "olga@example.org", SECRET.strip())
        office = Office(shown)
        office.letters(database)
        office.devices()
        office.radio_key()
        password = office.users()
        office.keys()
        office.webhooks(hooked.url, database)
        office.audit()
        assert shown.url == f"{running.address}/console/administration/audit"
        # Mia's new password is valid for one sign-in. She administers nothing.
        shown.get_by_role("button", name="Sign out").click()
        sign_in(shown, "mia@example.org", password)
        shown.get_by_text("this password is valid for one sign-in").wait_for()
        shown.get_by_label("Choose your own").fill("a horse of her own")
        shown.get_by_role("button", name="Sign in").click()
        shown.get_by_text("No SOS is open.").wait_for()
        assert shown.locator("#subjects > *").count() == 0
        assert not shown.get_by_role("link", name="Administration").is_visible()
        log = "\n".join(running.output())
        assert len(office.secrets) == 10
        assert all(each not in log for each in office.secrets)


def test_sign_in_link_of_the_first_administrator_opens_the_console(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    link = administer(database, "init", "Alps", "--administrator", "Olga@example.org")["signIn"]
    with (
        browser.browser() as opened,
        hub(tmp_path, {"database": database}) as running,
        console(opened, running, "1280-light") as shown,
    ):
        shown.goto(f"{running.address}/console{link[link.index('#') :]}")
        shown.wait_for_url(f"{running.address}/console")
        shown.get_by_role("button", name="Sign in").click()
        shown.get_by_label("Choose your own").fill("a horse of her own")
        shown.get_by_role("button", name="Sign in").click()
        shown.get_by_role("link", name="Administration").click()
        assert link.partition("password=")[2] not in "\n".join(running.output())


@pytest.mark.parametrize("screen", ["390-dark", pytest.param("1280-light", marks=pytest.mark.full)])
def test_administration_fits_the_screen_and_is_accessible(tmp_path: Path, screen: str) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle_in_as_administrator(database)
    administer(database, "webhook", "add", f"https://example.org/{'long' * 40}", "--untried")
    record_sessions(database)
    settings = {"database": database, "directip-credit-price": "0.12 EUR"}
    with (
        browser.browser() as opened,
        hub(tmp_path, settings) as running,
        console(opened, running, screen) as shown,
    ):
        sign_in(shown, "olga@example.org", SECRET.strip())
        office = Office(shown)
        wide = int(screen.partition("-")[0])

        def fits() -> None:
            assert browser.faults(shown) == []
            assert shown.evaluate("document.documentElement.scrollWidth") <= wide

        parts = {
            "Devices": "kit-ada",
            "Users": "Mia",
            "API keys": "data, message",
        }
        for subject in SUBJECTS:
            office.open(subject)
            shown.locator("#subject :is(li, form)").first.wait_for()
            if title := parts.get(subject):
                office.unfold(title)
            fits()
        shown.get_by_text("of long ago").first.wait_for()
        # The back button leads to the list and the previous subject, and a reload stays.
        for _ in range(2):
            shown.go_back()
        shown.get_by_role("heading", name="Dead letters").wait_for()
        shown.reload()
        shown.get_by_role("heading", name="Dead letters").wait_for()
        office.open("Devices")
        office.unfold("kit-ada")
        shown.locator("#subject").get_by_text("Satellite cost").first.click()
        shown.get_by_text(
            "2 credits more there: sessions that did not reach this hub: 8"
        ).wait_for()
        shown.get_by_text("3 credits, 0.36 EUR").first.wait_for()
        shown.locator("#device-1-cost").scroll_into_view_if_needed()
        fits()
        browser.keep(shown, f"console-cost-{screen}")
        office.open("Users")
        office.press("New password", office.unfold("Mia"))
        shown.locator("#once-text").wait_for()
        fits()
        browser.keep(shown, f"console-administration-{screen}")
