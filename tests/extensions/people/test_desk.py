"""The handling of each input from a handheld, by its sender and its route."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from fieldagent.agent.api.sos import IncidentApi
from fieldagent.agent.assembly import Parts
from fieldagent.agent.channels.contract import ChannelLink, LinkState
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.agent.journal import directory, handhelds, history, incident, outbound
from fieldagent.agent.journal.records import EndedDelivery
from fieldagent.agent.outbound.package_state import PackageState
from fieldagent.extensions.people.contract import (
    HandheldBattery,
    HandheldMarker,
    HandheldName,
    HandheldPosition,
    HandheldReport,
    HandheldSignal,
    HandheldText,
    PeoplesRadio,
)
from fieldagent.extensions.people.desk import Desk
from fieldagent.extensions.people.replies import EMERGENCY_REPLY, NO_SOS_REPLY, translate
from fieldagent.extensions.people.service import PeopleService
from fieldagent.extensions.people.settings import PeopleSettings
from fieldagent.extensions.people.toll import HandheldLimits
from fieldagent.http.message import Request
from fieldagent.package.delivery import ChannelDelivery
from fieldagent.package.package import (
    Channel,
    IncidentState,
    IncidentUpdate,
    Location,
    Message,
    Package,
    Status,
    Waypoint,
)
from fieldagent.store.group import NotOnDisk
from fieldagent.wire.kit_note import Directory, DirectoryEntry
from tests import kit as kits

ADA, EVE = "!00000ada", "!00000eee"
KEY, OTHER = b"\1" * 32, b"\2" * 32
AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
SETTINGS = PeopleSettings(port="nowhere", people={ADA: "Ada"})


@dataclass
class Bench:
    kit: kits.Kit
    desk: Desk
    numbers: Any = field(default_factory=lambda: count(1))

    async def hear(self, what: Any, handle: str = ADA, **how: Any) -> None:
        number = how.pop("number", None) or next(self.numbers)
        await self.desk.process_report(
            HandheldReport(handle, number, what, HandheldSignal(-80, 6.0, 1), **how)
        )

    async def say(self, text: str, handle: str = ADA, **how: Any) -> None:
        said = {name: how.pop(name) for name in ("key", "direct", "alert") if name in how}
        await self.hear(HandheldText(text, **{"direct": True, **said}), handle, **how)

    def packages(self) -> list[Package]:
        rows = self.kit.journal.read("SELECT sequence FROM package ORDER BY sequence")
        records = [outbound.read_kept_package(self.kit.journal, sequence) for (sequence,) in rows]
        return [each.package for each in records if each is not None]

    def items(self) -> list[Any]:
        return [each.item for each in self.packages()]

    def answers(self) -> list[str]:
        return [each.text for each in handhelds.list_posts(self.kit.journal)]


@asynccontextmanager
async def bench(
    path: Path, caveat: str = "", also: Sequence[Channel] = (), **changed: Any
) -> AsyncIterator[Bench]:
    async with kits.kit(path, also=also) as kit:
        settings = SETTINGS._replace(**changed)
        desk = Desk(
            kit.journal,
            kit.intake,
            kit.cancellation,
            kit.inbox,
            HandheldLimits(kit.journal, kit.outboxes),
            settings,
            [],
            caveat,
        )
        yield Bench(kit, desk)


async def test_repeated_packet_is_stored_once(tmp_path: Path) -> None:
    """Two equal texts are two messages, but a repeated packet is not."""
    async with bench(tmp_path) as there:
        await there.say("hello", number=7)
        await there.say("hello", number=7)
        await there.say("hello", number=8)
        assert there.items() == [Message("Ada: hello")] * 2


async def test_packet_over_the_internet_is_not_forwarded(tmp_path: Path) -> None:
    async with bench(tmp_path, positions=60) as there:
        await there.say("hello", over_internet=True)
        await there.say("SOS", over_internet=True)
        await there.hear(HandheldMarker(1, 46.5, 7.9, "Hut", "", None), over_internet=True)
        await there.hear(HandheldPosition(Location(46.5, 7.9)), over_internet=True)
        assert there.items() == []
        assert handhelds.read_handheld(there.kit.journal, ADA).heard is None, (
            "who is far is not around"
        )


async def test_handheld_of_a_hub_user_sends_in_their_name(tmp_path: Path) -> None:
    async with bench(tmp_path, people={}) as there:
        listed = Directory(1, 9, (DirectoryEntry("user", 12, "Ada", (ADA,)),))
        await directory.store_directory(there.kit.journal, listed)
        await there.say("hello")
        (package,) = there.packages()
        assert (package.item, package.author) == (Message("hello"), 12)


@pytest.mark.parametrize(
    ("text", "to", "said"),
    [
        ("@ada come down", 12, "come down"),
        ("@Rescue: come", -3, "come"),
        ("@group:rescue come", -3, "come"),
        ("@hut, who is there?", "device:Hut", "who is there?"),
        ("@+41791234567 we are late", "+41791234567", "we are late"),
        ("@olga@example.org we are late", "olga@example.org", "we are late"),
        ("@home by five", None, "@home by five"),
        ("@ada", None, "@ada"),
        ("come down @ada", None, "come down @ada"),
    ],
)
async def test_addressed_message_is_sent_to_the_named_recipient(
    tmp_path: Path, text: str, to: int | str | None, said: str
) -> None:
    async with bench(tmp_path) as there:
        entries = (
            DirectoryEntry("user", 12, "Ada"),
            DirectoryEntry("group", 3, "Rescue"),
            DirectoryEntry("device", 4, "Hut"),
        )
        await directory.store_directory(there.kit.journal, Directory(1, 9, entries))
        await there.say(text)
        await there.say(f"@hub {text}", direct=False)
        assert [(each.to, each.item) for each in there.packages()] == [
            (to, Message(f"Ada: {said}"))
        ] * 2


async def test_changed_key_makes_a_person_a_guest_and_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(tmp_path, join_code="edelweiss") as there:
        await there.hear(HandheldName("Ada of the hut", KEY))
        await there.say("one", key=KEY)
        with caplog.at_level(logging.WARNING):
            await there.hear(HandheldName("Ada of the hut", OTHER))
        assert "has a new key" in caplog.text
        await there.say("two", key=OTHER)
        assert there.items() == [Message("Ada: one")]
        (notice,) = PeopleService(SETTINGS, there.desk, ChannelLink()).list_notices()
        assert notice.startswith(f"the radio {ADA} (Ada of the hut) has a new key")
        await there.say("join edelweiss", key=OTHER)
        await there.say("three", key=OTHER)
        assert there.items() == [Message("Ada: one"), Message("Ada: three")]
        assert PeopleService(SETTINGS, there.desk, ChannelLink()).list_notices() == []


async def test_unknown_radio_with_a_known_name_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The name may be known from the hub, the settings or the code. Its owner is not under
    suspicion.
    """
    hut = "!000000b5"
    async with bench(tmp_path, join_code="edelweiss") as there:
        listed = Directory(1, 9, (DirectoryEntry("user", 12, "Hut", (hut,)),))
        await directory.store_directory(there.kit.journal, listed)
        service = PeopleService(SETTINGS, there.desk, ChannelLink())
        await there.hear(HandheldName("Ada", KEY))
        await there.hear(HandheldName("Ben", b""), EVE)
        assert service.list_notices() == []
        for name, other in (("ADA", ADA), ("hut", hut)):
            caplog.clear()
            await there.hear(HandheldName(name, b""), EVE)
            (notice,) = service.list_notices()
            assert notice.startswith(f"the radio {EVE} uses the name {name} of {other}")
            assert notice in caplog.text
            (shown,) = service.list_doubtful_people()
            assert (shown["handle"], shown["namesakeOf"], shown["known"]) == (EVE, other, False)
        await there.say("join edelweiss", EVE)
        assert service.list_notices() == []


