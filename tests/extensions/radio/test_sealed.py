"""Kits that seal their packets beside kits that do not, on simulated nodes."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from fieldagent.agent.channels.air_pace import AIR_BYTES
from fieldagent.extensions.lab.simulator.air import SharedAir
from fieldagent.extensions.radio.mesh.troubles import Trouble
from fieldagent.package.package import Status
from fieldagent.wire.envelope import decode, derive_key
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.seal import is_sealed, unseal
from tests.extensions.radio.radio_kit import on_air, station, until
from tests.kit import RATES

KEY, OTHER = (derive_key(bytes([number] * 32), "AIR") for number in (1, 2))


@pytest.fixture(params=RATES)
def clock(request: pytest.FixtureRequest) -> trio.testing.MockClock:
    return trio.testing.MockClock(request.param, autojump_threshold=0)


async def test_sealing_and_plain_kits_read_each_other_and_report_mismatch(
    tmp_path: Path, clock: Any
) -> None:
    """Two kits seal, the third kit does not yet, and the fourth kit has another key."""
    terms: list[dict[str, Any]] = [
        {"keys": (KEY,), "sealed": True},
        {"keys": (KEY,), "sealed": True},
        {"keys": (KEY,)},
        {"keys": (OTHER,), "sealed": True},
    ]
    async with on_air(tmp_path, count=4), AsyncExitStack() as stack:
        kits = [
            await stack.enter_async_context(
                station(tmp_path, number, tmp_path / f"node-{number}", **each)
            )
            for number, each in enumerate(terms, 1)
        ]
        ada, ben, cid, eve = kits
        for kit in (ada, ben, cid):
            text = f"from {kit.number} " + "over rock and ice " * 20
            assert await kit.outcome(await kit.post(message={"content": text})) is Status.DELIVERED
        for kit in (ada, ben, cid):
            await until(lambda kit=kit: len(kit.messages()) == 2)  # type: ignore[misc]
        seen = [
            {name for name, count in kit.troubles.get_counts().items() if count} for kit in kits
        ]
        not_sealed, sealed = Trouble.NOT_SEALED.member, Trouble.SEALED.member
        wrong_key = Trouble.WRONG_KEY.member
        # If Eve greets, the others cannot read it either.
        assert [each - {wrong_key} for each in seen[:3]] == [{not_sealed}, {not_sealed}, {sealed}]
        assert (seen[3], eve.messages()) == ({wrong_key}, [])


async def test_sealing_kit_transmits_no_plain_item(tmp_path: Path, clock: Any) -> None:
    async with station(tmp_path, 2, tmp_path / "nowhere", keys=(KEY, OTHER), sealed=True) as kit:
        for _ in range(2):
            await kit.post()
            transmission = kit.outbox.load(AIR_BYTES)
            assert transmission is not None
            assert is_sealed(transmission.body)
            with pytest.raises(RemoteProtocolError):
                decode(transmission.body)
            unsealed = unseal(transmission.body, [OTHER, KEY])
            assert unsealed is not None
            assert (decode(unsealed[0]).origin, unsealed[1]) == (2, 1)


async def test_call_sign_is_transmitted_unsealed(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_the_air: list[bytes] = []
    transmit = SharedAir.transmit

    def overhear(air: SharedAir, now: float, number: int, packet: bytes) -> float:
        on_the_air.append(packet)
        return transmit(air, now, number, packet)

    monkeypatch.setattr(SharedAir, "transmit", overhear)
    terms: dict[str, Any] = {"keys": (KEY,), "sealed": True}
    async with (
        on_air(tmp_path),
        station(tmp_path, 1, tmp_path / "node-1", callsign="N0CALL-7", **terms) as ada,
        station(tmp_path, 2, tmp_path / "node-2", **terms) as ben,
    ):
        assert await ada.outcome(await ada.post()) is Status.DELIVERED
        await until(lambda: ben.neighbours.known[1].callsign == "N0CALL-7")
        (plain,) = [each for each in on_the_air if not is_sealed(each)]
        assert b"N0CALL-7" in plain
        assert ben.troubles.get_counts()[Trouble.NOT_SEALED.member] == 0
