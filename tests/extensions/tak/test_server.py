"""Phones at the hub's own TAK server with its data packages, and people at kits.

Real processes: telephones with PyTAK, which reads the package, the hub, and a linked kit.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
import zipfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from fieldagent.extensions.tak import cot
from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak.cot import CotPoint
from fieldagent.extensions.tak.events import TakUnit
from fieldagent.extensions.tak.server.server import HANDSHAKES_MAX
from tests.extensions.tak.tak_server import Phone
from tests.extensions.tak.test_journey import Mountain, is_tick_of, texts, ticks
from tests.hub.test_cluster import contents
from tests.hub.test_people_journey import came, stages
from tests.processes import PATIENCE, administer, free_port, until

ALL = ("All Chat Rooms", "All Chat Rooms")


class Valley(Mountain):
    """A hub that is a TAK server, and Ada's kit."""

    address = "127.0.0.1"

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.home, self.stack = home, stack
        self.database = str(home / "hub.sqlite3")
        administer(self.database, "init", "Alps")
        self.ada = administer(self.database, "user", "add", "Ada")["id"]
        self.ben = administer(self.database, "user", "add", "Ben")["id"]
        administer(self.database, "user", "add", "Cid")
        device = administer(self.database, "device", "add", "kit", "--user", "Ada")
        self.token = device["hub-token"]
        self.port = free_port()
        self.settings = {
            "database": self.database,
            "tak-listen": f"127.0.0.1:{self.port}",
            "tak-address": f"localhost:{self.port}",
            "tak-workspace": "Alps",
        }
        (home / "hub").mkdir()
        self.begin()

    def tak(self, *arguments: str) -> Any:
        return administer(self.database, "user", "tak", *arguments, *self.hub.arguments)

    def package(self, name: str) -> Path:
        file = self.home / f"{name}.zip"
        if not file.exists():
            self.tak(name, "--out", str(file))
        return file

    def phone_of(self, name: str, callsign: str = "", *, uid: str = "") -> Phone:
        package = self.package(name)
        there = Phone(str(package), uid or f"ANDROID-{name}", callsign or name)
        return self.stack.enter_context(there)

    def counted(self, became: str) -> float:
        return self.figure(f'bridge_events_total{{bridge="phones",became="{became}"}}')


def pem_of(package: Path, folder: Path) -> Path:
    """Return the file with a phone's key and certificate from its package."""
    with zipfile.ZipFile(package) as opened:
        own, settings = opened.read("certs/client.p12"), opened.read("certs/config.pref").decode()
    (password,) = re.findall(r'"clientPassword"[^>]*>([^<]*)<', settings)
    key, certificate, _ = pkcs12.load_key_and_certificates(own, password.encode())
    assert key is not None and certificate is not None
    file = folder / f"{package.stem}.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return file


def disconnect_within_message(there: Valley, certificate: Path) -> None:
    """Connect, send half a message, and disconnect like a network failure."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certificate)
    plain = socket.create_connection(("127.0.0.1", there.port), PATIENCE)
    with context.wrap_socket(plain) as secured:
        secured.sendall(cot.encode(tak.make_ping("x", datetime.now(UTC))) + b"<event half")
        assert is_answered(secured)
        secured.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def is_let_in(there: Valley, chain: list[Path]) -> bool:
    """Return True if the server answers a ping of a client with this certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for file in chain:
        context.load_cert_chain(file)
    ping = cot.encode(tak.make_ping("x", datetime.now(UTC)))
    try:
        with (
            socket.create_connection((there.address, there.port), PATIENCE) as plain,
            context.wrap_socket(plain) as secured,
        ):
            secured.sendall(ping)
            return is_answered(secured)
    except OSError:
        return False


def is_answered(secured: ssl.SSLSocket) -> bool:
    """Return True once a ping is answered, and False at the end of the connection."""
    heard = b""
    while b"t-x-c-t-r" not in heard:
        data = secured.recv(65_536)
        if not data:
            return False
        heard += data
    return True