async def test_message_without_the_radios_key_is_not_accepted(tmp_path: Path) -> None:
    """Any sender can put any number into a packet."""
    async with bench(tmp_path) as there:
        await there.hear(HandheldName("Ada", KEY))
        await there.say("send money")
        await there.say("send money", key=OTHER)
        assert there.items() == []


async def test_sos_is_not_cancelled_without_the_radios_key(tmp_path: Path) -> None:
    async with bench(tmp_path) as there:
        await there.hear(HandheldName("Ada", KEY))
        await there.say("SOS fallen", key=KEY)
        await there.say("SOS CANCEL", key=b"")
        open_incident = incident.find_open(there.kit.journal)
        assert open_incident is not None
        assert there.answers()[-1].startswith("The SOS stays open, because this radio's key")
        await there.say("SOS CANCEL", key=KEY)
        assert incident.find_open(there.kit.journal) is None


async def test_sos_cancelled_while_raised_is_not_reopened_by_its_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SOS is cancelled on the kit's page, between the commit of its text and that of its
    position.
    """
    async with bench(tmp_path) as there:
        accept = there.kit.intake.accept

        async def taken_back(*what: Any, **how: Any) -> PackageState:
            standing = await accept(*what, **how)
            await there.kit.cancellation.call_off(standing.sequence)
            return standing

        await there.hear(HandheldPosition(Location(46.5, 7.9)))
        monkeypatch.setattr(there.kit.intake, "accept", taken_back)
        await there.say("SOS fallen")
        assert incident.find_open(there.kit.journal) is None
        (said,) = there.items()
        assert isinstance(said, Message) and said.content.endswith("fallen")


async def test_kits_own_sos_is_not_ended_by_a_handheld_that_joined(tmp_path: Path) -> None:
    async with bench(tmp_path) as there:
        await there.kit.post(message={"content": "SOS of the hut"}, priority=100)
        await there.say("SOS me too")
        await there.say("SOS CANCEL")
        assert incident.find_open(there.kit.journal) is not None
        assert "it also has others" in there.answers()[-1]


async def test_handheld_sos_stays_open_if_the_kit_added_a_message(
    tmp_path: Path,
) -> None:
    """The kit's people were informed that the SOS is open and contains their text."""
    async with bench(tmp_path) as there:
        await there.hear(HandheldPosition(Location(46.5, 7.9)))
        await there.say("SOS fallen")
        here = {"latitude": 46.5, "longitude": 7.9}
        await there.kit.post(location=here, priority=100)
        await there.say("SOS CANCEL")
        assert incident.find_open(there.kit.journal) is None, "a position is what the kit adds"
        await there.say("SOS fallen again")
        await there.kit.post(message={"content": "avalanche"}, priority=100)
        await there.say("SOS CANCEL")
        assert incident.find_open(there.kit.journal) is not None
        assert "it also has others" in there.answers()[-1]


