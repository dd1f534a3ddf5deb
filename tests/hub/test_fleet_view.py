"""The fleet at the hub: the kits' reports, and the differences between them. On both databases."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from fieldagent.cli.arguments import dispatch
from fieldagent.hub.access import directory, revocation
from fieldagent.hub.access.subject import Subject
from fieldagent.hub.administration import deletion
from fieldagent.hub.contract import Bearer
from fieldagent.hub.fleet import outliers as judging
from fieldagent.hub.fleet.outliers import TEXTS, KitFigures, find_outliers
from fieldagent.hub.fleet.view import describe_fleet, describe_outlier
from fieldagent.hub.records import commands, contact
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import CommandAnswer, CommandOutcome
from fieldagent.wire import kit_status
from fieldagent.wire.envelope import Entry
from fieldagent.wire.kit_condition import POWER, UNDER_VOLTAGE, KitCondition
from tests.hub.alps import Alps
from tests.hub.field import START, Field, field_of
from tests.hub.test_kit_commands import KIT, MO, give
from tests.processes import PATIENCE, administer, hub, until
from tests.wire.test_command import STATUS

WELL = KitFigures("0.1.0+60", "Debian 13.1", 61, 50, 1, 0, False, 4.0, 24, 80)
HEARD = [3] * 24
TOLD = KitCondition(STATUS, "Debian 13.1", POWER, 1, 0, 0, {"satellite": HEARD})


def describe_outliers(fleet: list[KitFigures]) -> list[list[str]]:
    return [[describe_outlier(each) for each in those] for those in find_outliers(fleet)]


def test_uniform_fleet_has_no_outliers() -> None:
    assert describe_outliers([WELL] * 40) == [[]] * 40
    assert describe_outliers([]) == []


@pytest.mark.parametrize(
    ("one", "sentence", "bad"),
    [
        ({"version": "0.1.0+12"}, "runs 0.1.0+12; 39 of 40 run 0.1.0+60", False),
        ({"system": "Debian 12.9"}, "its system is Debian 12.9; 39 of 40 have Debian 13.1", False),
        ({"disk_free": 8}, "8 % of its disk is free; the others have 61 %", True),
        ({"disk_free": 30}, "30 % of its disk is free; the others have 61 %", False),
        ({"degrees": 70}, "its processor is at 70 °C; those of the others at 50 °C", False),
        ({"degrees": 85}, "its processor is at 85 °C; those of the others at 50 °C", True),
        ({"starts": 9}, "its agent was started 9 times in a day; those of the others: 1", True),
        ({"satellite": 1.5}, "it hears satellites with 1.5 of 5; the others with 4", False),
        ({"satellite": 0.0}, "it has seen no satellite for 24 hours", True),
        ({"budget": 10}, "10 % of its budget of today is left; the others have 80 %", False),
        ({"budget": 0}, "its budget of today is spent", True),
        ({"clock": -7_200}, "its clock is behind by 2 h 0 min", True),
        ({"clock": 61}, "its clock is ahead by 61 s", True),
        ({"clock_unset": True}, "it has no time source", True),
        ({"weak_supply": "now"}, "its supply is too weak", True),
        ({"weak_supply": "before"}, "its supply was too weak since it was started", True),
        ({"slowed_by": "now"}, "its processor is slowed down, by heat or a weak supply", True),
        ({"slowed_by": "before"}, "its processor was slowed down since it was started", True),
        ({"parts_down": 2}, "parts of its agent have failed: 2", True),
        ({"trouble": True}, "its agent is in trouble: ask for its log", True),
        ({"overdue": 0.0}, "check-in was due by 1970-01-01T00:00:00Z", True),
    ],
)
def test_outlier_among_forty_kits_is_described(
    one: dict[str, Any], sentence: str, bad: bool
) -> None:
    differences = find_outliers([WELL] * 39 + [replace(WELL, **one)])
    assert differences[:-1] == [[]] * 39
    ((only,),) = differences[-1:]
    assert (describe_outlier(only), only.bad) == (sentence, bad)


def test_fleet_of_one_or_two_kits_is_judged_by_absolute_limits() -> None:
    odd = replace(WELL, version="1", system="x", disk_free=30, degrees=70, satellite=1, budget=5)
    assert describe_outliers([odd, WELL]) == [[], []]
    assert describe_outliers([replace(WELL, disk_free=8)]) == [["8 % of its disk is free"]]
    assert describe_outliers([replace(odd, degrees=80, starts=5)]) == [
        ["its processor is at 80 °C", "its agent was started 5 times in a day"]
    ]


def test_unknown_values_are_neither_judged_nor_compared() -> None:
    assert describe_outliers([WELL, WELL, KitFigures()]) == [[], [], []]
    assert describe_outliers([WELL, WELL, KitFigures("1")]) == [
        [],
        [],
        ["runs 1; 2 of 3 run 0.1.0+60"],
    ]


def test_fleet_in_which_all_differ_has_no_outliers() -> None:
    """No version has a majority, and a wide spread of temperatures is normal."""
    spread = [replace(WELL, version=str(at), degrees=20 + 7 * at) for at in range(8)]
    assert describe_outliers(spread) == [[]] * 8


def test_bad_differences_are_listed_first() -> None:
    (_, _, _, last) = describe_outliers(
        [WELL] * 3 + [replace(WELL, version="1", clock=90, disk_free=5)]
    )
    assert [each.split(";")[0] for each in last] == [
        "5 % of its disk is free",
        "its clock is ahead by 90 s",
        "runs 1",
    ]


def test_every_difference_has_a_text_in_the_console() -> None:
    script = (Path(judging.__file__).parents[1] / "console/figures.js").read_text()
    assert [text for text in TEXTS.values() if f'say("{text}"' not in script] == []


async def report_condition(alps: Field, device: int, condition: KitCondition) -> None:
    def note(db: Db) -> None:
        contact.record_contact(db, device, "ip", alps.now)
        contact.store_version(db, device, "0.1.0.dev123+gabc")

    await alps.store.commit(note)
    await alps.mailbox(device).process_note(condition.encode())


async def list_rows(alps: Field) -> list[dict[str, Any]]:
    fleet = await alps.store.read(lambda db: describe_fleet(db, 1, alps.now))
    assert fleet["more"] == 0
    kits: list[dict[str, Any]] = fleet["kits"]
    return kits


async def find_row(alps: Field, device: int) -> dict[str, Any]:
    return next(each for each in await list_rows(alps) if each["id"] == device)


async def test_kit_without_a_report_has_an_empty_row(store: Store) -> None:
    async with field_of(store) as alps:
        entry = await find_row(alps, KIT)
        assert (entry["status"], entry["about"], entry["findings"]) == (None, None, [])


async def test_newest_report_of_a_kit_replaces_the_previous_one(store: Store) -> None:
    async with field_of(store) as alps:
        await report_condition(alps, KIT, TOLD)
        entry = await find_row(alps, KIT)
        assert (entry["status"]["at"], entry["status"]["over"]) == (alps.now, "ip")
        assert (entry["status"]["diskUsed"], entry["status"]["temperature"]) == (61, 48)
        assert entry["status"]["booted"] == alps.now - 90_000
        assert entry["about"]["bootCause"] == "power"
        assert entry["about"]["throttling"] == {"now": [], "sinceBoot": []}
        assert entry["about"]["signals"] == {"satellite": HEARD}
        assert entry["findings"] == []
        alps.now += 5 * 3_600
        assert (await find_row(alps, KIT))["about"]["signals"] == {
            "satellite": [3] * 19 + [None] * 5
        }
        await report_condition(
            alps, KIT, KitCondition(STATUS, throttled=UNDER_VOLTAGE, clock=-3_600)
        )
        entry = await find_row(alps, KIT)
        assert entry["about"]["at"] == alps.now and entry["about"]["signals"] == {}
        assert [each["id"] for each in entry["findings"]] == ["supply", "clock-behind"]
        assert await alps.rows("SELECT count(*) FROM kit_condition") == [(1,)]
        # Temporary values count for a day. The fill level of a disk stays.
        await report_condition(
            alps, KIT, replace(TOLD, status=STATUS._replace(disk_used=97), clock=99)
        )
        alps.now += 2 * 86_400
        assert [each["id"] for each in (await find_row(alps, KIT))["findings"]] == ["disk"]


async def test_status_answer_over_satellite_updates_the_same_row(store: Store) -> None:
    async with field_of(store) as alps:
        await report_condition(alps, KIT, TOLD)
        alps.now += 7_200
        number = await give(alps, "satellite")
        await alps.satellite()
        newer = STATUS._replace(disk_used=93, since=130)
        for outcome, body in (
            (CommandOutcome.DONE, kit_status.encode(newer)),
            # A second answer has no effect.
            (CommandOutcome.DONE, kit_status.encode(STATUS)),
        ):
            answer = Entry(70_000_000, CommandAnswer(number, outcome, body), int(START))
            await alps.sends(KIT, answer, bearer=Bearer.SATELLITE, key=MO)
        entry = await find_row(alps, KIT)
        assert (entry["status"]["diskUsed"], entry["status"]["at"]) == (93, alps.now)
        assert entry["status"]["over"] == "satellite"
        # Details that come only over the link stay, with their own age.
        assert entry["about"]["at"] == alps.now - 7_200
        assert entry["version"] == "0.1.0+130"


async def test_status_answer_of_a_later_format_is_ignored(store: Store) -> None:
    async with field_of(store) as alps:
        await report_condition(alps, KIT, TOLD)
        number = await give(alps, "ip")
        answer = CommandAnswer(number, CommandOutcome.DONE, b"\x02" + bytes(31))

        def note(db: Db) -> bool:
            return commands.record_answer(db, KIT, answer, "ip", alps.now)

        assert await alps.store.commit(note)
        assert (await find_row(alps, KIT))["status"]["diskUsed"] == 61


async def test_report_beyond_its_bounds_is_ignored(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with field_of(store) as alps:
        await report_condition(alps, KIT, TOLD)
        forged = bytearray(TOLD.encode())
        forged[forged.index(b"Debian")] = 0x1B
        await alps.mailbox(KIT).process_note(bytes(forged))
        assert (await find_row(alps, KIT))["about"]["system"] == "Debian 13.1"
        assert "beyond its bounds" in caplog.text


async def test_revoked_kit_is_listed_last_and_deleted_kit_disappears(store: Store) -> None:
    async with field_of(store) as alps:
        kits = [each["id"] for each in await list_rows(alps)]
        for device in kits:
            await report_condition(alps, device, TOLD)
        odd = replace(TOLD, status=STATUS._replace(disk_used=97))
        await report_condition(alps, kits[0], odd)
        await report_condition(alps, kits[1], odd)
        assert {each["id"] for each in (await list_rows(alps))[:2]} == {kits[0], kits[1]}
        await alps.store.commit(lambda db: revocation.revoke(db, kits[0], "stolen", now=alps.now))
        entries = await list_rows(alps)
        assert entries[0]["id"] == kits[1]
        assert (entries[-1]["id"], entries[-1]["revoked"], entries[-1]["findings"]) == (
            kits[0],
            True,
            [],
        )
        await alps.store.commit(
            lambda db: directory.set_disabled(db, "device", kits[1], alps.now, now=alps.now)
        )
        assert {each["id"] for each in (await list_rows(alps))[-2:]} == {kits[0], kits[1]}
        await alps.store.commit(
            lambda db: deletion.delete_remaining_rows(
                db, Subject("device", kits[0], "kit"), alps.now
            )
        )
        assert kits[0] not in [each["id"] for each in await list_rows(alps)]
        held = await alps.rows("SELECT count(*) FROM kit_condition WHERE device = ?", kits[0])
        assert held == [(0,)]
        await report_condition(alps, kits[0], TOLD)  # the link of the deleted kit has not ended yet
        assert kits[0] not in [each["id"] for each in await list_rows(alps)]


def test_kit_without_a_report_has_a_line_in_the_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = str(tmp_path / "hub.sqlite3")
    Alps(database)
    assert dispatch(["hub", "fleet", "--database", database]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["kit", "heard", "next"]
    assert line.split() == ["kit", "never", *["-"] * 11]


def fetch_fleet(address: str, **headers: str) -> Any:
    with urlopen(Request(f"{address}/api/fleet", headers=headers), timeout=PATIENCE) as answer:
        return json.load(answer)["kits"]


def test_report_of_a_real_kit_survives_a_hub_restart(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    alps = Alps(database)
    key = administer(database, "key", "add", "reader", "--read")["apiKey"]
    proof = {**alps.proof, "x-api-key": key}
    with hub(tmp_path, {"database": database}) as running:
        with alps.kit(tmp_path, running.address):
            until(lambda: fetch_fleet(running.address, **proof)[0]["about"])
        (kit,) = fetch_fleet(running.address, **proof)
        assert kit["status"]["over"] == "ip" and kit["status"]["clockFrom"]
        assert kit["about"]["bootCause"] == "unknown" and kit["about"]["startsOfDay"] == 1
        with alps.kit(tmp_path, running.address):
            until(lambda: fetch_fleet(running.address, **proof)[0]["about"]["startsOfDay"] == 2)
    (shown,) = administer(database, "fleet")["kits"]
    assert shown["about"]["startsOfDay"] == 2
    with hub(tmp_path, {"database": database}) as running:
        (kit,) = fetch_fleet(running.address, **proof)
        assert kit["status"]["at"] == shown["status"]["at"]


@pytest.mark.parametrize(
    ("column", "damage"), [("status", b"\xff"), ("about", "{"), ("about", '{"cause": 7}')]
)
async def test_damaged_row_of_one_kit_does_not_break_the_fleet_view(
    store: Store, column: str, damage: bytes | str
) -> None:
    async with field_of(store) as alps:
        for device in (1, 2):
            await store.commit(
                lambda db, device=device: db.execute(  # type: ignore[misc]
                    "INSERT INTO kit_condition (device, at, way, status, about, about_at)"
                    " VALUES (?, ?, 'ip', ?, '', 0)",
                    *(device, START, kit_status.encode(STATUS)),
                )
            )
        await store.commit(
            lambda db: db.execute(f"UPDATE kit_condition SET {column} = ? WHERE device = 1", damage)
        )
        fleet = await store.read(lambda db: describe_fleet(db, 1, alps.now))
        assert len(fleet["kits"]) == 3
