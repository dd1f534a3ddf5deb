"""People with the official client of their radios' firmware, a kit, a satellite and a hub, all as
real processes. Senders see the true progress of their messages, whatever fails in between.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fieldagent.extensions.people import auto
from fieldagent.extensions.people.settings import RADIOS
from tests.agent.test_events import listening
from tests.browser import browser, faults, page
from tests.extensions.people.camp import (
    FIRMWARES,
    GIVEN_UP,
    KEPT,
    LEFT,
    THERE,
    Firmware,
    camp,
    heard,
    hears,
    insists,
    learn,
)
from tests.hub.test_cluster import contents, push
from tests.hub.test_journey import IMEI, behind_directip, folder, message_to, posted, receiver
from tests.hub.test_journey import sky as sky_of_hub
from tests.processes import Agent, administer, agent, free_port, hub, sky, until

SLOW = {"aprs": pytest.mark.full}
"""Its station waits before an answer, so that no two of them transmit at once. `test_aprs_camp.py`
has one test of each direction in the ordinary run."""


@pytest.fixture(
    params=[
        pytest.param(name, marks=[SLOW[name]] if name in SLOW else [])
        for name in sorted({*RADIOS} - {auto.NAME})
    ]
)
def firmware(request: pytest.FixtureRequest) -> Firmware:
    """Return each supported people's radio."""
    return FIRMWARES[request.param]


def by_satellite(home: Path, **more: str) -> dict[str, str | None]:
    return {"satellite-port": str(home / "modem"), **more}


@pytest.mark.full
def test_sender_sees_each_step_of_a_message_until_its_webhook(tmp_path: Path) -> None:
    """Over satellite to a hub, its webhook and another user's kit. An answer returns to the
    handheld, and its read receipt to the author.
    """
    mo_port, mt_port = free_port(), free_port()
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    hut = administer(database, "user", "add", "Hut", "--over-satellite")["id"]
    cleo = administer(database, "user", "add", "Cleo")["id"]
    device = administer(
        database, "device", "add", "kit", "--user", str(hut), "--imei", IMEI, "--tagged"
    )
    cleos = administer(database, "device", "add", "tablet", "--user", str(cleo))
    with ExitStack() as stack:
        hooked = stack.enter_context(receiver())
        settings = behind_directip(database, mo_port, mt_port)
        running = stack.enter_context(hub(folder(tmp_path / "hub"), settings))
        administer(database, "webhook", "add", hooked.url, "--untried")
        stack.enter_context(sky_of_hub(tmp_path, mo_port, mt_port))
        key = {"satellite-key": device["satellite-key"]}
        kit = stack.enter_context(camp(tmp_path, by_satellite(tmp_path, **key)))
        (ada,) = kit.people
        message = kit.write(0, "hut reached, all well")
        until(lambda: posted(hooked) == ["Ada: hut reached, all well"])
        until(lambda: kit.sees(0, message, KEPT, LEFT))
        by_ip: dict[str, Any] = {
            "satellite-port": None,
            "hub-address": running.address,
            "hub-token": cleos["hub-token"],
        }
        tablet = stack.enter_context(agent(folder(tmp_path / "tablet"), by_ip))
        until(lambda: contents(tablet) == ["Ada: hut reached, all well"])
        # The news that Cleo's kit has it reaches our kit with the next message, not earlier.
        assert kit.sees(0, message, KEPT, LEFT)
        push(running.port, proof, message_to(hut, first, "@Ada well done, come down by noon"))
        heard = learn(ada, "heard")
        while "come down" not in heard["text"]:
            heard = learn(ada, "heard")
        assert heard["text"].endswith(": well done, come down by noon")
        assert heard["byKey"]
        until(lambda: kit.sees(0, message, KEPT, LEFT, THERE))
        kit.people[0].type(f"answer {kit.number} {heard['id']} on our way")
        until(lambda: "Ada: on our way" in posted(hooked))
        assert kit.mesh()["texts"] == {"read": 1}