async def test_new_sos_is_accepted_while_the_cancelled_one_is_in_a_session(
    tmp_path: Path, clock: Any
) -> None:
    async with bench(tmp_path) as there:
        await there.say("SOS fallen")
        there.kit.load()
        with kits.fail_after(60):
            await there.say("SOS CANCEL")
            await there.say("SOS avalanche", EVE)
        raised, over, next_one = there.items()
        assert over == IncidentUpdate(there.kit.sequence(1), IncidentState.CALLED_OFF)
        assert (raised.content[:3], next_one.content[:3]) == ("SOS", "SOS")


async def test_pressed_sos_joins_the_open_sos_of_a_handheld(tmp_path: Path) -> None:
    """The press contains no text. The SOS stays open when the handheld cancels its own. A second
    press adds nothing.
    """
    async with bench(tmp_path) as there:
        parts = SimpleNamespace(journal=there.kit.journal, intake=there.kit.intake)
        press = Request("POST", "/api/sos", (), {})
        await there.say("SOS fallen")
        for _ in range(2):
            assert (await IncidentApi(cast(Parts, parts)).raise_sos(press)).status == 200
        assert there.items()[1:] == [Message("SOS")]
        await there.say("SOS CANCEL")
        assert incident.find_open(there.kit.journal) is not None


