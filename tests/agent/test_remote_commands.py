"""A command on its kit: checked, done once, and answered once, also over power cuts."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from fieldagent import __version__
from fieldagent.agent import outcomes
from fieldagent.agent.agent import assemble_agent
from fieldagent.agent.channels import kit_notes
from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.commands import acts, service
from fieldagent.agent.commands.context import LOG_LINES_MAX, CommandContext, RecentLog
from fieldagent.agent.commands.service import READER_BY_VERB
from fieldagent.agent.inbound.command_gate import AGE_MAX_S, NOT_PROVED
from fieldagent.agent.journal import commands, dead_letters, outbound
from fieldagent.agent.journal.commands import DELTAS_MAX, find_delta
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.settings import parse
from fieldagent.package.package import (
    Channel,
    CommandAnswer,
    CommandOutcome,
    Data,
    Item,
    Location,
    Message,
    Package,
)
from fieldagent.package.writing import get_kind
from fieldagent.system.elapsed_time import Reading
from fieldagent.wire import answer_text
from fieldagent.wire.answer_text import format_answer
from fieldagent.wire.command import VERB_BY_NAME, VERBS, RemoteCommand, Verb, parse_command
from fieldagent.wire.envelope import Entry, encode
from fieldagent.wire.kit_note import ZIPAPP, ProgramOffer
from fieldagent.wire.kit_note import decode as decode_note
from fieldagent.wire.minisign_text import SignatureParts
from fieldagent.wire.proof import derive_command_key, digest_token, prove_command
from fieldagent.wire.signed_delta import SignedDelta, compute_payload_digest
from tests.processes import PATIENCE
from tests.signer import Signer
from tests.wire.test_command import written

NOW = 1_790_000_000
TOKEN = "fa_token"
KEY = derive_command_key(digest_token(TOKEN))
ALL = " ".join(VERB_BY_NAME)


def clocks(boot: str = "this") -> Callable[[], Reading]:
    return lambda: Reading(boot, 1_000.0, float(NOW), "network")


class Kit:
    """One start of an agent's parts on a journal that outlives it."""

    def __init__(self, folder: Path, allowed: str = ALL, boot: str = "this") -> None:
        text = (
            f"state-directory={folder}\nhub-address=https://hub.example.org\nhub-token={TOKEN}\n"
            f"satellite-port={folder}/modem\nremote-commands={allowed}\n"
        )
        self.journal = Journal(folder / "journal.sqlite3", clocks(boot), may_leave_disk=True)
        self.agent = assemble_agent(parse(text, folder), self.journal, print)
        parts = self.agent.parts
        self.hands = CommandContext(
            self.agent.settings, parts, self.agent.get_status, self.agent.find_illness
        )

    async def hears(
        self, number: int, words: str, *, key: bytes = KEY, channel: str = "Cellular"
    ) -> None:
        await self.hears_of(
            number, prove_command(number, parse_command(words.split()), key), channel
        )

    async def hears_of(self, number: int, command: RemoteCommand, channel: str) -> None:
        """Receive a command as over a channel."""
        body = encode([Entry(number, command)])
        inbox = self.agent.parts.inbox
        await inbox.store_message(
            body, lambda db: None, channel=channel, receipt_channel=None, is_tagged=False
        )

    def answers(self) -> list[CommandAnswer]:
        """Return the answers in Packages to the hub."""
        sequences = self.journal.read("SELECT sequence FROM package ORDER BY sequence")
        records = [outbound.read_kept_package(self.journal, sequence) for (sequence,) in sequences]
        items = [each.package.item for each in records if each is not None]
        return [item for item in items if isinstance(item, CommandAnswer)]

    async def answered(self, many: int) -> list[CommandAnswer]:
        with trio.fail_after(PATIENCE):
            while len(self.answers()) < many or commands.list_unanswered(self.journal):
                await trio.sleep(0.01)
        return self.answers()

    def letters(self) -> list[str]:
        return [each.reason for each in dead_letters.list_newest(self.journal)]


