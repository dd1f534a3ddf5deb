"""A telephone at a TAK server, controlled by a test. PyTAK is its connection.

It sends its position, and confirms each message like ATAK. Its output has a line of JSON for each
event. Its input are lines of JSON:

    {"say": "come down", "to": ["FA-…-1", "Ada"], "id": "m-1"}
    {"read": "m-2"}
    {"raw": "<event …>", "times": 1000}
    {"here": true}
    {"silent": true}
    {"deaf": true}
    {"hex": "bf0412021200"}

Arguments: the URL, uid and callsign, and for `tls://` certificate, key and authority. A data
package replaces the URL and these. Without a callsign it only listens.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from configparser import ConfigParser
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape, quoteattr

import pytak

URL, UID, CALLSIGN, *FILES = sys.argv[1:]


HEARD: dict[str, dict[str, str]] = {}
"""Messages to this phone, by their ids."""
SILENT: list[bool] = []
"""Not empty while the phone confirms nothing."""


def event(type_: str, uid: str, detail: str, *, stale: int = 300) -> bytes:
    now = datetime.now(UTC)
    times = [now, now, now + timedelta(seconds=stale)]
    time, start, end = (f"{each:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z" for each in times)
    return (
        f'<event version="2.0" uid={quoteattr(uid)} type="{type_}" time="{time}" start="{start}"'
        f' stale="{end}" how="h-e"><point lat="46.6" lon="8.2" hae="9999999" ce="9999999"'
        f' le="9999999"/><detail>{detail}</detail></event>'
    ).encode()


def here() -> bytes:
    return event(
        "a-f-G-U-C",
        UID,
        f'<takv os="34" version="4.10" device="phone" platform="ATAK-CIV"/><contact'
        f' callsign={quoteattr(CALLSIGN)} endpoint="*:-1:stcp"/>'
        '<__group name="Red" role="Team Member"/>',
    )


def parties(name: str, to: str, room: str, message_id: str) -> str:
    group = f'<chatgrp uid0="{UID}" uid1="{to}" id="{to}"/>'
    return (
        f'<{name} parent="RootContactGroup" groupOwner="false" messageId="{message_id}"'
        f' chatroom={quoteattr(room)} id="{to}" senderCallsign={quoteattr(CALLSIGN)}>{group}'
        f'</{name}><link uid="{UID}" type="a-f-G-U-C" relation="p-p"/>'
    )


def chat(words: str, to: str, room: str, message_id: str) -> bytes:
    time = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    remarks = (
        f'<remarks source="BAO.F.ATAK.{UID}" to="{to}" time="{time}">{escape(words)}</remarks>'
    )
    detail = parties("__chat", to, room, message_id) + remarks
    return event("b-t-f", f"GeoChat.{UID}.{to}.{message_id}", detail, stale=86_400)


def tick(kind: str, said: dict[str, str]) -> bytes:
    to = f"<marti><dest callsign={quoteattr(said['callsign'])}/></marti>"
    about = parties("__chatreceipt", said["uid"], said["callsign"], said["id"])
    return event(kind, said["id"], about + to)


def read(raw: bytes) -> dict[str, Any]:
    root = ET.fromstring(raw[raw.index(b"<event") :])
    point = root.find("point")
    assert point is not None
    cot_event: dict[str, Any] = {
        "uid": root.get("uid"),
        "type": root.get("type"),
        "how": root.get("how"),
    }
    cot_event |= {name: root.get(name) for name in ("time", "start", "stale")}
    cot_event |= {"lat": point.get("lat"), "lon": point.get("lon"), "hae": point.get("hae")}
    for element in root.iter():
        if element.tag not in ("event", "detail", "point"):
            cot_event.setdefault(element.tag, {**element.attrib, "text": element.text or ""})
    return cot_event


async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        cot_event = read(await reader.readuntil(b"</event>"))
        print(json.dumps(cot_event), flush=True)
        if cot_event["type"] == "b-t-f" and cot_event["__chat"].get("id") == UID:
            said = of_message(cot_event)
            HEARD[said["id"]] = said
            if not SILENT:
                writer.write(tick("b-t-f-d", said))


def of_message(cot_event: dict[str, Any]) -> dict[str, str]:
    about = cot_event["__chat"]
    return {
        "uid": cot_event["link"]["uid"],
        "callsign": about["senderCallsign"],
        "id": about["messageId"],
    }


async def obey(writer: asyncio.StreamWriter) -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        if "say" in command:
            to, room = command["to"]
            writer.write(chat(command["say"], to, room, command["id"]))
        elif "read" in command:
            writer.write(tick("b-t-f-r", HEARD[command["read"]]))
        elif "here" in command:
            writer.write(here())
        elif "hex" in command:
            writer.write(bytes.fromhex(command["hex"]))
        elif "deaf" in command:
            # It no longer reads the server's data.
            writer.transport.pause_reading()  # type: ignore[attr-defined]
        elif "silent" in command:
            SILENT[:] = [True] if command["silent"] else []
        else:
            for _ in range(command.get("times", 1)):
                writer.write(command["raw"].encode())
        await writer.drain()
    raise SystemExit(0)


async def main() -> None:
    config = ConfigParser()
    names = ("PYTAK_TLS_CLIENT_CERT", "PYTAK_TLS_CLIENT_KEY", "PYTAK_TLS_CLIENT_CAFILE")
    if URL.endswith(".zip"):
        there = pytak.read_pref_package(URL)
    else:
        there = {"COT_URL": URL, **dict(zip(names, FILES, strict=False))}
    there |= {name: value for name, value in os.environ.items() if name.startswith("PYTAK_")}
    config["phone"] = {"TAK_PROTO": "0", **there}
    reader, writer = await pytak.protocol_factory(config["phone"])
    if CALLSIGN:
        writer.write(here())
    print("at the server", flush=True)
    await asyncio.gather(hear(reader, writer), obey(writer))


asyncio.run(main())
