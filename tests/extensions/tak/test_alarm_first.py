"""The text of a TAK phone's SOS is read even if its position cannot be read."""

from __future__ import annotations

import pytest

from fieldagent.extensions.tak import cot
from fieldagent.extensions.tak import events as tak

CHAT = (
    "<event version='2.0' uid='GeoChat.A.B.7' type='b-t-f' time='2026-11-29T09:00:00Z'"
    " start='2026-11-29T09:00:00Z' stale='2026-11-30T09:00:00Z' how='h'>{point}<detail>"
    "<__chat messageId='7' chatroom='B' id='B' senderCallsign='A'><chatgrp uid0='A' uid1='B'"
    " id='B'/></__chat><remarks>SOS come down at once</remarks></detail></event>"
)


@pytest.mark.parametrize(
    "point",
    ["<point lat='47' lon='8' hae='NaN' ce='x'/>", "<point lat='north' lon='999'/>", ""],
)
def test_sos_chat_is_read_despite_an_unreadable_position(point: str) -> None:
    said = tak.read_chat(cot.decode(CHAT.format(point=point).encode()))
    assert said is not None and said.text.startswith("SOS")