@pytest.mark.full
def test_phones_and_a_kit_exchange_messages(tmp_path: Path, stack: ExitStack) -> None:
    there = Valley(tmp_path, stack)
    kit = there.kit()
    hut = {"latitude": 46.5, "longitude": 8.1, "altitude": 1520}
    location = {"location": {**hut, "speedOverGround": 1.5, "courseOverGround": 270}}
    assert kit.call("POST", "/api/package", location).body["status"] == "Delivered"
    ben = there.phone_of("Ben")
    # The server may show Ada before it reads the position that the hub has just stored.
    seen = ben.await_one(
        "a-f-G-U-C", lambda event: event["uid"] == there.unit and event["hae"] == "1520.0"
    )
    assert seen["contact"]["callsign"] == "Ada"
    motion = seen["hae"], seen["track"]["speed"], seen["track"]["course"]
    assert motion == ("1520.0", "1.5", "270.0")

    # Phones appear on each other's maps, in any order of arrival. Private messages stay private.
    cid = there.phone_of("Cid")
    cid.await_one("a-f-G-U-C", lambda event: event["uid"] == ben.uid)
    ben.await_one("a-f-G-U-C", lambda event: event["uid"] == cid.uid)
    cid.say("coming", (ben.uid, "Ben"), "p-1")
    ben.await_one("b-t-f", lambda event: event["remarks"]["text"] == "coming")
    cid.await_one("b-t-f-d", lambda event: is_tick_of("p-1", event))

    # A message of Ben's phone to Ada is from Ben at her kit, whatever the phone's name is.
    ada = (there.unit, "Ada")
    ben.say("storm at <17:00>", ada, "m-1")
    payload = came(kit, "storm at <17:00>")
    sender = payload["body"]["payloads"][0]["identity"]
    assert (sender["name"], sender["type"]) == ("Ben", "User")
    until(lambda: ticks(ben, "m-1") == ["b-t-f-d"])
    path = f"/api/inbound/{payload['requestId']}/read"
    assert kit.call("POST", path, {"by": "Ada"}).status == 200
    until(lambda: ticks(ben, "m-1") == ["b-t-f-d", "b-t-f-r"])

    # A question about the cost is answered, and nothing is sent.
    ben.say("?and the ford", ada, "m-9")
    event = ben.await_one("b-t-f", lambda event: "Not sent" in event["remarks"]["text"])
    assert (event["link"]["uid"], event["__chat"]["senderCallsign"]) == ada
    assert "Ben is not in tak-allow" in event["remarks"]["text"]

    # The kit's answer reaches only that phone.
    body = {"message": {"content": "in the hut"}, "to": "Ben", "receipt": "read"}
    sent = kit.call("POST", "/api/package", body).body["id"]
    chat = ben.await_one("b-t-f", lambda event: event["remarks"]["text"] == "in the hut")
    assert (chat["link"]["uid"], chat["__chat"]["senderCallsign"]) == ada
    handed = "handed over to the TAK server, for Ben"
    until(lambda: stages(kit, sent) == ["at the hub", "on Ben's kit", handed])
    ben.command(read=chat["__chat"]["messageId"])
    until(lambda: stages(kit, sent)[-1] == "read by Ben")

    # A killed phone gets nothing. After its return it gets its messages.
    ben.kill()
    body = {"message": {"content": "still here"}, "to": "Ben"}
    kept = kit.call("POST", "/api/package", body).body["id"]
    kit.post("to all")
    cid.await_one("b-t-f", lambda event: event["remarks"]["text"] == "to all")
    assert stages(kit, kept) == ["at the hub"]
    again = there.phone_of("Ben")
    again.await_one("b-t-f", lambda event: event["remarks"]["text"] == "still here")
    until(lambda: "on Ben's kit" in stages(kit, kept))
    again.await_one("b-t-f", lambda event: event["remarks"]["text"] == "to all")

    # The hub is killed too. Phones reconnect like ATAK, and are on the map again.
    there.hub.kill()
    kit.kill()
    there.begin()
    kit = there.kit()
    cid = there.phone_of("Cid")
    place = cid.await_one("a-f-G-U-C", lambda event: event["uid"] == there.unit)
    assert (place["lat"], place["how"]) == ("46.500000", "m-g")
    cid.say("party line", ALL, "c-1")
    again = there.phone_of("Ben")
    again.await_one("b-t-f", lambda event: event["remarks"]["text"] == "party line")
    again.say("back", ada, "m-2")
    came(kit, "back")
    assert sorted(contents(kit)) == ["back", "storm at <17:00>"]
    assert [text for text in texts(cid) if text != "to all"] == []