async def test_repeated_acknowledgement_of_an_sos_is_sent_once(tmp_path: Path) -> None:
    """The exception is a first acknowledgement that was cancelled."""
    async with bench(tmp_path) as there:
        kit = there.kit
        heard = incident.HeardIncident(5, 6, "open", 0.0, 0.0, "help")
        await kit.journal.commit(lambda db: incident.store_heard_incident(db, heard))
        parts = SimpleNamespace(journal=kit.journal, intake=kit.intake, incident_status=dict)
        body = b'{"by": "Zoe", "text": "coming"}'
        length = {"content-length": str(len(body))}
        take = Request("POST", "/api/sos/5/6/take", (), length, body)
        api, word = (
            IncidentApi(cast(Parts, parts)),
            IncidentUpdate(6, IncidentState.SEEN, 5, "Zoe", "coming"),
        )
        for _ in range(2):
            assert (await api.record_seen(take, "5", "6")).status == 202
            assert there.items() == [word]
        ((first,),) = kit.journal.read("SELECT id FROM package")
        assert (await kit.cancellation.cancel(first)).status is Status.CANCELED
        assert (await api.record_seen(take, "5", "6")).status == 202
        assert there.items() == [word, word]


class Vanishing:
    """A radio that is lost while its first text is being stored."""

    text_bytes, has_signs = 100, False

    def __init__(self, heard: list[HandheldReport]) -> None:
        self._heard = heard
        self.asked = trio.Event()

    async def receive(self) -> HandheldReport:
        if self._heard:
            self.asked.set()
            return self._heard.pop(0)
        await trio.sleep_forever()
        raise AssertionError


async def test_text_received_before_the_radio_is_lost_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    """MeshCore's firmware delivers a text once: after its author's name, it was fetched
    and lost.
    """
    signal = HandheldSignal(-80, 6.0, 1)
    text = HandheldReport(ADA, 7, HandheldText("SOS fallen", True), signal)
    items = [HandheldReport(ADA, 0, HandheldName("Ada", KEY)), text]

    @asynccontextmanager
    async def vanishes(*_: Any) -> AsyncIterator[Any]:
        radio = Vanishing([*items])
        items.clear()
        async with trio.open_nursery() as nursery:

            async def lose() -> None:
                await radio.asked.wait()
                raise PortLost("unplugged")

            nursery.start_soon(lose)
            yield radio

    kind = PeoplesRadio("meshcore", "", vanishes, lambda handle: True)
    monkeypatch.setattr(
        "fieldagent.extensions.people.service.load_peoples_radio", lambda name: kind
    )
    async with bench(tmp_path) as there, trio.open_nursery() as nursery:
        service = PeopleService(SETTINGS, there.desk, ChannelLink())
        nursery.start_soon(service.run, dict, lambda error, remedy: None)
        with kits.fail_after(60):
            while service.link.state is not LinkState.ABSENT:
                await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
        assert there.items() == [Message("SOS from Ada (!00000ada): fallen")]


async def test_blurred_position_is_reported_as_blurred(tmp_path: Path) -> None:
    async with bench(tmp_path, positions=60) as there:
        await there.hear(HandheldPosition(Location(46.5475, 7.985), 13))
        assert there.items() == []
        await there.say("SOS", EVE)
        await there.say("SOS avalanche")
        said = there.items()[-1].content
        assert said.startswith(f"SOS from Ada ({ADA}), near 46.547 7.985, which their radio blurs")
        assert "within 2.9 km: avalanche" in said
        assert not any(isinstance(item, Location) for item in there.items())


