"""Detects a satellite navigation receiver with NMEA, by listening only. The agent does not use the
receiver directly, because gpsd reads it for all programs.
"""

from __future__ import annotations

from fieldagent.agent.channels.recognition import (
    DeviceLine,
    DeviceReport,
    Recognition,
    answer_to,
)
from fieldagent.wire import nmea

NAME = "gnss"
SENTENCE_TIMEOUT_S = 1.3
"""Longest time in seconds until a receiver, which sends once a second, is heard."""
FIX_WAIT_MAX_S = 2.0


async def check_receiver(line: DeviceLine) -> DeviceReport:
    """Read NMEA sentences until the receiver reports its number of satellites, or for
    `FIX_WAIT_MAX_S`. Return a report on the receiver.
    """
    sentences: list[str] = []

    def find_position(data: bytes) -> int | None:
        sentences[:] = nmea.parse_sentences(data)
        return nmea.read_satellite_count(sentences)

    count = await answer_to(line, b"", find_position, FIX_WAIT_MAX_S)
    lines = ["gpsd reads it for the agent, without a setting: `sudo apt install gpsd`"]
    if count is not None:
        sees = f"its position rests on {count} satellites" if count else "it has no position yet"
        lines.insert(0, sees)
    return DeviceReport("GNSS receiver, NMEA", tuple(lines), facts={"satellites": count})


RECOGNITIONS = [
    Recognition(
        NAME,
        turn,
        baud,
        lambda: b"",
        lambda data: bool(nmea.parse_sentences(data)),
        check_receiver,
        patience=SENTENCE_TIMEOUT_S,
    )
    for turn, baud in ((0, 9_600), (9, 38_400), (10, 4_800))
]
"""Recognitions at the usual speeds of receivers. Over USB the speed does not matter."""
