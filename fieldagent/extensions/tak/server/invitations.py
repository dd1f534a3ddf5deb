"""Invitations: secrets with which a phone can fetch a certificate. Each secret is shown only once.

An invitation is valid for one key and for a quarter of an hour. If the same key is used again
within this time, the phone gets the same certificate, so a lost response does no harm. An
invitation ends when its user is disabled or the user's certificates are revoked.
"""

from __future__ import annotations

import secrets

from fieldagent.extensions.tak.server import certificates
from fieldagent.extensions.tak.server.certificates import PhoneHolder
from fieldagent.hub.access import secret
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.records.audit import ADMINISTRATION, write_line
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple

LIFETIME_S = 900.0
"""Seconds for which an invitation is valid."""
OF_A_USER = 5
"""Largest number of valid invitations of a user. A further invitation ends the oldest
invitation."""


class CertificateTerms(NamedTuple):
    """Terms of a phone's certificate. A repeated request has the same terms."""

    serial: str
    """Serial number of the certificate, in hexadecimal."""
    expires: float


def create_invitation(db: Db, workspace: int, holder: PhoneHolder, now: float) -> str:
    """Create an invitation and return its secret, which only the user's phone may see. Delete the
    user's oldest invitations, so that the user has at most OF_A_USER.
    """
    token = secrets.token_urlsafe(18)
    db.execute("DELETE FROM tak_invitation WHERE expires <= ?", now)
    older = db.execute(
        "SELECT token FROM tak_invitation WHERE member = ? ORDER BY expires DESC", holder.member
    )
    for (each,) in older[OF_A_USER - 1 :]:
        db.execute("DELETE FROM tak_invitation WHERE token = ?", each)
    db.execute(
        "INSERT INTO tak_invitation (token, workspace, member, expires) VALUES (?, ?, ?, ?)",
        *(secret.hash_for_lookup(token), workspace, holder.member, now + LIFETIME_S),
    )
    write_line(db, workspace, ADMINISTRATION, "tak invite", str(holder.member), now)
    return token


def find_invited(db: Db, workspace: int, name: str, token: str, now: float) -> PhoneHolder | None:
    """Return the user for whom the secret `token` was created. Return None if the secret is not
    valid or the name is not the user's.
    """
    rows = db.execute(
        "SELECT member.id, member.name FROM tak_invitation JOIN member ON member.id ="
        " tak_invitation.member JOIN membership ON membership.member = member.id"
        " AND membership.workspace = tak_invitation.workspace WHERE token = ?"
        " AND tak_invitation.workspace = ? AND expires > ? AND member.disabled IS NULL",
        *(secret.hash_for_lookup(token), workspace, now),
    )
    for holder in map(PhoneHolder._make, rows):
        if holder.name.casefold() == name.casefold():
            return holder
    return None


def use_invitation(
    db: Db, workspace: int, holder: PhoneHolder, token: str, key: str, new: CertificateTerms
) -> CertificateTerms | None:
    """Issue a certificate with the terms `new` for a key (SHA-256 in hexadecimal), and return its
    terms. If the key has a certificate already, return the terms of that certificate. Return None
    if the certificate was revoked, or if the secret was used for another key.

    Raises Refused if the name cannot be used at the server, or if the secret is no longer valid.
    """
    stored = secret.hash_for_lookup(token)
    now = new.expires - certificates.PHONE_LIFETIME
    invitation_rows = db.execute(
        f"SELECT key, serial FROM tak_invitation WHERE token = ? {db.for_update()}", stored
    )
    if not invitation_rows:
        # The request was slow. Meanwhile, newer invitations or a revocation have ended this
        # invitation.
        raise Refused("this invitation has expired in the meantime: ask for another")
    ((used_at, serial),) = invitation_rows
    if not used_at:
        db.execute(
            "UPDATE tak_invitation SET key = ?, serial = ? WHERE token = ?",
            *(key, new.serial, stored),
        )
        certificates.add_certificate(
            db, workspace, holder, new.serial, expires=new.expires, now=now
        )
        return new
    if used_at != key:
        return None
    rows = db.execute(
        "SELECT serial, expires FROM tak_certificate WHERE serial = ? AND revoked IS NULL", serial
    )
    return CertificateTerms._make(rows[0]) if rows else None