async def test_positions_are_sent_at_the_configured_interval(tmp_path: Path) -> None:
    async with bench(tmp_path, positions=600) as there:
        clock = there.kit.journal.clock
        at = datetime.fromtimestamp(clock.date(clock.now()) - 100, UTC)
        for seconds in range(3):
            moment = at + timedelta(seconds=seconds)
            await there.hear(HandheldPosition(Location(46.5, 7.9 + seconds, moment)))
        await there.hear(HandheldPosition(Location(46.5, 7.9, at)), EVE)
        (package,) = there.packages()
        assert (package.item.longitude, package.gather) == (7.9, 600)  # type: ignore[union-attr]
        assert handhelds.read_handheld(there.kit.journal, ADA).longitude == 9.9
        # A position that was in transit for a long time does not replace a newer one.
        await there.hear(HandheldPosition(Location(46.5, 1.0, at)))
        assert handhelds.read_handheld(there.kit.journal, ADA).longitude == 9.9


async def test_waypoint_replaces_only_its_own_earlier_version(tmp_path: Path) -> None:
    async with bench(tmp_path) as there:
        await there.hear(HandheldMarker(1, 46.5, 7.9, "Camp", "water", 3600))
        await there.hear(HandheldMarker(1, 46.6, 7.9, "Camp", "water", 3600))
        await there.hear(HandheldMarker(2, 46.7, 7.9, "Ford", "", None), EVE)
        first, second = there.packages()
        assert first.collapse_key == second.collapse_key is not None
        assert isinstance(second.item, Waypoint)
        assert (second.item.latitude, second.item.name, second.item.notes) == (
            46.6,
            "Ada: Camp",
            "water",
        )
        assert second.time_to_live == 3600


async def test_daily_credits_per_person_are_limited_except_for_an_sos(tmp_path: Path) -> None:
    async with bench(tmp_path, credits_per_day=3) as there:
        for number in range(1, 6):
            await there.say(f"message {number}")
        assert len(there.items()) == 3
        assert there.answers()[0].startswith("Your 3 satellite credits for today are spent")
        await there.say("SOS after all")
        assert len(there.items()) == 4


@pytest.mark.parametrize(("left", "taken"), [(False, 9), (True, 3)])
async def test_message_without_satellite_cost_uses_no_credits(
    tmp_path: Path, left: bool, taken: int
) -> None:
    """The IP link is quicker each time, so no credit is spent."""
    async with bench(tmp_path, credits_per_day=3, also=[Channel.CELLULAR]) as there:
        journal = there.kit.journal
        for number in range(9):
            await there.say(f"message {number}")
            packages = journal.read("SELECT sequence FROM package ORDER BY sequence DESC LIMIT 1")
            for (sequence,) in packages:
                if left:
                    note = partial(history.record_event, event="sent", detail="", at=1.0)
                    on = partial(note, sequences=[sequence], channel=Channel.SATELLITE)
                    await journal.persist(on)
                ends = {Channel.CELLULAR: Status.DELIVERED, Channel.SATELLITE: Status.CANCELED}
                ended = [
                    EndedDelivery(sequence, each, ChannelDelivery(ends[each])) for each in ends
                ]
                await journal.persist(outbound.record_ends(ended, journal.clock.now()))
        assert len(there.items()) == taken


@pytest.mark.parametrize("stored", [False, True], ids=["before", "after"])
async def test_power_cut_at_the_commit_grants_no_extra_message(
    tmp_path: Path, stored: bool
) -> None:
    async with bench(tmp_path, credits_per_day=3) as there:
        whole = there.desk.intake

        class Cut:
            async def accept(self, package: Package, key: str) -> None:
                if stored:
                    await whole.accept(package, key)
                raise NotOnDisk("cut")

        there.desk.intake = cast(Any, Cut())
        with pytest.raises(NotOnDisk):
            await there.say("message 1", number=1)
        there.desk.intake = whole
        for number in range(2, 6):
            await there.say(f"message {number}", number=number)
        assert len(there.items()) == 2 + stored
        await there.say("message 1", number=1)
        assert len(there.items()) == 3, "it was booked already"


