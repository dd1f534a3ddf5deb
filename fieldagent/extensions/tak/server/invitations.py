"""Who may fetch a certificate for a phone, by a secret that is shown once: an invitation.

It is good for one key, for a quarter of an hour. The same key may come again meanwhile and gets the
same certificate: an answer that was lost loses nothing. It ends with its user, and with all of
theirs that are revoked.
"""

from __future__ import annotations

import secrets

from fieldagent.extensions.tak.server import certificates
from fieldagent.extensions.tak.server.certificates import PhoneHolder
from fieldagent.hub.access import secret
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.records.audit import ADMINISTRATION, note
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple

LASTS = 900.0
"""Seconds."""
OF_A_USER = 5
"""Invitations of a user that are good at a time; one more, and the oldest ends."""


class CertificateTerms(NamedTuple):
    """What is signed for a phone. Whoever asks again gets the same."""

    serial: str
    """In hexadecimal."""
    expires: float


def invite(db: Db, workspace: int, holder: PhoneHolder, now: float) -> str:
    """Return a new secret, which only its holder's phone is to see."""
    token = secrets.token_urlsafe(18)
    db.execute("DELETE FROM tak_invitation WHERE expires <= ?", now)
    older = db.execute(
        "SELECT token FROM tak_invitation WHERE member = ? ORDER BY expires DESC", holder.member
    )
    for (each,) in older[OF_A_USER - 1 :]:
        db.execute("DELETE FROM tak_invitation WHERE token = ?", each)
    db.execute(
        "INSERT INTO tak_invitation (token, workspace, member, expires) VALUES (?, ?, ?, ?)",
        *(secret.lookup(token), workspace, holder.member, now + LASTS),
    )
    note(db, workspace, ADMINISTRATION, "tak invite", str(holder.member), now)
    return token


def invited(db: Db, workspace: int, name: str, token: str, now: float) -> PhoneHolder | None:
    """Return whom that secret was made for, who must be called so; None where it is not good."""
    rows = db.execute(
        "SELECT member.id, member.name FROM tak_invitation JOIN member ON member.id ="
        " tak_invitation.member JOIN membership ON membership.member = member.id"
        " AND membership.workspace = tak_invitation.workspace WHERE token = ?"
        " AND tak_invitation.workspace = ? AND expires > ? AND member.disabled IS NULL",
        *(secret.lookup(token), workspace, now),
    )
    for holder in map(PhoneHolder._make, rows):
        if holder.name.casefold() == name.casefold():
            return holder
    return None


def use(
    db: Db, workspace: int, holder: PhoneHolder, token: str, key: str, new: CertificateTerms
) -> CertificateTerms | None:
    """Put a certificate of the terms `new` in force for that key, a SHA-256 in hexadecimal, or
    return the terms that it has already; None where the secret was used for another.

    Raises Refused where nobody of that name can be at the server, and for a secret that is no more.
    """
    stored = secret.lookup(token)
    now = new.expires - certificates.PHONE_LASTS
    there = db.execute(
        f"SELECT key, serial FROM tak_invitation WHERE token = ? {db.for_update()}", stored
    )
    if not there:
        # Its body came late: newer invitations, or a revocation, have ended it meanwhile.
        raise Refused("this invitation has ended meanwhile: ask for another")
    ((used, serial),) = there
    if not used:
        db.execute(
            "UPDATE tak_invitation SET key = ?, serial = ? WHERE token = ?",
            *(key, new.serial, stored),
        )
        certificates.add(db, workspace, holder, new.serial, expires=new.expires, now=now)
        return new
    if used != key:
        return None
    rows = db.execute(
        "SELECT serial, expires FROM tak_certificate WHERE serial = ? AND revoked IS NULL", serial
    )
    return CertificateTerms._make(rows[0]) if rows else None
