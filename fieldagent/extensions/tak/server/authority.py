"""The hub's own certificate authority for phones at its TAK server. The files have formats for ATAK
and iTAK.

The authority uses RSA with 2048 bits and SHA-256, which every TAK program supports. A phone's file
is PKCS #12 with the old encryption (PBE with SHA-1 and 3DES), because Android rejects the newer
encryption. This module needs `cryptography`. Times are Unix time.
"""

from __future__ import annotations

import hashlib
import ipaddress
import ssl
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fieldagent.extensions.tak.server.certificates import PHONE_LIFETIME
from fieldagent.extensions.tak.server.invitations import CertificateTerms
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple

KEY = "tak-authority"
"""Name of the authority's private key among the hub's signing keys."""
ORGANIZATION = "fieldagent"
BITS, EXPONENT = 2048, 65_537
VALID_FROM, VALID_UNTIL = datetime(2026, 1, 1, tzinfo=UTC), datetime(2046, 1, 1, tzinfo=UTC)
"""Validity of the authority. The start is in the past, because the clock of a machine without a
network may be slow."""
SERVER_LASTS, SERVER_BEFORE = 397 * 86_400.0, 90 * 86_400.0
"""Seconds after and before now between which the server's certificate is valid. Apple's phones
accept at most 825 days."""


class Authority(NamedTuple):
    key: rsa.RSAPrivateKey
    certificate: x509.Certificate


class IssuedCertificate(NamedTuple):
    """A certificate that the authority has issued, with the private key for it."""

    key: rsa.RSAPrivateKey
    certificate: x509.Certificate

    @property
    def serial(self) -> str:
        """Return the serial number of the certificate, in hexadecimal."""
        return f"{self.certificate.serial_number:x}"


def open_authority(db: Db) -> Authority:
    """Return the hub's certificate authority, which the first use creates. The authority's
    certificate is built from its key each time and is always the same.
    """
    rows = db.execute("SELECT key FROM signing_key WHERE name = ?", KEY)
    if not rows:
        key_bytes = _make_key().private_bytes(
            serialization.Encoding.DER,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        db.execute(
            "INSERT INTO signing_key (name, key) VALUES (?, ?) ON CONFLICT DO NOTHING",
            KEY,
            key_bytes,
        )
        rows = db.execute("SELECT key FROM signing_key WHERE name = ?", KEY)
    key = serialization.load_der_private_key(bytes(rows[0][0]), None)
    assert isinstance(key, rsa.RSAPrivateKey), "it was made here"
    return Authority(key, _make_own_certificate(key))


def _make_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(EXPONENT, BITS)


def _make_name(name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            # X.520 limits this name to 64 characters.
            x509.NameAttribute(NameOID.COMMON_NAME, name[:64]),
        ]
    )


def _make_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=not signs,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _make_own_certificate(key: rsa.RSAPrivateKey) -> x509.Certificate:
    public = key.public_key()
    public_bytes = public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    digest = hashlib.sha256(public_bytes).digest()
    # The authorities of two hubs need different names, because a phone may trust both.
    name = _make_name(f"fieldagent hub {digest[:4].hex()}")
    return (
        x509.CertificateBuilder(
            name, name, public, int.from_bytes(digest[:15]) | 1, VALID_FROM, VALID_UNTIL
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_make_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )


class _Span(NamedTuple):
    begins: float
    ends: float


def _sign(
    authority: Authority,
    name: str,
    public: rsa.RSAPublicKey,
    serial: int,
    span: _Span,
    *extensions: x509.ExtensionType,
) -> x509.Certificate:
    own = authority.key.public_key()
    builder = x509.CertificateBuilder(
        authority.certificate.subject,
        _make_name(name),
        public,
        serial,
        datetime.fromtimestamp(int(span.begins), UTC),
        datetime.fromtimestamp(int(span.ends), UTC),
    )
    for each in (
        x509.SubjectKeyIdentifier.from_public_key(public),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(own),
        *extensions,
    ):
        builder = builder.add_extension(each, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
    return builder.add_extension(_make_usage(signs=False), True).sign(
        authority.key, hashes.SHA256()
    )


def find_expiry(certificate: x509.Certificate) -> datetime:
    """Return the end of a certificate's validity. Versions of cryptography before 42, for example
    in Debian 12, return the end only without a time zone.
    """
    after: datetime | None = getattr(certificate, "not_valid_after_utc", None)
    return after or certificate.not_valid_after.replace(tzinfo=UTC)


def issue_for_phone(authority: Authority, name: str, now: float) -> IssuedCertificate:
    """Return a new key and certificate for a user's phone."""
    key = _make_key()
    terms = CertificateTerms(f"{x509.random_serial_number():x}", now + PHONE_LIFETIME)
    return IssuedCertificate(key, certify_phone(authority, name, key.public_key(), terms))


def certify_phone(
    authority: Authority, name: str, public: rsa.RSAPublicKey, terms: CertificateTerms
) -> x509.Certificate:
    """Return a certificate for a phone's own key `public`, so that the hub never has the private
    key. `terms` contains its serial number and expiry.
    """
    use = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    span = _Span(VALID_FROM.timestamp(), terms.expires)
    return _sign(authority, name, public, int(terms.serial, 16), span, use)


def issue_for_server(authority: Authority, host: str, now: float) -> IssuedCertificate:
    """Return a new key and certificate for the server. `host` is a name or an address."""
    try:
        name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        name = x509.DNSName(host)
    use = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    alternative_name = x509.SubjectAlternativeName([name])
    key, span = _make_key(), _Span(now - SERVER_BEFORE, now + SERVER_LASTS)
    serial = x509.random_serial_number()
    return IssuedCertificate(
        key, _sign(authority, host, key.public_key(), serial, span, use, alternative_name)
    )


def _encode_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def make_context(authority: Authority, host: str, now: float) -> ssl.SSLContext:
    """Return the TLS context of the server, which accepts only certificates of this authority. The
    call takes a tenth of a second and writes a temporary file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0
    context.load_verify_locations(cadata=_encode_pem(authority.certificate).decode())
    load_new_certificate(context, authority, host, now)
    return context


def load_new_certificate(
    context: ssl.SSLContext, authority: Authority, host: str, now: float
) -> None:
    """Load a new server certificate into `context`. New connections use this certificate."""
    own = issue_for_server(authority, host, now)
    key = own.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "server.pem"
        file.touch(0o600)
        file.write_bytes(key + _encode_pem(own.certificate) + _encode_pem(authority.certificate))
        context.load_cert_chain(file)


def encode_phone_file(
    authority: Authority, certificate: IssuedCertificate, name: str, password: str
) -> bytes:
    """Return a phone's key and certificate as PKCS #12."""
    return pkcs12.serialize_key_and_certificates(
        name.encode(),
        certificate.key,
        certificate.certificate,
        [authority.certificate],
        _make_android_encryption(password),
    )


def encode_trust_file(authority: Authority, password: str) -> bytes:
    """Return the authority's certificate as PKCS #12, for a phone's trust store."""
    return pkcs12.serialize_key_and_certificates(
        None, None, None, [authority.certificate], _make_android_encryption(password)
    )


def _make_android_encryption(password: str) -> serialization.KeySerializationEncryption:
    return (
        serialization.PrivateFormat.PKCS12.encryption_builder()
        .kdf_rounds(50_000)
        .key_cert_algorithm(pkcs12.PBES.PBESv1SHA1And3KeyTripleDESCBC)
        .hmac_hash(hashes.SHA1())
        .build(password.encode())
    )
