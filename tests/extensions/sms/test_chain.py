"""A contact step by an SMS service among contact steps by mail."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.request import urlopen

import pytest

from fieldagent.system.exit_codes import OK, REFUSED
from tests.extensions.desk.test_chain import chain, written
from tests.extensions.sms.stand_ins import PHONE
from tests.hub.push_service import push_service
from tests.hub.relay import mail_relay
from tests.processes import PATIENCE, administer, administer_from_shell, hub


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
