"""A MeshCore companion as people's radio: the authors of texts, and the state after the radio is
cut off, restarts, is silent or sends wrong data.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import RadioLost
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.extensions.lab.simulator.companion import (
    BOOT_TIME,
    CONTACTS_MAX,
    QUEUE_MAX,
    SimulatedCompanion,
    introduce_all,
)
from fieldagent.extensions.lab.simulator.lora import LoraAir
from fieldagent.extensions.lab.simulator.nodes import Nodes
from fieldagent.extensions.people import meshcore, meshcore_host
from fieldagent.extensions.people.contract import (
    HandheldBattery,
    HandheldName,
    HandheldPlace,
    HandheldPosition,
    HandheldReport,
    HandheldText,
    TextOutcome,
)
from fieldagent.extensions.people.meshcore import MeshcorePeople, open_meshcore
from fieldagent.system.error_groups import get_first_error
from fieldagent.wire import meshcore_companion as wire
from fieldagent.wire.meshcore_companion import (
    CompanionCommand,
    CompanionContact,
    CompanionMessage,
    CompanionText,
    ContactType,
    TextType,
)
from tests.processes import PATIENCE, until_async

NOW = 1_790_000_000
KIT, ADA = 1, 2


class FaultyCompanion(SimulatedCompanion):
    """`spoil` changes its frames before its host gets them."""

    def spoil(self, said: bytes) -> bytes:
        return said

    def data_to_send(self) -> bytes:
        said = super().data_to_send()
        return self.spoil(said) if said else said


@dataclass
class Bench:
    nodes: Nodes
    place: str

    def radio(self, number: int) -> FaultyCompanion:
        node = self.nodes.sockets[number - 1].node
        assert isinstance(node, FaultyCompanion)
        return node

    def act(self, number: int, command: bytes) -> None:
        """Send a command from a person's host to their radio."""
        socket = self.nodes.sockets[number - 1]
        socket.node.receive_data(wire.make_frame(command), trio.current_time())
        self.nodes._poke(socket)

    def write(self, text: str, at: int = NOW) -> None:
        """Let Ada write to the kit."""
        self.act(ADA, wire.send_text(self.radio(KIT).key, text, at))

    def bring(self, message: CompanionText) -> None:
        """Let the kit's radio have received this message."""
        self.radio(KIT)._store_text(message)
        self.nodes._poke(self.nodes.sockets[KIT - 1])


