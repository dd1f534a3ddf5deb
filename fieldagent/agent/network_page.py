"""Serves the kit's page in the configured networks, over TLS with the kit's own certificate. People
sign in with the kit's passphrase.
"""

from __future__ import annotations

import logging
import socket
import ssl
from functools import partial
from pathlib import Path

import trio

from fieldagent.agent.entrance import COOKIE, Entrance
from fieldagent.agent.portal import Portal
from fieldagent.agent.settings import Settings
from fieldagent.http.address import Network, is_in
from fieldagent.http.guard import check_host, check_network_caller
from fieldagent.http.limits import CpuPace, Limits
from fieldagent.http.listeners import ListenFailed, get_port, open_listeners
from fieldagent.http.message import Judge
from fieldagent.http.server import serve
from fieldagent.page.refusals import translate_problems
from fieldagent.system.folder import make_private_folder
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.own_certificate import (
    NoCertificate,
    compute_fingerprint,
    provide_own_certificate,
)
from fieldagent.system.supervisor import Note

log = logging.getLogger(__name__)

REFUSALS = "fieldagent.agent.refusals"
"""Package with the texts of refusals in each language."""
ANY_ADDRESS = ("0.0.0.0", "::")


def find_own_address(network: Network) -> str | None:
    """Return this machine's address in `network`, or None if it has none. No packet is sent."""
    family = socket.AF_INET if network.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(network[min(1, network.num_addresses - 1)]), 9))
        except OSError:
            return None
        own = str(probe.getsockname()[0])
    return own if is_in(own, [network]) else None


def format_url(own_address: str, port: int) -> str:
    """Return the URL of the page for phones. An IPv6 address is put in brackets."""
    return (
        f"https://[{own_address}]:{port}/"
        if ":" in own_address
        else f"https://{own_address}:{port}/"
    )


class Files(NamedTuple):
    """Paths of the files with the page's certificate and passphrase."""

    certificate: Path
    pass_phrase: Path


def get_files(settings: Settings) -> Files:
    """Return the paths of the page's certificate and passphrase."""
    folder = settings.state_directory / "page"
    return Files(folder / "certificate.pem", folder / "pass-phrase")


async def run(settings: Settings, judge: Judge, stop_event: trio.Event, note_fault: Note) -> None:
    """Serve the page to the allowed networks until `stop_event` is set. Raises ListenFailed."""
    files = get_files(settings)
    context = await trio.to_thread.run_sync(_make_context, files)
    known_by = await trio.to_thread.run_sync(compute_fingerprint, files.certificate)
    listeners, portal_listeners = _open_sockets(settings)

    async def find_admitted_address(peer: socket.socket, address: str) -> str | None:
        """Return `address` if it is in a `page-listen` network, otherwise None. For None, the
        caller closes the connection before TLS starts.
        """
        return address if is_in(address, settings.page_listen) else None

    log.info(
        "the page is open to %s at port %d over TLS; the certificate's fingerprint is %s",
        " ".join(map(str, settings.page_listen)),
        get_port(listeners),
        known_by,
    )
    if not files.pass_phrase.exists():
        log.warning(
            "no one can sign in to the page yet: set a passphrase with `fieldagent page --set`"
        )
    async with trio.open_nursery() as nursery:
        if portal_listeners:
            portal = Portal(partial(_find_page_address, settings), known_by, trio.current_time)
            publish = partial(
                serve,
                portal.judge,
                portal_listeners,
                stop_event=stop_event,
                guard=check_host,
                introduce=find_admitted_address,
                limits=Limits(pace=CpuPace(cookie="")),
                note_fault=note_fault,
            )
            nursery.start_soon(publish)
        await serve(
            translate_problems(
                Entrance(files.pass_phrase, trio.current_time).guard(judge), REFUSALS
            ),
            listeners,
            stop_event=stop_event,
            guard=check_network_caller,
            tls=context,
            introduce=find_admitted_address,
            limits=Limits(pace=CpuPace(cookie=COOKIE)),
            note_fault=note_fault,
        )


def _open_sockets(settings: Settings) -> tuple[list[socket.socket], list[socket.socket]]:
    """Open and return the sockets of the page, and the sockets of the portal if there is one. If
    ListenFailed is raised, all sockets are closed.
    """
    listeners = open_listeners(settings.page_port, ANY_ADDRESS, allow_remote=True)
    if settings.page_portal_port is None:
        return listeners, []
    try:
        return listeners, open_listeners(settings.page_portal_port, ANY_ADDRESS, allow_remote=True)
    except ListenFailed:
        for each in listeners:
            each.close()
        raise


def _find_page_address(settings: Settings, caller: str) -> str:
    """Return the URL of the page in the network of the address `caller`. If the kit has no address
    in that network, the URL contains the host name.
    """
    near = [each for each in settings.page_listen if is_in(caller, [each])]
    own = next(filter(None, map(find_own_address, near)), None)
    return format_url(own or socket.gethostname(), settings.page_port)


def _make_context(files: Files) -> ssl.SSLContext:
    try:
        make_private_folder(files.certificate.parent)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(provide_own_certificate(files.certificate))
    except NoCertificate as none:
        raise ListenFailed(f"the page cannot begin: {none}") from none
    except OSError as error:  # OSError includes ssl.SSLError.
        raise ListenFailed(
            f"{files.certificate} cannot be used: {error.strerror or error}; remove it, and the"
            " next start makes another"
        ) from error
    return context