def test_sos_alert_repeats_at_phones_until_answered(tmp_path: Path, stack: ExitStack) -> None:
    there = Valley(tmp_path, stack)
    kit = there.kit()
    ben = there.phone_of("Ben")
    location = {"latitude": 46.5, "longitude": 8.1}
    kit.call("POST", "/api/package", {"location": location, "priority": 100})
    alert = ben.await_one("b-a-o-tbl")
    assert (alert["uid"], alert["lat"]) == (f"{there.unit}-9-1-1", "46.500000")
    cid = there.phone_of("Cid")
    cid.await_one("b-a-o-tbl")
    # A phone that cancels it gets it again immediately, and the desk shows the cancellation.
    before = len(ben.of("b-a-o-tbl"))
    ben.command(
        raw=f'<event version="2.0" uid="{alert["uid"]}" type="b-a-o-can" how="h-e"'
        f' time="{alert["time"]}" start="{alert["time"]}" stale="{alert["stale"]}">'
        '<point lat="46.5" lon="8.1" hae="0" ce="1" le="1"/><detail><emergency cancel="true">'
        f'Ben</emergency><link uid="{there.unit}" type="a-f-G-U-C" relation="p-p"/></detail>'
        "</event>"
    )
    until(lambda: len(ben.of("b-a-o-tbl")) > before)
    until(lambda: there.rows("SELECT 1 FROM sos_event WHERE detail LIKE 'cancelled%'"))
    ((number, state),) = there.rows("SELECT id, state FROM sos")
    assert state == "open"
    assert cid.of("b-a-o-can") == []
    administer(there.database, "sos", "close", str(number), "found", "--by", "Ada")
    cid.await_one("b-a-o-can")


def test_phones_911_alert_reaches_a_desk_without_kits(tmp_path: Path, stack: ExitStack) -> None:
    there = Valley(tmp_path, stack)
    administer(there.database, "device", "disable", "kit")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(pem_of(there.package("Ben"), tmp_path))
    plain = socket.create_connection((there.address, there.port), PATIENCE)
    secured = stack.enter_context(context.wrap_socket(plain))

    def rings() -> bool:
        """Send the alert again, as a phone does every few seconds, and return True once an SOS is
        open. The phone has not sent its position before.
        """
        now = datetime.now(UTC)
        alert = tak.make_alert(TakUnit("ANDROID-Ben", "Ben"), CotPoint(46.5, 8.1), now)
        secured.sendall(cot.encode(alert))
        return bool(there.rows("SELECT 1 FROM sos WHERE state = 'open'"))

    until(rings)
    (listed,) = administer(there.database, "sos", "list")
    assert "Ben" in str(listed)


def test_server_admits_only_valid_certificates(tmp_path: Path, stack: ExitStack) -> None:
    there = Valley(tmp_path, stack)
    ben, cid = there.phone_of("Ben"), there.phone_of("Cid")
    cid.await_one("a-f-G-U-C", lambda event: event["uid"] == ben.uid)
    both = [("Ben", ben.uid, None), ("Cid", cid.uid, None)]
    # A phone is on the map before the database has its uid.
    until(lambda: [(each["name"], each["phone"], each["revoked"]) for each in there.tak()] == both)
    # With another authority's certificate or none, clients get no byte.
    strange = tmp_path / "strange"
    strange.mkdir()
    another = trustme.CA().issue_cert("phone")
    another.private_key_and_cert_chain_pem.write_to_path(strange / "own.pem")
    for chain in ([strange / "own.pem"], []):
        assert not is_let_in(there, chain)
    # A client with another phone's uid or name is not on the map.
    there.tak("Ada", "--out", str(tmp_path / "Ada.zip"))
    false = there.phone_of("Ada", uid=cid.uid)
    there.hub.expect("the phone of Ada is not accepted: another phone has its uid")
    false.kill()
    false = there.phone_of("Ada", "Cid")
    there.hub.expect("the callsign 'Cid' is already used")
    false.say("come down", (ben.uid, "Ben"), "x-1")
    until(lambda: there.counted("refused") >= 3)
    assert texts(ben) == []
    # After the revocation, its connection ends, and it cannot connect again.
    assert there.tak("Ben", "--revoke") == {"id": there.ben, "revoked": 1}
    there.hub.expect("the phone of Ben is disconnected")
    certificate = pem_of(there.package("Ben"), tmp_path)
    assert not is_let_in(there, [certificate])
    cids = pem_of(there.package("Cid"), tmp_path)
    disconnect_within_message(there, cids)
    # Cid's phone has reconnected, and its earlier connection has ended because of that.
    there.hub.expect("the phone of Cid is disconnected: the hub ends its connection")
    there.hub.expect("the phone of Cid is disconnected: the connection broke off")
    assert is_let_in(there, [cids])
    # Silent anonymous clients do not block others.
    for _ in range(HANDSHAKES_MAX + 5):
        silent = socket.create_connection(("127.0.0.1", there.port), PATIENCE)
        stack.callback(silent.close)
    assert is_let_in(there, [cids])
    # A new package is a new certificate.
    there.package("Ben").unlink()
    again = there.phone_of("Ben")
    cid = there.phone_of("Cid")
    again.await_one("a-f-G-U-C", lambda event: event["uid"] == cid.uid)
    administer(there.database, "user", "disable", "Ben")
    there.hub.expect("the phone of Ben is disconnected")


