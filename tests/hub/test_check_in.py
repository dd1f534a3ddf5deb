"""A silent device causes an alarm at the hub."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fieldagent.hub.access import directory
from fieldagent.hub.api import reading, sos_desk
from fieldagent.hub.contract import Bearer
from fieldagent.hub.field import check_in, kit_watch
from fieldagent.hub.field.check_in import DAY_S, WARNING_TO_ALARM_S, Rule
from fieldagent.hub.records import sos
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import open_store
from fieldagent.hub.webhook import webhook_directory
from fieldagent.hub.webhook.webhook_directory import Webhook
from fieldagent.package.package import CheckIn, Location, Message
from fieldagent.wire.envelope import (
    Entry,
    JournalNumber,
    Receipt,
    compute_item_digest,
    decode,
    derive_key,
)
from tests.hub.claiming import claim
from tests.hub.field import MASTER, START, Field, field_of
from tests.hub.test_read_api import hub_caller
from tests.processes import MODULE, Running, administer, agent, hub, until
from tests.processes import PATIENCE as ENOUGH

TIME = int(START)
EVERY_HOUR = Rule(interval=3600.0)


def parse_time(text: str) -> float:
    return datetime.fromisoformat(f"2026-11-22T{text}+00:00").timestamp()


@pytest.mark.parametrize(
    ("rule", "first", "after"),
    [
        (EVERY_HOUR, parse_time("13:00"), parse_time("13:00")),
        (Rule(by_minute=18 * 60), parse_time("18:00"), parse_time("18:00") + DAY_S),
        (Rule(by_minute=6 * 60), parse_time("06:00") + DAY_S, parse_time("06:00") + 2 * DAY_S),
        (Rule(by_minute=12 * 60), parse_time("12:00") + DAY_S, parse_time("12:00") + 2 * DAY_S),
        (Rule(None, 18 * 60, 3600.0), parse_time("13:00"), parse_time("13:00")),
        (Rule(7200.0, None, 36_000.0), parse_time("14:00"), parse_time("14:00")),
    ],
)
def test_next_check_in_is_computed_from_the_rule(rule: Rule, first: float, after: float) -> None:
    noon = parse_time("12:00")
    assert (rule.compute_first(noon), rule.compute_next_after(noon)) == (first, after)


async def run_check(alps: Field) -> list[str]:
    """Check as the hub does every few seconds, if there is a due time."""
    if await alps.store.read(check_in.compute_next_late) > alps.now:
        return []
    return await alps.store.commit(lambda db: check_in.warn_of_late(db, alps.now))


async def read_check_in(alps: Field, device: int = 1) -> Any:
    devices, _ = await alps.store.read(
        lambda db: reading.list_devices(db, hub_caller(), reading.END, 10, alps.now)
    )
    return next(each["checkIn"] for each in devices if each["id"] == device)


async def begin_check_in(alps: Field, rule: Rule = EVERY_HOUR) -> None:
    await alps.store.commit(lambda db: check_in.begin_rule(db, 1, rule, now=alps.now))


async def test_silent_device_causes_a_warning_and_then_one_alarm(store: Store) -> None:
    async with field_of(store) as alps:
        hook = Webhook(0, "https://desk.example/")
        await store.commit(lambda db: webhook_directory.add_webhook(db, 1, hook, now=START))
        await alps.sends(1, Entry(1, Location(45.9, 7.6), TIME))
        await begin_check_in(alps)
        assert await read_check_in(alps) == {
            "rule": "every 1 h",
            "due": START + 3600,
            "state": "in time",
        }
        alps.now += 3599
        assert await run_check(alps) == []
        alps.now += 1
        (warning,) = await run_check(alps)
        assert warning.startswith("Nothing heard from kit 1 since 2026-") and "45.9 7.6" in warning
        assert (await read_check_in(alps))["state"] == "late"
        alps.now += WARNING_TO_ALARM_S - 1
        assert await run_check(alps) == []
        alps.now += 1
        (alarm,) = await run_check(alps)
        assert "`fieldagent hub alarm show 1`" in alarm
        assert await run_check(alps) == []
        assert (await read_check_in(alps))["state"] == "overdue"
        (incident,) = await store.read(
            partial(sos.list_sos, workspace=1, state="open", before=99, limit=9)
        )
        assert (incident.kind, incident.device) == ("overdue", 1)
        # The alarm is for people: kits do not pay for it, and it does not count as a push.
        (row,) = await alps.rows(
            "SELECT count(*) FROM delivery JOIN item ON item.id = item WHERE sos > 0"
        )
        assert row == (0,)
        # The position of the kit was posted before the alarm.
        await store.commit(
            lambda db: db.execute("UPDATE webhook_delivery SET state = 'handed' WHERE item = 1")
        )
        (post,) = await store.commit(lambda db: claim(db, alps.now))
        (payload,) = json.loads(post.delivery.body)["payloads"]
        (event,) = payload["events"]
        assert (event["overdue"], event["alarm"], "sos" in event) == (True, "overdue", False)
        assert event["content"].startswith("Nothing heard")
        assert payload["identity"]["name"] == "Ada"
        acknowledge = partial(
            sos_desk.acknowledge, incident=incident, member=2, text="calling her", now=alps.now
        )
        assert (await store.commit(acknowledge)).state == "seen"
        assert await alps.rows("SELECT count(*) FROM receipt") == [(0,)]


async def test_error_in_another_check_does_not_stop_overdue_warnings(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(db: Db, now: float = 0.0) -> Any:
        raise ZeroDivisionError

    everywhere = ((lambda db: 0.0, fails), *kit_watch.CORE_CHECKS, (fails, fails))
    monkeypatch.setattr(kit_watch, "CORE_CHECKS", everywhere)
    async with field_of(store) as alps:
        await begin_check_in(alps)
        alps.now += 3600
        with pytest.raises(ExceptionGroup) as raised:
            await kit_watch.run(store, clock=alps.clock)
        assert len(raised.value.exceptions) == 2
        assert (await read_check_in(alps))["state"] == "late"
    assert "Nothing heard from kit 1" in caplog.text


async def test_any_new_item_counts_as_a_check_in(store: Store) -> None:
    async with field_of(store) as alps:
        await begin_check_in(alps)
        alps.now += 3000
        await alps.sends(1, Entry(1, Message("all well"), TIME))
        assert (await read_check_in(alps))["due"] == START + 3000 + 3600
        alps.now += 3600
        assert len(await run_check(alps)) == 1
        alps.now += WARNING_TO_ALARM_S
        assert len(await run_check(alps)) == 1
        # An earlier item is not a new sign of life.
        await alps.sends(1, Entry(1, Message("all well"), TIME))
        assert (await read_check_in(alps))["state"] == "overdue"
        await alps.sends(1, Entry(2, Message("battery was flat"), TIME))
        assert (await read_check_in(alps))["state"] == "in time"
        timeline = await store.read(lambda db: sos_desk.list_timeline(db, 1))
        assert [each["event"] for each in timeline] == ["raised", "nobody reached", "heard"]


async def test_check_in_pauses_for_disabled_device_and_ends_with_the_rule(store: Store) -> None:
    async with field_of(store) as alps:
        await begin_check_in(alps)
        alps.now += 4000
        await store.commit(lambda db: directory.set_disabled(db, "device", 1, alps.now, now=START))
        assert await run_check(alps) == []
        await store.commit(lambda db: directory.set_disabled(db, "device", 1, None, now=START))
        assert len(await run_check(alps)) == 1
        await store.commit(lambda db: check_in.end_check_ins(db, 1, now=alps.now))
        alps.now += 2 * WARNING_TO_ALARM_S
        assert (await run_check(alps), await read_check_in(alps)) == ([], None)


def mark_long_silent(db: Db) -> None:
    db.execute("UPDATE check_in SET due = 1, warned = 2")


@pytest.mark.full
def test_hub_raises_overdue_alarm_after_its_restart(tmp_path: Path, database: str) -> None:
    administer(database, "init", "Alps")
    administer(database, "user", "add", "Ada")
    administer(database, "device", "add", "kit-ada", "--user", "Ada")
    (notice,) = administer(database, "device", "checkin", "kit-ada", "--every", "12h")
    assert notice["checkIn"] == "every 12 h" and notice["due"] > datetime.now(UTC).timestamp()
    (notice,) = administer(database, "device", "checkin", "kit-ada", "--by", "18:00")
    assert notice["checkIn"] == "by 18:00 UTC"
    with pytest.raises(AssertionError, match="is not a duration: use 90m"):
        administer(database, "device", "checkin", "kit-ada", "--every", "12x")
    store = open_store(database)
    store.run_once(mark_long_silent)
    store.close()
    with hub(tmp_path, {"database": database}) as running:
        until(lambda: administer(database, "alarm", "list"))
        (alarm,) = administer(database, "alarm", "list")
        assert alarm["kind"] == "overdue"
        assert alarm["item"]["event"]["content"].startswith("Nothing heard from kit-ada ever")
        running.expect("Nothing heard from kit-ada ever")


async def test_check_in_request_over_satellite_is_confirmed(store: Store) -> None:
    async with field_of(store) as alps:
        asked = Entry(50_000_000, CheckIn(4 * 3600), TIME)
        key = derive_key(MASTER, "MO")
        beginning = Entry(49_999_999, JournalNumber())
        await alps.sends(3, beginning, asked, bearer=Bearer.SATELLITE, key=key)
        status = await read_check_in(alps, 3)
        assert (status["rule"], status["due"]) == ("every 4 h, as the kit asks", START + 4 * 3600)
        # The request is for the hub, and no other kit gets the request.
        assert await alps.rows("SELECT count(*) FROM item") == [(0,)]
        await alps.satellite()
        ((_, body),) = alps.sky.taken
        (answer,) = decode(body, keys=[derive_key(MASTER, "MT")]).entries
        assert answer.content == Receipt(digest=compute_item_digest(asked))
        # A repetition starts nothing new, and the lost answer is sent again.
        alps.now += 3600
        await alps.sends(3, asked, bearer=Bearer.SATELLITE, key=key)
        assert (await read_check_in(alps, 3))["due"] == START + 4 * 3600
        await alps.satellite()
        assert len(alps.sky.taken) == 2
        alps.now += 3 * 3600
        (warning,) = await run_check(alps)
        assert "check-in every 4 h, as the kit asks" in warning


async def test_check_in_rules_of_kit_and_administrator_coexist(store: Store) -> None:
    async with field_of(store) as alps:
        await begin_check_in(alps, Rule(interval=12 * 3600.0))
        await alps.sends(1, Entry(1, CheckIn(5400), TIME))
        status = await read_check_in(alps)
        assert status["rule"] == "every 12 h; every 90 min, as the kit asks"
        assert status["due"] == START + 5400
        alps.now += 1800
        await alps.sends(1, Entry(2, Message("at the hut"), TIME))
        assert (await read_check_in(alps))["due"] == START + 1800 + 5400
        await alps.sends(1, Entry(4, CheckIn(), TIME))
        status = await read_check_in(alps)
        assert (status["rule"], status["due"]) == ("every 12 h", START + 1800 + 12 * 3600)
        # A request from before the end that arrives later over a slower route starts nothing.
        await alps.sends(1, Entry(3, CheckIn(600), TIME))
        assert (await read_check_in(alps))["rule"] == "every 12 h"
        # A new journal has other numbers.
        await alps.sends(1, Entry(2**24, CheckIn(600), TIME))
        await alps.sends(1, Entry(7, CheckIn(), TIME))
        assert (await read_check_in(alps))["rule"] == "every 12 h"
        await alps.sends(1, Entry(8, CheckIn(600), TIME))
        await alps.store.commit(lambda db: check_in.end_check_ins(db, 1, now=alps.now))
        assert await read_check_in(alps) is None


async def test_check_in_request_for_another_kit_is_rejected(store: Store) -> None:
    async with field_of(store) as alps:
        await alps.store.commit(lambda db: db.execute("UPDATE device SET relay = 0"))
        await alps.sends(2, Entry(1, CheckIn(3600), TIME), origin=1)
        assert await read_check_in(alps) is None
        ((reason,),) = await alps.rows("SELECT reason FROM dead_letter")
        assert "may not relay" in reason


def run_check_in_command(kit: int, *how: str) -> str:
    command = [*MODULE, "checkin", *how, "--port", str(kit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ENOUGH)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kit_requests_check_in_and_shows_the_confirmation(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "user", "add", "Ada")
    token = administer(database, "device", "add", "kit-ada", "--user", "Ada")["hub-token"]
    settings: dict[str, str | None] = {"satellite-port": None, "hub-token": token}
    with hub(tmp_path, {"database": database}) as running:
        settings |= {"hub-address": running.address}
        with agent(tmp_path, settings) as kit:

            def told() -> Any:
                return kit.call("GET", "/api/status").body["checkIn"]

            assert told() is None
            assert "Delivered" in run_check_in_command(kit.port, "--in", "4h")
            until(lambda: told()["confirmed"])
            assert told()["due"] > told()["since"] + 4 * 3600 - 1
            status = [*MODULE, "status", "--port", str(kit.port)]
            with Running(
                status, "hears nothing for 4 h; received by the hub; the next check-in is due by"
            ):
                pass
            (sent,) = kit.call("GET", "/api/packages?kind=checkIn").body["packages"]
            assert (sent["text"], sent["receipts"][0]["kind"]) == ("check-in every 4 h", "hub")
            run_check_in_command(kit.port, "--done")
            until(lambda: told() is None)
            wrong = kit.call("POST", "/api/check-in", {"within": 10, "extra": 1})
            assert wrong.status == 422
            assert [each["pointer"] for each in wrong.body["errors"]] == ["/extra", "/within"]
            missing = kit.call("POST", "/api/check-in", {}).body["errors"]
            assert missing == [{"detail": "is required", "pointer": "/within"}]


def test_check_in_request_without_a_channel_to_the_hub_is_rejected(tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": None}) as kit:
        refused = kit.call("POST", "/api/check-in", {"within": 3600})
        assert (
            refused.status == 409 and "set hub-address or satellite-port" in refused.body["detail"]
        )
