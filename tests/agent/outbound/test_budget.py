"""The day whose budget is used, for each setting of the clock."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fieldagent.agent.journal import history, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import EndedDelivery
from fieldagent.agent.journal.spending import BudgetDay
from fieldagent.agent.outbound.affordable import AffordablePlan
from fieldagent.agent.outbound.budget import DAY_S, compute_day
from fieldagent.agent.outbound.day_budget import DayBudget
from fieldagent.package.delivery import ChannelDelivery
from fieldagent.package.package import Channel, Message, Package, Status
from fieldagent.package.writing import digest, make_canonical
from fieldagent.system.elapsed_time import ElapsedTime, Reading
from tests import kit as kits
from tests.running import running

MIDNIGHT = 1_789_948_800.0
"""2026-09-21."""
NOON = MIDNIGHT + DAY_S / 2
HOUR = 3600.0


class Machine:
    def __init__(self, wall: float, source: str) -> None:
        self.seen = Reading("one", 1000.0, wall, source)
        self.clock = ElapsedTime(None, lambda: self.seen)
        self.known: BudgetDay | None = None

    def day(self) -> BudgetDay:
        """Return the day as if a cost was booked now."""
        self.known = compute_day(self.known, self.clock.now(), self.clock)
        return self.known

    def passes(self, seconds: float, **shown: object) -> None:
        seen = self.seen
        self.seen = replace(
            seen, since_boot=seen.since_boot + seconds, wall_time=seen.wall_time + seconds
        )
        self.seen = replace(self.seen, **shown)  # type: ignore[arg-type]


def test_day_of_trusted_clock_begins_at_midnight() -> None:
    machine = Machine(NOON, "network")
    assert machine.day() == BudgetDay("2026-09-21", MIDNIGHT, True)
    machine.passes(11 * HOUR)
    assert machine.day().day == "2026-09-21"
    machine.passes(HOUR)
    assert machine.day() == BudgetDay("2026-09-22", MIDNIGHT + DAY_S, True)


@pytest.mark.parametrize("shows", [12.0, NOON - 3 * DAY_S, NOON + 3650 * DAY_S])
def test_setting_untrusted_clock_does_not_renew_budget(shows: float) -> None:
    machine = Machine(NOON, "network")
    machine.day()
    machine.passes(HOUR, wall_time=shows, source="")
    assert machine.day() == BudgetDay("2026-09-21", MIDNIGHT, False)
    machine.passes(11 * HOUR)
    assert machine.day().day == "2026-09-22", "by elapsed time"
    machine.passes(3 * DAY_S, wall_time=shows)
    assert machine.day() == BudgetDay("2026-09-25", MIDNIGHT + 4 * DAY_S, False)


def test_costs_before_clock_was_set_count_for_current_day() -> None:
    machine = Machine(12.0, "")
    assert machine.day().day == "1970-01-01"
    machine.passes(HOUR, wall_time=NOON, source="network")
    assert machine.day() == BudgetDay("2026-09-21", 12.0 + HOUR - DAY_S / 2, True, "1970-01-01")
    machine.passes(HOUR)
    assert machine.day().carried == "1970-01-01", "until the end of that day"
    machine.passes(DAY_S)
    assert machine.day().carried == ""


def test_costs_of_ended_day_are_not_carried_over() -> None:
    machine = Machine(12.0, "")
    machine.day()
    machine.passes(DAY_S, wall_time=NOON, source="network")
    assert machine.day().carried == ""


async def test_refund_after_midnight_does_not_raise_new_budget(tmp_path: Path) -> None:
    """The new day has only its own limit."""
    machine = Machine(NOON, "network")
    journal = Journal(tmp_path / "journal.sqlite3", lambda: machine.seen)
    async with running(journal):
        budget = DayBudget(journal, "SMS", 5)
        await budget.spend(2)
        machine.passes(DAY_S / 2)
        await budget.spend(-1)
        assert (budget.compute_spent(), budget.compute_remaining()) == (0, 5)
        with pytest.raises(TimeoutError):
            async with budget.book(3):
                machine.passes(DAY_S)
                raise TimeoutError
        assert (budget.compute_spent(), budget.compute_remaining()) == (0, 5)
        await budget.spend(1)
        await budget.spend(-1)
        assert (budget.compute_spent(), budget.compute_remaining()) == (0, 5)


@pytest.mark.parametrize(
    ("events", "status", "left"),
    [
        ([], Status.CANCELED, 8),
        (["waits"], Status.CANCELED, 8),
        ([], Status.ERROR, 8),
        (["sent"], Status.DELIVERED, 5),
        (["sent"], Status.CANCELED, 5),
        (["may have left"], Status.CANCELED, 5),
        ([], None, 5),
    ],
)
async def test_booking_is_refunded_if_package_was_not_sent(
    tmp_path: Path, events: list[str], status: Status | None, left: int
) -> None:
    async with kits.kit(tmp_path) as k:
        budget = DayBudget(k.journal, "mqtt", 8)
        async with budget.book(3):
            standing = await k.intake.accept(Package(Message("x")))
        await budget.record_booking(
            standing.sequence, AffordablePlan(Package(Message("x")), {}, 3, 3)
        )
        budget = DayBudget(k.journal, "mqtt", 8)  # as after a restart
        await budget.refund_unspent()
        assert budget.compute_remaining() == 5
        for event in events:
            note = partial(history.record_event, event=event, detail="", at=1.0)
            sequences, channel = [standing.sequence], Channel.SATELLITE
            await k.journal.persist(partial(note, sequences=sequences, channel=channel))
        if status is not None:
            ended = [EndedDelivery(standing.sequence, Channel.SATELLITE, ChannelDelivery(status))]
            await k.journal.persist(outbound.record_ends(ended, k.journal.clock.now()))
        for _ in range(2):
            await budget.refund_unspent()
        assert budget.compute_remaining() == left


@pytest.mark.parametrize(
    ("sms", "satellite", "left"),
    [(False, False, 8), (True, False, 6), (False, True, 5), (True, True, 3)],
)
async def test_sms_and_satellite_bookings_are_refunded_separately(
    tmp_path: Path, sms: bool, satellite: bool, left: int
) -> None:
    """The IP link delivers at no cost, or an SMS is sent before the link returns."""
    async with kits.kit(tmp_path, also=[Channel.CELLULAR]) as k:
        budget = DayBudget(k.journal, "mqtt", 8)
        package = Package(Message("x"))
        async with budget.book(5):
            standing = await k.intake.accept(package)
        await budget.record_booking(
            standing.sequence, AffordablePlan(package, {}, 5, satellite=3, sms=2)
        )
        happened = {
            (Channel.CELLULAR, history.SMS_EVENT): sms,
            (Channel.SATELLITE, "sent"): satellite,
        }
        for (channel, event), is_so in happened.items():
            if is_so:
                note = partial(history.record_event, event=event, detail="", at=1.0)
                sequences = [standing.sequence]
                await k.journal.persist(partial(note, sequences=sequences, channel=channel))
        for channel in (Channel.CELLULAR, Channel.SATELLITE):
            ended = [EndedDelivery(standing.sequence, channel, ChannelDelivery(Status.DELIVERED))]
            await k.journal.persist(outbound.record_ends(ended, k.journal.clock.now()))
            budget = DayBudget(k.journal, "mqtt", 8)  # as after a restart
            await budget.refund_unspent()
        assert budget.compute_remaining() == left


async def test_booking_is_refunded_to_day_of_booking_after_restart(
    tmp_path: Path,
) -> None:
    machine = Machine(NOON, "network")
    package = Package(Message("x"))
    path = tmp_path / "journal.sqlite3"
    async with running(journal := Journal(path, lambda: machine.seen)):
        new = outbound.NewPackage(
            body := make_canonical(package),
            digest(body),
            accepted=NOON,
            expires=None,
            dated_at=NOON,
            deliveries={Channel.SATELLITE: ChannelDelivery()},
            priority=package.priority,
        )
        number = await journal.commit(outbound.store_new_package(new))
        budget = DayBudget(journal, "tak-lan", 8)
        async with budget.book(6):
            pass
        await budget.record_booking(number, AffordablePlan(package, {}, 6, 6))
        assert budget.compute_remaining() == 2
    machine.passes(HOUR)
    async with running(journal := Journal(path, lambda: machine.seen)):
        budget = DayBudget(journal, "tak-lan", 8)
        await budget.refund_unspent()
        assert budget.compute_remaining() == 2, "the Package may still leave over satellite"
        machine.passes(DAY_S)
        ended = [EndedDelivery(number, Channel.SATELLITE, ChannelDelivery(Status.CANCELED))]
        await journal.persist(outbound.record_ends(ended, journal.clock.now()))
        await budget.spend(1)
        await budget.refund_unspent()
        assert budget.compute_remaining() == 7, "the new day has its own limit"
        assert journal.read("SELECT credits FROM spent ORDER BY day") == [(0,), (1,)]
