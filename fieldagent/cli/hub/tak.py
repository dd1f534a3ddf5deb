"""`fieldagent hub user tak`: whose phones may come to the hub's own TAK server."""

from __future__ import annotations

import argparse
import secrets
import time
from pathlib import Path

from fieldagent.cli.hub.opened_store import show, show_list, with_store
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.bridge.tak_server import certificates
from fieldagent.hub.bridge.tak_server.data_package import Connection, data_package
from fieldagent.hub.bridge.tak_server.kind import NO_CRYPTOGRAPHY
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Db, Store
from fieldagent.system.folder import put_file
from fieldagent.system.wording import reason_of


def tak(given: argparse.Namespace) -> int:
    def carry_out(settings: HubSettings, store: Store) -> int:
        now = time.time()
        if given.user is None:
            if given.out is not None or given.revoke:
                raise Refused("name the user whose phone it is; `fieldagent hub user list`")
            rows = store.once(lambda db: certificates.listing(db, _workspace(db, given, settings)))
            return show_list(given, rows)
        if given.revoke:
            if given.out is not None:
                raise Refused("--out and --revoke: say the one or the other")
            return show(given, store.once(lambda db: _revoke(db, given, settings, now)))
        return show(given, store.once(lambda db: _make(db, given, settings, now)))

    return with_store(given, carry_out)


def _workspace(db: Db, given: argparse.Namespace, settings: HubSettings) -> int:
    """Return the one that the server is for, unless another is named."""
    return directory.workspace_of(db, given.workspace or settings.bridge_own["tak-workspace"] or "")


def _revoke(
    db: Db, given: argparse.Namespace, settings: HubSettings, now: float
) -> dict[str, object]:
    workspace = _workspace(db, given, settings)
    holder = certificates.name_of(db, workspace, given.user)
    many = certificates.revoke(db, workspace, holder.member, now)
    if not many:
        raise Refused(f"{holder.name} has none in force; `fieldagent hub user tak` lists them")
    return {"id": holder.member, "revoked": many}


def _make(
    db: Db, given: argparse.Namespace, settings: HubSettings, now: float
) -> dict[str, object]:
    """Put a certificate in force and write its package; what cannot be written is not in force."""
    address = settings.bridge_own["tak-address"]
    if address is None:
        raise Refused(
            "phones do not know where to come: set tak-listen and tak-address, or name the hub's"
            " settings with --config"
        )
    try:
        from fieldagent.hub.bridge.tak_server import authority
    except ImportError:
        raise Refused(NO_CRYPTOGRAPHY) from None
    host, port = address
    workspace = directory.workspace_of(db, settings.bridge_own["tak-workspace"] or "")
    if given.workspace and directory.workspace_of(db, given.workspace) != workspace:
        raise Refused("the TAK server is for another workspace: tak-workspace names it")
    holder = certificates.name_of(db, workspace, given.user)
    if not directory.is_person(db, holder.member):
        raise Refused(f"{holder.name} is no User: a phone is a person's")
    by = authority.authority(db)
    issued = authority.for_phone(by, holder.name, now)
    expires = issued.certificate.not_valid_after_utc.timestamp()
    certificates.add(db, workspace, holder, issued.serial, expires=expires, now=now)
    password = secrets.token_urlsafe(12)
    written = data_package(
        f"fieldagent-{issued.serial}",
        Connection(host, port, f"{holder.name} at {host}", holder.name, password),
        authority.trust_file(by, password),
        authority.phone_file(by, issued, holder.name, password),
    )
    file = given.out or Path(f"tak-{holder.member}.zip")
    try:
        put_file(file, written)
    except OSError as error:
        raise Refused(f"{file} cannot be written: {reason_of(error)}") from None
    return {
        "id": holder.member,
        "file": str(file),
        "certificate": issued.serial,
        "next": "whoever has the file is that user: give it to their phone, and import it in ATAK",
    }
