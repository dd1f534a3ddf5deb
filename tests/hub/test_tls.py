"""A hub process with a certificate of a private authority: links and pushes, and what it logs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import trustme

from tests.processes import MODULE, PATIENCE, administer, agent, hub


def test_links_and_pushes_in_tls_and_no_secret_in_the_log(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    for name, blobs in (
        ("ca.pem", [authority.cert_pem]),
        ("chain.pem", issued.cert_chain_pems),
        ("key.pem", [issued.private_key_pem]),
    ):
        (tmp_path / name).write_bytes(b"".join(blob.bytes() for blob in blobs))
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    administer(database, "user", "add", "Ada", "--password", secret="of Ada: a long one\n")
    device = administer(database, "device", "add", "kit", "--user", "Ada")
    settings = {
        "database": database,
        "tls-certificate": str(tmp_path / "chain.pem"),
        "tls-key": str(tmp_path / "key.pem"),
    }

    def push(address: str, *arguments: str, token: str) -> subprocess.CompletedProcess[str]:
        common = ["--hub", address, "--workspace", "1", "--target", "2", "--patience", "0"]
        return subprocess.run(
            [*MODULE, "push", "message", *common, *arguments, "Storm at noon"],
            env={**os.environ, "FIELDAGENT_API_KEY": first["apiKey"], "FIELDAGENT_TOKEN": token},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    with hub(tmp_path, settings) as running:
        assert running.address.startswith("https://")
        by_tls: dict[str, Any] = {
            "satellite-port": None,
            "hub-address": running.address,
            "hub-token": device["hub-token"],
            "hub-ca-file": str(tmp_path / "ca.pem"),
            "inbound-hook": "cat",
        }
        (tmp_path / "kit").mkdir()
        with agent(tmp_path / "kit", by_tls) as kit:
            kit.expect("linked to the hub")
            trusted = ("--ca-file", str(tmp_path / "ca.pem"))
            by_token = push(running.address, "--source", "1", *trusted, token=first["token"])
            assert (by_token.returncode, by_token.stdout) == (0, "accepted\n"), by_token.stderr
            kit.expect("Storm at noon")
            ada = ("--username", "2", "--source", "2")
            by_name = push(running.address, *ada, *trusted, token="of Ada: a long one")
            assert by_name.returncode == 0, by_name.stderr
            stranger = push(running.address, "--source", "1", token=first["token"])
            assert stranger.returncode == 69
            assert "certificate" in stranger.stderr
        told = "\n".join(running.output())
    secrets = (first["apiKey"], first["token"], device["hub-token"], "of Ada")
    assert "kit is linked" in told
    assert [secret for secret in secrets if secret in told] == []
