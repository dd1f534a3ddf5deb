"""Signed files of an update. This module fetches the files, verifies them with the trusted keys of
the program's builder, and parses the contents of their signatures.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fieldagent.extensions.fleet.fetching import UpdateRefused, fetch_file
from fieldagent.system.clock_bounds import EARLIEST_TIME
from fieldagent.system.minisign import (
    NotSigned,
    TrustedKey,
    parse_keys,
    parse_signature,
    verify,
)
from fieldagent.system.progress import Progress
from fieldagent.system.signed_release import Release, check_release_as
from fieldagent.system.text_files import read_text_file


def print_progress(text: str) -> None:
    """Print the progress to standard error, because standard output is for the result."""
    print(text, file=sys.stderr, flush=True)


def read_trusted_keys(path: Path) -> list[TrustedKey]:
    """Read the trusted keys in a file. Raises UpdateRefused if the file is missing or contains no
    valid key.
    """
    try:
        return parse_keys(read_text_file(path))
    except FileNotFoundError:
        raise UpdateRefused(
            f"{path} does not exist: put the public minisign key of your program's builder in it"
        ) from None
    except (NotSigned, UnicodeDecodeError) as wrong:
        raise UpdateRefused(f"{path}: {wrong}") from None


def read_signed_file(
    source: str, kind: str, keys: Sequence[TrustedKey], part: Path
) -> tuple[bytes, Release]:
    """Return a file and the release in its signature. Raises UpdateRefused if the file cannot be
    fetched, or if its signature is missing or invalid.
    """
    with Progress(f"fetching {source}", "bytes") as progress:
        content, went_on = fetch_file(source, part, progress.show)
    if went_on:
        print_progress(f"{source}: a part was here from an earlier attempt")
    signature = f"{source}.minisig"
    try:
        return content, verify_release(content, fetch_file(signature).content.decode(), kind, keys)
    except UnicodeDecodeError:
        raise UpdateRefused(f"{signature}: the signature is not in minisign's format") from None
    except NotSigned as wrong:
        if went_on:
            # Someone may have replaced the file at the source, or a power failure may have damaged
            # the earlier part.
            return read_signed_file(source, kind, keys, part)
        raise UpdateRefused(f"{signature}: {wrong}") from None


def verify_release(
    content: bytes, signature: str, kind: str, keys: Sequence[TrustedKey]
) -> Release:
    """Verify the signature of a file, and return the release in it. Raises NotSigned if the
    signature is invalid, has expired or is for another `kind`, and UpdateRefused if openssl is
    missing.
    """
    try:
        comment = verify(content, parse_signature(signature), keys)
    except FileNotFoundError:
        raise UpdateRefused(
            "openssl is missing, which verifies signatures: apt install openssl"
        ) from None
    now = time.time()
    release = check_release_as(kind, comment, now)
    print_progress(f"signed: {comment}")
    if now < EARLIEST_TIME:
        print_progress("this kit's clock is not set, so the expiry cannot be checked")
    return release
