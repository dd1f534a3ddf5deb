"""9704 modems on ptys and Cloudloop behind them, independent of the project's code.

    cloudloop.py FOLDER LINGO_URL API_PORT TOKEN NAME:IMEI:THING:TRAIT+TRAIT ...

It was written from the maker's library (its requests and the expected answers) and from Cloudloop's
knowledge base. Lingo is posted until it is answered with 200 within 5 s, first after 2 s and then
after twice as long each time, here a hundred times faster. One message in ten comes late, one in
ten comes twice, and base64 has no padding. FOLDER/NAME is a serial line. Visible events are
printed. Lines on standard input cause trouble: `power NAME` (the modem loses its power), `mute` and
`unmute` (the webhook is not called, as after twelve hours of failures).
"""

from __future__ import annotations

import base64
import json
import os
import random
import sys
import threading
import time
import tty
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FASTER = 100.0
SEGMENT = 1446
TRAITS = {
    "slow": "a message is on its way for a second and a half",
    "lies": "its first message ends with network_error though the network has it",
    "noise": "zeros and half a line before each answer, and 405 for the first request",
    "interleave": "what waits for it comes between a request and its answer",
}


def crc(data: bytes) -> bytes:
    """Return CRC-16/XMODEM, computed bit by bit."""
    value = 0
    for byte in data:
        value ^= byte << 8
        for _ in range(8):
            value = value << 1 ^ 0x1021 if value & 0x8000 else value << 1
        value &= 0xFFFF
    return bytes([value >> 8, value & 255])


def say(text: str) -> None:
    print(text, flush=True)