@pytest.mark.full
def test_known_user_is_the_author_after_a_link_outage(tmp_path: Path, firmware: Firmware) -> None:
    """Over IP: the hub has the name of a user's radio. For a message that only the hub has, no
    further sign appears.
    """
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    hut = administer(database, "user", "add", "Hut")["id"]
    administer(database, "user", "add", "Ada of the rescue")
    administer(database, "user", "radio", "Ada of the rescue", firmware.ada)
    device = administer(database, "device", "add", "kit", "--user", str(hut))
    port = str(free_port())
    settings = {"database": database, "port": port, "webhook-allow": "127.0.0.0/8"}
    by_ip: dict[str, str | None] = {
        "hub-address": f"http://127.0.0.1:{port}",
        "hub-token": device["hub-token"],
        "mesh-people": None,
    }
    with ExitStack() as stack:
        hooked = stack.enter_context(receiver())
        above = stack.enter_context(hub(folder(tmp_path / "hub"), settings))
        administer(database, "webhook", "add", hooked.url, "--untried")
        kit = stack.enter_context(camp(tmp_path, by_ip, firmware=firmware))
        until(lambda: "Ada of the rescue" in str(kit.kit.call("GET", "/api/people").body))
        first = kit.write(0, "hut reached")
        said = [firmware.signed("", each) for each in ("hut reached", "all well")]
        until(lambda: posted(hooked) == said[:1])
        above.kill()
        second = kit.write(0, "all well")
        until(lambda: kit.sees(0, second, KEPT))
        stack.enter_context(hub(tmp_path / "hub", settings))
        # The kit checks immediately after its start. Otherwise it would rest by now.
        kit.restart()
        # If the hub is killed before it has stored the webhook's answer, it repeats the post.
        until(lambda: [*dict.fromkeys(posted(hooked))] == said)
        names = {each["payloads"][0]["identity"]["name"] for each in hooked.got}
        assert names == {"Ada of the rescue"}
        assert {*kit.signs(0, first), *kit.signs(0, second)} == {KEPT}


@pytest.mark.full
def test_push_to_a_user_reaches_their_handheld(tmp_path: Path, firmware: Firmware) -> None:
    """The user has a radio and no device. The kit that heard the radio last sends it. The text is
    on the radio when the radio confirms it.
    """
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    hut = administer(database, "user", "add", "Hut")["id"]
    ada = administer(database, "user", "add", "Ada of the rescue")["id"]
    administer(database, "user", "radio", "Ada of the rescue", firmware.ada)
    device = administer(database, "device", "add", "kit", "--user", str(hut))
    with ExitStack() as stack:
        hooked = stack.enter_context(receiver())
        settings = {"database": database, "webhook-allow": "127.0.0.0/8"}
        above = stack.enter_context(hub(folder(tmp_path / "hub"), settings))
        administer(database, "webhook", "add", hooked.url, "--untried")
        by_ip: dict[str, str | None] = {
            "hub-address": above.address,
            "hub-token": device["hub-token"],
            "mesh-people": None,
        }
        kit = stack.enter_context(camp(tmp_path, by_ip, firmware=firmware))
        until(lambda: "Ada of the rescue" in str(kit.kit.call("GET", "/api/people").body))
        kit.write(0, "hut reached")
        until(lambda: posted(hooked) == [firmware.signed("", "hut reached")])
        push(above.port, proof, message_to(ada, first, "come down by noon"))
        assert heard(kit.people[0]).endswith(": come down by noon")
        until(lambda: kit.mesh()["texts"] == {"on radio": 1})


def count_queued(kit: Agent) -> int:
    """Return the number of Packages that wait for the satellite modem."""
    return int(kit.call("GET", "/api/status").body["channels"]["Satellite"]["queued"])


def test_delivery_sign_is_shown_only_once_true(tmp_path: Path, firmware: Firmware) -> None:
    """Without a network, the message is only on the kit's disk."""
    with sky(tmp_path) as above, camp(tmp_path, by_satellite(tmp_path), firmware=firmware) as kit:
        above.type("service 0")
        above.expect("no network")
        message = kit.write(0, "weather closes in")
        until(lambda: kit.sees(0, message, KEPT))
        until(lambda: count_queued(kit.kit) == 1)
        assert kit.signs(0, message) == [KEPT]
        above.type("service 1")
        until(lambda: kit.sees(0, message, KEPT, LEFT))


@pytest.mark.full
def test_expired_message_is_reported_with_its_reason(tmp_path: Path, firmware: Firmware) -> None:
    with sky(tmp_path) as above:
        above.type("service 0")
        settings = by_satellite(tmp_path, **{"package-time-to-live": "3"})
        with camp(tmp_path, settings, firmware=firmware) as kit:
            (ada,) = kit.people
            message = kit.write(0, "weather closes in")
            until(lambda: kit.sees(0, message, KEPT, GIVEN_UP))
            hears(ada, f"{GIVEN_UP} given up: expired")


