"""Administrators manage contacts and quiet hours through the API."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fieldagent.extensions.desk.hub import contacts
from fieldagent.hub.records import sending
from fieldagent.hub.store.contract import Store
from fieldagent.hub.store.opening import open_store
from tests.hub.field import START
from tests.hub.test_administration import office

CONTACT = {"name": "Duty", "address": "duty@example.org"}


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({**CONTACT, "after": 5}, "/after"),
        ({**CONTACT, "after": "5"}, "/after"),
        ({**CONTACT, "after": "9s"}, "/after"),
        ({**CONTACT, "every": "0s"}, "/every"),
        ({**CONTACT, "every": "169h"}, "/every"),
    ],
)
async def test_invalid_contact_is_rejected_with_a_pointer_to_the_field(
    tmp_path: Path, body: Any, where: str
) -> None:
    store = open_store(str(tmp_path / "hub.sqlite3"))
    async with office(store) as hub:
        before = await hub.acted()
        answer = await hub.ask("POST", "/api/contacts", body)
        errors = json.loads(answer.body)["errors"]
        assert (answer.status, [each["pointer"] for each in errors]) == (422, [where])
        assert await hub.acted() == before
    store.close()


async def test_quiet_hours_are_set_for_workspace_and_contact(store: Store) -> None:
    async with office(store) as hub:
        assert await hub.done("GET", "/api/quiet") == {"quiet": "none"}
        new = contacts.NewContact("Duty", "duty@example.org")
        add = partial(contacts.add_contact, workspace=1, new=new, now=hub.alps.now)
        number = await hub.alps.store.commit(add)
        path, night = f"/api/contacts/{number}", "22:00-06:00 Europe/Zurich"
        assert await hub.done("PATCH", "/api/quiet", {"quiet": night}) == {"quiet": night}
        assert await hub.done("GET", "/api/quiet") == {"quiet": night}

        async def own() -> str:
            (step,) = (await hub.done("GET", "/api/chain"))["steps"]
            return str(step["contacts"][0]["quiet"])

        assert await own() == ""
        for hours in ("01:00-02:00 UTC", "none", ""):
            answer = await hub.ask("PATCH", path, {"quiet": hours})
            assert (answer.status, await own()) == (204, hours)
        assert await hub.done("PATCH", "/api/quiet", {"quiet": ""}) == {"quiet": "none"}
        before = await hub.acted()
        for wrong, why in (
            ("22:00-22:00 UTC", "begin and end at the same time"),
            ("22:00-06:00 Europe/Zuerich", "does not know the time zone"),
        ):
            for where in (path, "/api/quiet"):
                status, detail = await hub.refused("PATCH", where, {"quiet": wrong})
                assert (status, why in detail) == (409, True)
        for body in ({}, {"quiet": 5}, {"quiet": "22-6 UTC"}, {"quiet": "", "x": 1}):
            assert (await hub.ask("PATCH", "/api/quiet", body)).status == 422
        assert (await hub.ask("PATCH", "/api/contacts/999", {"quiet": ""})).status == 404
        assert await hub.acted() == before


async def test_test_of_all_contacts_counts_as_one_call(store: Store) -> None:
    """If each message counted, the key could reach its limit before the last contact is
    notified.
    """
    async with office(store) as hub:
        for name in ("Ada", "Bea", "Cy"):
            new = contacts.NewContact(name, "duty@example.org")
            await store.commit(partial(contacts.add_contact, workspace=1, new=new, now=START))
        mine = next(
            each["id"]
            for each in (await hub.done("GET", "/api/keys"))["keys"]
            if each["name"] == "office"
        )
        await hub.done("PATCH", f"/api/keys/{mine}", {"burst": 1, "perMinute": 1})
        hub.alps.now += 3600
        report = await hub.done("POST", "/api/chain/test")
        assert [each["name"] for each in report["results"]] == ["Ada", "Bea", "Cy"]
        reasons = await hub.alps.rows("SELECT reason FROM alarm_contact")
        assert len(reasons) == 3 and all(reason for (reason,) in reasons)
        hub.alps.now += 3600
        assert (await hub.ask("POST", "/api/contacts/1/test")).status == 422


async def test_contact_test_messages_have_a_daily_limit(store: Store) -> None:
    async with office(store) as hub:
        new = contacts.NewContact("Ada", "+41791234567", "sms")
        await store.commit(partial(contacts.add_contact, workspace=1, new=new, now=START))
        for _ in range(sending.ADDRESS_PER_DAY_MAX[sending.TEST]):
            assert (await hub.ask("POST", "/api/contacts/1/test")).status == 422
            hub.alps.now += 60
        answer = await hub.ask("POST", "/api/contacts/1/test")
        assert answer.status == 429 and b"to one address" in answer.body
        (result,) = (await hub.done("POST", "/api/chain/test"))["results"]
        assert (result["handedOver"], "to one address" in result["reason"]) == (False, True)
        hub.alps.now += sending.DAY_S
        assert (await hub.ask("POST", "/api/contacts/1/test")).status == 422
