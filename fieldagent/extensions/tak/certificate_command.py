"""`fieldagent hub user tak`: certificates of phones for the hub's own TAK server."""

from __future__ import annotations

import argparse
import secrets
import time
from pathlib import Path
from urllib.parse import urlencode

from fieldagent.cli.hub.opened_store import run_with_store, show, show_list
from fieldagent.cli.qr_code import show_qr_code
from fieldagent.extensions.tak.server import certificates, invitations
from fieldagent.extensions.tak.server.certificates import PhoneHolder
from fieldagent.extensions.tak.server.data_package import Connection, make_data_package
from fieldagent.extensions.tak.server.kind import NO_CRYPTOGRAPHY
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Db, Store
from fieldagent.system.exit_codes import OK
from fieldagent.system.folder import replace_file
from fieldagent.system.wording import describe_reason

ENROLL = "tak://com.atakmap.app/enroll"
"""URL that ATAK accepts as a link and as a QR code."""


def run_command(arguments: argparse.Namespace) -> int:
    """List, issue or revoke certificates of phones, invite a phone with a QR code, or write the
    package with the certificate authority that phones must trust.
    """
    drawn_codes: list[str] = []

    def carry_out(settings: HubSettings, store: Store) -> int:
        _check(arguments)
        if arguments.user is None and arguments.trust is None:
            rows = store.run_once(
                lambda db: certificates.list_certificates(
                    db, _find_workspace(db, arguments, settings)
                )
            )
            return show_list(arguments, rows)
        now = time.time()
        if arguments.trust is not None:
            result = store.run_once(lambda db: _trust(db, arguments, settings))
        elif arguments.revoke:
            result = store.run_once(lambda db: _revoke(db, arguments, settings, now))
        elif arguments.qr:
            result = store.run_once(lambda db: _invite(db, arguments, settings, now))
            drawn_codes.append(str(result["itak" if arguments.itak else "link"]))
        else:
            result = store.run_once(lambda db: _make(db, arguments, settings, now))
        return show(arguments, result, secret_names=())

    code = run_with_store(arguments, carry_out)
    if code == OK and drawn_codes and not arguments.json:
        show_qr_code(drawn_codes[0])
    return code


def _check(arguments: argparse.Namespace) -> None:
    """Raise Refused if the arguments contradict each other, or if the user is missing."""
    chosen = [
        name
        for name, value in (
            ("--out", arguments.out),
            ("--qr", arguments.qr or None),
            ("--revoke", arguments.revoke or None),
            ("--trust", arguments.trust),
        )
        if value is not None
    ]
    if len(chosen) > 1:
        raise Refused(f"{' and '.join(chosen)}: use only one of them")
    if arguments.user is None and (arguments.itak or chosen not in ([], ["--trust"])):
        raise Refused("name the user of the phone: `fieldagent hub user list` shows all")
    if arguments.user is not None and arguments.trust is not None:
        raise Refused("--trust makes one file for all phones: leave the user out")


def _find_workspace(db: Db, arguments: argparse.Namespace, settings: HubSettings) -> int:
    """Return the named workspace, or the workspace of the TAK server."""
    return directory.find_workspace(
        db, arguments.workspace or settings.bridge_own["tak-workspace"] or ""
    )


def _revoke(
    db: Db, arguments: argparse.Namespace, settings: HubSettings, now: float
) -> dict[str, object]:
    workspace = _find_workspace(db, arguments, settings)
    holder = certificates.find_user(db, workspace, arguments.user)
    revoked_count = certificates.revoke_certificates(db, workspace, holder.member, now)
    if not revoked_count:
        raise Refused(f"{holder.name} has no active certificate; see `fieldagent hub user tak`")
    return {"id": holder.member, "revoked": revoked_count}


def _find_address(settings: HubSettings) -> tuple[str, int]:
    address: tuple[str, int] | None = settings.bridge_own["tak-address"]
    if address is None:
        raise Refused(
            "phones need an address: set tak-listen and tak-address, or name the hub's"
            " settings with --config"
        )
    return address