@pytest.mark.full
def test_killed_kit_resumes_the_message_after_its_restart(
    tmp_path: Path, firmware: Firmware
) -> None:
    """A sign whose arrival was not stored yet is shown again, without new information."""
    with sky(tmp_path) as above, camp(tmp_path, by_satellite(tmp_path), firmware=firmware) as kit:
        above.type("service 0")
        message = kit.write(0, "weather closes in")
        until(lambda: kit.sees(0, message, KEPT))
        kit.kit.kill()
        above.type("service 1")
        above.expect("the network is there")
        kit.restart()
        until(lambda: [*dict.fromkeys(kit.signs(0, message))] == [KEPT, LEFT])
        assert [each["text"] for each in kit.packages()] == [
            firmware.signed("Ada", "weather closes in")
        ]


@pytest.mark.full
def test_unplugged_radio_loses_no_message(tmp_path: Path, firmware: Firmware) -> None:
    """A text sent during the outage is on the kit's radio, which delivers it later. A sign whose
    acknowledgement was cut off is shown again, without new information.
    """
    with sky(tmp_path), camp(tmp_path, by_satellite(tmp_path), firmware=firmware) as kit:
        first = kit.write(0, "one")
        until(lambda: kit.sees(0, first, KEPT, LEFT))
        kit.air.type("unplug 1")
        kit.kit.expect("people's radio is away")
        assert kit.mesh()["state"] == "absent"
        kit.air.type("plug 1")
        kit.await_radio()
        second = kit.write(0, "two")
        until(lambda: kit.sees(0, second, KEPT, LEFT))
        assert kit.signs(0, first)[-1] == LEFT
        assert [*dict.fromkeys(kit.signs(0, first))] in ([KEPT, LEFT], [LEFT])


def test_restarted_radio_is_initialised_again(tmp_path: Path) -> None:
    with sky(tmp_path), camp(tmp_path, by_satellite(tmp_path)) as kit:
        kit.air.type("reboot 1")
        kit.kit.expect("the radio has restarted")
        message = kit.write(0, "still there?")
        until(lambda: kit.sees(0, message, KEPT, LEFT))


@pytest.mark.full
def test_text_waits_for_a_person_out_of_range(tmp_path: Path, firmware: Firmware) -> None:
    """The text is sent as soon as any packet of that person is heard."""
    with (
        sky(tmp_path) as above,
        camp(tmp_path, by_satellite(tmp_path), firmware=firmware, people=2) as kit,
    ):
        ada = kit.people[0]
        until(lambda: kit.kit.call("GET", "/api/mesh").body["people"])
        kit.air.type("away 2")
        kit.air.expect("out of range")
        above.type("mt @Ada come down by noon")
        kit.kit.expect("Ada did not receive a text: no acknowledgement")
        assert kit.mesh()["texts"] == {"waiting": 1}
        kit.air.type("near 2")
        ada.type("position 46.5475 7.985 3454")
        assert heard(ada) == "Base camp: come down by noon"
        until(lambda: kit.mesh()["texts"] == {"on radio": 1})