@asynccontextmanager
async def at_work(folder: Path, *how: Any, serves: bool = True) -> AsyncIterator[Kit]:
    kit = Kit(folder, *how)
    with closing(kit.journal):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kit.journal.run)
            kit.agent.parts.resume._resumed.set()
            if serves:
                nursery.start_soon(service.run, kit.hands, kit.agent.parts.inbox.commands)
            yield kit
            nursery.cancel_scope.cancel()


def told(answer: CommandAnswer) -> str:
    return answer_text.unpack(answer.body)


async def test_command_is_answered_over_channel_of_arrival(tmp_path: Path) -> None:
    async with at_work(tmp_path) as kit:
        await kit.hears(NOW, "status", channel="Satellite")
        (answer,) = await kit.answered(1)
        assert answer.number == NOW and answer.outcome is CommandOutcome.DONE
        assert "1 starts of the agent" in format_answer(VERB_BY_NAME["status"].number, answer)
        ((channel,),) = kit.journal.read("SELECT channel FROM leg")
        assert channel == "Satellite"


async def test_command_received_over_two_bearers_is_executed_and_answered_once(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as kit:
        await kit.hears(NOW, "status", channel="Satellite")
        await kit.hears(NOW, "status", channel="Cellular")
        await kit.answered(1)
        await kit.hears(NOW, "status", channel="Satellite")
        await kit.hears(NOW + 1, "log")
        numbers = [answer.number for answer in await kit.answered(2)]
        assert numbers == [NOW, NOW + 1]


async def test_stale_command_number_is_refused_once_with_reason(tmp_path: Path) -> None:
    async with at_work(tmp_path) as kit:
        await kit.hears(NOW, "status")
        await kit.hears(NOW - 5, "status")
        await kit.hears(NOW - 5, "status")
        stale = next(each for each in await kit.answered(2) if each.number < NOW)
        assert (stale.number, stale.outcome) == (NOW - 5, CommandOutcome.REFUSED)
        assert told(stale) == f"command {NOW} arrived before it, send it again"


async def test_old_command_is_refused_if_restored_card_has_lost_number(
    tmp_path: Path,
) -> None:
    """The number alone would be accepted. The age of the command prevents that."""
    async with at_work(tmp_path) as kit:
        await kit.hears(NOW - AGE_MAX_S - 60, "status")
        (answer,) = await kit.answered(1)
        assert answer.outcome is CommandOutcome.REFUSED and "5 days old" in told(answer)


async def test_command_with_wrong_key_becomes_dead_letter_without_answer(tmp_path: Path) -> None:
    async with at_work(tmp_path) as kit:
        await kit.hears(NOW, "status", key=derive_command_key(bytes(32)))
        await kit.hears_of(NOW, RemoteCommand(1), "Satellite")
        assert kit.letters() == [NOT_PROVED, NOT_PROVED]
        assert commands.list_newest(kit.journal, 10) == []
        # The number is still unused: the hub's own command with it is done.
        await kit.hears(NOW, "status")
        (answer,) = await kit.answered(1)
        assert answer.outcome is CommandOutcome.DONE


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
async def test_command_that_is_not_allowed_is_refused_by_name(tmp_path: Path, verb: Verb) -> None:
    async with at_work(tmp_path, "none") as kit:
        await kit.hears_of(NOW, prove_command(NOW, written(verb), KEY), "Cellular")
        (answer,) = await kit.answered(1)
        assert answer.outcome is CommandOutcome.REFUSED
        assert told(answer) == f"{verb.name} is not in remote-commands of this kit"


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
async def test_default_settings_allow_only_reading_commands_and_radio_key(
    tmp_path: Path, verb: Verb
) -> None:
    text = f"state-directory={tmp_path}\n"
    allowed = verb.name in ("status", "log", "show", "trace", "radio-key")
    assert (verb.name in parse(text, tmp_path).remote_commands) is allowed


async def test_unknown_command_of_later_hub_is_refused_by_number(tmp_path: Path) -> None:
    async with at_work(tmp_path) as kit:
        later = prove_command(NOW, replace(parse_command(["status"]), verb=99), KEY)
        await kit.hears_of(NOW, later, "Cellular")
        (answer,) = await kit.answered(1)
        assert told(answer) == "this version knows no command 99"


@pytest.mark.parametrize("name", ["restart", "reboot"])
async def test_restart_command_is_refused_while_sos_is_only_in_memory(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INVOCATION_ID", "of systemd")
    monkeypatch.setattr("os.kill", lambda *_: pytest.fail("the agent is stopped"))
    (tmp_path / "journal.sqlite3").mkdir()
    async with at_work(tmp_path) as kit:
        assert "it is a folder" in kit.journal.not_on_disk
        await kit.agent.parts.intake.accept(Package(Message("help"), priority=100))
        await kit.hears(NOW, name)
        with trio.fail_after(PATIENCE):
            while (
                not (listing := commands.list_newest(kit.journal, 1)) or listing[0].answer is None
            ):
                await trio.sleep(0.01)
        assert listing[0].answer.outcome is CommandOutcome.REFUSED
        assert "an open SOS is only in memory" in told(listing[0].answer)
        assert not (tmp_path / outcomes.REBOOT).exists()


class Done:
    """Counts the acts that would change the machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times: list[str] = []
        for name in acts.ACTION_BY_VERB:
            monkeypatch.setitem(acts.ACTION_BY_VERB, name, partial(self._do, name))
        for name in acts.CHECK_BY_VERB:
            monkeypatch.setitem(acts.CHECK_BY_VERB, name, lambda hands: None)
        for name in acts.VERB_CONDITIONS:
            monkeypatch.setitem(acts.VERB_CONDITIONS, name, lambda hands, known: True)

    async def _do(self, name: str, hands: CommandContext, known: object) -> str:
        self.times.append(name)
        if name in ("restart", "reboot"):
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return "it is done"


async def cut_after(folder: Path, commits: int, verb: Verb, done: Done) -> bool:
    """Give the command, and cut the power after that many commits. Return False if the command
    ended before.
    """
    waits = verb.name in ("restart", "reboot")
    async with at_work(folder, serves=False) as kit:
        through = trio.Event()
        async with trio.open_nursery() as nursery:

            async def cut() -> None:
                while kit.journal.commits < commits:
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()

            async def work() -> None:
                await kit.hears_of(NOW, prove_command(NOW, written(verb), KEY), "Cellular")
                if waits:
                    await called(done)
                else:
                    await kit.answered(1)
                through.set()
                nursery.cancel_scope.cancel()

            nursery.start_soon(service.run, kit.hands, kit.agent.parts.inbox.commands)
            nursery.start_soon(work)
            nursery.start_soon(cut)
        return not through.is_set()


@pytest.mark.full
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
async def test_power_cut_after_any_commit_loses_and_repeats_no_command(
    tmp_path: Path, verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits, goes_on = 0, True
    while goes_on and commits < 12:
        commits += 1
        done, folder = Done(monkeypatch), tmp_path / str(commits)
        folder.mkdir()
        goes_on = await cut_after(folder, commits, verb, done)
        async with at_work(folder, ALL, "the next") as kit:
            # An unconfirmed command arrives again over the link or the modem.
            await kit.hears_of(NOW, prove_command(NOW, written(verb), KEY), "Cellular")
            if commands.list_unanswered(kit.journal)[:1] and verb.name in ("restart", "reboot"):
                # The command starts only now, and the agent answers after the next start.
                await _begun(kit)
        if verb.name in ("restart", "reboot"):
            async with at_work(folder, ALL, "the one after") as kit:
                await kit.answered(1)
        async with at_work(folder, ALL, "the last") as kit:
            (answer,) = await kit.answered(1)
            assert answer.number == NOW
            assert len(done.times) <= 1 or verb.name in acts.REPEATABLE_VERBS
            if verb.name in ("restart", "reboot"):
                assert told(answer).endswith("has restarted")
    assert commits > 2


async def called(done: Done) -> None:
    with trio.fail_after(PATIENCE):
        while not done.times:
            await trio.sleep(0.01)


async def _begun(kit: Kit) -> None:
    with trio.fail_after(PATIENCE):
        while [each for each in commands.list_unanswered(kit.journal) if each.state != "begun"]:
            await trio.sleep(0.01)


async def test_restart_command_waits_for_end_of_modem_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = Done(monkeypatch)
    async with at_work(tmp_path) as kit:
        link = kit.agent.parts.outboxes[Channel.SATELLITE].link
        link.state = LinkState.BUSY
        await kit.hears(NOW, "restart")
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert done.times == []
        assert [each.state for each in commands.list_unanswered(kit.journal)] == ["accepted"]
        link.state = LinkState.READY
        await _begun(kit)
        await called(done)
        assert done.times == ["restart"]


async def test_failed_command_does_not_block_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(hands: CommandContext, arguments: object) -> bytes:
        raise ZeroDivisionError("of the test")

    monkeypatch.setitem(READER_BY_VERB, "log", broken)
    async with at_work(tmp_path) as kit:
        await kit.hears(NOW, "log")
        await kit.hears(NOW + 1, "status")
        first, second = await kit.answered(2)
        assert first.outcome is CommandOutcome.FAILED and "of the test" in told(first)
        assert second.outcome is CommandOutcome.DONE


async def test_newest_commands_are_kept_and_older_numbers_stay_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "COMMANDS_MAX", 3)
    async with at_work(tmp_path) as kit:
        for number in range(NOW, NOW + 6):
            await kit.hears(number, "status")
            await kit.answered(number - NOW + 1)
        assert len(commands.list_newest(kit.journal, 10)) == 3
        await kit.hears(NOW, "status")
        await kit.hears(NOW + 9, "log")
        assert [each.number for each in await kit.answered(7)][-1] == NOW + 9


def test_recent_log_keeps_newest_warnings() -> None:
    kept, log = RecentLog(), logging.getLogger("of the test")
    log.addHandler(kept)
    try:
        log.info("nothing")
        for number in range(LOG_LINES_MAX + 5):
            log.warning("no network, try %d", number)
    finally:
        log.removeHandler(kept)
    lines = kept.list_lines()
    assert len(lines) == LOG_LINES_MAX and lines[0].endswith(
        f"WARNING no network, try {LOG_LINES_MAX + 4}"
    )


VERSION = "fieldagent delta 9.0.0, signed 2026-11-23, expires 2027-02-21"
PAYLOAD = SignedDelta(
    b"what makes it", SignatureParts(bytes(74), VERSION, bytes(64))
).encode_payload()


def update_to(payload: bytes, number: int = NOW) -> RemoteCommand:
    digest = (compute_payload_digest(payload),)
    return prove_command(number, RemoteCommand(VERB_BY_NAME["update"].number, digest), KEY)


async def deliver_from_hub(kit: Kit, payload: bytes, sequence: int = 5) -> None:
    """Deliver a payload from the hub to this kit."""
    body = encode([Entry(sequence, Data(payload), NOW)], origin=3)
    inbox = kit.agent.parts.inbox
    await inbox.store_message(
        body, lambda db: None, channel="Satellite", receipt_channel=None, is_tagged=False
    )


def as_zipapp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit_notes, "find_installation_kind", lambda module: ZIPAPP)


async def test_update_command_waits_for_delta_and_reports_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks do not get the delta. root's unit gets the delta, and the restarted agent reports the
    result.
    """
    as_zipapp(monkeypatch)
    result = outcomes.find_root_folder(tmp_path / "state") / outcomes.PROGRAM
    result.parent.mkdir()
    (state := tmp_path / "state").mkdir()
    async with at_work(state) as kit:
        await kit.hears_of(NOW, update_to(PAYLOAD), "Satellite")
        await kit.hears(NOW + 1, "status")
        assert [each.number for each in await answered_but(kit, 1)] == [NOW + 1]
        await deliver_from_hub(kit, PAYLOAD)
        with trio.fail_after(PATIENCE):
            while not (state / outcomes.PROGRAM_OFFER).exists():
                await trio.sleep(0.01)
        assert (state / outcomes.PROGRAM_DELTA).read_bytes() == PAYLOAD
        offer = decode_note((state / outcomes.PROGRAM_OFFER).read_bytes())
        assert offer == ProgramOffer(NOW, "9.0.0", "")
        assert kit.journal.read("SELECT 1 FROM inbound") == []
        # This simulates the first step of root's unit, before the restart of the agent.
        (state / outcomes.PROGRAM_OFFER).unlink()
        outcomes.write_outcome(result, NOW, "trial")
    async with at_work(state) as kit:
        assert not (state / outcomes.PROGRAM_OFFER).exists()
        outcomes.write_outcome(result, NOW, "taken")
        last = (await kit.answered(2))[-1]
        assert (last.number, last.outcome) == (NOW, CommandOutcome.DONE)
        assert told(last) == f"{__version__} runs"


async def answered_but(kit: Kit, waiting: int) -> list[CommandAnswer]:
    """Wait for all answers except those of `waiting` commands."""
    with trio.fail_after(PATIENCE):
        while len(commands.list_unanswered(kit.journal)) != waiting or not kit.answers():
            await trio.sleep(0.01)
    return kit.answers()


@pytest.mark.parametrize(
    ("state", "outcome", "text"),
    [
        ("refused", CommandOutcome.REFUSED, "it expired"),
        ("back", CommandOutcome.FAILED, "taken back: it expired"),
    ],
)
async def test_failed_update_by_delta_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    outcome: CommandOutcome,
    text: str,
) -> None:
    as_zipapp(monkeypatch)
    (folder := tmp_path / "state").mkdir()
    result = outcomes.find_root_folder(folder) / outcomes.PROGRAM
    result.parent.mkdir()
    async with at_work(folder) as kit:
        await deliver_from_hub(kit, PAYLOAD)
        await kit.hears_of(NOW, update_to(PAYLOAD), "Satellite")
        outcomes.write_outcome(result, NOW, state, "it expired")
        (answer,) = await kit.answered(1)
        assert (answer.outcome, told(answer)) == (outcome, text)


async def test_missing_delta_is_reported_after_five_days(tmp_path: Path) -> None:
    async with at_work(tmp_path, serves=False) as kit:
        await kit.hears_of(NOW, update_to(PAYLOAD), "Cellular")
        (known,) = commands.list_unanswered(kit.journal)
        assert service._can_still_arrive(kit.hands, known)
        late = known._replace(arrived_at=known.arrived_at - AGE_MAX_S)
        assert not service._can_still_arrive(kit.hands, late)
        answer = await service._carry_out(kit.hands, late)
        assert (answer.outcome, told(answer)) == (
            CommandOutcome.REFUSED,
            service.SUBJECT_MISSING_REASON,
        )


async def test_delta_is_refused_without_zipapp(tmp_path: Path) -> None:
    async with at_work(tmp_path) as kit:
        await deliver_from_hub(kit, PAYLOAD)
        await kit.hears_of(NOW, update_to(PAYLOAD), "Cellular")
        (answer,) = await kit.answered(1)
        assert answer.outcome is CommandOutcome.REFUSED and "only a zipapp accepts" in told(answer)


async def test_newest_two_deltas_are_kept(tmp_path: Path) -> None:
    payloads = [PAYLOAD + bytes([number]) for number in range(4)]
    async with at_work(tmp_path, serves=False) as kit:
        for sequence, payload in enumerate(payloads, 5):
            await deliver_from_hub(kit, payload, sequence)
        here = [find_delta(kit.journal, compute_payload_digest(p)) for p in payloads]
        assert len([each for each in here if each]) == DELTAS_MAX
        assert here[-1] == payloads[-1]


async def test_held_kind_of_item_waits_until_resume_command(tmp_path: Path) -> None:
    """The hold survives a restart of the agent. Texts and an SOS are sent meanwhile."""
    satellite = Channel.SATELLITE
    fix, only = Location(46.5, 7.25), frozenset([satellite])

    def next_kind(kit: Kit) -> str:
        foremost = kit.agent.parts.queues[satellite].find_foremost(trio.current_time())
        assert foremost is not None
        accepted = outbound.read_kept_package(kit.journal, foremost)
        assert accepted is not None
        return get_kind(accepted.package.item)

    async def post(kit: Kit, item: Item, **how: Any) -> None:
        await kit.agent.parts.intake.accept(Package(item, channels=only, **how))

    async with at_work(tmp_path) as kit:
        await post(kit, fix, priority=30)
        assert next_kind(kit) == "location"
        await kit.hears(NOW, "hold location")
        (answer,) = await kit.answered(1)
        assert told(answer) == "location waits: 1 Package now"
        await post(kit, fix, priority=40)
        await post(kit, Message("OK"))
        assert next_kind(kit) == "message"
        kit.agent.parts.queues[satellite].hasten(*kit.agent.parts.queues[satellite].list_waiting())
        assert next_kind(kit) == "message"
    async with at_work(tmp_path) as kit:
        assert next_kind(kit) == "message"
        await post(kit, fix, priority=100)
        assert next_kind(kit) == "location"  # an SOS
        queue = kit.agent.parts.queues[satellite]
        queue.withdraw([max(queue.list_waiting())], "it went by itself")
        assert next_kind(kit) == "message"
        await kit.hears(NOW + 1, "resume location")
        assert told((await kit.answered(2))[-1]) == "location goes again: 2 Packages now"
        assert next_kind(kit) == "location"
        # A Package of another kind that replaces a held Package is sent.
        await kit.hears(NOW + 2, "hold location")
        await kit.answered(3)
        await post(kit, fix, priority=60, collapse_key=7)
        await post(kit, Message("we stay"), priority=60, collapse_key=7)
        assert next_kind(kit) == "message"
        await kit.hears(NOW + 3, "resume location")
        await kit.answered(4)
    async with at_work(tmp_path) as kit:
        assert commands.read_held_kinds(kit.journal) == set()


async def test_package_posted_during_hold_or_resume_is_treated_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Package is posted at the moment of that commit. Otherwise the Package would be sent, or
    wait forever.
    """
    satellite = Channel.SATELLITE
    note, orders = commands.record_held_kind, list[Any]()

    def ordered(kind: str, *, is_held: bool) -> Any:
        orders.append(note(kind, is_held=is_held))
        return orders[-1]

    monkeypatch.setattr(commands, "record_held_kind", ordered)
    async with at_work(tmp_path) as kit:
        persist, intake = kit.journal.persist, kit.agent.parts.intake

        async def posted_meanwhile(operation: Any) -> Any:
            if operation in orders:
                place = Location(46.5, 7.25)
                await intake.accept(Package(place, channels=frozenset([satellite])))
            return await persist(operation)

        monkeypatch.setattr(kit.journal, "persist", posted_meanwhile)
        await kit.hears(NOW, "hold location")
        assert told((await kit.answered(1))[-1]) == "location waits: 1 Package now"
        await kit.hears(NOW + 1, "resume location")
        assert told((await kit.answered(2))[-1]) == "location goes again: 2 Packages now"
        assert kit.agent.parts.queues[satellite].held == set()


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("operator") / "keys")
