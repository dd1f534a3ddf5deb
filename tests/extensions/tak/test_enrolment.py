"""Phones that download their certificates themselves with a code from the hub.

Real processes: the hub, and telephones with PyTAK, which enrols as at any TAK server. It uses only
port 8446, so each hub of these tests has its own address.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import socket
import ssl
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree as ET

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

from tests.extensions.tak.tak_server import Phone
from tests.extensions.tak.test_server import Valley, is_let_in
from tests.processes import MODULE, PATIENCE, administer, until

ADDRESS = f"127.{os.getpid() >> 8 & 0xFF}.{os.getpid() & 0xFF}.46"
SIGN = "/Marti/api/tls/signClient/v2?clientUid=ANDROID-1&version=4.10"
CONFIG, PROFILE = "/Marti/api/tls/config", "/Marti/api/tls/profile/enrollment?clientUid=ANDROID-1"


class Answer(NamedTuple):
    status: int
    kind: str
    body: bytes


class Camp(Valley):
    address = ADDRESS

    def begin(self) -> None:
        self.port = 8089
        self.settings["tak-listen"] = self.settings["tak-address"] = f"{ADDRESS}:8089"
        self.settings.setdefault("tak-enroll-listen", f"{ADDRESS}:8446")
        super().begin()
        until(self._listens)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((ADDRESS, 8446)) == 0

    def invite(self, name: str, *more: str) -> dict[str, Any]:
        invitation: dict[str, Any] = self.tak(name, "--qr", *more)
        return invitation

    def ask(
        self,
        path: str,
        name: str,
        token: str,
        request: bytes | None = None,
        *,
        trusted: ssl.SSLContext | None = None,
        accept: str = "*/*",
        kind: str = "application/pkcs10",
    ) -> Answer:
        if trusted is None:
            trusted = ssl.create_default_context()
            trusted.check_hostname, trusted.verify_mode = False, ssl.CERT_NONE
        there = http.client.HTTPSConnection(ADDRESS, 8446, timeout=PATIENCE, context=trusted)
        basic = base64.b64encode(f"{name}:{token}".encode()).decode()
        sent = {"Authorization": f"Basic {basic}", "Accept": accept}
        if request is not None:
            sent["Content-Type"] = kind
        with closing(there):
            there.request("GET" if request is None else "POST", path, request, sent)
            answer = there.getresponse()
            return Answer(answer.status, answer.headers.get_content_type(), answer.read())


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Camp]:
    with ExitStack() as stack:
        yield Camp(tmp_path, stack)


def new_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65_537, bits)


def make_certificate_request(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, name: str = "Eve"
) -> bytes:
    """Return a PKCS #10 request with the name Eve that asks to be a certificate authority."""
    named = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    asked = x509.CertificateSigningRequestBuilder().subject_name(named)
    asked = asked.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return asked.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def remove_armour(request: bytes) -> bytes:
    """Return the request without its armour, as ATAK sends it."""
    return b"\n".join(line for line in request.split(b"\n") if b"-----" not in line)


def pem_file(key: rsa.RSAPrivateKey, signed: bytes, file: Path) -> Path:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    certificate = x509.load_der_x509_certificate(signed).public_bytes(Encoding.PEM)
    file.write_bytes(private + certificate)
    return file


