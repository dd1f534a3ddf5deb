"""Answers of a TAK server to the hub's request for a certificate."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding

from fieldagent.extensions.tak.certificate_request import (
    NoCertificate,
    make_key,
    make_request,
    read_answer,
)

CONFIG = b"""<ns2:certificateConfig xmlns="http://bbn.com/marti/xml/config"
 xmlns:ns2="com.bbn.marti.config"><nameEntries><nameEntry name="O" value="Alps"/>
 <nameEntry name="OU" value="hubs"/><nameEntry name="L" value="Bern"/></nameEntries>
 </ns2:certificateConfig>"""


def certify(key: rsa.RSAPrivateKey, name: str) -> str:
    """Return a certificate in Base64, in lines as OpenTAKServer sends it."""
    named = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder().subject_name(named).issuer_name(named)
    builder = builder.public_key(key.public_key()).serial_number(1)
    builder = builder.not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
    signed = builder.not_valid_after(datetime(2036, 1, 1, tzinfo=UTC)).sign(key, hashes.SHA256())
    return base64.encodebytes(signed.public_bytes(Encoding.DER)).decode()


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return make_key()


@pytest.mark.parametrize(
    ("config", "subject"),
    [(CONFIG, "OU=hubs,O=Alps,CN=hub"), (b"", "CN=hub"), (b"<a", "CN=hub")],
    ids=["with names", "empty", "damaged"],
)
def test_certificate_request_contains_the_names_that_the_server_requires(
    key: rsa.RSAPrivateKey, config: bytes, subject: str
) -> None:
    request = x509.load_der_x509_csr(base64.b64decode(make_request(key, "hub", config)))
    assert request.subject.rfc4514_string() == subject
    assert request.is_signature_valid


def test_json_and_xml_answers_contain_the_certificate(key: rsa.RSAPrivateKey) -> None:
    signed, authority = certify(key, "hub"), certify(make_key(), "authority")
    as_json = json.dumps({"signedCert": signed, "ca0": authority, "ca1": authority}).encode()
    as_xml = f"<enrollment><signedCert>{signed}</signedCert><ca>{authority}</ca></enrollment>"
    files = read_answer(key, as_json)
    assert files == read_answer(key, as_xml.encode())
    assert x509.load_pem_x509_certificate(files.certificate).public_key() == key.public_key()
    (trusted,) = x509.load_pem_x509_certificates(files.authorities)
    assert trusted.subject.rfc4514_string() == "CN=authority"


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b"{}", b"<enrollment/>", b'{"signedCert": "AAAA"}', b"Not found"]
)
def test_answer_without_a_certificate_is_refused(key: rsa.RSAPrivateKey, answer: bytes) -> None:
    with pytest.raises(NoCertificate, match="contains no certificate"):
        read_answer(key, answer)


def test_certificate_for_another_key_is_refused(key: rsa.RSAPrivateKey) -> None:
    answer = json.dumps({"signedCert": certify(make_key(), "hub")}).encode()
    with pytest.raises(NoCertificate, match="for another key"):
        read_answer(key, answer)