class Cloud:
    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self.random = random.Random(9704)
        self.history: list[dict[str, Any]] = []
        self.modems: dict[str, Modem] = {}
        self.muted = False
        self.failures: list[int] = []
        self.silent = 0
        self.count = 0

    def receive_message(self, modem: Modem, body: bytes, number: int) -> None:
        now = time.gmtime()
        names = ("year", "month", "day", "hour", "minute", "second")
        lingo = {
            "id": str(uuid.uuid4()),
            "receivedAt": dict(zip(names, now[:6], strict=True)),
            "identity": {
                "accountId": "account",
                "hardware": {"id": "h", "type": "ROCKBLOCK_9704", "imei": modem.imei},
                "thingId": modem.thing,
            },
            "imt": {
                "cmid": "c",
                "topic": "IMT_TOPIC_RAW",
                "messageId": number,
                "crcError": False,
                "size": len(body),
            },
            "message": base64.b64encode(body).decode().rstrip("="),
        }
        self.remember(modem.thing, "MO", body)
        self.count += 1
        late = 0.5 if self.count % 10 == 3 else 0.0
        for _ in range(2 if self.count % 10 == 2 else 1):
            timer = threading.Timer(late, self.post, [lingo])
            timer.daemon = True
            timer.start()

    def remember(self, thing: str, direction: str, body: bytes) -> str:
        id_ = uuid.uuid4().hex
        self.history.append(
            {
                "snippet": body[:128].hex().upper(),
                "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()),
                "size": len(body),
                "id": id_,
                "type": "IMT",
                "thing": thing,
                "direction": direction,
            }
        )
        return id_

    def post(self, lingo: dict[str, Any]) -> None:
        wait = 2.0
        while not self.muted:
            ask = urllib.request.Request(
                self.url, json.dumps(lingo).encode(), {"Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(ask, timeout=5) as answer:
                    if answer.status == 200:
                        say(f"cloud: the hub has {lingo['id']}")
                        return
            except OSError as error:
                say(f"cloud: {error}")
            time.sleep(wait / FASTER)
            wait = min(wait * 2, 200.0)

    def answer(self, name: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if asked.get("token") != self.token:
            return 401, {"error": "unauthorised"}
        if name == "DoSendImtMessage":
            modem = self.modems.get(asked["thing"])
            if modem is None:
                return 404, {"error": "no such thing"}
            body = base64.b64decode(asked["message"])
            if asked["topic"] != "IMT_TOPIC_RAW" or not 1 <= len(body) <= 100_000:
                return 400, {"error": "invalid message"}
            id_ = self.remember(modem.thing, "MT", body)
            modem.bring(id_, body)
            say(f"cloud: MT of {len(body)} bytes for {modem.name}")
            return 200, {"id": id_, "status": "Received", "error": ""}
        if name == "GetMessageRecords":
            since, until = asked["from"], asked.get("to", "9999")
            records = [each for each in self.history if since <= each["at"] <= until]
            return 200, {"messageRecords": list(reversed(records))}
        if name == "GetPoolSummary":
            spent = sum(each["size"] for each in self.history)
            pool = {"plan": "SBD POOL", "allocated": 1000, "remaining": 1000 - spent}
            return 200, {"summary": [{**pool, "year": int(asked["year"])}]}
        if name == "GetMtDeliveryStatus":
            done = any(asked["message"] in modem.given for modem in self.modems.values())
            return 200, {"status": "Delivery Success" if done else "Received"}
        return 404, {"error": name}


class Modem:
    """A modem. One thread reads its line. Answers and messages are written under a lock."""

    def __init__(self, name: str, imei: str, thing: str, traits: set[str], cloud: Cloud) -> None:
        self.name, self.imei, self.thing, self.traits, self.cloud = name, imei, thing, traits, cloud
        self.ours, self.theirs = os.openpty()
        tty.setraw(self.theirs)
        self.lock = threading.RLock()
        self.given: set[str] = set()
        self.queue: list[tuple[str, bytes]] = []
        self.sent = 0
        self.asked = 0
        self.boot()

    def boot(self) -> None:
        self.version: Any = None
        self.sim, self.state = "none", "inactive"
        self.mo: dict[str, Any] | None = None
        self.next, self.mt = 0, 0

    def power(self) -> None:
        with self.lock:
            self.boot()
            self.write(b"\0\0\x11")
            self.say(299, "bootInfo", {"version": {"major": 1, "minor": 5, "patch": 5}})
            say(f"{self.name}: has lost its power")

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.ours, data) :]

    def say(self, code: int, target: str, body: dict[str, Any]) -> None:
        self.write(f"{code} {target} {json.dumps(body, separators=(',', ':'))}\r".encode())

    def listen(self) -> None:
        line = b""
        while True:
            line += os.read(self.ours, 4096)
            while b"\r" in line:
                first, _, line = line.partition(b"\r")
                with self.lock:
                    self.obey(first.decode())

    def obey(self, line: str) -> None:
        if not line:
            return
        self.asked += 1
        if "noise" in self.traits:
            self.write(b'\0\0nal_mo":"x"}')
            if self.asked == 1:
                self.say(405, "MALFORMED", {})
                return
        if line.count(" ") < 2:
            self.say(405, "MALFORMED", {})
            return
        verb, target, text = line.split(" ", 2)
        body = json.loads(text)
        if "interleave" in self.traits and self.state == "active":
            self.deliver()
        if self.version is None and target != "apiVersion":
            self.say(400, target, {})
        elif verb == "GET":
            self.say(200, target, self.told(target))
        else:
            self.change(target, body)

    def told(self, target: str) -> dict[str, Any]:
        if target == "apiVersion":
            listed = {"supported_versions": [{"major": 1, "minor": n, "patch": 0} for n in (5, 6)]}
            active = {} if self.version is None else {"active_version": self.version}
            return {**listed, **active}
        there = self.sim != "none"
        known: dict[str, dict[str, Any]]
        known = {
            "hwInfo": {"imei": self.imei, "hw_version": "0x0601"},
            "simConfig": {"interface": self.sim},
            "simStatus": {"card_present": there, "sim_connected": there, "iccid": "89881"},
            "operationalState": {"state": self.state, "reason": 0},
            "constellationState": {"constellation_visible": True, "signal_bars": 5},
            "messageProvisioning": {
                "provisioning": [{"topic_id": 244, "topic_name": "RAW", "priority": "High"}]
            },
        }
        return known[target]

    def change(self, target: str, body: dict[str, Any]) -> None:
        if target == "apiVersion":
            self.version = body["active_version"]
            self.say(200, target, self.told(target))
        elif target == "simConfig":
            self.sim = body["interface"]
            self.say(200, target, body)
            self.say(299, "simStatus", self.told("simStatus"))
        elif target == "operationalState":
            self.state = body["state"]
            self.say(200, target, {"state": self.state, "reason": 0})
            self.say(299, target, {"state": self.state, "reason": 0})
            self.deliver()
        elif target == "messageOriginate":
            named = {"topic_id": 244, "message_id": self.next}
            self.next = (self.next + 1) % 256
            self.mo = {"named": named, "size": body["message_length"], "data": b""}
            accepted = {"request_reference": body["request_reference"]}
            accepted["message_response"] = "message_accepted"
            self.say(200, target, {**named, **accepted})
            self.want()
        elif target == "messageOriginateSegment":
            self.collect(body)
        elif target == "messageOriginateStatus":
            whole = self.mo is None or len(self.mo["data"]) == self.mo["size"]
            self.say(406 if self.mo is None else 200, target, {})
            if not whole:
                self.finish("message_cancelled_pre_transit")

    def want(self) -> None:
        assert self.mo is not None
        start = len(self.mo["data"])
        length = min(SEGMENT, self.mo["size"] - start)
        wanted = {"segment_length": length, "segment_start": start}
        self.say(299, "messageOriginateSegment", {**self.mo["named"], **wanted})

    def collect(self, body: dict[str, Any]) -> None:
        if self.mo is None or body["segment_start"] != len(self.mo["data"]):
            self.say(406, "messageOriginateSegment", {})
            return
        self.mo["data"] += base64.b64decode(body["data"])
        self.say(200, "messageOriginateSegment", self.mo["named"])
        if len(self.mo["data"]) < self.mo["size"]:
            self.want()
        elif crc(self.mo["data"][:-2]) != self.mo["data"][-2:]:
            self.finish("message_dropped_local_crc_error")
        else:
            say(f"{self.name}: has a message of {self.mo['size']} bytes")
            timer = threading.Timer(1.5 if "slow" in self.traits else 0.05, self.arrive, [self.mo])
            timer.daemon = True
            timer.start()

    def arrive(self, mo: dict[str, Any]) -> None:
        with self.lock:
            if self.mo is not mo:
                return
            self.sent += 1
            self.cloud.receive_message(self, mo["data"][:-2], mo["named"]["message_id"])
            lies = "lies" in self.traits and self.sent == 1
            self.finish("network_error" if lies else "mo_ack_received")

    def finish(self, word: str) -> None:
        assert self.mo is not None
        named, self.mo = self.mo["named"], None
        self.say(299, "messageOriginateStatus", {**named, "final_mo_status": word})
        say(f"{self.name}: {word}")
        self.deliver()

    def bring(self, id_: str, body: bytes) -> None:
        with self.lock:
            self.queue.append((id_, body))
            if "interleave" not in self.traits:
                self.deliver()

    def deliver(self) -> None:
        while self.queue and self.state == "active":
            id_, body = self.queue.pop(0)
            whole, named = body + crc(body), {"topic_id": 244, "message_id": self.mt}
            self.mt = (self.mt + 1) % 256
            self.say(299, "messageTerminate", {**named, "message_length_max": 100_002})
            for start in range(0, len(whole), SEGMENT):
                piece = whole[start : start + SEGMENT]
                data = {"segment_length": len(piece), "segment_start": start}
                data["data"] = base64.b64encode(piece).decode()  # type: ignore[assignment]
                self.say(299, "messageTerminateSegment", {**named, **data})
            self.say(299, "messageTerminateStatus", {**named, "final_mt_status": "complete"})
            self.given.add(id_)


def api(cloud: Cloud) -> type[BaseHTTPRequestHandler]:
    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if "?" in self.path or cloud.token in self.path:
                say("cloud: a token in a URL")
            name = self.path.rpartition("/")[2]
            status, answer = cloud.answer(name, json.loads(body))
            if cloud.silent and name.startswith("DoSend"):
                cloud.silent -= 1
                say("cloud: takes it and says nothing")
                self.close_connection = True
                return
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Api


def main() -> None:
    folder, url, port, token, *described = sys.argv[1:]
    cloud = Cloud(url, token)
    for each in described:
        name, imei, thing, traits = each.split(":")
        chosen = set(filter(None, traits.split("+")))
        assert chosen <= TRAITS.keys(), chosen
        modem = cloud.modems[thing] = Modem(name, imei, thing, chosen, cloud)
        (Path(folder) / name).symlink_to(os.ttyname(modem.theirs))
        threading.Thread(target=modem.listen, daemon=True).start()
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), api(cloud))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say(f"ready at {server.server_port}")
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "power":
            next(each for each in cloud.modems.values() if each.name == rest).power()
        elif word == "silent":
            cloud.silent += 1
        else:
            cloud.muted = word == "mute"
        say(f"done: {line.strip()}")


if __name__ == "__main__":
    main()
