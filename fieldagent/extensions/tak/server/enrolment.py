"""Enrolment: the endpoints at port 8446 from which ATAK, iTAK and PyTAK fetch a phone's
certificate.

1. `GET /Marti/api/tls/config`: names that the phone adds to its request besides its user's
   name.
2. `POST /Marti/api/tls/signClient/v2` with a PKCS #10 request (RFC 2986), with or without PEM
   armour: returns the certificate, and the certificate of the authority.
3. `GET /Marti/api/tls/profile/enrollment`: settings for the phone; there are none.

Each call contains the user's name and the secret of an invitation as Basic (RFC 7617). TAK has not
documented these endpoints. They follow the behaviour of its clients (`docs/how-to/tak-server.md`).
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from xml.sax.saxutils import quoteattr

import trio
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fieldagent.extensions.tak.server import authority, certificates, invitations
from fieldagent.extensions.tak.server.authority import Authority
from fieldagent.extensions.tak.server.certificates import PhoneHolder
from fieldagent.extensions.tak.server.invitations import CertificateTerms
from fieldagent.http.message import FORM, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.hub.access.caller import read_basic
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.store.contract import Store
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import EventRate

log = logging.getLogger(__name__)

PATH_PREFIX = "/Marti/api/tls"
BODY = 16_384
"""Largest number of bytes of a request. A request for a 4096-bit key has about 1700 bytes."""
CONTENT_TYPES = ("application/pkcs10", "application/octet-stream", "text/plain", FORM, "")
"""Content types that clients use. By default, curl sends the content type of a form."""
KEY_BITS = (2_048, 4_096)
CONFIG = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<ns2:certificateConfig xmlns="http://bbn.com/marti/xml/config"'
    ' xmlns:ns2="com.bbn.marti.config"><nameEntries>'
    f'<nameEntry name="O" value={quoteattr(authority.ORGANIZATION)}/>'
    '<nameEntry name="OU" value="phones"/></nameEntries></ns2:certificateConfig>'
)
_CHALLENGE = (("WWW-Authenticate", 'Basic realm="fieldagent", charset="UTF-8"'),)


class InvitedPhone(NamedTuple):
    holder: PhoneHolder
    token: str


class Enrolment:
    """Enrolment endpoints. `clock` returns Unix time."""

    def __init__(
        self, store: Store, workspace: int, authority: Authority, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._workspace = workspace
        self._authority = authority
        self._clock = clock
        self._refusal_rate = EventRate(clock)

    def make_routes(self) -> list[Route]:
        """Return the routes for enrolment, for callers with an invitation."""
        judge = self.judge
        return [
            Route("GET", f"{PATH_PREFIX}/config", self.answer_config, judge),
            Route(
                "POST",
                f"{PATH_PREFIX}/signClient/v2",
                self.sign,
                judge,
                body=BODY,
                media_types=CONTENT_TYPES,
            ),
            Route("GET", f"{PATH_PREFIX}/profile/enrollment", self.answer_profile, judge),
        ]

    async def judge(self, head: Request) -> InvitedPhone:
        """Return the user whose invitation the request contains. Raises Problem 401 if there is no
        valid invitation for the name and secret.
        """
        name, token = read_basic(head.headers) or ("", "")
        now = self._clock()
        look = partial(invitations.find_invited, name=name, token=token, now=now)
        holder = await self._store.read(partial(look, workspace=self._workspace)) if name else None
        if holder is None:
            if name and (count := self._refusal_rate.count_event()):
                log.warning("%d refused at tak-enroll-listen, the last as %.40r", count, name)
            raise Problem(
                401,
                "the name, or the secret beside it, is wrong, used or a quarter of an hour old:"
                " `fieldagent hub user tak NAME --qr` makes another",
                headers=_CHALLENGE,
            )
        return InvitedPhone(holder, token)

    async def answer_config(self, request: Request, caller: InvitedPhone) -> Response:
        """Return the names that a client adds to its certificate request."""
        return Response(200, CONFIG.encode(), "application/xml")

    async def answer_profile(self, request: Request, caller: InvitedPhone) -> Response:
        """Respond that there is no profile. Clients ask for a profile after the enrolment."""
        return Response(204)

    async def sign(self, request: Request, caller: InvitedPhone) -> Response:
        """Return a certificate for the key in a PKCS #10 request. If the key is the same, the
        certificate is the same. Raises Problem 400 if the request is invalid. Raises Problem 409 if
        another phone has used the invitation, if the invitation has expired meanwhile, or if the
        user's name cannot be used at the server.
        """
        public = await trio.to_thread.run_sync(read_public_key, request.body)
        key = sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
        now, serial = int(self._clock()), f"{x509.random_serial_number():x}"
        new = CertificateTerms(serial, now + certificates.PHONE_LIFETIME)
        use = partial(invitations.use_invitation, holder=caller.holder, token=caller.token)
        put = partial(use, workspace=self._workspace, key=key.hexdigest(), new=new)
        try:
            terms = await self._store.commit(put)
        except Refused as refused:
            raise Problem(409, str(refused)) from None
        if terms is None:
            raise Problem(409, "this invitation was used by another phone: ask for another")
        # The certificate becomes valid before the phone has it. A phone that misses the response
        # asks again.
        signed = await trio.to_thread.run_sync(
            partial(authority.certify_phone, self._authority, caller.holder.name, public, terms)
        )
        if terms is new:
            log.info("a phone of %s has its certificate: %s", caller.holder.name, terms.serial)
        return _make_answer(
            request.headers.get("accept", "*/*"), signed, self._authority.certificate
        )


def read_public_key(body: bytes) -> rsa.RSAPublicKey:
    """Return the public key in a PKCS #10 request. The request's signature must be valid. Raises
    Problem 400 if the request is invalid.
    """
    lines = [line for line in body.split(b"\n") if not line.startswith(b"-----")]
    try:
        request = x509.load_der_x509_csr(base64.b64decode(b"".join(lines)))
        public = request.public_key()
        if isinstance(public, rsa.RSAPublicKey) and KEY_BITS[0] <= public.key_size <= KEY_BITS[1]:
            if request.is_signature_valid:
                return public
            raise Problem(400, "the request is not signed by its own key")
    except (binascii.Error, ValueError, TypeError, x509.InvalidVersion, UnsupportedAlgorithm):
        raise Problem(400, "the body is not a PKCS #10 request") from None
    raise Problem(400, f"the request's key must be RSA with {KEY_BITS[0]} to {KEY_BITS[1]} bits")


def _make_answer(
    accept: str, certificate: x509.Certificate, ca_certificate: x509.Certificate
) -> Response:
    """Return the response in the client's format: XML for ATAK, text for iTAK, JSON for other
    clients.
    """
    texts = [
        base64.b64encode(each.public_bytes(Encoding.DER)).decode()
        for each in (certificate, ca_certificate)
    ]
    if "xml" in accept.lower():
        body = f"<enrollment><signedCert>{texts[0]}</signedCert><ca>{texts[1]}</ca></enrollment>"
        return Response(200, body.encode(), "application/xml")
    kind = "text/plain" if accept.lower().startswith("text/plain") else "application/json"
    return Response(200, json.dumps({"signedCert": texts[0], "ca0": texts[1]}).encode(), kind)
