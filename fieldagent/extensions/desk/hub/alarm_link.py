"""Links with which a notified person acknowledges an SOS once. They are rows of `alarm_link`. In a
reply by SMS, the six-digit code of a link has the same effect.

The hub signs a link for the incident, the person, and the message that notified the person. The
signing key is in the database, so each hub process accepts the link. If the same message is sent
again, it contains the same link. If an SOS is raised again, its earlier links become invalid.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets

from fieldagent.hub.access.known_devices import read_signing_key
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple

KEY = "alarm links"
LINK_LIFETIME_S = 3 * 86_400.0
"""Seconds for which a link is valid."""
CODE, LONG_CODE = 6, 12
"""Numbers of digits. An attacker has five attempts per hour at short codes (`answers.WRONG_MAX`).
Long codes have no limit, because an attacker cannot guess them."""
PATH = "/answer/{token}"
_TOKEN = re.compile(r"([0-9]{1,18})\.([A-Za-z0-9_-]{22})", re.ASCII)


class AlarmLink(NamedTuple):
    id: int
    sos: int
    name: str
    """Name of the notified person."""
    message_id: str
    expires: float
    used: float | None
    contact: int | None
    """Id of the notified contact; None for a webhook."""
    code: str


_LINK_COLUMNS = "alarm_link.id, sos, alarm_link.name, message_id, expires, used, contact, code"


def make_link(
    db: Db, sos: int, name: str, message_id: str, now: float, contact: int | None = None
) -> tuple[str, str]:
    """Return the path and the code of the link for the person whom the message notifies."""
    code = f"{secrets.randbelow(10**CODE):0{CODE}}"
    (row,) = db.execute(
        "INSERT INTO alarm_link (sos, name, message_id, expires, contact, code)"
        " VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (message_id) DO UPDATE SET message_id = excluded.message_id"
        f" RETURNING {_LINK_COLUMNS.replace('alarm_link.', '')}",
        *(sos, name, message_id, now + LINK_LIFETIME_S, contact, code),
    )
    link = AlarmLink(*row)
    return PATH.format(
        token=f"{link.id}.{_compute_signature(read_signing_key(db, KEY), link)}"
    ), link.code


def find_link(db: Db, token: str, *, locked: bool = False) -> AlarmLink | None:
    """Return the link with this token, or None if the hub did not create the token. If `locked` is
    True, other processes cannot use the link during the transaction.
    """
    token_match = _TOKEN.fullmatch(token)
    if token_match is None:
        return None
    rows = db.execute(
        f"SELECT {_LINK_COLUMNS}, key FROM alarm_link"
        " JOIN signing_key ON signing_key.name = ? WHERE alarm_link.id = ?"
        + (db.for_update("alarm_link") if locked else ""),
        *(KEY, int(token_match[1])),
    )
    for *row, key in rows:
        link = AlarmLink(*row)
        if hmac.compare_digest(token_match[2], _compute_signature(bytes(key), link)):
            return link
    return None


def find_by_message(db: Db, message_id: str) -> AlarmLink | None:
    """Return the link in the message with this id, locked for the transaction, or None."""
    rows = db.execute(
        f"SELECT {_LINK_COLUMNS} FROM alarm_link WHERE message_id = ?{db.for_update()}", message_id
    )
    return AlarmLink(*rows[0]) if rows else None


def find_by_code(db: Db, code: str, contact: int) -> AlarmLink | None:
    """Return the contact's newest link with this code, locked for the transaction, or None."""
    rows = db.execute(
        f"SELECT {_LINK_COLUMNS} FROM alarm_link WHERE contact = ? AND code = ?"
        f" ORDER BY id DESC LIMIT 1{db.for_update()}",
        *(contact, code),
    )
    return AlarmLink(*rows[0]) if rows else None


def make_long_code(db: Db, link: AlarmLink) -> str:
    """Return the long code of a link. The hub accepts the long code even after too many wrong
    codes.
    """
    signed_text = f"long code {link.id} {link.message_id}".encode()
    digest = hmac.new(read_signing_key(db, KEY), signed_text, hashlib.sha256).digest()
    return f"{int.from_bytes(digest) % 10**LONG_CODE:0{LONG_CODE}}"


def list_valid(db: Db, contact: int, now: float) -> list[AlarmLink]:
    """Return the links of a contact that have not expired, also those that were used. For each
    incident, only the newest link is returned. The newest link comes first.
    """
    rows = db.execute(
        f"SELECT {_LINK_COLUMNS} FROM alarm_link WHERE contact = ? AND expires > ?"
        " ORDER BY id DESC",
        *(contact, now),
    )
    links: dict[int, AlarmLink] = {}
    for link in (AlarmLink(*row) for row in rows):
        links.setdefault(link.sos, link)
    return [*links.values()]


def mark_link_used(db: Db, link: AlarmLink, now: float) -> None:
    """Record the Unix time when a link was used."""
    db.execute("UPDATE alarm_link SET used = ? WHERE id = ?", now, link.id)


def _compute_signature(key: bytes, link: AlarmLink) -> str:
    signed_text = "\0".join((str(link.id), str(link.sos), link.message_id, link.name)).encode()
    digest = hmac.new(key, signed_text, hashlib.sha256).digest()[:16]
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
