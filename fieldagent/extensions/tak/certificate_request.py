"""Request for a client certificate from a TAK server, and the server's answer, in the form that
TAK's phone apps use.

`server/enrolment.py` describes the calls. This module needs `cryptography`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fieldagent.system.lazy_named_tuple import NamedTuple

BITS, EXPONENT = 2048, 65_537
NAMES = {
    "O": x509.NameOID.ORGANIZATION_NAME,
    "OU": x509.NameOID.ORGANIZATIONAL_UNIT_NAME,
}
"""Parts of a subject name that a server can request in its configuration."""


class NoCertificate(Exception):
    """Error: the answer contains no certificate for the key."""


class ClientFiles(NamedTuple):
    """A client's private key and certificates, as the contents of PEM files."""

    key: bytes
    certificate: bytes
    authorities: bytes
    """Certificates of the server's certificate authorities."""


def make_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(EXPONENT, BITS)


def make_request(key: rsa.RSAPrivateKey, user: str, config: bytes) -> bytes:
    """Return a PKCS #10 request (RFC 2986) as Base64 without PEM armour, in the form that ATAK
    sends. `config` is the server's answer to `GET /Marti/api/tls/config`.
    """
    parts = [x509.NameAttribute(x509.NameOID.COMMON_NAME, user), *_read_names(config)]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(parts))
    return base64.encodebytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER))


def _read_names(config: bytes) -> Iterator[x509.NameAttribute[str]]:
    """Yield the parts of the subject name that the server requests. If the configuration cannot be
    read, yield nothing.
    """
    try:
        entries = [*ElementTree.fromstring(config).iter()]
    except ElementTree.ParseError:
        return
    for entry in entries:
        name, value = entry.get("name", ""), entry.get("value", "")
        if name in NAMES and value:
            yield x509.NameAttribute(NAMES[name], value)


def read_answer(key: rsa.RSAPrivateKey, answer: bytes) -> ClientFiles:
    """Return the files in the server's answer, which is JSON or XML. `key` is the key of the
    request. Raises NoCertificate if the answer has no certificate for this key.
    """
    texts = _read_texts(answer)
    try:
        signed, *authorities = [_read_certificate(each) for each in texts]
    except (binascii.Error, ValueError) as error:
        raise NoCertificate("the answer contains no certificate") from error
    if signed.public_key() != key.public_key():
        raise NoCertificate("the certificate in the answer is for another key")
    return ClientFiles(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        signed.public_bytes(Encoding.PEM),
        b"".join(each.public_bytes(Encoding.PEM) for each in authorities),
    )


def _read_texts(answer: bytes) -> Sequence[str]:
    """Return the signed certificate and the certificates of the authorities, as Base64."""
    try:
        members = json.loads(answer)
    except ValueError:
        members = None
    if isinstance(members, dict):
        names = ["signedCert", *sorted(name for name in members if name.startswith("ca"))]
        # OpenTAKServer sends its certificate authority twice.
        return [*dict.fromkeys(str(members.get(name, "")) for name in names)]
    try:
        root = ElementTree.fromstring(answer)
    except ElementTree.ParseError:
        return []
    return [root.findtext("signedCert", ""), *(each.text or "" for each in root.iter("ca"))]


def _read_certificate(text: str) -> x509.Certificate:
    """Return the certificate in a Base64 text with or without PEM armour. Raises ValueError if the
    text is not a certificate.
    """
    lines = [line for line in text.split("\n") if not line.startswith("-----")]
    return x509.load_der_x509_certificate(base64.b64decode("".join(lines)))