async def test_battery_level_is_stored_and_not_sent(tmp_path: Path) -> None:
    async with bench(tmp_path) as there:
        await there.hear(HandheldBattery(42))
        service = PeopleService(SETTINGS, there.desk, ChannelLink())
        (seen,) = service.list_people()
        assert (seen["battery"], seen["hops"], seen["rssi"]) == (42, 1, -80)
        assert there.items() == []


async def test_join_code_guesses_are_limited_to_five_a_day(tmp_path: Path) -> None:
    async with bench(tmp_path, people={}, join_code="edelweiss") as there:
        for number in range(6):
            await there.say(f"join wrong{number}")
        await there.say("join edelweiss")
        await there.say("hello")
        assert there.items() == []
        assert there.answers().count("That is not the code of this kit.") == 5


STATION, CAVEAT = "n0call-9", "by APRS, unproved call sign"
UNPROVED: Any = {"caveat": CAVEAT, "people": {STATION: "Ada"}, "positions": 60}


async def test_unproved_sos_is_shown_but_not_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """People see it, and a text of a known person goes as their message."""
    async with bench(tmp_path, **UNPROVED, credits_per_day=99) as there:
        service = PeopleService(there.desk.settings, there.desk, ChannelLink())
        with caplog.at_level(logging.WARNING):
            await there.say("SOS leg broken", STATION)
            await there.say("Mic-E emergency", "n0call-8", alert=True)
        assert incident.find_open(there.kit.journal) is None
        assert there.items() == [Message(f"Ada {CAVEAT}: SOS leg broken")]
        assert not any(package.sos for package in there.packages())
        (answer,) = there.answers()
        said = "An SOS over this route raises no alarm, because anyone could send it."
        assert answer == f"{said} It was sent as a message."
        ada, other = service.list_notices()
        assert ada.startswith(f"Ada ({STATION}) reports distress, {CAVEAT}")
        assert other.startswith("n0call-8 (n0call-8)")
        assert ada in caplog.text and other in caplog.text


async def test_sos_setting_raises_an_unproved_sos_with_its_caveat(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, **UNPROVED, sos={STATION}) as there:
        await there.say("SOS leg broken", STATION)
        await there.say("SOS me too", "n0call-8")
        (package,) = there.packages()
        assert package.sos
        assert package.item == Message(f"SOS from Ada ({STATION}, {CAVEAT}): leg broken")


async def test_unproved_position_is_sent_as_a_tracker_waypoint(
    tmp_path: Path,
) -> None:
    """The waypoint cannot be mistaken for the kit's own position, even by programs that do not know
    trackers.
    """
    async with bench(tmp_path, **UNPROVED, credits_per_day=99) as there:
        listed = Directory(1, 9, (DirectoryEntry("user", 12, "Ada", (STATION,)),))
        await directory.store_directory(there.kit.journal, listed)
        await there.hear(HandheldPosition(Location(46.5, 7.9, AT)), STATION)
        await there.hear(HandheldPosition(Location(46.6, 7.9)), "n0call-8")
        (package,) = there.packages()
        assert package.author == "tracker:N0CALL-9"
        assert package.item == Waypoint(46.5, 7.9, "N0CALL-9", AT, CAVEAT)


async def test_unproved_sender_spends_no_credits_unless_configured(tmp_path: Path) -> None:
    """With the setting, all of them together spend at most its limit."""
    both: dict[str, Any] = UNPROVED | {"people": {STATION: "Ada", EVE: "Eve"}}
    async with bench(tmp_path / "none", **both) as there:
        assert not await there.desk.process_report(
            HandheldReport(STATION, 1, HandheldText("hello", True))
        )
        await there.hear(HandheldPosition(Location(46.5, 7.9)), STATION, number=2)
        assert there.packages() == [], "this kit has satellite alone"
    async with bench(tmp_path / "three", **both, credits_per_day=3) as there:
        for number, handle in enumerate((STATION, EVE, STATION, EVE), 100):
            await there.say("hello", handle, number=number)
        assert len(there.packages()) == 3


