"""`fieldagent page`: shows the address of the kit's page, and sets its passphrase, for people in
the camp.
"""

from __future__ import annotations

import argparse
import json

from fieldagent.agent.network_page import find_own_address, format_url, get_files
from fieldagent.agent.settings import INSTALLED, Settings, load
from fieldagent.cli.ask_password import ask_password
from fieldagent.cli.kit.wifi_code import NoNetwork, read_network
from fieldagent.cli.qr_code import show_qr_code
from fieldagent.system.as_owner import switch_to_owner_of
from fieldagent.system.exit_codes import IO_FAILED, MISSING, OK, SETTINGS, USAGE
from fieldagent.system.folder import make_private_folder, replace_file
from fieldagent.system.log_lines import print_failure
from fieldagent.system.own_certificate import (
    NoCertificate,
    compute_fingerprint,
    provide_own_certificate,
)
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.scrypt import hash_password
from fieldagent.system.terminal import escape_line
from fieldagent.system.text_files import read_text_file
from fieldagent.system.wording import describe_reason

SHORTEST = 12
"""Minimum number of characters of a passphrase. An attacker in the network may guess for weeks."""
PAGE_UNSET_TEXT = (
    "page-listen is not set: name the networks, such as page-listen=192.168.4.0/24, and restart"
)


def print_page(arguments: argparse.Namespace) -> int:
    """Print the addresses of the page and the fingerprint of its certificate, set the passphrase
    (--set), or show how a phone joins the kit's Wi-Fi (--wifi). The command works without an agent.
    """
    if arguments.wifi is not None:
        return _show_network(arguments)
    try:
        settings = load(arguments.config or (INSTALLED if INSTALLED.exists() else None))
        switch_to_owner_of(settings.state_directory)
        if arguments.set:
            return _set(settings)
        return _show(arguments, settings)
    except InvalidSettings as invalid:
        print_failure(str(invalid))
        return SETTINGS
    except FileNotFoundError as error:
        print_failure(describe_reason(error))
        return MISSING
    except (OSError, NoCertificate) as error:
        print_failure(describe_reason(error))
        return IO_FAILED


def _set(settings: Settings) -> int:
    phrase = ask_password("Pass phrase")
    if len(phrase) < SHORTEST:
        print_failure(
            f"it has {len(phrase)} characters: use {SHORTEST} or more, such as four words"
        )
        return USAGE
    pass_phrase_file = get_files(settings).pass_phrase
    make_private_folder(pass_phrase_file.parent)
    replace_file(pass_phrase_file, hash_password(phrase).encode() + b"\n")
    print("The passphrase is set. Everyone must sign in again.")
    if not settings.page_listen:
        print(PAGE_UNSET_TEXT)
    return OK


def _show(arguments: argparse.Namespace, settings: Settings) -> int:
    if not settings.page_listen:
        print_failure(PAGE_UNSET_TEXT)
        return SETTINGS
    files = get_files(settings)
    make_private_folder(files.certificate.parent)
    provide_own_certificate(files.certificate)
    addresses = [
        format_url(own, settings.page_port)
        for own in map(find_own_address, settings.page_listen)
        if own is not None
    ]
    facts = {
        "addresses": addresses,
        "fingerprint": compute_fingerprint(files.certificate),
        "passPhrase": files.pass_phrase.exists(),
    }
    if arguments.json:
        print(json.dumps(facts))
        return OK
    for address in addresses or ["this machine has no address in those networks now"]:
        print(address, flush=True)
        if arguments.qr and addresses:
            show_qr_code(address)
    print(
        f"The browser warns of the certificate, once. Its SHA-256 fingerprint must be\n"
        f"{facts['fingerprint']}"
    )
    if not facts["passPhrase"]:
        print("No one can sign in yet: set a passphrase with `fieldagent page --set`.")
    return OK


def _show_network(arguments: argparse.Namespace) -> int:
    """Show how a phone joins the kit's own network."""
    try:
        network = read_network(read_text_file(arguments.wifi))
    except (OSError, UnicodeDecodeError, NoNetwork) as error:
        print_failure(f"{arguments.wifi}: {describe_reason(error)}")
        return MISSING
    if arguments.json:
        print(json.dumps({**network._asdict(), "code": network.make_code()}))
        return OK
    secret = "without a pass phrase" if network.secret is None else f"pass phrase {network.secret}"
    print(f"network {escape_line(network.name)}, {escape_line(secret)}", flush=True)
    show_qr_code(network.make_code())
    return OK
