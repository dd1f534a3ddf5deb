"""Certificates for the hub's own TAK server, and the phones that use them.

1. A certificate is valid while its row exists, while it is neither revoked nor expired, and while
   its user is enabled and in the workspace.
2. A phone's uid belongs to the user whose certificate the phone used first, until that certificate
   is revoked. This matters because private messages go to a uid.
3. A user with a certificate is a person at the server (`bridge.records`), under their own name.
"""

from __future__ import annotations

from collections.abc import Collection

from fieldagent.extensions.tak.bridge.records import TakPerson
from fieldagent.hub.access.directory import Refused, Row, find_member, make_named_rows
from fieldagent.hub.records.audit import ADMINISTRATION, write_line
from fieldagent.hub.store.contract import Db, make_membership
from fieldagent.system.lazy_named_tuple import NamedTuple

PHONE_LIFETIME = 730 * 86_400.0
"""Validity of a phone's certificate in seconds."""


class PhoneHolder(NamedTuple):
    """User to whom a phone belongs."""

    member: int
    name: str


_IN_FORCE = (
    "tak_certificate JOIN member ON member.id = tak_certificate.member JOIN membership"
    " ON membership.member = member.id AND membership.workspace = tak_certificate.workspace"
    " WHERE revoked IS NULL AND member.disabled IS NULL AND tak_certificate.workspace = ?"
    " AND tak_certificate.expires > ?"
)


def find_user(db: Db, workspace: int, name_or_id: str) -> PhoneHolder:
    """Return the user with this name, id or address. Raises Refused if there is no such user."""
    member = find_member(db, workspace, name_or_id)
    ((name,),) = db.execute("SELECT name FROM member WHERE id = ?", member)
    return PhoneHolder(member, name)


def add_certificate(
    db: Db, workspace: int, holder: PhoneHolder, serial: str, *, expires: float, now: float
) -> None:
    """Store a new certificate, which is valid from now on. Raises Refused if another user has the
    same name at the server.
    """
    known_rows = db.execute(
        "SELECT member FROM tak_person WHERE workspace = ? AND callsign = ?",
        *(workspace, holder.name),
    )
    if known_rows and known_rows[0][0] != holder.member:
        raise Refused(
            f"another {holder.name} is at the TAK server, user {known_rows[0][0]}: phones"
            " distinguish people only by name"
        )
    db.execute(
        "INSERT INTO tak_certificate (serial, workspace, member, made, expires)"
        " VALUES (?, ?, ?, ?, ?)",
        *(serial, workspace, holder.member, now, expires),
    )
    db.execute(
        "INSERT INTO tak_person (workspace, callsign, member, uid) VALUES (?, ?, ?, '')"
        " ON CONFLICT DO NOTHING",
        *(workspace, holder.name, holder.member),
    )
    write_line(
        db, workspace, ADMINISTRATION, "tak certificate add", f"{holder.member} {serial}", now
    )


def revoke_certificates(db: Db, workspace: int, member: int, now: float) -> int:
    """Revoke all certificates and invitations of a user, so that others may use the user's name at
    the server. Return the number of certificates.
    """
    db.execute("DELETE FROM tak_invitation WHERE workspace = ? AND member = ?", workspace, member)
    revoked_rows = db.execute(
        "UPDATE tak_certificate SET revoked = ? WHERE workspace = ? AND member = ?"
        " AND revoked IS NULL RETURNING serial",
        *(now, workspace, member),
    )
    db.execute("DELETE FROM tak_person WHERE workspace = ? AND member = ?", workspace, member)
    for (serial,) in revoked_rows:
        write_line(
            db, workspace, ADMINISTRATION, "tak certificate revoke", f"{member} {serial}", now
        )
    return len(revoked_rows)


def list_certificates(db: Db, workspace: int) -> list[Row]:
    """Return all certificates of a workspace in the order of their users, including revoked and
    expired certificates.
    """
    names = ("user", "name", "made", "expires", "revoked", "seen", "phone")
    return make_named_rows(
        db,
        "SELECT member.id, member.name, made, tak_certificate.expires, revoked, seen, uid"
        " FROM tak_certificate JOIN member ON member.id = tak_certificate.member"
        " WHERE tak_certificate.workspace = ? ORDER BY member.id, made, serial",
        names,
        workspace,
    )


def find_holder(db: Db, workspace: int, serial: str, now: float) -> PhoneHolder | None:
    """Return the user of a certificate, or None if the certificate is not valid."""
    rows = db.execute(
        f"SELECT member.id, member.name FROM {_IN_FORCE} AND serial = ?", workspace, now, serial
    )
    return PhoneHolder._make(rows[0]) if rows else None


def find_valid(db: Db, workspace: int, serials: Collection[str], now: float) -> set[str]:
    """Return the serial numbers of `serials` that belong to valid certificates."""
    if not serials:
        return set()
    which, membership_values = make_membership(db, serials)
    rows = db.execute(
        f"SELECT serial FROM {_IN_FORCE} AND serial {which}", workspace, now, *membership_values
    )
    return {serial for (serial,) in rows}


def find_phone_owner(db: Db, workspace: int, uid: str, now: float) -> PhoneHolder | None:
    """Return the user whose valid certificate the phone with this uid used first, or None if the
    phone has used no certificate that is still valid.
    """
    rows = db.execute(
        f"SELECT member.id, member.name FROM {_IN_FORCE} AND uid = ? ORDER BY seen",
        *(workspace, now, uid),
    )
    return PhoneHolder._make(rows[0]) if rows else None


def list_phones(db: Db, workspace: int, now: float) -> list[tuple[str, str, int]]:
    """Return the serial number, the uid and the user of each phone that has connected with a
    certificate that is still valid.
    """
    rows = db.execute(
        f"SELECT serial, uid, member.id FROM {_IN_FORCE} AND uid IS NOT NULL AND uid <> ''",
        *(workspace, now),
    )
    return [(serial, uid, member) for serial, uid, member in rows]


def record_phone(db: Db, serial: str, member: int, uid: str, now: float) -> None:
    """Record that a phone has connected. From now on, messages for its user go to this phone.
    Unconfirmed messages are sent again immediately.
    """
    db.execute("UPDATE tak_certificate SET uid = ?, seen = ? WHERE serial = ?", uid, now, serial)
    db.execute("UPDATE tak_person SET uid = ? WHERE member = ?", uid, member)
    db.execute(
        "UPDATE tak_event SET not_before = ? WHERE inward = 0 AND person = ?"
        " AND state IN ('waiting', 'sent')",
        *(now, member),
    )


def find_person(db: Db, workspace: int, callsign: str, uid: str, now: float) -> TakPerson | None:
    """Return the user of a phone, whatever its callsign is. Implements `FindPerson`. From now on,
    messages for the user go to this phone.
    """
    owner = find_phone_owner(db, workspace, uid, now)
    if owner is None:
        return None
    db.execute(
        "UPDATE tak_person SET uid = ? WHERE member = ? AND uid <> ?", uid, owner.member, uid
    )
    return TakPerson(owner.member, owner.name, uid)