@pytest.mark.full
def test_long_text_is_sent_in_numbered_parts(tmp_path: Path, firmware: Firmware) -> None:
    words = " ".join(f"word{number}" for number in range(firmware.text_bytes * 2 // 7))
    with sky(tmp_path) as above, camp(tmp_path, by_satellite(tmp_path), firmware=firmware) as kit:
        above.type(f"mt @Ada {words}")
        parts = [heard(kit.people[0]) for _ in range(3)]
        assert [part[:4] for part in parts] == ["1/3 ", "2/3 ", "3/3 "]
        assert " ".join(part[4:] for part in parts) == f"Base camp: {words}"
        assert all(len(part.encode()) <= firmware.text_bytes for part in parts)


def test_sos_of_a_person_is_cancelled_only_by_its_sender(
    tmp_path: Path, firmware: Firmware
) -> None:
    """A guest's SOS, too, is confirmed immediately and survives the agent, and only its sender ends
    it.
    """
    with sky(tmp_path), camp(tmp_path, by_satellite(tmp_path), firmware=firmware, people=2) as kit:
        ada, ben = kit.people
        ben.type("position 46.5475 7.985 3454")
        until(lambda: any(each["position"] for each in kit.people_around()))
        ben.type(f"text {kit.number} SOS leg broken")
        hears(ben, "This kit has stored your SOS")
        until(lambda: len(kit.packages()) == 2)
        position, said = kit.packages()
        who = f"{firmware.person_name(3)} ({firmware.ben[:12]}"
        place = f", {firmware.caveat}), at 46.54750 7.98500" if firmware.caveat else ")"
        assert (said["text"], said["sos"]) == (f"SOS from {who}{place}: leg broken", True)
        assert position["sos"] and position["position"] == [46.5475, 7.985]
        kit.restart()
        kit.await_radio()
        insists(ada, f"text {kit.number} SOS CANCEL", "No SOS of yours is open on this kit.")
        assert [each["state"] for each in kit.kit.call("GET", "/api/sos").body["heard"]] == ["open"]
        ben.type(f"text {kit.number} sos cancel")
        hears(ben, "Your SOS is called off")
        status = kit.kit.call("GET", "/api/sos").body
        assert [each["state"] for each in status["heard"]] == ["called off"]
        assert status["incident"] is None, "it was never the kit's own"


@pytest.mark.full
def test_sos_of_a_guest_reaches_a_webhook_as_unauthenticated(tmp_path: Path) -> None:
    """Over the kit's own link. An SOS of a user of the hub has no such mark."""
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    hut = administer(database, "user", "add", "Hut")["id"]
    device = administer(database, "device", "add", "kit", "--user", str(hut))
    with ExitStack() as stack:
        hooked = stack.enter_context(receiver())
        hub_settings = {"database": database, "webhook-allow": "127.0.0.0/8"}
        running = stack.enter_context(hub(folder(tmp_path / "hub"), hub_settings))
        administer(database, "webhook", "add", hooked.url, "--untried")
        by_ip: dict[str, str | None] = {
            "hub-address": running.address,
            "hub-token": device["hub-token"],
            "mesh-join-code": "edelweiss",
        }
        kit = stack.enter_context(camp(tmp_path, by_ip, people=2))
        ada, ben = kit.people
        insists(ada, f"text {kit.number} join edelweiss", "This kit knows you now")
        ben.type(f"text {kit.number} SOS leg broken")
        ada.type(f"text {kit.number} SOS fallen into a crevasse")
        until(lambda: len(posted(hooked)) == 2)
        marks = [
            (words, header.get("fieldagent-unauthenticated"))
            for words, header in zip(posted(hooked), hooked.headers, strict=True)
        ]
        assert [mark for words, mark in marks if "leg broken" in words] == ["1"]
        assert [mark for words, mark in marks if "crevasse" in words] == [None]


@pytest.mark.full
def test_shared_sos_stays_open_until_both_people_cancel(tmp_path: Path) -> None:
    settings = by_satellite(tmp_path, **{"mesh-join-code": "edelweiss"})
    with sky(tmp_path), camp(tmp_path, settings, people=2) as kit:
        ada, ben = kit.people
        insists(ben, f"text {kit.number} join edelweiss", "This kit knows you now")
        ben.type("alert avalanche")
        assert learn(ben, "heard")["text"].startswith("This kit has stored your SOS")
        ada.type(f"text {kit.number} mayday buried to the waist")
        until(lambda: "This is added to the SOS" in "\n".join(ada.output()))
        ben.type(f"text {kit.number} SOS CANCEL")
        until(lambda: "it also has others" in "\n".join(ben.output()))
        assert kit.kit.call("GET", "/api/sos").body["incident"]["state"] == "open"
        ada.type(f"text {kit.number} SOS CANCEL")
        until(lambda: "Your SOS is called off" in "\n".join(ada.output()))
        assert kit.kit.call("GET", "/api/sos").body["incident"]["state"] == "called off"


@pytest.mark.full
def test_guest_is_informed_once_and_joins_with_the_code(tmp_path: Path, firmware: Firmware) -> None:
    settings = by_satellite(tmp_path, **{"mesh-join-code": "edelweiss"})
    with sky(tmp_path), camp(tmp_path, settings, firmware=firmware, people=2) as kit:
        ben = kit.people[1]
        ben.type(f"text {kit.number} hello")
        hears(ben, "This kit does not know you")
        insists(ben, f"text {kit.number} join enzian", "That is not the code of this kit.")
        ben.type(f"text {kit.number} hello again")
        known = f"This kit knows you now, {firmware.person_name(3)}"
        insists(ben, f"text {kit.number} Join edelweiss", known)
        assert kit.packages() == []
        message = kit.write(1, "hello at last")
        until(lambda: kit.sees(1, message, KEPT, LEFT))
        kit.restart()
        assert [each["text"] for each in kit.packages()] == [
            firmware.signed(firmware.person_name(3), "hello at last")
        ]


@pytest.mark.full
def test_channel_text_is_forwarded_only_with_the_hub_prefix(
    tmp_path: Path, firmware: Firmware
) -> None:
    with sky(tmp_path), camp(tmp_path, by_satellite(tmp_path), firmware=firmware) as kit:
        (ada,) = kit.people
        ada.type("channel 0 hi all")
        ada.type("channel 1 anybody near the hut?")
        ada.type("channel 1 @hub send the doctor")
        said = [firmware.signed("Ada", "send the doctor")]
        until(lambda: [each["text"] for each in kit.packages()] == said)


def test_waypoint_is_sent_and_nearby_people_are_listed(tmp_path: Path) -> None:
    with sky(tmp_path), camp(tmp_path, by_satellite(tmp_path)) as kit:
        (ada,) = kit.people
        ada.type("waypoint 46.5 7.9 Crevasse")
        until(lambda: [each["kind"] for each in kit.packages()] == ["waypoint"])
        ada.type("position 46.5475 7.985 3454 16")
        until(lambda: any(each["position"] for each in kit.people_around()))
        (seen,) = kit.people_around()
        assert (seen["name"], seen["known"], seen["hops"], seen["rssi"]) == ("Ada", True, 0, -80)
        assert seen["position"]["blurred"] is True
        assert [each["kind"] for each in kit.packages()] == ["waypoint"], "positions stay here"


def test_missing_region_is_reported_as_a_fault(tmp_path: Path) -> None:
    with sky(tmp_path), camp(tmp_path, by_satellite(tmp_path)) as kit:
        kit.air.type("region 1 off")
        kit.air.expect("transmits nothing")
        kit.restart()
        until(lambda: kit.mesh()["state"] == "fault")
        assert kit.mesh()["reason"].startswith("no region is set on the radio")


@pytest.mark.full
def test_page_lists_nearby_people_and_their_positions(tmp_path: Path) -> None:
    with (
        sky(tmp_path),
        camp(tmp_path, by_satellite(tmp_path), people=2) as kit,
        browser() as opened,
    ):
        kit.people[0].type("position 46.5475 7.985 3454 16")
        kit.people[1].type("position 46.5 7.9 3454")
        until(lambda: sum(each["position"] is not None for each in kit.people_around()) == 2)
        with page(opened, kit.kit.port) as shown:
            around = shown.locator("#around")
            around.locator("li").nth(1).wait_for()
            text = around.inner_text()
            assert "Handheld radio: ready" in shown.locator("#people-radio").inner_text()
            assert "Ada" in text and "46.5475, 7.9850, blurred on purpose" in text
            assert "Node 3 (guest)" in text and "-80 dBm · direct" in text
            # The same people on the map, with the age of their positions, and blurred if they are.
            on_map = shown.locator("#map .name")
            on_map.filter(has_text="Ada · less than a minute ago · blurred").wait_for(
                state="attached"
            )
            on_map.filter(has_text="Node 3 (guest) · less than a minute ago").wait_for(
                state="attached"
            )
            assert shown.locator("#map path.spot.blurred").count() == 1
            assert "blurred on purpose" in shown.locator("#places").inner_text()
            assert faults(shown) == []


def test_unknown_radio_with_a_known_name_is_reported_as_an_event(
    tmp_path: Path, firmware: Firmware
) -> None:
    """Event listeners get a warning with advice, also at their start, until the radio is known."""
    name = firmware.person_name(3)
    known = {"mesh-people": f"{firmware.ada} {name.lower()}", "mesh-join-code": "edelweiss"}
    with camp(tmp_path, known, people=2, firmware=firmware) as there:
        with listening(there.kit, "people") as listener:
            person = listener.until("people", handle=firmware.ben).data
        assert (person["name"], person["known"]) == (name, False)
        assert person["namesakeOf"] == firmware.ada
        assert "until they write the join code, or you add it" in person["notice"]
        assert person["notice"] in there.kit.call("GET", "/api/status").body["notices"]
        there.kit.expect(f"uses the name {name}")
