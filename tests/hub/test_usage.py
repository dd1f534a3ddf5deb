"""The cost of satellite messages: the hub's count, the operator's file beside it, and the money."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import tests.hub.large_modem  # noqa: F401
from fieldagent.hub.records import usage
from fieldagent.hub.records.usage_file import CountedDay, WrongUsageFile, parse_usage
from fieldagent.hub.store.contract import Store
from fieldagent.package.package import Message
from fieldagent.system.price import Price, format_sum, read_credit_price
from fieldagent.system.properties import WrongProperty
from tests.hub.field import Field
from tests.hub.field import field_of as field
from tests.processes import MODULE, administer

ONE, OTHER = "300000000000001", "300000000000002"
SESSIONS = f"""IMEI,Transmit Time,Message Size,Credits Used,CDR Reference
{ONE},26-09-21 14:13:20,51,2,7
{ONE},26-09-21 23:59:59,0,1,8

{OTHER},26-09-22 00:00:01,20,1,9
"""
"""Sessions in an operator's list: two of one modem on a day, including a mailbox check."""


def test_usage_file_is_summed_by_modem_and_day() -> None:
    assert parse_usage(SESSIONS.splitlines(keepends=True)) == [
        CountedDay(ONE, "2026-09-21", 2, 3, 51, ("7", "8")),
        CountedDay(OTHER, "2026-09-22", 1, 1, 20, ("9",)),
    ]


@pytest.mark.parametrize(
    ("text", "how"),
    [
        (f"date;imei;credits\n2026-09-21;{ONE};3\n", {}),
        (f"\ufeffDay\tIMEI\tUnits\n2026-09-21\t{ONE}\t3.0\n", {}),
        (f'imei,time,bytes\n"{ONE}",2026-09-22T01:00:00+02:00,101\n', {}),
        (
            f"Thing,When,Used\n{ONE},21/09/2026,3\n",
            {
                "column_names": {"imei": "thing", "date": "When", "credits": "used"},
                "date_format": "%d/%m/%Y",
            },
        ),
    ],
)
def test_usage_files_of_different_formats_are_read(text: str, how: dict[str, Any]) -> None:
    (day,) = parse_usage(text.splitlines(keepends=True), **how)
    assert (day.imei, day.day, day.credits) == (ONE, "2026-09-21", 3)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "with the imei found: name it with --columns imei=NAME; columns: nothing"),
        ("IMEI,Cost\n", "with the date found: name it with --columns date=NAME; columns: IMEI"),
        ("IMEI,Date,Cost\n", "with the credits found: name it with --columns credits=NAME"),
        ("IMEI,Date,Credits\n3.00E+14,2026-09-21,1\n", "line 2: '3.00E+14' is not an IMEI"),
        (f"IMEI,Date,Credits\n{ONE},21/09/2026,1\n", "line 2: '21/09/2026' is not a date"),
        (
            f"IMEI,Date,Credits\n\n{ONE},2026-09-21,two\n",
            "line 3: 'two' is not a number of credits",
        ),
        (f"IMEI,Date,Credits\n{ONE},2026-09-21\n", "line 2: it has fewer columns than the first"),
        (f'IMEI,Date,Credits\n"{ONE}{"x" * 200_000}\n', "the file is not valid CSV: field larger"),
        (f"IMEI,Date,Credits\n{ONE},0001-01-01T00:00+05:00,1\n", "line 2: date value out of range"),
    ],
)
def test_invalid_usage_file_is_reported_with_its_line(text: str, why: str) -> None:
    with pytest.raises(WrongUsageFile) as wrong:
        parse_usage(text.splitlines(keepends=True))
    assert why in str(wrong.value)


def test_credits_are_converted_to_money() -> None:
    price = read_credit_price("0.115 EUR")
    assert [price.format_amount(units) for units in (0, 1, 2, 12.5, 1000)] == [
        *("0.00 EUR", "0.12 EUR", "0.23 EUR", "1.44 EUR", "115.00 EUR")
    ]
    assert read_credit_price("0.0004 USD").format_amount(3) == "0.0012 USD"
    for wrong in ("0,12 EUR", "0.12", "EUR 0.12", "-1 EUR", "0.12 euro"):
        with pytest.raises(WrongProperty):
            read_credit_price(wrong)


def test_amounts_of_two_currencies_are_not_added() -> None:
    euro, other, dollar = map(read_credit_price, ("0.115 EUR", "0.10 EUR", "0.2 USD"))
    assert format_sum([(euro, 1), (other, 3), (dollar, 2)]) == "0.42 EUR and 0.40 USD"
    assert format_sum([]) == ""


async def count_sessions(alps: Field, *counted: tuple[str, str, int]) -> None:
    for imei, session, size in counted:
        await usage.count_session(alps.store, imei, session, size, clock=alps.clock)


async def list_days(alps: Field) -> list[usage.UsageDay]:
    return await alps.store.read(lambda db: usage.list_days(db, 1, "2020-01-01", "2099-01-01"))


