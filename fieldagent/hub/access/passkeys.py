"""Passkeys (W3C Web Authentication, level 3), with which a person signs in using a key on their own
device.

The `webauthn` library verifies the passkeys. The hub signs a challenge and does not store it, so
that each process of the hub can check the response.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import webauthn
from webauthn.helpers import exceptions, structs

from fieldagent.http.problem import Problem
from fieldagent.hub.access.known_devices import read_signing_key
from fieldagent.hub.records.audit import write_line
from fieldagent.hub.store.contract import Db, Store
from fieldagent.system.wording import sentence

KEY = "passkey challenges"
CHALLENGE_LIFETIME_S = 300.0
"""Seconds within which a person must respond to a challenge."""
PASSKEYS_MAX = 20
"""Largest number of passkeys of one person."""
NAME_MAX = 60
_SIGN_IN = 0
"""Placeholder for the member in a sign-in challenge, because the member is not known yet."""
_NOT_PROVED = "the hub does not know this passkey, or its answer was too late: try again"


class Passkeys:
    """Passkeys of the console. `address` is the TLS address of the console for browsers. `clock`
    returns Unix time.
    """

    def __init__(self, store: Store, address: str, clock: Callable[[], float]) -> None:
        parts = urlsplit(address)
        self._name = parts.hostname or ""
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._store = store
        self._clock = clock
        self._key = b""

    async def sign_in_options(self) -> str:
        """Return the JSON argument of `navigator.credentials.get`. It allows any passkey of this
        host name.
        """
        options = webauthn.generate_authentication_options(
            rp_id=self._name,
            challenge=await self._make_challenge(_SIGN_IN),
            user_verification=structs.UserVerificationRequirement.REQUIRED,
        )
        return webauthn.options_to_json(options)

    async def find_owner(self, credential: Any) -> int:
        """Return the member whose passkey has signed the response `credential`. Raises Problem 401
        if the hub does not know the passkey or cannot verify the response.
        """
        credential_id = self._read_credential_id(credential)
        rows = await self._store.read(
            lambda db: db.execute(
                "SELECT id, member, public_key, used_times FROM passkey WHERE credential = ?",
                credential_id,
            )
        )
        if not rows:
            raise Problem(401, _NOT_PROVED)
        passkey, member, public_key, used_times = rows[0]
        try:
            verified = webauthn.verify_authentication_response(
                credential=credential,
                expected_challenge=await self._read_challenge(credential, _SIGN_IN),
                expected_rp_id=self._name,
                expected_origin=self._origin,
                credential_public_key=bytes(public_key),
                credential_current_sign_count=used_times,
                require_user_verification=True,
            )
        except (exceptions.WebAuthnException, ValueError, TypeError, KeyError) as error:
            raise Problem(401, _NOT_PROVED) from error
        now = self._clock()
        await self._store.commit(
            lambda db: db.execute(
                "UPDATE passkey SET used_times = ?, used = ? WHERE id = ?",
                *(verified.new_sign_count, now, passkey),
            )
        )
        return int(member)

    async def make_options(self, member: int, name: str) -> str:
        """Return the JSON argument of `navigator.credentials.create`, for a member who has signed
        in.
        """
        known_passkeys = await self._store.read(
            lambda db: db.execute("SELECT credential FROM passkey WHERE member = ?", member)
        )
        options = webauthn.generate_registration_options(
            rp_id=self._name,
            rp_name="fieldagent",
            user_id=str(member).encode(),
            user_name=name,
            challenge=await self._make_challenge(member),
            authenticator_selection=structs.AuthenticatorSelectionCriteria(
                resident_key=structs.ResidentKeyRequirement.REQUIRED,
                user_verification=structs.UserVerificationRequirement.REQUIRED,
            ),
            exclude_credentials=[
                structs.PublicKeyCredentialDescriptor(id=bytes(each)) for (each,) in known_passkeys
            ],
        )
        return webauthn.options_to_json(options)

    async def add(self, member: int, name: str, credential: Any) -> int:
        """Store a passkey that a browser has created, and return its id. Raises Problem 422 if the
        response is invalid, and 409 if the passkey is known or the member has too many.
        """
        try:
            verified = webauthn.verify_registration_response(
                credential=credential,
                expected_challenge=await self._read_challenge(credential, member),
                expected_rp_id=self._name,
                expected_origin=self._origin,
                require_user_verification=True,
            )
        except (exceptions.WebAuthnException, ValueError, TypeError, KeyError) as error:
            raise Problem(422, "the browser's passkey cannot be used: try again") from error
        now = self._clock()

        def insert(db: Db) -> int | None:
            ((passkey_count,),) = db.execute(
                "SELECT count(*) FROM passkey WHERE member = ?", member
            )
            if passkey_count >= PASSKEYS_MAX:
                return None
            rows = db.execute(
                "INSERT INTO passkey (member, credential, public_key, used_times, name, created)"
                " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id",
                *(member, verified.credential_id, verified.credential_public_key),
                *(verified.sign_count, name[:NAME_MAX], now),
            )
            write_line(db, None, str(member), "passkey add", name[:NAME_MAX], now)
            return int(rows[0][0]) if rows else None

        if (number := await self._store.commit(insert)) is None:
            raise Problem(
                409,
                sentence(
                    "this passkey is already registered, or you have {most}: remove one first",
                    most=PASSKEYS_MAX,
                ),
            )
        return number

    async def list_passkeys(self, member: int) -> list[dict[str, Any]]:
        """Return the passkeys of a member, oldest first. `created` and `used` are Unix times.
        `used` is None before the first sign-in with the passkey.
        """
        rows = await self._store.read(
            lambda db: db.execute(
                "SELECT id, name, created, used FROM passkey WHERE member = ? ORDER BY id", member
            )
        )
        return [
            {"id": id_, "name": name, "created": float(created), "used": used_at and float(used_at)}
            for id_, name, created, used_at in rows
        ]

    async def remove(self, member: int, passkey_id: int) -> None:
        """Remove a passkey of the member. Raises Problem 404 if the member has no passkey with this
        id.
        """
        now = self._clock()

        def delete(db: Db) -> bool:
            delete_query = "DELETE FROM passkey WHERE id = ? AND member = ? RETURNING id"
            rows = db.execute(delete_query, passkey_id, member)
            if rows:
                write_line(db, None, str(member), "passkey remove", str(passkey_id), now)
            return bool(rows)

        if not await self._store.commit(delete):
            raise Problem(404, "you have no such passkey")

    async def _make_challenge(self, member: int) -> bytes:
        """Return a random challenge. The signature also covers its time and its member."""
        nonce = secrets.token_bytes(16) + int(self._clock()).to_bytes(6, "big")
        return nonce + await self._compute_signature(nonce, member)

    async def _read_challenge(self, credential: Any, member: int) -> bytes:
        """Return the challenge in the response, if the hub has created this challenge for the
        member. Raises ValueError, TypeError or KeyError otherwise.
        """
        client_data = webauthn.base64url_to_bytes(credential["response"]["clientDataJSON"])
        challenge = webauthn.base64url_to_bytes(json.loads(client_data)["challenge"])
        nonce, signature = challenge[:22], challenge[22:]
        made_at = int.from_bytes(nonce[16:], "big")
        in_time = 0 <= self._clock() - made_at < CHALLENGE_LIFETIME_S
        if not in_time or not hmac.compare_digest(
            signature, await self._compute_signature(nonce, member)
        ):
            raise ValueError("the challenge is unknown or old")
        return challenge

    async def _compute_signature(self, nonce: bytes, member: int) -> bytes:
        if not self._key:
            self._key = await self._store.commit(lambda db: read_signing_key(db, KEY))
        return hmac.new(self._key, nonce + str(member).encode(), hashlib.sha256).digest()[:16]

    def _read_credential_id(self, credential: Any) -> bytes:
        try:
            return webauthn.base64url_to_bytes(credential["rawId"])
        except (KeyError, TypeError, ValueError) as error:
            raise Problem(422, "the body has no passkey's answer") from error
