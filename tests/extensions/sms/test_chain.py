"""Contacts by SMS: a step among steps by mail, and the way from an SOS to a contact's answer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.request import urlopen

import pytest

from fieldagent.extensions.sms.hub.short_text import PARTS_BY_ALPHABET
from fieldagent.system.exit_codes import OK, REFUSED
from fieldagent.wire import sms_alphabet
from tests.extensions.desk.test_chain import chain, written
from tests.extensions.sms.test_services import ADAPTERS, PHONE, post
from tests.hub.push_service import push_service
from tests.hub.raising import BEHIND, changed, kit_of, raise_sos, settle_in
from tests.hub.relay import mail_relay
from tests.processes import PATIENCE, administer, administer_from_shell, agent, hub, until

CODE = re.compile(r"OK ([0-9]{6})")


@pytest.mark.full
def test_contact_step_without_its_service_is_reported_in_advance(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    config = tmp_path / "hub.properties"
    with mail_relay() as relay, push_service(None) as service:
        by_sms = {"sms-webhook": f"{service.address}/send"}
        whole = {"database": database, **relay.settings, **by_sms}
        written(config, whole)
        for name, address, after in (
            ("Bea", "b@example.org", "5m"),
            ("Carl", "c@example.org", "300s"),
        ):
            more = ("--after", after, "--every", "30s", "--tries", "3", "--about", "sos")
            administer(database, "contact", "add", name, address, *more)
        for name, address in (("Ada", PHONE), ("Dora", "d@example.org")):
            late = ("--after", "90m", "--language", "uk") if name == "Dora" else ()
            added = ("contact", "add", name, address, *late, "--config", str(config))
            administer_from_shell(database, *added)
        code, steps, _ = chain(config, "list")
        assert code == OK
        outline = [(each["after"], [one["name"] for one in each["contacts"]]) for each in steps]
        assert outline == [("0s", ["Ada"]), ("5m", ["Bea", "Carl"]), ("90m", ["Dora"])]
        assert steps[1]["contacts"][0] | {"tries": 3, "about": "sos"} == steps[1]["contacts"][0]
        assert [each["contacts"][0]["language"] for each in steps] == ["en", "en", "uk"]

        written(config, {"database": database, **relay.settings})
        code, steps, errors = chain(config, "list")
        assert (code, [each["works"] for each in steps]) == (REFUSED, [False, True, True])
        assert steps[0]["contacts"][0]["fault"] == "set sms-webhook in the hub's settings"
        assert "step 1 reaches no one" in errors

        written(config, whole)
        relay.answers = ["550 no such mailbox", "550 no such mailbox"]
        code, results, _ = chain(config, "test")
        assert code == REFUSED
        ends = [(each["step"], each["name"], each["handedOver"]) for each in results]
        assert ends == [
            (1, "Ada", True),
            (2, "Bea", False),
            (2, "Carl", False),
            (3, "Dora", True),
        ]
        assert "550" in results[1]["reason"]
        # Each in their language.
        assert relay.mail().get_content().startswith("ПЕРЕВІРКА. Це перевірка контакту Dora")
        assert json.loads(service.pushed(1).body)["text"].startswith("TEST. This is a test")
        code, steps, _ = chain(config, "list")
        assert (code, [each["works"] for each in steps]) == (REFUSED, [True, False, True])
        with (
            hub(tmp_path, whole) as running,
            urlopen(f"{running.address}/metrics", timeout=PATIENCE) as answer,
        ):
            assert b"fieldagent_hub_contact_steps_broken 1\n" in answer.read()
        written(config, whole)
        assert chain(config, "test")[0] == OK
        assert chain(config, "list")[0] == OK


def thread(database: str) -> list[str]:
    """Return the timeline as texts."""
    (row,) = (administer(database, "sos", "show", "1")["timeline"],)
    return [f"{each['event']}: {each['detail']}" for each in row]


@pytest.mark.full
@pytest.mark.parametrize("name", ADAPTERS)
def test_contact_notified_by_sms_answers_by_sms(tmp_path: Path, name: str) -> None:
    adapter, database = ADAPTERS[name], str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    with push_service(None) as service:
        settings = {"database": database, **BEHIND, **adapter.settings(service.address)}
        with hub(tmp_path, settings) as running, agent(tmp_path, kit_of(running, token)) as kit:
            added = ("contact", "add", "Bergwacht", PHONE, "--config", running.arguments[1])
            administer_from_shell(database, *added)
            raise_sos(kit, database)
            id_, number, text = adapter.read(service.pushed(1))
            assert number == PHONE
            short = kit.call("GET", "/api/sos").body["incident"]["short"]
            assert text.startswith(f"SOS {short} of kit-ada: leg broken")
            assert "https://osm.org/?mlat=46.50000&mlon=7.25000" in text
            assert (
                sms_alphabet.count_parts(text)
                <= PARTS_BY_ALPHABET[sms_alphabet.choose_alphabet(text)]
            )
            detail = f"Bergwacht (by SMS): handed over to {adapter.service}"
            until(lambda: f"notified: {detail}" in thread(database))
            assert post(running, adapter.reported(id_, True)) in (200, 204)
            assert post(running, adapter.reported(id_, True)) in (200, 204)
            assert post(running, adapter.reported(id_, False)) in (200, 204)
            delivered = "notified: Bergwacht: the service reports delivery to the handset"
            assert thread(database).count(delivered) == 1, "said twice, and then denied"
            assert not any("read" in each for each in thread(database))
            code = CODE.search(text)
            assert code
            answer = adapter.came("1", f"ok {code[1]} on our way")
            for _ in range(2):
                assert post(running, answer) in (200, 204)
            _, _, reply = adapter.read(service.pushed(2))
            shown = administer(database, "sos", "show", "1")
            assert reply.startswith(f"You have taken over SOS {shown['short']}.")
            assert (shown["state"], shown["seen"]["by"]["name"]) == ("seen", "Bergwacht")
            assert post(running, adapter.came("2", "Is anybody else with you?")) in (200, 204)
            _, _, reply = adapter.read(service.pushed(3))
            assert reply.startswith("Your message is sent to the kit")
            until(lambda: any(each.startswith("answer on the kit") for each in thread(database)))
            assert len(service.got) == 3, "what came twice was taken in once"


@pytest.mark.full
def test_failure_reported_by_the_service_marks_the_step_as_failed(tmp_path: Path) -> None:
    adapter, database = ADAPTERS["sms"], str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    with push_service(None) as service:
        settings = {"database": database, **BEHIND, **adapter.settings(service.address)}
        with hub(tmp_path, settings) as running, agent(tmp_path, kit_of(running, token)) as kit:
            added = ("contact", "add", "Bergwacht", PHONE, "--config", running.arguments[1])
            administer_from_shell(database, *added)
            raise_sos(kit, database)
            id_, *_ = adapter.read(service.pushed(1))
            until(lambda: any("handed over" in each for each in thread(database)))
            assert post(running, adapter.reported(id_, False)) == 204
            line = "not notified: Bergwacht: the service reports a failure: no network"
            assert line in thread(database)
            listed = ("contact", "list", "--config", running.arguments[1])
            (contact,) = administer(database, *listed)
            assert contact["fault"] == "the service reports a failure: no network"
            assert changed(database, "SELECT reached FROM alarm_message") == [("failed",)]
            assert post(running, adapter.reported(id_, True)) == 204
            (contact,) = administer(database, *listed)
            assert contact["fault"] == "", "it came after all"