async def test_usage_compares_hub_and_operator_and_explains_the_difference(store: Store) -> None:
    async with field(store) as alps:
        alps.now = 1_790_000_000.0
        day = usage.format_day(alps.now)
        await count_sessions(
            alps, (ONE, "7", 51), (ONE, "7", 51), (ONE, "8", 0), ("3" * 15, "9", 5)
        )
        (before,) = await list_days(alps)
        assert (before.mo, before.mt, before.theirs) == (3, 0, None)
        assert before.describe_difference() == "not imported"
        file = [
            CountedDay(ONE, day, 3, 5, 120, ("7", "8", "11")),
            CountedDay(OTHER, day, 1, 1, 20, ()),
            CountedDay("999999999999999", day, 1, 1, 20, ()),
        ]
        for _ in range(2):
            done = await store.commit(lambda db: usage.store_counts(db, "directip", file))
            assert done == (2, ("999999999999999",))
        one, other = await list_days(alps)
        assert (one.ours, one.theirs) == (3, 5)
        assert (
            one.describe_difference()
            == "2 credits more there: sessions that did not reach this hub: 11"
        )
        assert (other.ours, other.theirs) == (0, 1)
        assert other.describe_difference().startswith(
            "1 credit more there: sessions that did not reach"
        )
        agreed = [CountedDay(ONE, day, 2, 3, 51, ("7", "8"))]
        await store.commit(lambda db: usage.store_counts(db, "directip", agreed))
        assert (await list_days(alps))[0].describe_difference() == ""


async def test_unbilled_accepted_messages_are_reported(store: Store) -> None:
    async with field(store) as alps:
        await alps.push(Message("x" * 60), target=2)
        alps.now += 60
        await alps.satellite()
        (day,) = await list_days(alps)
        assert day.mt > 0
        none = [CountedDay(OTHER, day.day, 0, 0, 0, ())]
        await store.commit(lambda db: usage.store_counts(db, "directip", none))
        (day,) = await list_days(alps)
        assert day.describe_difference().startswith(
            f"{day.mt} credits fewer there: messages that the modem has not fetched"
        )


async def test_usage_of_a_large_modem_is_compared_in_bytes(store: Store) -> None:
    async with field(store) as alps:
        await store.commit(lambda db: db.execute("UPDATE device SET modem = 'large' WHERE id = 1"))
        await count_sessions(alps, (ONE, "a", 5000))
        day = usage.format_day(alps.now)
        theirs = [CountedDay(ONE, day, 1, 0, 5025, ("a",))]
        await store.commit(lambda db: usage.store_counts(db, "cloudloop", theirs))
        (row,) = [
            usage.make_row(each, lambda _: read_credit_price("0.12 EUR"))
            for each in await list_days(alps)
        ]
        assert (row["unit"], row["hubCount"], row["operator"]) == ("byte", 5000, 5025)
        assert row["difference"].startswith("25 bytes more there")
        assert "money" not in row


async def test_each_count_uses_the_price_of_its_operator(store: Store) -> None:
    """Local counts have the price of the device's operator. Imported counts have the price of the
    counting operator.
    """
    prices = {
        "rockblock": read_credit_price("0.10 EUR"),
        "cloudloop": read_credit_price("0.20 USD"),
    }

    def price_of(operator: str | None) -> Price | None:
        return prices.get(operator or "")

    async with field(store) as alps:
        await store.commit(
            lambda db: db.execute("UPDATE device SET operator = 'rockblock' WHERE id = 1")
        )
        await count_sessions(alps, (ONE, "a", 51))
        theirs = [CountedDay(ONE, usage.format_day(alps.now), 1, 3, 51, ("a",))]
        await store.commit(lambda db: usage.store_counts(db, "cloudloop", theirs))
        days = await list_days(alps)
        (row,) = [usage.make_row(each, price_of) for each in days]
        assert (row["money"], row["operatorMoney"]) == ("0.20 EUR", "0.60 USD")
        total = usage.compute_total(days, price_of)
        assert total == (2, "0.20 EUR", 2, "0.20 EUR", 3, "0.60 USD")
        unpriced = usage.compute_total(days, lambda _: None)
        assert (unpriced.money, unpriced.their_money) == ("", "")


BY = ("--operator", "rockblock")


def run_hub_command(database: str, *words: str, config: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MODULE, "hub", *words, "--database", database, "--config", str(config)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_usage_commands_import_and_list_the_file(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    config = tmp_path / "hub.properties"
    config.write_text("satellite-credit-price=9 EUR\nrockblock-credit-price=0.12 EUR\n")
    administer(database, "init", "Alps")
    ada = administer(database, "user", "add", "Ada")["id"]
    administer(database, "device", "add", "hut", "--user", str(ada), "--imei", ONE, *BY)
    file = tmp_path / "usage.csv"
    file.write_text(SESSIONS)
    done = run_hub_command(
        database, "usage", "import", str(file), "--operator", "rockblock", config=config
    )
    assert done.returncode == 0, done.stderr
    assert OTHER in done.stderr
    look = ("usage", "list", "--since", "2026-09-01", "--until", "2026-09-30")
    (row,) = json.loads(run_hub_command(database, *look, "--json", config=config).stdout)
    assert (row["name"], row["hubCount"], row["operator"]) == ("hut", 0, 3)
    assert row["difference"] == "3 credits more there: sessions that did not reach this hub: 7, 8"
    assert row["operatorMoney"] == "0.36 EUR"
    plain = run_hub_command(database, *look, "--device", "hut", config=config).stdout
    assert "0 credits here, 0.00 EUR; on the imported days, 0 here and 3 there, 0.36 EUR" in plain
    file.write_text("what,is,this\n")
    bad = run_hub_command(
        database, "usage", "import", str(file), "--operator", "rockblock", config=config
    )
    assert bad.returncode != 0
    assert "nothing was imported" in bad.stderr
    assert "columns: what, is, this" in bad.stderr
    stranger = run_hub_command(
        database, "usage", "import", str(file), "--operator", "nobody", config=config
    )
    assert stranger.returncode != 0
