"""A data package: the file by which ATAK, WinTAK and iTAK learn of a server, and trust it.

It is a zip with a manifest, settings and two PKCS #12 files, as TAK Server's own tools make it.
Whoever has the file is its user: it holds the key, and the password beside it.
"""

from __future__ import annotations

import io
import zipfile
from typing import NamedTuple, TypeAlias
from xml.sax.saxutils import escape, quoteattr

_Entries: TypeAlias = "dict[str, bool | int | str]"
FOLDER = "certs"
TRUST, OWN, SETTINGS = "truststore.p12", "client.p12", "config.pref"


class Connection(NamedTuple):
    host: str
    port: int
    description: str
    """What the phone calls the server."""
    callsign: str
    """Of its user."""
    password: str
    """Of both files."""


def data_package(uid: str, to: Connection, trust: bytes, own: bytes) -> bytes:
    """Return the zip. `trust` and `own` are PKCS #12; `uid` names the package."""
    files = {
        "MANIFEST/manifest.xml": _manifest(uid, to).encode(),
        f"{FOLDER}/{SETTINGS}": _settings(to).encode(),
        f"{FOLDER}/{TRUST}": trust,
        f"{FOLDER}/{OWN}": own,
    }
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as zipped:
        for name, content in files.items():
            zipped.writestr(zipfile.ZipInfo(name), content)
    return written.getvalue()


def _manifest(uid: str, to: Connection) -> str:
    contents = "".join(
        f'    <Content ignore="false" zipEntry="{FOLDER}/{name}"/>\n'
        for name in (SETTINGS, TRUST, OWN)
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


def _settings(to: Connection) -> str:
    # ATAK puts the files of a package into its folder `cert`.
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
        "clientPassword": to.password,
        "certificateLocation": f"cert/{OWN}",
        "locationCallsign": to.callsign,
    }
    return (
        "<?xml version='1.0' encoding='UTF-8' standalone='yes'?>\n<preferences>\n"
        + _group("cot_streams", stream)
        + _group("com.atakmap.app_preferences", app)
        + "</preferences>\n"
    )


_CLASSES = {bool: "Boolean", int: "Integer", str: "String"}


def _group(name: str, entries: _Entries) -> str:
    lines = "".join(
        f'    <entry key="{key}" class="class java.lang.{_CLASSES[type(value)]}">'
        f"{escape(_text(value))}</entry>\n"
        for key, value in entries.items()
    )
    return f'  <preference version="1" name="{name}">\n{lines}  </preference>\n'


def _text(value: bool | int | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
