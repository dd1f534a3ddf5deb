"""A text as a code that a telephone's camera reads, in the terminal; Debian's qrencode draws it."""

from __future__ import annotations

import subprocess

from fieldagent.system.log_lines import complain

DRAW = ("qrencode", "--type=ANSIUTF8", "--margin=2")
SECONDS = 10.0


def show_qr_code(text: str) -> None:
    """Show a text as a QR code. It goes by the program's standard input: others see how it was
    called. Where it cannot be drawn, this tells why, and does not fail: the text itself was shown
    before."""
    try:
        drawn = subprocess.run(
            DRAW, input=text.encode(), capture_output=True, check=True, timeout=SECONDS
        )
    except FileNotFoundError:
        complain("no QR code is shown: qrencode is not there (apt-get install qrencode)")
    except subprocess.CalledProcessError as error:
        complain(f"no QR code is shown: {error.stderr.decode('utf-8', 'replace').strip()}")
    except subprocess.TimeoutExpired:
        complain(f"no QR code is shown: qrencode took more than {SECONDS:g} s")
    else:
        print(drawn.stdout.decode(), end="", flush=True)