def _find_holder(
    db: Db, arguments: argparse.Namespace, settings: HubSettings
) -> tuple[int, PhoneHolder]:
    """Return the server's workspace, and the named person. Raises Refused if the server is for
    another workspace, or if the user is not a person.
    """
    workspace = directory.find_workspace(db, settings.bridge_own["tak-workspace"] or "")
    if arguments.workspace and directory.find_workspace(db, arguments.workspace) != workspace:
        raise Refused("the TAK server is for another workspace: tak-workspace names it")
    holder = certificates.find_user(db, workspace, arguments.user)
    if not directory.is_person(db, holder.member):
        raise Refused(f"{holder.name} is not a User: a phone must belong to a person")
    return workspace, holder


def _make(
    db: Db, arguments: argparse.Namespace, settings: HubSettings, now: float
) -> dict[str, object]:
    """Issue a certificate and write its package. If the package cannot be written, the certificate
    remains invalid.
    """
    host, port = _find_address(settings)
    try:
        from fieldagent.extensions.tak.server import authority
    except ImportError:
        raise Refused(NO_CRYPTOGRAPHY) from None
    workspace, holder = _find_holder(db, arguments, settings)
    own_authority = authority.open_authority(db)
    issued = authority.issue_for_phone(own_authority, holder.name, now)
    expires = authority.find_expiry(issued.certificate).timestamp()
    certificates.add_certificate(db, workspace, holder, issued.serial, expires=expires, now=now)
    password = secrets.token_urlsafe(12)
    package_bytes = make_data_package(
        f"fieldagent-{issued.serial}",
        Connection(host, port, f"{holder.name} at {host}", holder.name, password),
        authority.encode_trust_file(own_authority, password),
        authority.encode_phone_file(own_authority, issued, holder.name, password),
        flat=arguments.itak,
    )
    file = arguments.out or Path(f"tak-{holder.member}.zip")
    _write_file(file, package_bytes)
    app = "iTAK" if arguments.itak else "ATAK"
    return {
        "id": holder.member,
        "file": str(file),
        "certificate": issued.serial,
        "next": (
            "anyone with the file acts as that user: copy it to their phone, and import it in"
            f" {app}"
        ),
    }


def _write_file(file: Path, content: bytes) -> None:
    try:
        replace_file(file, content)
    except OSError as error:
        raise Refused(f"{file} cannot be written: {describe_reason(error)}") from None


def _trust(db: Db, arguments: argparse.Namespace, settings: HubSettings) -> dict[str, object]:
    """Write the package that makes phones trust the server. The package contains no secret."""
    host, port = _find_address(settings)
    try:
        from fieldagent.extensions.tak.server import authority
    except ImportError:
        raise Refused(NO_CRYPTOGRAPHY) from None
    issuer = authority.open_authority(db)
    # The file format requires a password, although the file contains no secret.
    password = secrets.token_urlsafe(12)
    connection = Connection(host, port, f"fieldagent at {host}", "", password)
    trusted = authority.encode_trust_file(issuer, password)
    name = f"fieldagent-{issuer.certificate.serial_number:x}"
    _write_file(arguments.trust, make_data_package(name, connection, trusted))
    return {
        "file": str(arguments.trust),
        "next": "it holds no secret: import it, then give name and secret as `--qr` shows them",
    }


def _invite(
    db: Db, arguments: argparse.Namespace, settings: HubSettings, now: float
) -> dict[str, object]:
    host, port = _find_address(settings)
    if settings.bridge_own["tak-enroll-listen"] is None:
        raise Refused(
            "phones cannot fetch certificates here: set tak-enroll-listen to 0.0.0.0:8446, or make"
            " a file with --out"
        )
    workspace, holder = _find_holder(db, arguments, settings)
    token = invitations.create_invitation(db, workspace, holder, now)
    enrolment = {"username": holder.name, "token": token}
    return {
        "id": holder.member,
        "username": holder.name,
        "token": token,
        "link": f"{ENROLL}?{urlencode({'host': host, **enrolment})}",
        # Without the port, PyTAK would connect by WebSocket, which only TAK Server supports. In
        # PyTAK's settings file, a percent sign has a special meaning.
        "pytak": f"{ENROLL}?{urlencode({'host': f'{host}:{port}', **enrolment}, safe=':')}",
        "itak": f"{holder.name.replace(',', ' ')},{host},{port},SSL",
        "expires": now + invitations.LIFETIME_S,
        "next": "scan it in ATAK within a quarter of an hour; iTAK asks for username and token",
    }
