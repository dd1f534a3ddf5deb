"""Settings and start of the hub's own TAK server for phones."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from fieldagent.extensions.tak.bridge.kind import read_rules
from fieldagent.hub.bridge.contract import BridgeHost, BridgeKind, Own
from fieldagent.system.properties import Key, read_absolute_path, read_endpoint

log = logging.getLogger(__name__)

NO_CRYPTOGRAPHY = (
    "a TAK server for phones needs cryptography at the hub: apt install python3-cryptography"
)
KEYS = (
    Key(
        "tak-listen",
        read_endpoint,
        None,
        "HOST:PORT of the hub's own TAK server for users' phones, such as 0.0.0.0:8089"
        " (docs/how-to/tak-server.md)",
    ),
    Key(
        "tak-address",
        read_endpoint,
        None,
        "HOST:PORT of that server for phones: data packages contain it, and the server's"
        " certificate contains HOST",
    ),
    Key(
        "tak-enroll-listen",
        read_endpoint,
        None,
        "HOST:8446 from which phones fetch their certificates after they scanned the code of"
        " `fieldagent hub user tak NAME --qr`; all TAK apps use that port",
    ),
    Key(
        "tak-enroll-certificate",
        read_absolute_path,
        None,
        "PEM file with a certificate for the host of tak-address that phones already trust, and"
        " its chain; read again each hour. Without it, phones need the hub's own authority"
        " first",
    ),
    Key(
        "tak-enroll-key",
        read_absolute_path,
        None,
        "PEM file with the key of that certificate, without a password",
    ),
)
EXAMPLES = {
    "tak-listen": "0.0.0.0:8089",
    "tak-address": "hub.example.org:8089",
    "tak-enroll-listen": "0.0.0.0:8446",
    "tak-enroll-certificate": "/etc/letsencrypt/live/hub.example.org/fullchain.pem",
    "tak-enroll-key": "/etc/letsencrypt/live/hub.example.org/privkey.pem",
}


def _find_faults(settings: Own) -> list[str]:
    faults = []
    for name in ("tak-enroll-listen", "tak-enroll-certificate"):
        needed = "tak-listen" if name == "tak-enroll-listen" else "tak-enroll-listen"
        if settings[name] is not None and settings[needed] is None:
            faults.append(f"{name} needs {needed}: set that too, or remove {name}")
    if settings["tak-listen"] is None:
        return faults
    if settings["tak-server"] is not None:
        faults.append("tak-server and tak-listen cannot both be set: remove one of them")
    if settings["tak-workspace"] is None:
        faults.append("tak-listen needs tak-workspace: set that too, or remove tak-listen")
    return faults


def _run_server(host: BridgeHost) -> Callable[[], Awaitable[None]] | None:
    own = host.own
    if own["tak-listen"] is None or own["tak-workspace"] is None:
        return None
    # Import the server only here. Every hub command reads these settings, and most hubs have no
    # phones.
    from fieldagent.extensions.tak.bridge import service

    try:
        from fieldagent.extensions.tak.server.server import PhoneServer, open_own_server
    except ImportError:
        log.error("tak-listen: %s", NO_CRYPTOGRAPHY)
        return None
    server = PhoneServer(
        own["tak-listen"],
        own["tak-address"][0],
        own["tak-enroll-listen"],
        own["tak-enroll-certificate"],
        own["tak-enroll-key"],
    )
    # The bridge is connected while the server listens, even if no user is connected.
    quiet = host._replace(note_link=lambda up: None if up else host.note_link(False))
    return partial(service.run, quiet, partial(open_own_server, host, server), read_rules(own))


KIND = BridgeKind(
    name="phones",
    title="the TAK server for phones",
    keys=KEYS,
    work=_run_server,
    examples=EXAMPLES,
    together=(("tak-listen", "tak-address"), ("tak-enroll-certificate", "tak-enroll-key")),
    faults=_find_faults,
)
