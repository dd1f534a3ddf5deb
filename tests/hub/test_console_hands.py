"""An administrator queries a kit at the console: first the price, then the answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldagent.wire.command import VERBS, get_verb, parse_command
from tests.browser import browser
from tests.hub.alps import Alps
from tests.hub.test_console import SECRET, console
from tests.hub.test_console_administration import sign_in
from tests.hub.test_journey import IMEI, behind_directip, folder, sky
from tests.processes import administer, agent, free_port, hub, until

pytestmark = pytest.mark.full


def test_command_price_is_shown_before_a_kit_is_queried(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    alps = Alps(database)
    ids = {}
    for name, role in (("Olga", "administrator"), ("Ben", "dispatcher")):
        ids[name] = str(administer(database, "user", "add", name)["id"])
        administer(database, "user", "password", name, secret=SECRET)
        administer(database, "user", "role", name, role)
    mo_port, mt_port = free_port(), free_port()
    above = administer(database, "device", "add", "far", "--user", "1", "--imei", IMEI, "--tagged")
    settings = behind_directip(database, mo_port, mt_port)
    with (
        hub(folder(tmp_path / "hub"), settings) as running,
        sky(tmp_path, mo_port, mt_port),
        agent(
            folder(tmp_path / "near"),
            {
                "satellite-port": None,
                "hub-address": running.address,
                "hub-token": alps.token,
            },
        ) as near,
        agent(
            folder(tmp_path / "far"),
            {"satellite-port": str(tmp_path / "modem"), "satellite-key": above["satellite-key"]},
        ) as far,
        browser() as opened,
    ):
        near.expect("linked to the hub")
        assert far.post("here").body["status"] == "Delivered"
        with console(opened, running, "1280-light") as shown:
            sign_in(shown, ids["Olga"], SECRET.strip())
            shown.get_by_role("link", name="kit").first.click()
            shown.get_by_text("Send a command to this kit").click()
            offered = shown.locator("#hands-what option").evaluate_all(
                "each => each.map(one => one.value)"
            )
            verbs = {get_verb(parse_command(words.split())).name for words in offered}
            # A radio-key goes to all kits, in the administration. An update needs a file.
            assert verbs == {verb.name for verb in VERBS} - {"set", "show", "radio-key", "update"}
            # Over the link there is no cost to accept.
            shown.locator("#hands-give").click()
            answer = shown.locator("#hands-told li", has_text="done, answered at")
            answer.wait_for()
            assert "version 0.1.0" in answer.inner_text()
            # Over satellite the first press shows the price, and the second press sends it.
            shown.get_by_role("link", name="far").first.click()
            shown.get_by_text("Send a command to this kit").wait_for()
            assert shown.locator("#hands-told li").count() == 0, "it was told nothing yet"
            shown.locator("#hands-give").click()
            shown.locator("#hands-cost", has_text="Over satellite: ").wait_for()
            assert administer(database, "command", "far") == []
            shown.locator("#hands-give", has_text="Send it for").click()
            shown.locator("#hands-told li", has_text="status").wait_for()

            def is_answered() -> bool:
                # Its own message also fetches the waiting one from the gateway.
                far.post("still here")
                text = shown.locator("#hands-told li").first.inner_text()
                return "over satellite" in text and "version 0.1.0" in text

            until(is_answered)
        with console(opened, running, "390-dark") as shown:
            # A dispatcher answers an SOS but cannot send commands to a kit.
            sign_in(shown, ids["Ben"], SECRET.strip())
            shown.get_by_role("link", name="far").first.click()
            shown.get_by_text("About this kit").wait_for()
            assert not shown.locator("#hands").is_visible()
