"""`fieldagent hub tak enroll`: fetches the hub's certificate from a team's TAK server with the user
name and password of the hub's account at this server. The command does not use trio.
"""

from __future__ import annotations

import argparse
import base64
import ssl
import uuid
from functools import partial
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlencode

from fieldagent.cli.ask_password import ask_once
from fieldagent.cli.kit.answer import make_calling, show
from fieldagent.extensions.tak.bridge.kind import PORTS
from fieldagent.http import tls
from fieldagent.http.exchange import exchange
from fieldagent.kit.local_http import CallFailed
from fieldagent.system.exit_codes import IO_FAILED, OK, REFUSED, UNAVAILABLE
from fieldagent.system.folder import replace_file
from fieldagent.system.terminal import escape_line
from fieldagent.system.wording import describe_reason

API = "/Marti/api/tls"
TIMEOUT_S = 30.0
ANSWER_SHOWN_MAX = 200
"""Largest number of bytes that are shown of a server's refusal."""
GROUP = "fieldagent-hub"
"""Group of the hub's system user, which must read the files."""
FILES = {"tak-key": "tak-key.pem", "tak-certificate": "tak.pem", "tak-ca-file": "tak-ca.pem"}
"""Names of the files by their settings. The key comes first, because a certificate is useless
without its key."""


@make_calling
def enroll(arguments: argparse.Namespace) -> int:
    """Write a new key, its certificate and the server's certificate authorities as PEM files. Print
    the settings that contain the paths of the files.
    """
    try:
        from fieldagent.extensions.tak import certificate_request as requests
    except ImportError:
        reason = "enrolment needs cryptography: apt install python3-cryptography"
        raise CallFailed(reason, UNAVAILABLE) from None
    if not arguments.folder.is_dir():
        # Check this before the request to the server, because a password may be valid only once.
        raise CallFailed(f"--folder {arguments.folder} is not a folder", REFUSED)
    call = partial(_call, arguments, _trust(arguments), ask_once(f"Password of {arguments.user}"))
    config = call("GET", f"{API}/config")
    key = requests.make_key()
    query = urlencode({"clientUid": f"fieldagent-{uuid.uuid4()}", "version": "fieldagent"})
    request = requests.make_request(key, arguments.user, config)
    answer = call("POST", f"{API}/signClient/v2?{query}", request)
    try:
        files = requests.read_answer(key, answer)
    except requests.NoCertificate as error:
        raise CallFailed(f"{_name_server(arguments)}: {error}", REFUSED) from error
    settings = {"tak-server": f"tls://{arguments.host}:{PORTS['tls']}"}
    if arguments.server_name:
        settings["tak-server-name"] = arguments.server_name
    contents = (files.key, files.certificate, files.authorities)
    for (name, file), content in zip(FILES.items(), contents, strict=True):
        path = arguments.folder.absolute() / file
        try:
            replace_file(path, content, mode=0o640, group=GROUP)
        except OSError as error:
            reason = f"{path} cannot be written: {describe_reason(error)}"
            raise CallFailed(reason, IO_FAILED) from error
        settings[name] = str(path)
    lines = "".join(f"\n    {name}={value}" for name, value in settings.items())
    show(arguments, settings, f"Add these lines and tak-workspace to hub.properties:\n{lines}")
    return OK


def _name_server(arguments: argparse.Namespace) -> str:
    return f"{arguments.host}:{arguments.port}"


def _trust(arguments: argparse.Namespace) -> ssl.SSLContext:
    try:
        context = tls.trust(arguments.ca_file)
    except tls.UnusableTrust as unusable:
        raise CallFailed(f"--ca-file {unusable}", REFUSED) from unusable
    # As in `bridge/link.py`: the certificates of TAK's own tools do not satisfy RFC 5280.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _connect(arguments: argparse.Namespace, context: ssl.SSLContext) -> HTTPConnection:
    """Return a TLS connection. The name in the server's certificate may differ from the host."""
    connection = HTTPConnection(arguments.host, arguments.port, timeout=TIMEOUT_S)
    connection.connect()
    name = arguments.server_name or arguments.host
    connection.sock = context.wrap_socket(connection.sock, server_hostname=name)
    return connection


def _call(
    arguments: argparse.Namespace,
    context: ssl.SSLContext,
    password: str,
    method: str,
    path: str,
    body: bytes | None = None,
) -> bytes:
    """Return the body of the server's response. Raises CallFailed if the server cannot be reached,
    or if the status is not 200.
    """
    server_name = _name_server(arguments)
    pair = base64.b64encode(f"{arguments.user}:{password}".encode()).decode()
    headers = {"Authorization": f"Basic {pair}"}
    if body is not None:
        headers |= {"Accept": "application/json", "Content-Type": "application/pkcs10"}
    try:
        connection = _connect(arguments, context)
        answer = exchange(connection, method, path, body, headers)
    except (OSError, HTTPException) as error:
        fault = tls.describe_fault(error, "--ca-file") or describe_reason(error)
        raise CallFailed(f"{server_name}: {fault}", UNAVAILABLE) from error
    if answer.status in (401, 403):
        reason = f"{server_name} refuses {arguments.user} with this password (HTTP {answer.status})"
        raise CallFailed(reason, REFUSED)
    if answer.status != 200:
        answer_text = escape_line(answer.body[:ANSWER_SHOWN_MAX].decode(errors="replace").strip())
        call = f"{method} {path.partition('?')[0]}"
        raise CallFailed(
            f"{server_name} answers {call} with HTTP {answer.status}: {answer_text}", REFUSED
        )
    return answer.body
