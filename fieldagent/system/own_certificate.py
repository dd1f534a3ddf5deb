"""Makes a key and a self-signed certificate for this machine. People compare the certificate's
fingerprint.
"""

from __future__ import annotations

import hashlib
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path

from fieldagent.system.folder import replace_file

VALIDITY_DAYS = 36_500
"""Validity in days. The validity is long because the clock may show 1970 when the certificate is
made."""
CREATION_MAX_S = 60.0
"""Longest time in seconds for making the certificate."""


class NoCertificate(Exception):
    """Error: the program cannot provide a certificate. The message contains the reason and the
    fix.
    """


def provide_own_certificate(path: Path) -> Path:
    """Return `path`, a file with both the key and the certificate. If the file is missing or
    unreadable, make it with OpenSSL. Raises NoCertificate.
    """
    if path.exists() and not path.is_file():
        raise NoCertificate(f"{path} is not a file: remove it, and the program creates a new one")
    with suppress(OSError, ValueError):
        compute_fingerprint(path)
        return path
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", str(VALIDITY_DAYS), "-subj", "/CN=fieldagent", "-keyout", "-"]
    try:
        process = subprocess.run(command, capture_output=True, timeout=CREATION_MAX_S, check=True)
        replace_file(path, process.stdout)
    except FileNotFoundError:
        raise NoCertificate("openssl is missing: apt install openssl") from None
    except subprocess.SubprocessError as error:
        output = getattr(error, "stderr", None) or str(error).encode()
        raise NoCertificate(f"openssl failed: {output.decode(errors='replace')[-200:]}") from error
    except OSError as error:
        raise NoCertificate(f"{path} cannot be written: {error.strerror}") from error
    return path


def compute_fingerprint(path: Path) -> str:
    """Return the SHA-256 of the certificate in the form that browsers show. Raises OSError or
    ValueError if the file contains no certificate.
    """
    text = path.read_text()
    certificate = ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERTIFICATE") :])
    return hashlib.sha256(certificate).digest().hex(":").upper()