def test_read_only_client_receives_public_events(tmp_path: Path, stack: ExitStack) -> None:
    there = Valley(tmp_path, stack)
    kit = there.kit()
    location = {"location": {"latitude": 46.5, "longitude": 8.1}}
    assert kit.call("POST", "/api/package", location).body["status"] == "Delivered"
    ear = stack.enter_context(Phone(str(there.package("Ben")), "ANDROID-Ben", ""))
    ear.await_one("a-f-G-U-C", lambda event: event["uid"] == there.unit)
    cid = there.phone_of("Cid")
    ear.await_one("a-f-G-U-C", lambda event: event["uid"] == cid.uid)
    cid.say("for Ada", (there.unit, "Ada"), "c-1")
    cid.say("party line", ALL, "c-2")
    ear.await_one("b-t-f", lambda event: event["remarks"]["text"] == "party line")
    assert texts(ear) == ["party line"]
    # A client that sends protobuf gets a chat about that. A stream is BF, length, TakMessage.
    ear.command(hex="bf0412021200")
    ear.await_one("b-t-f", lambda event: "set it to TAK protocol 0" in event["remarks"]["text"])
    there.hub.expect("the phone of Ben is not accepted: it sends protobuf")


@pytest.mark.full
def test_second_phone_with_the_same_certificate_is_logged(tmp_path: Path, stack: ExitStack) -> None:
    there = Valley(tmp_path, stack)
    there.phone_of("Ben")
    there.hub.expect("the phone of Ben is connected")
    until(lambda: there.tak()[0]["phone"] == "ANDROID-Ben")
    there.phone_of("Ben", "Ben 2", uid="ANDROID-tablet")
    there.hub.expect("'ANDROID-tablet' ('Ben 2') has the certificate of the phone 'ANDROID-Ben'")


def test_flood_and_a_deaf_phone_do_not_delay_others(tmp_path: Path, stack: ExitStack) -> None:
    there = Valley(tmp_path, stack)
    kit = there.kit()
    ben, cid = there.phone_of("Ben"), there.phone_of("Cid")
    ben.await_one("a-f-G-U-C", lambda event: event["uid"] == there.unit)
    cid.await_one("a-f-G-U-C", lambda event: event["uid"] == ben.uid)
    now = ben.of("a-f-G-U-C")[0]
    cid.command(deaf=True)
    cid.command(
        raw=f'<event version="2.0" uid="{cid.uid}" type="a-f-G-U-C" how="m-g"'
        f' time="{now["time"]}" start="{now["time"]}" stale="{now["stale"]}"><point'
        ' lat="46.7" lon="8.3" hae="0" ce="1" le="1"/><detail><takv os="1"/><contact'
        ' callsign="Cid"/></detail></event>',
        times=3_000,
    )
    ben.say("to Ada", (there.unit, "Ada"), "m-1")
    came(kit, "to Ada")
    ben.await_one("b-t-f-d", lambda event: is_tick_of("m-1", event))
    until(lambda: there.counted("limited") > 2_000)
    assert len(ben.of("a-f-G-U-C")) < 500
    assert there.counted("unreadable") == 0
