"""Data package: the file with which ATAK, WinTAK and iTAK add and trust a server.

The package is a zip file with a manifest, settings and PKCS #12 files, like the packages of TAK
Server's own tools. A package for one user contains the user's key and its password, so whoever has
the package can act as this user. A package without a key is for anyone. A phone with such a package
asks for a name and a secret, and then fetches its certificate.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from typing import TypeAlias
from xml.sax.saxutils import escape, quoteattr

from fieldagent.system.lazy_named_tuple import NamedTuple

_Entries: TypeAlias = "dict[str, bool | int | str]"
FOLDER = "certs"
TRUST, OWN, SETTINGS = "truststore.p12", "client.p12", "config.pref"


class Connection(NamedTuple):
    host: str
    port: int
    description: str
    """Name of the server that the phone shows."""
    callsign: str
    """Callsign of the phone's user."""
    password: str
    """Password of both PKCS #12 files."""


def make_data_package(
    uid: str, to: Connection, trust: bytes, client_key: bytes | None = None, *, flat: bool = False
) -> bytes:
    """Return the zip file. `trust` and `client_key` are PKCS #12 files. `uid` identifies the
    package. If `flat` is True, the package has no folders and no manifest, because iTAK requires
    this.
    """
    files = {SETTINGS: _format_settings(to, enrolls=client_key is None).encode(), TRUST: trust}
    if client_key is not None:
        files[OWN] = client_key
    if not flat:
        manifest = _format_manifest(uid, to, files).encode()
        files = {f"{FOLDER}/{name}": content for name, content in files.items()}
        files = {"MANIFEST/manifest.xml": manifest, **files}
    archive_bytes = io.BytesIO()
    with zipfile.ZipFile(archive_bytes, "w") as zipped:
        for name, content in files.items():
            zipped.writestr(zipfile.ZipInfo(name), content)
    return archive_bytes.getvalue()


def _format_manifest(uid: str, to: Connection, names: Iterable[str]) -> str:
    contents = "".join(
        f'    <Content ignore="false" zipEntry="{FOLDER}/{name}"/>\n' for name in names
    )
    return (
        '<MissionPackageManifest version="2">\n'
        "  <Configuration>\n"
        f'    <Parameter name="uid" value={quoteattr(uid)}/>\n'
        f'    <Parameter name="name" value={quoteattr(to.description)}/>\n'
        '    <Parameter name="onReceiveDelete" value="true"/>\n'
        "  </Configuration>\n"
        f"  <Contents>\n{contents}  </Contents>\n"
        "</MissionPackageManifest>\n"
    )


def _format_settings(to: Connection, *, enrolls: bool) -> str:
    # ATAK stores the files of a package in its folder `cert`.
    stream: _Entries = {
        "count": 1,
        "description0": to.description,
        "enabled0": True,
        "connectString0": f"{to.host}:{to.port}:ssl",
    }
    app: _Entries = {
        "displayServerConnectionWidget": True,
        "caLocation": f"cert/{TRUST}",
        "caPassword": to.password,
    }
    if enrolls:
        stream |= {
            "caLocation0": f"cert/{TRUST}",
            "caPassword0": to.password,
            "enrollForCertificateWithTrust0": True,
            "useAuth0": True,
            "cacheCreds0": "Cache credentials",
        }
    else:
        app |= {
            "clientPassword": to.password,
            "certificateLocation": f"cert/{OWN}",
            "locationCallsign": to.callsign,
        }
    return (
        "<?xml version='1.0' encoding='UTF-8' standalone='yes'?>\n<preferences>\n"
        + _format_group("cot_streams", stream)
        + _format_group("com.atakmap.app_preferences", app)
        + "</preferences>\n"
    )


_CLASSES = {bool: "Boolean", int: "Integer", str: "String"}


def _format_group(name: str, entries: _Entries) -> str:
    lines = "".join(
        f'    <entry key="{key}" class="class java.lang.{_CLASSES[type(value)]}">'
        f"{escape(_format_value(value))}</entry>\n"
        for key, value in entries.items()
    )
    return f'  <preference version="1" name="{name}">\n{lines}  </preference>\n'


def _format_value(value: bool | int | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
