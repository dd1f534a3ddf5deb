"""The hub's checks of a passkey. A key of the test answers like a phone (Web Authentication, level
3, 6.1 and 7.2).
"""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import cbor2
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from fieldagent.http.problem import Problem
from fieldagent.hub.access import directory
from fieldagent.hub.store.contract import Store
from tests.hub.field import START, field_of

pytest.importorskip("webauthn", reason="needs the extra `passkeys`")
from fieldagent.hub.access.passkeys import CHALLENGE_LIFETIME_S, PASSKEYS_MAX, Passkeys

NAME = "hub.example.org"
ADDRESS = f"https://{NAME}"
BY_PERSON, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


def encode_text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


class Phone:
    """One key for one name."""

    def __init__(self, id_: bytes = b"of the phone", name: str = NAME) -> None:
        self.id = id_
        self.name = name
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.count = 0

    def _said(self, what: str, options: str, origin: str) -> bytes:
        challenge = json.loads(options)["challenge"]
        return json.dumps({"type": what, "challenge": challenge, "origin": origin}).encode()

    def _data(self, flags: int) -> bytes:
        self.count += 1
        return (
            hashlib.sha256(self.name.encode()).digest()
            + bytes([flags])
            + self.count.to_bytes(4, "big")
        )

    def _as_json(self, **response: bytes) -> dict[str, Any]:
        members = {name: encode_text(raw) for name, raw in response.items()}
        return {
            "id": encode_text(self.id),
            "rawId": encode_text(self.id),
            "type": "public-key",
            "response": members,
        }

    def makes(self, options: str, *, origin: str = ADDRESS) -> dict[str, Any]:
        point = self.key.public_key().public_numbers()
        x, y = (number.to_bytes(32, "big") for number in (point.x, point.y))
        key = cbor2.dumps({1: 2, 3: -7, -1: 1, -2: x, -3: y})
        data = self._data(BY_PERSON | VERIFIED | ATTESTED) + bytes(16)
        data += len(self.id).to_bytes(2, "big") + self.id + key
        made = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        said = self._said("webauthn.create", options, origin)
        return self._as_json(clientDataJSON=said, attestationObject=made)

    def answers(
        self, options: str, *, origin: str = ADDRESS, flags: int = BY_PERSON | VERIFIED
    ) -> dict[str, Any]:
        said, data = self._said("webauthn.get", options, origin), self._data(flags)
        signed = self.key.sign(data + hashlib.sha256(said).digest(), ec.ECDSA(hashes.SHA256()))
        return self._as_json(clientDataJSON=said, authenticatorData=data, signature=signed)


async def is_refused(passkeys: Passkeys, answer: Any) -> bool:
    try:
        await passkeys.find_owner(answer)
    except Problem as problem:
        return problem.status in (401, 422)
    return False


async def test_passkey_signs_in_only_its_owner_with_a_valid_answer(store: Store) -> None:
    now = [START]
    async with field_of(store):
        here, elsewhere = (Passkeys(store, ADDRESS, lambda: now[0]) for _ in range(2))
        phone, other = Phone(), Phone(b"of another")
        made = phone.makes(await here.make_options(2, "Ben"))
        number = await elsewhere.add(2, "Ben's phone", made)
        assert await elsewhere.find_owner(phone.answers(await here.sign_in_options())) == 2
        options = await here.sign_in_options()
        for_ben = await here.make_options(2, "Ben")
        good = phone.answers(options)
        wrong: dict[str, Any] = {
            "no answer": None,
            "a text": "x",
            "nothing in it": {},
            "no response": {"rawId": encode_text(phone.id)},
            "a key that nobody added": other.answers(options),
            "another page": phone.answers(options, origin="https://evil.example"),
            "a challenge of another kind": phone.answers(for_ben),
            "nobody at the phone": phone.answers(options, flags=0),
            "not unlocked": phone.answers(options, flags=BY_PERSON),
            "another signature": good
            | {"response": good["response"] | {"signature": encode_text(b"x")}},
        }
        stolen = Phone(phone.id)
        wrong["another key under its number"] = stolen.answers(options)
        phone.name = "evil.example"
        wrong["another name"] = phone.answers(options)
        phone.name = NAME
        changed = bytearray(urlsafe_b64decode(json.loads(options)["challenge"] + "=="))
        changed[0] ^= 1
        wrong["a challenge of its own"] = phone.answers(
            json.dumps({"challenge": encode_text(bytes(changed))})
        )
        for what, answer in wrong.items():
            assert await is_refused(here, answer), what
        assert await here.find_owner(phone.answers(options)) == 2
        now[0] += CHALLENGE_LIFETIME_S
        assert await is_refused(here, phone.answers(options))
        with pytest.raises(Problem):
            await here.remove(1, number)
        await here.remove(2, number)
        assert await is_refused(here, phone.answers(await here.sign_in_options()))


async def test_passkeys_are_limited_and_removed_by_a_password_reset(store: Store) -> None:
    async with field_of(store):
        passkeys = Passkeys(store, ADDRESS, lambda: START)
        phone = Phone()
        for_cleo = await passkeys.make_options(3, "Cleo")
        with pytest.raises(Problem):
            await passkeys.add(2, "x", phone.makes(for_cleo))
        with pytest.raises(Problem):
            await passkeys.add(3, "x", phone.makes(for_cleo, origin="https://evil.example"))
        with pytest.raises(Problem):
            await passkeys.add(3, "x", {"response": 1})
        for number in range(PASSKEYS_MAX):
            each = Phone(b"%d" % number)
            await passkeys.add(3, "x", each.makes(await passkeys.make_options(3, "Cleo")))
        with pytest.raises(Problem, match="409"):
            await passkeys.add(3, "x", phone.makes(await passkeys.make_options(3, "Cleo")))
        assert len(await passkeys.list_passkeys(3)) == PASSKEYS_MAX
        await store.commit(lambda db: directory.set_password(db, 3, "x", now=START, actor="3"))
        assert len(await passkeys.list_passkeys(3)) == PASSKEYS_MAX
        await store.commit(lambda db: directory.set_password(db, 3, "x", now=START))
        assert await passkeys.list_passkeys(3) == []
