"""Changes the group's key kit by kit, while Packages and an SOS are in transit, on
simulated nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.extensions.radio.mesh.key_change import GroupKeys, KeyStep
from fieldagent.extensions.radio.mesh.troubles import Trouble
from fieldagent.wire.envelope import derive_key
from tests.extensions.radio.radio_kit import Station, on_air, station, until
from tests.kit import RATES

OLD, NEW = (derive_key(bytes([number] * 32), "AIR") for number in (1, 2))
BEFORE = (KeyStep.NONE, (OLD,))
STEPS = [(KeyStep.SENDS_OLD, (OLD, NEW)), (KeyStep.SENDS_NEW, (NEW, OLD)), (KeyStep.NONE, (NEW,))]
"""The steps in docs/how-to/radio-key.md."""
KITS = (1, 2, 3)


@pytest.fixture(params=RATES)
def clock(request: pytest.FixtureRequest) -> trio.testing.MockClock:
    return trio.testing.MockClock(request.param, autojump_threshold=0)


class Team:
    """Kits that get a new key and a restart one by one, and their posts. All except the first one
    seal.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.at: dict[int, Station] = {}
        self.posted: dict[int, list[str]] = {number: [] for number in KITS}
        self.wrong_keys = 0
        self._changes = {number: trio.Event() for number in KITS}

    async def live(self, number: int, terms: Sequence[tuple[KeyStep, tuple[bytes, ...]]]) -> None:
        for step, keys in terms:
            self._changes[number] = trio.Event()
            node = self.path / f"node-{number}"
            async with station(
                self.path, number, node, keys=keys, key_step=step, sealed=number > 1
            ) as kit:
                self.at[number] = kit
                await self._changes[number].wait()
                self.wrong_keys += kit.troubles.get_counts()[Trouble.WRONG_KEY.member]
                del self.at[number]

    async def post(self, number: int, text: str, **more: int) -> None:
        self.posted[number].append(text)
        await self.at[number].post(message={"content": text}, **more)

    async def change(self, number: int) -> None:
        """Change one kit. The others continue to send, and one sends an SOS."""
        first, second = [each for each in KITS if each != number]
        step = len(self.posted[number])
        await self.post(number, f"{number} goes at {step}")
        self._changes[number].set()
        await self.post(first, f"{first} meanwhile at {step}")
        await self.post(second, f"{second} in need at {step}", priority=100)
        await trio.sleep(30)
        await until(lambda: number in self.at)
        await self.post(number, f"{number} is back at {step}")
        await trio.sleep(30)

    def has_all(self, number: int) -> bool:
        others = [text for each in KITS if each != number for text in self.posted[each]]
        return sorted(self.at[number].messages()) == sorted(others)


@pytest.mark.full
async def test_key_change_kit_by_kit_loses_and_repeats_nothing(tmp_path: Path, clock: Any) -> None:
    team = Team(tmp_path)
    async with on_air(tmp_path, {"loss": 0.2}, 3), trio.open_nursery() as nursery:
        for number in KITS:
            nursery.start_soon(team.live, number, [BEFORE, *STEPS])
        await until(lambda: len(team.at) == len(KITS))
        for _ in STEPS:
            for number in KITS:
                await team.change(number)
        await until(lambda: all(team.has_all(number) for number in KITS))
        wrong = [each.troubles.get_counts()[Trouble.WRONG_KEY.member] for each in team.at.values()]
        nursery.cancel_scope.cancel()
    assert (team.wrong_keys, wrong) == (0, [0, 0, 0])


@pytest.mark.full
async def test_key_change_without_restart_excludes_stolen_kit(tmp_path: Path, clock: Any) -> None:
    """The keys change kit by kit, as the hub does it. The fourth kit has only the old key."""
    async with on_air(tmp_path, {"loss": 0.2}, 4), AsyncExitStack() as stack:
        kits = [
            await stack.enter_async_context(
                station(tmp_path, number, tmp_path / f"node-{number}", keys=(OLD,), sealed=True)
            )
            for number in (*KITS, 4)
        ]
        thief = kits.pop()
        posted: dict[int, list[str]] = {kit.number: [] for kit in kits}

        async def all_post(when: str) -> None:
            for kit in kits:
                posted[kit.number].append(f"{kit.number} {when}")
                await kit.post(message={"content": f"{kit.number} {when}"})

        def have_all() -> bool:
            return all(
                sorted(kit.messages())
                == sorted(text for n, texts in posted.items() if n != kit.number for text in texts)
                for kit in kits
            )

        for number, (step, keys) in enumerate(STEPS, 1):
            for kit in kits:
                await all_post(f"before {kit.number} takes step {number}")
                dropped = () if len(keys) > 1 else (OLD,)
                kit.use_group_keys(GroupKeys(keys, dropped), step)
                await trio.sleep(20)
            await until(have_all)
        counted = [kit.troubles.get_counts() for kit in kits]
        assert [each[Trouble.WRONG_KEY.member] for each in counted] == [0, 0, 0]
        heard = len(thief.messages())
        assert heard
        await all_post("with the new key alone")
        await thief.post(message={"content": "where are you?"})
        await until(have_all)
        await until(lambda: all(kit.troubles.is_recent(Trouble.DROPPED_KEY) for kit in kits))
        assert len(thief.messages()) == heard
        assert not any("where are you?" in kit.messages() for kit in kits)
        (notice,) = [
            each for each in kits[0].troubles.list_notices(lambda at: at) if "replaced" in each
        ]
        assert "of station 4" in notice


async def test_kit_is_not_heard_if_first_key_step_is_skipped(tmp_path: Path, clock: Any) -> None:
    """This counter-check shows why the order of the steps is necessary."""
    team = Team(tmp_path)
    async with on_air(tmp_path, count=3), trio.open_nursery() as nursery:
        for number in KITS:
            nursery.start_soon(team.live, number, [BEFORE, *STEPS[1:]])
        await until(lambda: len(team.at) == len(KITS))
        await team.change(1)
        await until(lambda: team.at[2].troubles.is_recent(Trouble.WRONG_KEY))
        heard = [text for each in (2, 3) for text in team.at[each].messages()]
        nursery.cancel_scope.cancel()
    assert "1 is back at 0" not in heard