async def test_object_repeated_for_days_is_one_package(tmp_path: Path) -> None:
    """This also holds if its sender may use fewer channels on the next day than on the first."""
    both = [Channel.CELLULAR]
    async with bench(tmp_path, **UNPROVED, credits_per_day=2, also=both) as there:
        hut = HandheldMarker(1, 46.5, 7.9, "Hut", "", None)
        await there.hear(hut, STATION, number=7)
        await there.desk.toll.book_price(EVE, 1, 2)
        later = there.kit.journal.clock.now() + handhelds.DUPLICATE_WINDOW_S + 1
        await there.kit.journal.persist(handhelds.record_packet(EVE, 1, later, None))
        assert not handhelds.is_heard(there.kit.journal, STATION, 7)
        await there.hear(hut, STATION, number=7)
        (package,) = there.packages()
        assert isinstance(package.item, Waypoint) and package.channels is None


async def test_repeated_message_gets_the_same_decision(
    tmp_path: Path,
) -> None:
    """A station repeats unanswered messages, and an acknowledgement would be false."""
    async with bench(tmp_path, **UNPROVED, credits_per_day=99, join_code="edelweiss") as there:
        for number, (handle, text, taken) in enumerate(
            [
                ("n0call-8", "hello", False),
                ("n0call-8", "SOS", False),
                ("n0call-8", "join enzian", False),
                (STATION, "hello", True),
                (STATION, "SOS CANCEL", True),
            ],
            1,
        ):
            heard = HandheldReport(handle, number, HandheldText(text, True))
            assert [await there.desk.process_report(heard) for _ in range(2)] == [taken] * 2, text
        assert len(there.items()) == 1


async def test_message_stored_at_a_power_cut_is_reported_after_the_restart(tmp_path: Path) -> None:
    async with bench(tmp_path) as there:
        await there.say("hello", number=5)
        journal = there.kit.journal
        await journal.persist(lambda db: db.execute("DELETE FROM handheld_said") and None)
        await journal.persist(handhelds.record_interrupted_packets)
        assert [(each.handle, each.number) for each in handhelds.list_reportable(journal)] == [
            (ADA, 5)
        ]


async def test_sos_stored_at_a_power_cut_can_be_cancelled_by_its_sender(
    tmp_path: Path,
) -> None:
    """The owner of the SOS is stored in a separate commit. Before, the sender got the answer that
    no SOS of theirs is open.
    """
    async with bench(tmp_path) as there:
        await there.say("SOS fallen")
        journal = there.kit.journal
        await journal.persist(lambda db: db.execute("DELETE FROM handheld_said") and None)
        await journal.persist(lambda db: db.execute("DELETE FROM handheld_sos") and None)
        await journal.persist(handhelds.record_interrupted_packets)
        await there.say("SOS CANCEL")
        assert incident.find_open(journal) is None
        assert there.answers()[-1].startswith("Your SOS is called off")


async def test_sos_cancel_is_accepted_again_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut(*_: Any) -> None:
        raise NotOnDisk("cut")

    async with bench(tmp_path) as there:
        await there.say("SOS fallen")
        with monkeypatch.context() as broken:
            broken.setattr("fieldagent.agent.outbound.cancel.Cancellation.call_off", cut)
            with pytest.raises(NotOnDisk):
                await there.say("SOS CANCEL")
        assert incident.find_open(there.kit.journal) is not None
        await there.say("SOS CANCEL")
        assert incident.find_open(there.kit.journal) is None
        assert there.answers()[-1].startswith("Your SOS is called off")


