"""`fieldagent page`: where people of the camp find the kit's page, and the pass phrase for it."""

from __future__ import annotations

import argparse
import json
import socket

from fieldagent.agent.network_page import files_of
from fieldagent.agent.settings import INSTALLED, Settings, load
from fieldagent.cli.ask_password import ask_password
from fieldagent.cli.qr_code import show_qr_code
from fieldagent.http.address import Network, is_in
from fieldagent.system.as_owner import become_owner_of
from fieldagent.system.exit_codes import IO_FAILED, MISSING, OK, SETTINGS, USAGE
from fieldagent.system.folder import put_file
from fieldagent.system.log_lines import complain
from fieldagent.system.own_certificate import NoCertificate, fingerprint, own_certificate
from fieldagent.system.private import make_private_folder
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.scrypt import hash_password
from fieldagent.system.wording import reason_of

SHORTEST = 12
"""Characters: whoever is in the network may guess at it for weeks."""
UNSET = "page-listen is not set: name the networks, such as page-listen=192.168.4.0/24, and restart"


def page(given: argparse.Namespace) -> int:
    try:
        settings = load(given.config or (INSTALLED if INSTALLED.exists() else None))
        become_owner_of(settings.state_directory)
        if given.set:
            return _set(settings)
        return _show(given, settings)
    except InvalidSettings as invalid:
        complain(str(invalid))
        return SETTINGS
    except FileNotFoundError as error:
        complain(reason_of(error))
        return MISSING
    except (OSError, NoCertificate) as error:
        complain(reason_of(error))
        return IO_FAILED


def _set(settings: Settings) -> int:
    phrase = ask_password("Pass phrase")
    if len(phrase) < SHORTEST:
        complain(f"it has {len(phrase)} characters: take {SHORTEST} or more, such as four words")
        return USAGE
    there = files_of(settings).pass_phrase
    make_private_folder(there.parent)
    put_file(there, hash_password(phrase).encode() + b"\n")
    print("It is set, and whoever was signed in is asked again.")
    if not settings.page_listen:
        print(UNSET)
    return OK


def _show(given: argparse.Namespace, settings: Settings) -> int:
    if not settings.page_listen:
        complain(UNSET)
        return SETTINGS
    there = files_of(settings)
    make_private_folder(there.certificate.parent)
    own_certificate(there.certificate)
    addresses = [
        f"https://{_in_url(own)}:{settings.page_port}/"
        for own in map(_own_address_in, settings.page_listen)
        if own is not None
    ]
    told = {
        "addresses": addresses,
        "fingerprint": fingerprint(there.certificate),
        "passPhrase": there.pass_phrase.exists(),
    }
    if given.json:
        print(json.dumps(told))
        return OK
    for address in addresses or ["this machine has no address in those networks now"]:
        print(address, flush=True)
        if given.qr and addresses:
            show_qr_code(address)
    print(
        f"The browser warns of the certificate, once. Its SHA-256 fingerprint must be\n"
        f"{told['fingerprint']}"
    )
    if not told["passPhrase"]:
        print("Nobody can sign in yet: `fieldagent page --set` sets a pass phrase.")
    return OK


def _own_address_in(network: Network) -> str | None:
    """What this machine would call from to somebody there; nothing is sent."""
    family = socket.AF_INET if network.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(network[min(1, network.num_addresses - 1)]), 9))
        except OSError:
            return None
        own = str(probe.getsockname()[0])
    return own if is_in(own, [network]) else None


def _in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address
