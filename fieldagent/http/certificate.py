"""Certificate of a server. The certificate is reloaded when its files change, so a renewal needs no
restart.

New connections use the new certificate, and open connections keep the old one. If the pair does not
match, for example while only one file is written, the fault is logged once and the server keeps the
old pair.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import trio

from fieldagent.system.wording import describe_reason

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 60.0
"""Seconds between two checks of the files."""

_State = tuple[tuple[int, int, int], ...]


class CertificateFailed(OSError):
    """Error: a certificate cannot be used with its key. The message contains the setting, the file
    and the reason.
    """


class Certificate:
    """Certificate of a server, with the TLS `context` that uses it. Raises CertificateFailed."""

    def __init__(self, chain: Path, key: Path) -> None:
        self._files = (chain, key)
        self._state = self._read_state()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Send no TLS session tickets: agents never resume a session, and tickets add 509 bytes to
        # each link.
        self.context.num_tickets = 0
        load_certificate(self.context, chain, key)

    def reload(self) -> None:
        """Reload the certificate. If the new certificate cannot be used, log the fault and keep the
        current one. Raises no error.
        """
        try:
            self._state = self._read_state()
            # Try the new pair in a separate context first, so that a failure half-way does not
            # affect the pair in use.
            load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), *self._files)
            load_certificate(self.context, *self._files)
        except OSError as error:
            log.error("%s; keeping the previous certificate", error)
        else:
            log.info("%s was read again", self._files[0])

    async def watch(self) -> None:
        """Reload the certificate whenever its files change, until cancelled."""
        while True:
            await trio.sleep(CHECK_INTERVAL_S)
            if self._state != self._read_state():
                self.reload()

    def _read_state(self) -> _State:
        return tuple(map(_read_state, self._files))


def load_certificate(context: ssl.SSLContext, chain: Path, key: Path) -> None:
    """Load the files of `tls-certificate` and `tls-key` into the context. Raises
    CertificateFailed.
    """
    for setting, file in (("tls-certificate", chain), ("tls-key", key)):
        try:
            file.open("rb").close()
        except OSError as error:
            error.filename = None
            raise _make_failure(setting, file, describe_reason(error)) from error
    try:
        context.load_cert_chain(chain, key, password=_refuse_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            reason = f"it does not belong to the certificate {chain}"
        elif not _has_certificate(chain):
            raise _make_failure(
                "tls-certificate", chain, "it is not a certificate in PEM format"
            ) from error
        else:
            reason = "it is not a private key in PEM format without a passphrase"
        raise _make_failure("tls-key", key, reason) from error


def _make_failure(setting: str, file: Path, reason: str) -> CertificateFailed:
    return CertificateFailed(f"{setting} {file} cannot be used: {reason}")


def _has_certificate(chain: Path) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(chain)
    except ssl.SSLError:
        return False
    return True


def _refuse_passphrase() -> str:
    # Without this function, OpenSSL asks for the passphrase on the terminal.
    return ""


def _read_state(path: Path) -> tuple[int, int, int]:
    try:
        now = path.stat()
    except OSError:
        return (0, 0, 0)
    return (now.st_ino, now.st_mtime_ns, now.st_size)