@pytest.mark.parametrize("key", ["mesh bridge", "mesh bridge 7b", "MESH"])
async def test_custom_package_key_is_not_read_as_a_handheld_packet(
    tmp_path: Path, key: str
) -> None:
    """Each start reads all keys. Before, such a key made the part for people's radio fail at each
    start.
    """
    async with kits.kit(tmp_path) as kit:
        await kit.post(key, message={"content": "from the bridge"})
        await kit.journal.persist(handhelds.record_interrupted_packets)
        assert handhelds.list_reportable(kit.journal) == []


@pytest.mark.parametrize(
    "odd",
    [
        HandheldPosition(Location(46.5, 7.9, None, 2_147_483_000.0)),
        HandheldPosition(Location(46.5, 7.9, None, -30_480.0)),
        HandheldPosition(Location(46.5, 7.9, datetime(2106, 2, 7, tzinfo=UTC))),
        HandheldPosition(
            Location(46.5, 7.9, None, speed_over_ground=1e6, course_over_ground=400.0)
        ),
        HandheldMarker(1, 46.5, 7.9, "Hut", "", 2**32 - 1_800_000_000),
    ],
)
async def test_out_of_range_position_does_not_lose_the_package(tmp_path: Path, odd: Any) -> None:
    """Before, a position such as that of an SOS counted as damaged when it was read from the disk,
    and was never sent.
    """
    async with bench(tmp_path, positions=60) as there:
        await there.hear(odd)
        await there.say("SOS")
        records = [
            outbound.read_kept_package(there.kit.journal, sequence)
            for (sequence,) in there.kit.journal.read("SELECT sequence FROM package")
        ]
        items = [each.package.item for each in records if each is not None]
        places = [each for each in items if isinstance(each, Location | Waypoint)]
        assert len(places) == (2 if isinstance(odd, HandheldPosition) else 1)
        assert all((each.latitude, each.longitude) == (46.5, 7.9) for each in places)


@pytest.mark.parametrize(
    "text", ["СОС", "S.O.S. leg", "🆘", "*SOS*", "SOS cancel my hike, leg broken"]
)
async def test_sos_in_other_scripts_and_spellings_is_raised(tmp_path: Path, text: str) -> None:
    async with bench(tmp_path) as b:
        await b.say(text)
        assert incident.find_open(b.kit.journal) is not None


async def test_lowercase_sos_on_a_channel_is_answered_with_a_question(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        for _ in range(2):
            await b.say("sos la mejor", EVE, direct=False)
        assert incident.list_all_open(b.kit.journal) == []
        assert b.answers() == [EMERGENCY_REPLY]
        await b.say("SOS roto", EVE, direct=False)
        assert len(incident.list_all_open(b.kit.journal)) == 1


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("help, avalanche", EMERGENCY_REPLY),
        ("Hilfe am Grat", "Ist das ein Notfall? Schreiben Sie SOS, in Großbuchstaben"),
        ("à l'aide", "Est-ce une urgence ? Écrivez SOS, en majuscules, et le problème."),
        ("¡Auxilio!", "¿Es una emergencia? Escriba SOS, en mayúsculas, y el problema."),
        ("Рятуйте!", "Це надзвичайний випадок? Напишіть SOS великими літерами і що сталося."),
    ],
)
async def test_text_asking_for_help_is_answered_in_its_language(
    tmp_path: Path, text: str, question: str
) -> None:
    async with bench(tmp_path) as b:
        await b.say(text)
        (asked,) = b.answers()
        assert asked.startswith(question)
        (item,) = b.items()
        assert text in item.content


async def test_text_of_unknown_language_is_answered_in_the_kits_language(tmp_path: Path) -> None:
    async with bench(tmp_path, language="es") as b:
        await b.say("sos la mejor", EVE, direct=False)
        await b.say("SOS CANCEL", EVE)
        assert sorted(b.answers()) == sorted(
            [translate("es", EMERGENCY_REPLY), translate("es", NO_SOS_REPLY)]
        )
        assert translate("es", NO_SOS_REPLY) != NO_SOS_REPLY
