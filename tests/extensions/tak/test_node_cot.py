"""Our events for TAK, read by CloudTAK's library (npm, @tak-ps/node-cot)."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

from fieldagent.extensions.tak import cot
from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak.cot import CotEvent, CotPoint
from fieldagent.extensions.tak.events import (
    ChatReceipt,
    GeoChat,
    PlacedMarker,
    Sighting,
    TakMotion,
    TakUnit,
)
from tests.machine import NPM, needs

needs_node_cot = needs(
    (NPM / "@tak-ps/node-cot").exists(), "node-cot is missing: `tests/run full` installs it"
)
READ = """
import { readFileSync } from 'node:fs';
import CoT from '@tak-ps/node-cot';
const found = [];
for (const xml of JSON.parse(readFileSync(0, 'utf8'))) {
  const event = new CoT(xml);
  found.push({ raw: event.raw, feature: event.to_geojson() });
}
console.log(JSON.stringify(found));
"""
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
ADA, OLGA = TakUnit("fieldagent-hub-2", "Ada"), TakUnit("ANDROID-1", "Olga")
HUT = CotPoint(46.5, 7.25, 1520.0)
MOVES = TakMotion(1.5, 270.0)
SEEN = Sighting(
    HUT, NOW, NOW + timedelta(minutes=30), tak.HOW_GPS, "3 min old; über Satellit", MOVES
)
SAID = GeoChat(ADA, OLGA, "m-1", "two are <injured> & cold")


def read(*events: CotEvent) -> list[dict[str, Any]]:
    document = json.dumps([cot.encode(each).decode() for each in events])
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", READ],
        cwd=NPM, input=document, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results: list[dict[str, Any]] = json.loads(done.stdout)
    return results


@needs_node_cot
def test_node_cot_reads_the_position_and_age_of_a_unit() -> None:
    program = {"device": "kit", "platform": "fieldagent", "os": "hub", "version": "1"}
    (result,) = read(tak.make_unit_event(ADA, SEEN, NOW, program))
    feature = result["feature"]
    assert feature["id"] == ADA.uid and feature["geometry"]["coordinates"][:2] == [7.25, 46.5]
    properties = feature["properties"]
    assert (properties["callsign"], properties["type"], properties["how"]) == (
        "Ada",
        tak.UNIT,
        tak.HOW_GPS,
    )
    assert properties["remarks"] == SEEN.remarks
    assert feature["geometry"]["coordinates"][2] == 1520
    assert (properties["speed"], properties["course"]) == MOVES
    assert datetime.fromisoformat(properties["stale"]) == SEEN.stale


@needs_node_cot
def test_node_cot_reads_a_chat_and_its_receipts() -> None:
    said_back = [ChatReceipt(OLGA, ADA.uid, "m-1", read=each) for each in (False, True)]
    ticks = [tak.make_receipt(each, ADA, NOW) for each in said_back]
    message, *read_back = read(tak.make_chat(SAID, NOW), *ticks)
    chat = message["feature"]["properties"]["chat"]
    assert (chat["messageId"], chat["senderCallsign"], chat["chatroom"]) == ("m-1", "Ada", "Olga")
    assert message["feature"]["properties"]["remarks"] == SAID.text
    kinds = [each["raw"]["event"]["_attributes"]["type"] for each in read_back]
    assert kinds == [tak.ON_PHONE, tak.READ]


@needs_node_cot
def test_node_cot_reads_alerts_and_markers() -> None:
    placed = PlacedMarker("Hut", "door is open", HUT, NOW, ())
    events = read(
        tak.make_alert(ADA, HUT, NOW),
        tak.make_alert(ADA, HUT, NOW, cancels=True),
        tak.make_marker("fieldagent-hub-m", ADA, placed, NOW),
        tak.make_removal("fieldagent-hub-m", ADA, NOW),
    )
    kinds = [each["raw"]["event"]["_attributes"]["type"] for each in events]
    assert kinds == [tak.ALERT, tak.CANCEL, tak.MARKER, tak.REMOVAL]
    emergency = [each["raw"]["event"]["detail"]["emergency"] for each in events[:2]]
    assert emergency[0]["_attributes"] == {"type": "911 Alert"}
    assert emergency[1]["_attributes"] == {"cancel": "true"}
    marker = events[2]["feature"]["properties"]
    assert (marker["callsign"], marker["remarks"]) == ("Hut", "door is open")