def test_phone_enrols_with_the_scanned_code_until_revoked(
    there: Camp, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = there.kit()
    invitation = there.invite("Ben")
    link = urlsplit(invitation["link"])
    asked = {name: value for name, (value,) in parse_qs(link.query).items()}
    assert (link.scheme, link.netloc + link.path) == ("tak", "com.atakmap.app/enroll")
    assert asked == {"host": ADDRESS, "username": "Ben", "token": invitation["token"]}
    monkeypatch.setenv("HOME", str(there.home))
    ben = there.stack.enter_context(Phone(invitation["pytak"], "ANDROID-Ben", "Ben"))
    kit.post("the hut is open")
    ben.await_one("b-t-f", lambda heard: heard["remarks"]["text"] == "the hut is open")
    (listed,) = there.tak()
    assert (listed["user"], listed["name"], listed["phone"]) == (there.ben, "Ben", "ANDROID-Ben")
    # A person who has seen the code and uses it later with another key gets nothing.
    assert (
        there.ask(SIGN, "Ben", invitation["token"], make_certificate_request(new_key())).status
        == 409
    )
    # After the removal, the phone is out, and its stored certificate is useless.
    assert there.tak("Ben", "--revoke")["revoked"] == 1
    there.hub.expect("the phone of Ben is disconnected")
    assert there.ask(CONFIG, "Ben", invitation["token"]).status == 401


def test_another_hub_enrols_with_a_token(there: Camp, tmp_path: Path) -> None:
    token = there.invite("Ben")["token"]
    authority = tmp_path / "authority.pem"
    answer = there.ask(
        SIGN, "Ben", there.invite("Ben")["token"], make_certificate_request(new_key())
    )
    own = json.loads(answer.body)["ca0"]
    signed_by = x509.load_der_x509_certificate(base64.b64decode(own))
    authority.write_bytes(signed_by.public_bytes(Encoding.PEM))

    def enroll(secret: str, *more: str) -> subprocess.CompletedProcess[str]:
        command = [*MODULE, "hub", "tak", "enroll", ADDRESS, "--user", "Ben", *more]
        return subprocess.run(
            command, input=f"{secret}\n", cwd=tmp_path, capture_output=True, text=True
        )

    trusting = ("--ca-file", str(authority))
    for ended, why in (
        (enroll(token), "the certificate is not trusted"),
        (enroll("wrong", *trusting), "refuses Ben with this password (HTTP 401)"),
        (enroll(token, *trusting, "--folder", "nowhere"), "--folder nowhere is not a folder"),
    ):
        assert ended.returncode != 0
        assert why in ended.stderr
    assert not [*tmp_path.glob("tak*.pem")]
    ended = enroll(token, *trusting)
    assert (ended.returncode, ended.stderr) == (0, "")
    for line in (f"tak-server=tls://{ADDRESS}:8089", f"tak-key={tmp_path}/tak-key.pem"):
        assert f"\n    {line}\n" in ended.stdout
    assert (tmp_path / "tak-key.pem").stat().st_mode & 0o077 in (0, 0o040)
    both = tmp_path / "both.pem"
    both.write_bytes(
        b"".join((tmp_path / f"{name}.pem").read_bytes() for name in ("tak", "tak-key"))
    )
    assert is_let_in(there, [both])


def test_certificate_names_the_invited_user_whatever_the_request_contains(
    there: Camp, tmp_path: Path
) -> None:
    invitation = there.invite("Ben")
    token = invitation["token"]
    config = there.ask(CONFIG, "Ben", token)
    entries = {
        each.get("name"): each.get("value")
        for each in ET.fromstring(config.body).iter("{http://bbn.com/marti/xml/config}nameEntry")
    }
    assert (config.status, config.kind) == (200, "application/xml")
    assert entries == {"O": "fieldagent", "OU": "phones"}
    key = new_key()
    # After a lost answer, the same key gets the same certificate, in each client's format.
    told_in = {
        "*/*": (make_certificate_request(key), "application/json"),
        "application/json": (remove_armour(make_certificate_request(key)), "application/json"),
        "text/plain": (remove_armour(make_certificate_request(key)), "text/plain"),
    }
    answers = []
    for accept, (request, kind) in told_in.items():
        answer = there.ask(SIGN, "ben", token, request, accept=accept)
        assert (answer.status, answer.kind) == (200, kind)
        answers.append(json.loads(answer.body))
    told_xml = there.ask(
        SIGN, "Ben", token, make_certificate_request(key), accept="application/xml"
    )
    root = ET.fromstring(told_xml.body)
    answers.append({"signedCert": root.findtext("signedCert"), "ca0": root.findtext("ca")})
    assert answers == [answers[0]] * len(answers)
    assert there.ask(PROFILE, "Ben", token).status == 204

    signed = x509.load_der_x509_certificate(base64.b64decode(answers[0]["signedCert"]))
    own = x509.load_der_x509_certificate(base64.b64decode(answers[0]["ca0"]))
    signed.verify_directly_issued_by(own)
    assert signed.subject.rfc4514_string() == "CN=Ben,O=fieldagent"
    assert not signed.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    file = pem_file(key, base64.b64decode(answers[0]["signedCert"]), tmp_path / "ben.pem")
    assert is_let_in(there, [file])
    until(lambda: [each["name"] for each in there.tak()] == ["Ben"])
    administer(there.database, "user", "disable", "Ben")
    assert there.ask(CONFIG, "Ben", token).status == 401
    assert not is_let_in(there, [file])


@pytest.mark.full
def test_unauthenticated_and_malformed_requests_are_refused_with_a_hint(there: Camp) -> None:
    invitation = there.invite("Ben")
    token = invitation["token"]
    for name, secret in (("Ben", "x"), ("Ada", token), ("", token), ("Ben", "")):
        for path in (CONFIG, SIGN, PROFILE):
            request = b"x" if path is SIGN else None
            answer = there.ask(path, name, secret, request)
            assert answer.status == 401, (name, secret, path)
            assert b"--qr" in answer.body
    forged = bytearray(base64.b64decode(remove_armour(make_certificate_request(new_key()))))
    forged[-1] ^= 1
    for request, why in (
        (b"", b"not a PKCS"),
        (b"hello", b"not a PKCS"),
        (bytes(range(256)) * 8, b"not a PKCS"),
        (base64.b64encode(forged), b"not signed by its own key"),
        (make_certificate_request(new_key(1024)), b"2048 to 4096 bits"),
        (make_certificate_request(ec.generate_private_key(ec.SECP256R1())), b"must be RSA"),
    ):
        answer = there.ask(SIGN, "Ben", token, request)
        assert (answer.status, why in answer.body) == (400, True), (request[:20], answer)
    assert there.ask(SIGN, "Ben", token, b"x" * 20_000).status == 413
    assert there.ask(SIGN, "Ben", token, b"{}", kind="image/png").status == 415
    assert there.tak() == []
    # None of these has used up the invitation. A user's sixth invitation ends the first.
    assert there.ask(CONFIG, "Ben", token).status == 200
    later = [there.invite("Ben")["token"] for _ in range(5)]
    assert there.ask(CONFIG, "Ben", token).status == 401
    assert [there.ask(CONFIG, "Ben", each).status for each in later] == [200] * 5


def test_trust_package_contains_the_authority_and_no_secret(there: Camp, tmp_path: Path) -> None:
    """The trust package contains no secret. The iTAK package has iTAK's forms."""
    file = tmp_path / "trust.zip"
    there.tak("--trust", str(file))
    with zipfile.ZipFile(file) as opened:
        names = opened.namelist()
        settings = opened.read("certs/config.pref").decode()
        entries = {
            each.get("key"): each.text or "" for each in ET.fromstring(settings).iter("entry")
        }
        held = pkcs12.load_pkcs12(
            opened.read("certs/truststore.p12"), entries["caPassword0"].encode()
        )
    assert names == ["MANIFEST/manifest.xml", "certs/config.pref", "certs/truststore.p12"]
    assert entries["connectString0"] == f"{ADDRESS}:8089:ssl"
    assert entries["enrollForCertificateWithTrust0"] == entries["useAuth0"] == "true"
    assert "certificateLocation" not in entries
    assert held.key is None
    (own,) = held.additional_certs
    trusted = ssl.create_default_context(cadata=own.certificate.public_bytes(Encoding.PEM).decode())
    token = there.invite("Ben")["token"]
    assert there.ask(CONFIG, "Ben", token, trusted=trusted).status == 200

    assert there.invite("Ben", "--itak")["itak"] == f"Ben,{ADDRESS},8089,SSL"
    there.tak("Ben", "--itak", "--out", str(tmp_path / "itak.zip"))
    with zipfile.ZipFile(io.BytesIO((tmp_path / "itak.zip").read_bytes())) as opened:
        assert opened.namelist() == ["config.pref", "truststore.p12", "client.p12"]


def test_enrolment_uses_the_configured_public_certificate(tmp_path: Path) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    public = trustme.CA()
    made = public.issue_cert(ADDRESS)
    chain.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
    key.write_bytes(made.private_key_pem.bytes())
    trusted = ssl.create_default_context()
    public.configure_trust(trusted)

    class Town(Camp):
        def begin(self) -> None:
            self.settings |= {"tak-enroll-certificate": str(chain), "tak-enroll-key": str(key)}
            super().begin()

    with ExitStack() as stack:
        there = Town(tmp_path, stack)
        token = there.invite("Ben")["token"]
        assert there.ask(CONFIG, "Ben", token, trusted=trusted).status == 200
