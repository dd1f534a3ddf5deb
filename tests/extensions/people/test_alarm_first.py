"""An alarm of a handheld, or of the kit's button, is never refused, silenced or hidden because
another part of its message is unreadable, missing or unproved.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fieldagent.agent.api.sos import IncidentApi
from fieldagent.agent.assembly import Parts
from fieldagent.agent.journal import incident
from fieldagent.extensions.people import aprs_wire
from fieldagent.extensions.people.aprs_wire import AprsEmergency, AprsMessage, AprsPosition
from fieldagent.extensions.people.contract import HandheldText
from fieldagent.extensions.people.meshcore import MeshcorePeople
from fieldagent.extensions.people.meshtastic import MeshtasticPeople
from fieldagent.http.message import Request
from fieldagent.package.package import Location, Message
from fieldagent.wire import ax25
from fieldagent.wire.meshcore_companion import CompanionText
from fieldagent.wire.meshtastic import MeshData, MeshPacket, Port
from tests.extensions.people.test_desk import bench

KIT = "HB9ABC-7"


def is_aprs_alarm(info: str, to: str = "APRS") -> bool:
    frame = ax25.Frame(ax25.parse_callsign("N0CALL-9"), ax25.parse_callsign(to), info.encode(), ())
    what = aprs_wire.parse_frame(frame).what
    if isinstance(what, AprsMessage):
        return what.to == KIT and what.text.startswith("SOS")
    return isinstance(what, AprsEmergency) or (isinstance(what, AprsPosition) and what.emergency)


def is_meshtastic_alarm(data: MeshData, **packet: Any) -> bool:
    host = SimpleNamespace(facts=SimpleNamespace(number=1, channels={}))
    people = MeshtasticPeople(cast(Any, host), lambda: 0.0)
    what = people._read(MeshPacket(5, 1, decoded=data, id=7, **packet)).what
    return isinstance(what, HandheldText) and (what.alert or what.text.startswith("SOS"))


def is_meshcore_alarm(text: str) -> bool:
    host = SimpleNamespace(channels={})
    people = MeshcorePeople(cast(Any, host), cast(Any, None), lambda: 0.0)
    people._process_channel_text(CompanionText(b"", 0, 0, text))
    what = people._waiting_reports[-1].what
    return isinstance(what, HandheldText) and what.text.startswith("SOS")


@pytest.mark.parametrize(
    "is_alarm",
    [
        # Mic-E with an impossible longitude, latitude and length.
        lambda: is_aprs_alarm('`(_fn"Oj/', to="432105"),
        lambda: is_aprs_alarm('`\x7f\x7f\x7fn"Oj/', to="432105"),
        lambda: is_aprs_alarm('`(_fn"Oj/', to="999999"),
        lambda: is_aprs_alarm("`(", to="432105"),
        lambda: is_aprs_alarm("`(", to="4321"),
        lambda: is_aprs_alarm(f":{KIT.lower().ljust(9)}:SOS leg broken{{21"),
        lambda: is_aprs_alarm(f":{KIT.ljust(9)}:SOS leg broken{{21 "),
        lambda: is_aprs_alarm(f":{KIT.ljust(9)}:SOS leg broken{{no id at all"),
        lambda: is_meshtastic_alarm(MeshData(Port.TEXT, b"SOS \xff\xfe")),
        lambda: is_meshtastic_alarm(MeshData(Port.ALERT, b"")),
        lambda: is_meshtastic_alarm(MeshData(Port.TEXT, b"SOS"), channel=9, rx_snr=float("nan")),
        lambda: is_meshcore_alarm("SOS without a name"),
        lambda: is_meshcore_alarm(": SOS with an empty one"),
        lambda: is_meshcore_alarm("Eve: SOS on a channel that nobody knows"),
    ],
)
def test_handheld_alarm_is_recognised_despite_unreadable_parts(
    is_alarm: Callable[[], bool],
) -> None:
    assert is_alarm()


PRESSES: list[tuple[bytes, dict[str, str], list[Any]]] = [
    (b"", {}, [Message("SOS")]),
    (b"{", {}, [Message("SOS")]),
    (b"[1]", {}, [Message("SOS")]),
    (b'"help"', {}, [Message("SOS")]),
    (b'{"text": "leg broken", "text": "x"}', {}, [Message("SOS")]),
    (b'{"text": "leg broken", "colour": 1}', {}, [Message("leg broken")]),
    (b'{"text": 7}', {}, [Message("SOS")]),
    (b'{"text": "leg broken"}', {"idempotency-key": "\xff"}, [Message("leg broken")]),
    (
        b'{"text": "x", "position": {"latitude": 46.5, "longitude": 7.25, "altitude": []}}',
        {},
        [Message("x"), Location(46.5, 7.25)],
    ),
    (
        b'{"text": "leg broken", "position": "46.5,7.25"}',
        {},
        [Message("leg broken (position: 46.5,7.25)")],
    ),
    (
        b'{"position": {"latitude": "46.5,7.25\\n", "longitude": null}}',
        {},
        [Message("SOS (position: 46.5,7.25? None)")],
    ),
]


@pytest.mark.parametrize(("body", "head", "items"), PRESSES)
async def test_pressed_sos_is_raised_despite_unreadable_members(
    tmp_path: Path, body: bytes, head: dict[str, str], items: list[Any]
) -> None:
    async with bench(tmp_path) as there:
        parts = SimpleNamespace(journal=there.kit.journal, intake=there.kit.intake)
        press = Request("POST", "/api/sos", (), head, body)
        answer = await IncidentApi(cast(Parts, parts)).raise_sos(press)
        assert answer.status == 201
        assert ("unread" in json.loads(answer.body)) == bool(body)
        for item, expected in zip(there.items(), items, strict=True):
            # The kit adds the time of a position.
            dated = isinstance(item, Location)
            assert (replace(item, timestamp=None) if dated else item) == expected


@pytest.mark.parametrize("caveat", ["", "by APRS, unproved call sign"])
async def test_unproved_sos_over_the_internet_is_shown_but_not_raised(
    tmp_path: Path, caveat: str
) -> None:
    async with bench(tmp_path, caveat) as there:
        await there.say("hello", over_internet=True)
        assert there.desk.unbelieved.list_calls(there.kit.journal.clock.now()) == []
        await there.say("SOS", over_internet=True)
        ((_, notice),) = there.desk.unbelieved.list_calls(there.kit.journal.clock.now())
        assert "over the Internet" in notice
        assert there.items() == []


async def test_sos_text_marked_as_a_reaction_is_raised(tmp_path: Path) -> None:
    async with bench(tmp_path) as there:
        await there.hear(HandheldText("SOS", True, reaction=True))
        assert incident.find_open(there.kit.journal) is not None
