"""Trusted certificates of both programs, and texts of TLS errors. This module does not import
trio."""

from __future__ import annotations

import ssl
from pathlib import Path

_END_ERRORS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""Errors that mean that the peer has closed without a TLS goodbye. Different versions of Python
3.11 raise different errors."""
_CERTIFICATE_TIMES = {9, 10}
"""X509_V_ERR_CERT_NOT_YET_VALID and _HAS_EXPIRED (openssl/x509_vfy.h)."""


class UnusableTrust(Exception):
    """Error: a certificate file cannot be used. The message contains the file and the fault."""


def trust(ca_file: Path | None) -> ssl.SSLContext:
    """Return a TLS context that trusts the system's certificate authorities or, if `ca_file` is not
    None, only those in the file. Raises UnusableTrust if the file cannot be read or contains no
    certificate.
    """
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # ssl.SSLError is a subclass
        reason = "holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise UnusableTrust(f"{ca_file} cannot be used: {reason}") from error


def describe_fault(error: BaseException | None, ca_setting: str = "") -> str | None:
    """Return the TLS fault of a peer, for people, or None if the connection just ended.

    `ca_setting` is the name of the setting for a private authority's file, if there is one.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _describe_distrust(error, ca_setting)
    if not isinstance(error, ssl.SSLError) or isinstance(error, _END_ERRORS):
        return None
    reason = error.reason.replace("_", " ").lower() if error.reason else str(error)
    return f"the server does not use TLS, or not correctly: {reason}"


def _describe_distrust(error: ssl.SSLCertVerificationError, ca_setting: str) -> str:
    text = f"the certificate is not trusted: {error.verify_message.lower()}"
    if error.verify_code in _CERTIFICATE_TIMES:
        return f"{text}; is this machine's clock right?"
    if ca_setting:
        return f"{text}; if it is a private one, set {ca_setting} to its authority's certificate"
    return text
