"""Modems of Iridium Messaging Transport over JSPR: Certus 9704 and RockBLOCK 9704."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.line_speed import LineSpeed
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.agent.satellites.contract import SatelliteModem, SatelliteSeat
from fieldagent.extensions.imt.agent import driver as imt_driver
from fieldagent.extensions.imt.agent.modem import (
    ImtModem,
    ImtReset,
    ImtSilent,
    Mailbag,
    open_modem,
)
from fieldagent.extensions.imt.agent.recognition import PROBE, RECOGNITION
from fieldagent.system.error_groups import get_first_error
from fieldagent.system.finding import Finding
from fieldagent.system.properties import Key, make_integer_reader, read_text
from fieldagent.system.signals import run_breakable
from fieldagent.wire.errors import RemoteProtocolError

CHECK_TIMEOUT_S = 60.0
"""Seconds within which the modem must answer all queries of `fieldagent check`."""


def make_driver(seat: SatelliteSeat) -> Callable[[], Awaitable[None]]:
    """Return the task that serves the modem of this seat. The task starts again after a failure."""
    return partial(
        imt_driver.run,
        seat.port,
        seat.outbox,
        seat.reception,
        seat.link,
        imt_driver.ImtPace(random.Random(), seat.own_settings["imt-minimum-bytes"]),
        speed=LineSpeed(seat.baud, PROBE),
        topic=seat.own_settings["imt-topic"],
        heal=seat.heal,
        progress=seat.progress,
    )


def check(port: str, baud: int | None, settings: Mapping[str, Any]) -> list[Finding]:
    """Return findings about the modem. The check sends no message and costs nothing."""
    topic: str = settings["imt-topic"]
    mail = Mailbag()
    speed = LineSpeed(baud, PROBE)
    speed.record_silence()

    async def ask_modem() -> list[Finding]:
        with trio.move_on_after(CHECK_TIMEOUT_S):
            async with open_modem(
                port, await speed.find_speed(port), ChannelLink(), mail, topic
            ) as modem:
                speed_report = speed.describe_unusual_speed()
                notes = [Finding(True, f"{port}: it {speed_report}")] if speed_report else []
                return [*_report(port, modem), *notes, *_find_lost_mail(port, mail)]
        return [Finding(False, f"{port}: the modem does not answer within {CHECK_TIMEOUT_S:g} s")]

    findings: list[Finding] = []
    try:
        findings = run_breakable(ask_modem)
    except* (PortLost, ImtSilent, ImtReset, RemoteProtocolError) as trouble:
        findings = [Finding(False, f"{port}: {get_first_error(trouble)}")]
    return findings


def _report(port: str, modem: ImtModem) -> list[Finding]:
    findings = [Finding(True, f"{port}: modem {modem.facts.imei} answers")]
    if fault := modem.facts.describe_trouble():
        findings.append(Finding(False, f"{port}: {fault}"))
    bars = modem.link.signal or 0
    hint = "" if modem.facts.service else "; under the open sky it should see more"
    findings.append(Finding(True, f"{port}: signal {bars} of 5{hint}"))
    if modem.facts.topic is None:
        device_kind = (
            f"does not know the topic {modem.topic_name}: a new SIM or plan takes 10 to 30 minutes"
            " under the open sky; see imt-topic"
        )
    else:
        device_kind = f"may use the topic {modem.facts.topic.name} ({modem.facts.topic.id})"
    findings.append(Finding(modem.facts.topic is not None, f"{port}: the modem {device_kind}"))
    return findings


def _find_lost_mail(port: str, mail: Mailbag) -> list[Finding]:
    if not mail:
        return []
    lost_text = (
        f"{port}: a message arrived from the network during the check, and is lost: have it"
        " sent again"
    )
    return [Finding(False, lost_text)]


MODEM = SatelliteModem(
    "imt",
    "Iridium Certus 9704, as on the RockBLOCK 9704",
    make_driver,
    check,
    keys=(
        Key("imt-topic", read_text, "RAW", "name or number of the topic for imt messages (RAW)"),
        Key(
            "imt-minimum-bytes",
            make_integer_reader(0, 100_000, "bytes"),
            0,
            "fewest bytes that the account of an imt modem pays for each message (0)",
        ),
    ),
    facts={
        "imei": "IMEI of the modem",
        "sim": "number of its SIM (ICCID)",
        "topic": "topic of its messages",
    },
    probe=lambda: PROBE,
    recognition=lambda: RECOGNITION,
)
