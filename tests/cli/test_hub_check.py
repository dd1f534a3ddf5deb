"""`fieldagent hub check` finds each fault that would stop a hub, and changes nothing."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from fieldagent.hub.operator import directip
from fieldagent.hub.store.schema import VERSION
from fieldagent.store.sqlite import write_version_header
from fieldagent.system.exit_codes import MISSING, OK, SETTINGS
from tests.cli.test_check import check as run_check
from tests.processes import MODULE, PATIENCE, administer, free_port, hub


def check(
    home: Path, settings: Mapping[str, str], **variables: str
) -> tuple[int, list[str], list[str]]:
    """Return the exit code, the good and the bad findings about a hub with these settings."""
    properties = home / "hub.properties"
    lines = {"database": str(home / "hub.sqlite3"), "port": str(free_port()), **settings}
    properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return run_check(properties, words=("hub", "check"), **variables)


def test_hub_that_can_start_has_good_findings(tmp_path: Path) -> None:
    code, good, bad = check(tmp_path, {}, FIELDAGENT_HUB_KEEP_DAYS="9")
    assert (code, bad) == (OK, [])
    assert any("FIELDAGENT_HUB_KEEP_DAYS" in each for each in good), good
    assert any("there is no database yet" in each for each in good), good
    assert not (tmp_path / "hub.sqlite3").exists()
    administer(str(tmp_path / "hub.sqlite3"), "init", "Alps")
    code, good, bad = check(tmp_path, {})
    assert (code, bad) == (OK, [])
    assert any("hub.sqlite3 can be used" in each for each in good), good


def test_running_hub_is_recognised_and_another_program_is_a_fault(tmp_path: Path) -> None:
    with hub(tmp_path, {"database": str(tmp_path / "hub.sqlite3")}) as running:
        code, good, bad = check(tmp_path, {"port": str(running.port)})
    assert (code, bad) == (OK, [])
    assert f"a hub runs and answers on port {running.port}" in good
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        # It closes the connection without an answer.
        answering = threading.Thread(target=lambda: other.accept()[0].close())
        answering.start()
        code, _, bad = check(tmp_path, {"port": str(port), "listen": "127.0.0.1"})
        answering.join(PATIENCE)
        assert code == SETTINGS
        assert any(f"port {port}" in each and "is in use" in each for each in bad), bad
        for name, title in (
            ("admin-listen", "admin-listen"),
            ("proxy-listen", "proxy-listen"),
            ("directip-listen", directip.KIND.title),
        ):
            taken = {name: f"127.0.0.1:{port}", "trusted-proxies": "127.0.0.1"}
            code, _, (finding,) = check(tmp_path, taken)
            assert code == SETTINGS and finding.startswith(
                f"{title}: port {port} on 127.0.0.1 is in use"
            )


@pytest.mark.parametrize(
    ("version", "finding"),
    [(VERSION + 1, f"it has version {VERSION + 1}"), (0, "damaged")],
)
def test_unusable_database_is_a_fault_and_is_not_changed(
    tmp_path: Path, version: int, finding: str
) -> None:
    file = tmp_path / "hub.sqlite3"
    administer(str(file), "init", "Alps")
    connection = sqlite3.connect(file)
    if version:
        write_version_header(connection, version)
        connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    if not version:
        content = file.read_bytes()
        file.write_bytes(content[:4096] + os.urandom(len(content) - 4096))
    before = file.read_bytes()
    code, _, bad = check(tmp_path, {})
    assert code == SETTINGS and file.read_bytes() == before
    assert any(finding in each for each in bad), bad


def test_certificate_is_checked_with_its_key_and_its_dates(tmp_path: Path) -> None:
    authority = trustme.CA()
    now = datetime.now(UTC)
    pairs = {
        name: authority.issue_cert("hub.example.org", not_before=now - timedelta(9), not_after=end)
        for name, end in {"valid": now + timedelta(9), "expired": now - timedelta(1)}.items()
    }
    for name, pair in pairs.items():
        chain = b"".join(each.bytes() for each in pair.cert_chain_pems)
        (tmp_path / f"{name}.pem").write_bytes(chain)
        (tmp_path / f"{name}.key").write_bytes(pair.private_key_pem.bytes())
    (tmp_path / "text.pem").write_text("no certificate")
    (tmp_path / "text.key").write_text("no key")
    key = load_pem_private_key((tmp_path / "valid.key").read_bytes(), None)
    encryption = BestAvailableEncryption(b"secret")
    (tmp_path / "locked.key").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    )
    table = [
        ("valid", "valid", f"valid until {now + timedelta(9):%Y-%m-%d}"),
        ("expired", "expired", "certificate has expired"),
        ("valid", "expired", "expired.key cannot be used: it does not belong to the certificate"),
        ("none", "valid", "none.pem cannot be used: no such file"),
        ("valid", "none", "none.key cannot be used: no such file"),
        ("text", "valid", "text.pem cannot be used: it is not a certificate"),
        ("valid", "text", "text.key cannot be used: it is not a private key"),
        ("valid", "locked", "locked.key cannot be used: it is not a private key in PEM format"),
    ]
    for chain_name, key_name, finding in table:
        code, good, bad = check(
            tmp_path,
            {
                "tls-certificate": str(tmp_path / f"{chain_name}.pem"),
                "tls-key": str(tmp_path / f"{key_name}.key"),
            },
        )
        assert code == (OK if (chain_name, key_name) == ("valid", "valid") else SETTINGS)
        assert any(finding in each for each in (good if code == OK else bad)), (good, bad)


def test_hub_that_cannot_use_its_key_names_the_setting_and_the_file(tmp_path: Path) -> None:
    pair = trustme.CA().issue_cert("hub.example.org")
    pair.private_key_and_cert_chain_pem.write_to_path(tmp_path / "pair.pem")
    properties = tmp_path / "hub.properties"
    properties.write_text(
        f"database={tmp_path}/hub.sqlite3\nport=0\n"
        f"tls-certificate={tmp_path}/pair.pem\ntls-key={tmp_path}/none.key\n"
    )
    done = subprocess.run(
        [*MODULE, "hub", "run", "--config", str(properties)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert f"tls-key {tmp_path}/none.key cannot be used: no such file" in done.stderr


def test_other_faults_are_named_with_their_setting(tmp_path: Path) -> None:
    code, _, bad = check(tmp_path, {"map-file": str(tmp_path / "none.pmtiles")})
    assert code == SETTINGS and "map-file" in bad[0]
    code, _, bad = check(tmp_path, {}, FIELDAGENT_HUB_PROT="1")
    assert code == SETTINGS and "FIELDAGENT_HUB_PROT" in bad[0]
    code, _, bad = check(tmp_path, {"database": "sqlite:///hub.sqlite3"})
    assert code == SETTINGS and "database must be postgresql://… or the path of an" in bad[0]
    code, _, bad = check(tmp_path, {"database": f"postgresql://127.0.0.1:{free_port()}/none"})
    assert code == SETTINGS and "PostgreSQL" in bad[0]
    done = subprocess.run(
        [*MODULE, "hub", "check", "--config", str(tmp_path / "missing.properties")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == MISSING and "missing.properties" in done.stderr
