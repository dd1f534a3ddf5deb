"""`fieldagent hub check`: checks whether the hub can start with its settings, and shows the fixes.
A running hub is not affected.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sqlite3
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from fieldagent.cli.findings import check_map, make_settings_finding, print_findings
from fieldagent.http.certificate import load_certificate
from fieldagent.http.listeners import ListenFailed, open_listeners
from fieldagent.hub.console.passkeys import find_missing_library
from fieldagent.hub.operator.registry import get_operators
from fieldagent.hub.settings import ENVIRONMENT, HubSettings, load_settings, make_database_options
from fieldagent.hub.store.copies import refuse_lost_database
from fieldagent.hub.store.opening import is_postgres, open_store
from fieldagent.hub.store.schema import make_hub_schema
from fieldagent.hub.store.sqlite import TYPES
from fieldagent.store.group import StoreFailed, StoreUnavailable
from fieldagent.store.sqlite import CHECK, open_reader, read_version_header
from fieldagent.store.trouble import is_damage, make_unusable
from fieldagent.system.as_owner import switch_to_owner_of
from fieldagent.system.exit_codes import MISSING, OK, SETTINGS
from fieldagent.system.finding import Finding
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.wording import describe_reason

ANSWER_TIMEOUT_S = 5.0
"""Seconds within which a running hub must respond."""


def check(arguments: argparse.Namespace) -> int:
    """Print each finding. Return MISSING if there is no settings file, and SETTINGS if there is any
    other fault.
    """
    code = SETTINGS
    try:
        settings = load_settings(arguments.config, arguments.database)
    except InvalidSettings as invalid:
        findings = [Finding(False, line) for line in str(invalid).splitlines()]
    except OSError as error:
        findings = [Finding(False, f"the settings cannot be read: {describe_reason(error)}")]
        code = MISSING if isinstance(error, FileNotFoundError) else SETTINGS
    else:
        findings = [make_settings_finding(ENVIRONMENT), *_list_findings(settings)]
    return OK if print_findings(findings, as_json=arguments.json) else code


def _list_findings(settings: HubSettings) -> Iterator[Finding]:
    if settings.port:
        # Root checks the port before it becomes the hub's user: the unit may have the right to use
        # a port below 1024.
        yield from _check_ports(settings)
    if is_postgres(settings.database):
        yield _check_postgres(settings)
    else:
        file = Path(settings.database)
        # Root must not create files in the folder of the hub's user, and the hub reads its
        # certificate and its map as this user.
        try:
            switch_to_owner_of(file.parent)
        except OSError as error:
            yield Finding(False, describe_reason(error))
            return
        yield _check_file(file)
    if settings.tls_certificate is not None and settings.tls_key is not None:
        yield _check_certificate(settings.tls_certificate, settings.tls_key)
    if settings.map_file is not None:
        yield check_map(settings.map_file)
    if settings.console_address is not None:
        fault = find_missing_library()
        yield Finding(not fault, fault or f"passkeys can be used at {settings.console_address}")


def _check_postgres(settings: HubSettings) -> Finding:
    try:
        open_store(settings.database, make_database_options(settings)).close()
    except (StoreUnavailable, StoreFailed) as error:
        return Finding(False, str(error))
    return Finding(True, "PostgreSQL answers, and its tables have this program's version")


def _check_file(file: Path) -> Finding:
    """Check the SQLite file without changing it: the hub upgrades an older version when it
    starts.
    """
    schema = make_hub_schema(TYPES)
    try:
        refuse_lost_database(file)
        if not file.exists():
            return _check_folder(file)
        with closing(open_reader(file)) as reader:
            ((damage,),) = reader.execute(CHECK).fetchmany(1)
            if damage != "ok":
                raise sqlite3.DatabaseError(damage)
            version = read_version_header(reader, schema.version).version
            schema.judge(version)
    except StoreFailed as error:
        return Finding(False, str(error))
    except (OSError, sqlite3.Error) as error:
        if is_damage(error):
            return Finding(False, f"the database {file} is damaged: {error}; restore a backup")
        return Finding(False, str(make_unusable(file, error)))
    if version < schema.version:
        return Finding(True, f"the database {file} will be upgraded when the hub starts")
    return Finding(True, f"the database {file} can be used")


def _check_folder(file: Path) -> Finding:
    existing = next(folder for folder in file.absolute().parents if folder.exists())
    if os.access(existing, os.W_OK | os.X_OK):
        return Finding(True, f"there is no database yet: `fieldagent hub init` creates {file}")
    return Finding(
        False, f"there is no database, and this user cannot create {file}: set `database`"
    )


def _check_certificate(chain: Path, key: Path) -> Finding:
    """Check the pair by a TLS handshake in memory. The client trusts this certificate alone, so
    only a wrong key and the dates can fail.
    """
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_tls.check_hostname = False
    client_tls.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        load_certificate(server_tls, chain, key)
        client_tls.load_verify_locations(chain)
        expires = _read_expiry(server_tls, client_tls)
    except ssl.SSLCertVerificationError as error:
        return Finding(False, f"tls-certificate {chain} cannot be used: {error.verify_message}")
    except OSError as error:
        return Finding(False, str(error))
    return Finding(True, f"the certificate {chain} is valid until {expires}")


def _read_expiry(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> str:
    """Return the last day of the server's certificate, such as 2026-12-31. Raises ssl.SSLError."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_tls.wrap_bio(to_server, to_client, server_side=True)
    client = client_tls.wrap_bio(to_client, to_server)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    seconds = ssl.cert_time_to_seconds(str((client.getpeercert() or {})["notAfter"]))
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def _check_ports(settings: HubSettings) -> Iterator[Finding]:
    """Check the ports of the hub. A running hub holds its ports already."""
    port = settings.port
    finding = _check_port(port, settings.listen)
    if not finding.good and _is_hub_running(settings):
        yield Finding(True, f"a hub runs and answers on port {port}")
        return
    yield finding
    for name, address in (
        ("proxy-listen", settings.proxy_listen),
        ("admin-listen", settings.admin_listen),
    ):
        if address is not None:
            host, other_port = address
            found = _check_port(other_port, [host])
            yield found._replace(text=f"{name}: {found.text}")
    for kind in get_operators(settings.operators).values():
        try:
            listener = kind.listen(settings.operator_own)
        except ListenFailed as error:
            yield Finding(False, f"{kind.title}: {error}")
            continue
        if listener is not None:
            for each in listener.sockets:
                each.close()
            yield Finding(True, f"{kind.title}: the port for its gateway is free")


def _check_port(port: int, hosts: Sequence[str]) -> Finding:
    try:
        for each in open_listeners(port, hosts, allow_remote=True):
            each.close()
    except ListenFailed as error:
        return Finding(False, str(error))
    return Finding(True, f"port {port} is free on {' and '.join(hosts)}")


def _is_hub_running(settings: HubSettings) -> bool:
    """Return True if a hub answers on the port of the settings."""
    host, port = settings.listen[0], settings.port
    if settings.tls_certificate is None:
        connection = http.client.HTTPConnection(host, port, timeout=ANSWER_TIMEOUT_S)
    else:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=ANSWER_TIMEOUT_S, context=tls)
    with closing(connection):
        try:
            connection.request("GET", "/livez")
            return bool(json.load(connection.getresponse()) == {"status": "UP"})
        except (OSError, http.client.HTTPException, ValueError):
            return False