@asynccontextmanager
async def bench(home: Path) -> AsyncIterator[Bench]:
    air = LoraAir(Random(1))
    air.turnaround = 0.0
    nodes = Nodes(air, [home / "kit", home / "ada"], print, FaultyCompanion)
    introduce_all(
        [node for each in nodes.sockets if isinstance(node := each.node, SimulatedCompanion)]
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(nodes.run)
        with trio.fail_after(PATIENCE):
            yield Bench(nodes, str(home / "kit"))
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def opened_people(
    there: Bench, link: ChannelLink | None = None
) -> AsyncIterator[MeshcorePeople]:
    async with open_meshcore(
        HandheldPlace(there.place), link or ChannelLink(), lambda: float(NOW)
    ) as people:
        yield people


async def receive_next(people: MeshcorePeople, kind: type) -> HandheldReport:
    while True:
        heard = await people.receive()
        if isinstance(heard.what, kind):
            return heard


async def receive_repeated(
    there: Bench, people: MeshcorePeople, text: str, at: int = NOW, kind: type = HandheldText
) -> HandheldReport:
    """Let Ada write to the kit until it arrives, as apps do, and return the report of this kind. A
    radio hears nothing while it transmits its own advert.
    """

    async def repeat() -> None:
        while True:
            there.write(text, at)
            await trio.sleep(1.0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(repeat)
        heard = await receive_next(people, kind)
        nursery.cancel_scope.cancel()
    return heard


async def find_open_error(there: Bench) -> Exception:
    """Return the error for which the radio cannot be opened."""
    with pytest.raises(BaseExceptionGroup) as raised:
        async with opened_people(there):
            raise AssertionError("it was taken")
    error = get_first_error(raised.value)
    assert isinstance(error, RadioLost | PortLost)
    return error


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten waits of seconds."""
    monkeypatch.setattr(meshcore_host, "ANSWER_TIMEOUT_S", 1.0)
    monkeypatch.setattr(meshcore_host, "LULL_S", 0.2)
    monkeypatch.setattr(meshcore, "CHECK_INTERVAL_S", 0.3)
    monkeypatch.setattr(meshcore, "ACK_MAX", 2.0)


async def test_direct_message_is_attributed_to_its_key(tmp_path: Path) -> None:
    async with bench(tmp_path) as there, opened_people(there) as people:
        heard = await receive_repeated(there, people, "hut reached ✓")
        key = there.radio(ADA).key
        assert heard.handle == key.hex()
        assert heard.what == HandheldText("hut reached ✓", True, key=key)
        assert (heard.signal.snr, heard.signal.hops, heard.over_internet) == (6.0, 0, False)
        again = await receive_repeated(there, people, "hut reached ✓", NOW + 60)
        assert again.number != heard.number, "the same words later are another message"


async def test_repeated_attempt_of_a_message_has_the_same_number(tmp_path: Path) -> None:
    async with bench(tmp_path) as there, opened_people(there) as people:
        text = wire.send_text(there.radio(KIT).key, "hello", NOW, 0)
        there.act(ADA, text)
        first = await receive_next(people, HandheldText)
        there.act(ADA, wire.send_text(there.radio(KIT).key, "hello", NOW, 1))
        assert (await receive_next(people, HandheldText)).number == first.number


async def test_advert_reports_name_and_position(tmp_path: Path) -> None:
    async with bench(tmp_path) as there, opened_people(there) as people:
        there.radio(ADA).name = "Ada  of the hut"
        there.radio(ADA).position = (46_547_500, 7_985_000)
        there.act(ADA, wire.make_command(CompanionCommand.SEND_ADVERT, b"\1"))
        while not (named := await receive_next(people, HandheldName)).number:
            pass
        assert named.what == HandheldName("Ada of the hut", there.radio(ADA).key)
        where = (await receive_next(people, HandheldPosition)).what
        assert isinstance(where, HandheldPosition)
        assert (where.where.latitude, where.where.longitude) == (46.5475, 7.985)
        assert where.where.timestamp is None, "it is of this moment"


async def test_stored_contact_position_keeps_its_age(tmp_path: Path) -> None:
    async with bench(tmp_path) as there:
        kit, key = there.radio(KIT), there.radio(ADA).key
        before = CompanionContact(key, ContactType.CHAT, "Ada", NOW - 5000, 46_500_000, 7_900_000)
        kit.contacts[key] = before._replace(changed=NOW - 100)
        async with opened_people(there) as people:
            heard = await receive_next(people, HandheldPosition)
            assert isinstance(heard.what, HandheldPosition)
            timestamp = heard.what.where.timestamp
            assert (heard.number, timestamp and timestamp.timestamp()) == (0, NOW - 5000)


async def test_channel_text_proves_no_identity(tmp_path: Path) -> None:
    """In a private channel, a name is accepted if exactly one contact has it."""
    async with bench(tmp_path) as there, opened_people(there) as people:
        for text, place, handle in (
            ("Node 2: @hub hello", 1, there.radio(ADA).key.hex()),
            ("Node 2: SOS", 0, "#0/Node%202"),
            ("Eve: SOS", 1, "#1/Eve"),
        ):
            there.bring(CompanionText(b"", place, NOW, text))
            heard = await receive_next(people, HandheldText)
            assert heard.handle == handle
            assert isinstance(heard.what, HandheldText)
            assert (heard.what.direct, heard.what.key) == (False, b"")
        there.bring(CompanionText(b"", 1, NOW, "a text without a name"))
        outcome = await people.send_text("#1/Eve", "This kit has stored your SOS", 1)
        assert not outcome.is_confirmed and "on a channel" in outcome.reason


async def test_keys_with_a_common_prefix_prove_no_identity(tmp_path: Path) -> None:
    async with bench(tmp_path) as there:
        key = there.radio(ADA).key
        twin = key[: wire.PREFIX_BYTES] + bytes(26)
        there.radio(KIT).contacts[twin] = CompanionContact(twin, ContactType.CHAT, "Eve")
        async with opened_people(there) as people:
            heard = await receive_repeated(there, people, "it is me")
            assert isinstance(heard.what, HandheldText)
            assert (heard.handle, heard.what.key) == (key.hex()[:12], b"")


async def test_texts_of_repeaters_commands_and_rooms_are_ignored(tmp_path: Path) -> None:
    """A repeater, a command's answer and a room's text do not count."""
    async with bench(tmp_path) as there:
        kit, key = there.radio(KIT), b"\7" * 32
        kit.contacts[key] = CompanionContact(key, ContactType.REPEATER, "Hilltop")
        async with opened_people(there) as people:
            there.bring(CompanionText(key[:6], None, NOW, "uptime 3 days"))
            ada = there.radio(ADA).key[:6]
            there.bring(CompanionText(ada, None, NOW, "ok", TextType.COMMAND))
            there.bring(CompanionText(ada, None, NOW, "room", TextType.SIGNED))
            there.bring(CompanionText(ada, None, NOW, "hello"))
            heard = await receive_next(people, HandheldText)
            assert isinstance(heard.what, HandheldText) and heard.what.text == "hello"


async def test_battery_level_is_requested_after_a_message(tmp_path: Path) -> None:
    async with bench(tmp_path) as there, opened_people(there) as people:
        heard = await receive_repeated(there, people, "hello", kind=HandheldBattery)
        assert (heard.what, heard.handle) == (HandheldBattery(86), there.radio(ADA).key.hex())


@pytest.mark.parametrize(
    ("volts", "percent"),
    [(3.0, 0), (3.3, 0), (3.65, 25), (3.9, 70), (4.2, 100), (4.3, 100), (5.0, None), (0.0, None)],
)
def test_battery_percentage_is_computed_from_the_voltage(volts: float, percent: int | None) -> None:
    assert meshcore._compute_charge(volts) == percent


async def test_text_is_delivered_after_the_radios_confirmation(tmp_path: Path) -> None:
    async with bench(tmp_path) as there, opened_people(there) as people:
        outcome = await people.send_text(there.radio(ADA).key.hex(), "come down", 1)
        assert outcome.is_confirmed
        stored = there.radio(ADA)._stored[-1]
        assert (stored.text, stored.time) == ("come down", NOW)
        await people.send_text(there.radio(ADA).key.hex(), "by noon", 2)
        assert there.radio(ADA)._stored[-1].time == NOW + 1, "no two texts have the same time"


async def test_reaction_is_sent_as_a_text(tmp_path: Path) -> None:
    async with bench(tmp_path) as there, opened_people(there) as people:
        await people.react(there.radio(ADA).key.hex(), 1, "📥", "on the kit's disk («hello»)")
        assert there.radio(ADA)._stored[-1].text == "📥 on the kit's disk («hello»)"


async def test_long_reaction_is_truncated_to_the_radios_limit(tmp_path: Path) -> None:
    """Before, such a reaction was refused each time, and all texts to the same person waited behind
    it.
    """
    reason = "адресата немає в каталозі"
    async with bench(tmp_path) as there, opened_people(there) as people:
        words = f"given up: Satellite: {', '.join([reason] * 5)} («привіт»)"
        outcome = await people.react(there.radio(ADA).key.hex(), 1, "❌", words)
        assert outcome == TextOutcome(True, "")
        text = there.radio(ADA)._stored[-1].text
        assert text.startswith(f"❌ given up: Satellite: {reason}")
        assert wire.TEXT_BYTES - 4 < len(text.encode()) <= wire.TEXT_BYTES


async def test_unacknowledged_text_is_retried_with_the_same_timestamp(
    tmp_path: Path, short_waits: None
) -> None:
    """A receiver that has the text already recognises it by the timestamp. Without an
    acknowledgement the text counts as not delivered.
    """
    async with bench(tmp_path) as there, opened_people(there) as people:
        ada = there.radio(ADA).key.hex()
        there.nodes.air.losses = {(KIT, ADA): 0.0}
        outcome = await people.send_text(ada, "come down", 1)
        assert (outcome.is_confirmed, outcome.reason) == (False, "no acknowledgement")
        there.nodes.air.losses = None
        assert (await people.send_text(ada, "come down", 2)).is_confirmed
        assert {each.time for each in there.radio(ADA)._stored} == {NOW}


async def test_stale_path_is_reset_after_a_failed_text(tmp_path: Path, short_waits: None) -> None:
    async with bench(tmp_path) as there, opened_people(there) as people:
        key = there.radio(ADA).key
        assert (await people.send_text(key.hex(), "one", 1)).is_confirmed
        assert there.radio(KIT).contacts[key].path_length == 0
        there.nodes.air.away.add(ADA)
        assert not (await people.send_text(key.hex(), "two", 2)).is_confirmed
        assert there.radio(KIT).contacts[key].path_length == -1


async def test_refusal_by_the_radio_is_reported(tmp_path: Path) -> None:
    async with bench(tmp_path) as there, opened_people(there) as people:
        stranger = await people.send_text("ab" * 32, "hello", 1)
        assert stranger == TextOutcome(False, "the radio refuses it: it does not know them")
        meshtastic = await people.send_text("!fa9e0002", "hello", 2)
        assert not meshtastic.is_confirmed and "not a MeshCore radio" in meshtastic.reason
        radio = there.radio(KIT)
        radio.busy = True
        for _ in range(QUEUE_MAX):
            radio._transmitter.queue_packet([b"x" * 20], trio.current_time())
        full = await people.send_text(there.radio(ADA).key.hex(), "hello", 3)
        assert full == TextOutcome(False, "the radio refuses it: its queue or table is full")


async def test_mute_radio_is_reported(tmp_path: Path, short_waits: None) -> None:
    async with bench(tmp_path) as there:
        there.radio(KIT).mute = True
        assert "does not answer" in str(await find_open_error(there))


async def test_radio_that_falls_silent_is_lost(tmp_path: Path, short_waits: None) -> None:
    async with bench(tmp_path) as there:
        with pytest.raises(BaseExceptionGroup) as raised:
            async with opened_people(there) as people:
                there.radio(KIT).mute = True
                await receive_next(people, HandheldText)
        assert isinstance(get_first_error(raised.value), RadioLost)


@pytest.mark.parametrize("asked", ["_ask_telemetry", "_list_contacts"])
async def test_message_fetched_before_the_radio_falls_silent_is_stored(
    tmp_path: Path, short_waits: None, asked: str
) -> None:
    """The radio has deleted the message and is asked for its author. Otherwise a call for help
    would be lost.
    """
    heard = []
    async with bench(tmp_path) as there:
        with pytest.raises(BaseExceptionGroup) as raised:
            async with opened_people(there) as people:
                radio = there.radio(KIT)
                setattr(radio, asked, lambda *_: setattr(radio, "mute", True))
                stranger = asked == "_list_contacts"
                key = bytes(6) if stranger else there.radio(ADA).key[:6]
                there.bring(CompanionText(key, None, NOW, "help me"))
                while True:
                    heard.append((await people.receive()).what)
    assert isinstance(get_first_error(raised.value), RadioLost)
    assert [each.text for each in heard if isinstance(each, HandheldText)] == ["help me"]


async def test_radio_unplugged_within_a_frame_is_opened_again(tmp_path: Path) -> None:
    async with bench(tmp_path) as there:
        kit = there.nodes.sockets[KIT - 1]

        def cut(said: bytes) -> bytes:
            there.nodes.unplug(kit)
            return said[: len(said) // 2]

        there.radio(KIT).spoil = cut  # type: ignore[method-assign]
        assert isinstance(await find_open_error(there), PortLost)
        del there.radio(KIT).spoil
        there.nodes.plug(kit)
        await until_async(lambda: os.path.lexists(there.place))
        async with opened_people(there) as people:
            await receive_repeated(there, people, "still there?")


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda said: said[: len(said) // 2],
    "too long": lambda said: b">\xff\xff" + said[3:],
    "longer than it is": lambda said: said[:1] + b"\xc8\0" + said[3:],
    "shorter than it is": lambda said: said[:1] + b"\x05\0" + said[3:],
    "empty": lambda said: b">\0\0" + said[3:],
    "another answer": lambda said: wire.make_frame(b"\x0a", wire.FROM_RADIO),
}


@pytest.mark.full
@pytest.mark.parametrize("how", SPOILT)
async def test_unreadable_first_answer_is_requested_again(
    tmp_path: Path, short_waits: None, how: str
) -> None:
    async with bench(tmp_path) as there:
        radio = there.radio(KIT)

        def spoil_once(said: bytes) -> bytes:
            del radio.spoil
            return SPOILT[how](said)

        radio.spoil = spoil_once  # type: ignore[method-assign]
        if how == "shorter than it is":
            assert "does not report its identity" in str(await find_open_error(there))
        async with opened_people(there) as people:
            await receive_repeated(there, people, "hello")


async def test_unreadable_message_does_not_block_the_next(tmp_path: Path) -> None:
    async with bench(tmp_path) as there, opened_people(there) as people:
        radio = there.radio(KIT)
        short = wire.make_frame(bytes([CompanionMessage.TEXT, 1, 2]), wire.FROM_RADIO)

        def shorten(said: bytes) -> bytes:
            if CompanionMessage.TEXT not in said[3:4]:
                return said
            del radio.spoil
            return short

        radio.spoil = shorten  # type: ignore[method-assign]
        there.bring(CompanionText(there.radio(ADA).key[:6], None, NOW, "lost"))
        there.bring(CompanionText(there.radio(ADA).key[:6], None, NOW, "read"))
        heard = await receive_next(people, HandheldText)
        assert isinstance(heard.what, HandheldText) and heard.what.text == "read"


async def test_restarted_radio_gets_its_clock_set(
    tmp_path: Path, short_waits: None, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(tmp_path) as there, opened_people(there) as people:
        radio = there.radio(KIT)
        assert radio.read_time(trio.current_time()) >= NOW
        there.nodes.reboot(there.nodes.sockets[KIT - 1])
        assert radio.read_time(trio.current_time()) < BOOT_TIME + 60
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive_next, people, HandheldText)
            await until_async(lambda: radio.read_time(trio.current_time()) >= NOW)
            there.write("still there?")
        assert "has restarted" in caplog.text


async def test_full_contact_list_is_reported_until_space_is_available(
    tmp_path: Path, short_waits: None
) -> None:
    async with bench(tmp_path) as there:
        radio = there.radio(KIT)
        introduce_all([radio], CONTACTS_MAX)
        assert len(radio.contacts) == CONTACTS_MAX
        link = ChannelLink()
        async with opened_people(there, link) as people:
            assert link.reason.startswith(f"the radio's list of {CONTACTS_MAX} contacts is full")
            assert link.state.value == "fault"
            await receive_repeated(there, people, "I am known")
            del radio.contacts[next(key for key in radio.contacts if key != there.radio(ADA).key)]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive_next, people, HandheldText)
                await until_async(lambda: not link.reason)
                assert link.state.value == "ready"
                nursery.cancel_scope.cancel()


@pytest.mark.parametrize("full", [False, True])
async def test_new_contact_is_added_if_the_list_has_space(
    tmp_path: Path, full: bool, request: pytest.FixtureRequest
) -> None:
    """This includes a radio that adds no contact by itself, because a person in distress may be
    unknown.
    """
    if full:
        # Only the wait for a missing answer is shortened: a busy machine may answer late.
        request.getfixturevalue("short_waits")
    async with bench(tmp_path) as there:
        radio, ada = there.radio(KIT), there.radio(ADA)
        radio.contacts.clear()
        radio.adds_by_hand = True
        link = ChannelLink()
        async with opened_people(there, link) as people:
            if full:
                introduce_all([radio], CONTACTS_MAX)
            there.act(ADA, wire.make_command(CompanionCommand.SEND_ADVERT, b"\1"))
            if full:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(receive_next, people, HandheldText)
                    await until_async(lambda: link.reason)
                    nursery.cancel_scope.cancel()
            else:
                assert (await receive_next(people, HandheldName)).handle == ada.key.hex()
                await receive_repeated(there, people, "SOS")


async def test_handle_is_recognised_by_its_own_firmware_only(tmp_path: Path) -> None:
    from fieldagent.extensions.people import meshtastic

    handles = ("!0000ada0", "ab" * 32)
    assert [meshtastic.RADIO.is_handle(each) for each in handles] == [True, False]
    assert [meshcore.RADIO.is_handle(each) for each in handles] == [False, True]


@pytest.mark.parametrize("handle", ["ab" * 31 + "a", "abcdef1234567", "#Team/Ada", "#300/Ada", "#"])
async def test_invalid_handle_is_refused(tmp_path: Path, handle: str) -> None:
    """An operator may have made a typing error at the hub. Before, such a handle made the whole
    radio fail at each try.
    """
    async with bench(tmp_path) as there, opened_people(there) as people:
        outcome = await people.send_text(handle, "hello", 1)
        assert not outcome.is_confirmed and "not a MeshCore radio" in outcome.reason
    assert not meshcore.is_handle(handle)
