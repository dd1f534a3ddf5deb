"""`./demo --hub`: an SOS on the left rings on the right, and the demo ends as a whole."""

from __future__ import annotations

import re
import signal
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from tests import browser
from tests.hub.test_console_sound import HEARD, heard
from tests.processes import MODULE, PATIENCE, Running, free_port


def status(method: str, address: str, **headers: str) -> int:
    parts = urlsplit(address)
    line = HTTPConnection("127.0.0.1", parts.port or 80, timeout=PATIENCE)
    line.request(method, parts.path, headers=headers)
    answer = line.getresponse()
    answer.read()
    line.close()
    return answer.status


@pytest.mark.full
def test_sos_on_the_kits_page_rings_at_the_linked_console() -> None:
    kit, desk = str(free_port()), str(free_port())
    command = [*MODULE, "demo", "--hub", "--port", kit, "--hub-port", desk, "--latency", "0.2"]
    with Running(command, "The demo also runs a hub") as demo, browser.browser() as opened:
        demo.expect("To sign in again")
        output = "\n".join(demo.output())
        match = re.search(rf"http://127.0.0.1:{desk}/console/enter/\S+", output)
        assert match and f"http://127.0.0.1:{kit}/\n" in output
        link = match[0]
        # A link preview does not use up the link, and the link cannot be guessed.
        assert status("HEAD", link) == 303
        assert status("GET", f"{link}x") == 404
        assert status("GET", link, **{"X-Forwarded-For": "198.51.100.7"}) == 404

        context = opened.new_context(**browser.SCREENS["1280-light"])
        context.set_default_timeout(PATIENCE * 1000)
        context.add_init_script(HEARD)
        right, left = context.new_page(), context.new_page()
        right.goto(link)
        right.get_by_text("Olga, dispatcher").wait_for()
        right.get_by_role("button", name="Turn it on").click()
        left.goto(f"http://127.0.0.1:{kit}/")
        left.locator("#links article").first.wait_for()
        left.locator("#raise").hover()
        left.mouse.down()
        left.locator("#confirm").wait_for()
        left.mouse.up()
        left.locator("#sos-text").fill("Leg broken")
        left.locator("#sos-send").click()
        right.locator("#sos li.open .words", has_text="Leg broken").wait_for()
        assert right.title() == "1 SOS · fieldagent console"
        heard(right, 0)
        right.get_by_role("button", name="Acknowledge").click()
        left.get_by_text(re.compile("seen by Olga", re.IGNORECASE)).first.wait_for()

        assert status("GET", link) == 410, "it works once"
        context.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("more", [[], ["--hub", "--hub-port", "0"]], ids=["kit", "with-a-hub"])
def test_one_signal_ends_all_programs_of_the_demo(more: list[str], number: signal.Signals) -> None:
    """Before, one of the two programs got the signal, and the other continued."""
    ports = [str(free_port()) if each == "0" else each for each in more]
    with Running([*MODULE, "demo", "--port", "0", *ports], "Ctrl-C ends the demo") as demo:
        if more:
            demo.expect("To sign in again")
        demo.process.send_signal(number)
        assert demo.wait() == 0
