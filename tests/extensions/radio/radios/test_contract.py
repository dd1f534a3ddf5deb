"""The contract between each radio and its channel (`channels/radio_modem.py`), tested with each
radio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from fieldagent.agent.channels.air_pace import AIR_BYTES
from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import RadioLost, RadioModem, TransmitResult
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.extensions.radio.contract import Radio
from fieldagent.extensions.radio.registry import RADIOS, load_radio
from fieldagent.system.properties import WrongProperty
from tests.extensions.radio.radios.pairs import PAIRS, Pair
from tests.processes import PATIENCE

BODIES = [b"x", bytes(range(200)), b"\xc0\xdb\xdc\xdd" * 40, b"\x00" * AIR_BYTES]
"""Packets with bytes that framings escape, and the largest packet."""


@pytest.fixture(params=RADIOS)
def kind(request: pytest.FixtureRequest) -> Radio:
    name: str = request.param
    assert name in PAIRS, f"tests/extensions/radio/radios/pairs.py has no pair of {name}"
    return load_radio(name)


@asynccontextmanager
async def both(kind: Radio, pair: Pair) -> AsyncIterator[tuple[RadioModem, RadioModem]]:
    async with (
        kind.open(pair.one, ChannelLink()) as one,
        kind.open(pair.other, ChannelLink()) as other,
    ):
        yield one, other


async def check_radio_modem(kind: Radio, pair: Pair) -> None:
    """Send packets of all bytes and sizes in both directions. They arrive complete and in order."""
    async with both(kind, pair) as (one, other):
        for mouth, ear in ((one, other), (other, one)):
            for body in BODIES:
                heard: list[bytes] = []
                with trio.fail_after(PATIENCE):
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(_hear, ear, heard)
                        result = await mouth.transmit(body, urgent=len(body) == 1)
                assert result is not TransmitResult.DROPPED
                assert heard == [body]


async def _hear(ear: RadioModem, heard: list[bytes]) -> None:
    heard.append((await ear.receive()).body)


@pytest.mark.full
async def test_radio_transmits_all_packets_both_ways(kind: Radio, tmp_path: Path) -> None:
    async with PAIRS[kind.name](tmp_path) as pair:
        await check_radio_modem(kind, pair)


async def test_radio_works_after_cancelled_transmission(kind: Radio, tmp_path: Path) -> None:
    async with PAIRS[kind.name](tmp_path) as pair, both(kind, pair) as (one, other):
        with trio.CancelScope() as scope:
            scope.cancel()
            await one.transmit(b"never mind", urgent=False)
        with trio.fail_after(PATIENCE):
            await one.transmit(b"hello", urgent=False)
            while (await other.receive()).body != b"hello":
                pass


async def test_unplugged_radio_raises_error(kind: Radio, tmp_path: Path) -> None:
    """Both transmitter and receiver get an error with a text for people."""
    async with PAIRS[kind.name](tmp_path) as pair:
        if pair.unplug is None:
            pytest.skip(f"{kind.name} cannot be unplugged")
        with trio.fail_after(PATIENCE), pytest.raises(BaseExceptionGroup) as raised:
            async with kind.open(pair.one, ChannelLink()) as one:
                pair.unplug()
                while True:
                    await one.transmit(b"hello", urgent=False)
        assert raised.group_contains((RadioLost, PortLost))


async def test_missing_radio_raises_error_and_fails_check(kind: Radio, tmp_path: Path) -> None:
    async with PAIRS[kind.name](tmp_path) as pair:
        nowhere = pair.one._replace(port=str(tmp_path / "nothing"))
    with trio.fail_after(PATIENCE):
        try:
            async with kind.open(nowhere, ChannelLink()):
                raise AssertionError("a missing radio is opened")
        except* (RadioLost, PortLost) as group:
            assert "nothing" in str(group.exceptions)
    if kind.check is not None:
        finding = kind.check(nowhere)
        assert not finding.good
        assert "nothing" in finding.text


async def test_facts_of_radio_are_described(kind: Radio, tmp_path: Path) -> None:
    link = ChannelLink()
    async with PAIRS[kind.name](tmp_path) as pair, kind.open(pair.one, link) as one:
        await one.transmit(b"hello", urgent=False)
    assert {*link.facts} <= {*kind.facts}


def test_radio_has_description_and_prefixed_settings(kind: Radio) -> None:
    assert kind.description
    assert all(key.name.startswith(f"{kind.name}-") for key in kind.keys)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("lora", f"must be {', '.join(RADIOS)} or package.module:NAME"),
        ("no_such_package.radio:RADIO", "cannot be loaded: No module named"),
        ("json:RADIO", "cannot be loaded: module 'json' has no attribute"),
        ("json:dumps", "which is not a fieldagent.extensions.radio.contract.Radio"),
    ],
)
def test_unloadable_radio_is_reported(name: str, why: str) -> None:
    with pytest.raises(WrongProperty, match=why):
        load_radio(name)
