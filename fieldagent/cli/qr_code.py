"""Shows a QR code for a phone's camera in the terminal. Debian's program qrencode draws it."""

from __future__ import annotations

import subprocess

from fieldagent.system.log_lines import print_failure

DRAW_COMMAND = ("qrencode", "--type=ANSIUTF8", "--margin=2")
TIMEOUT_S = 10.0


def show_qr_code(text: str) -> None:
    """Show a text as a QR code. The text goes to qrencode's standard input, because other users can
    see arguments. If the code cannot be drawn, only print the reason, because the text itself was
    already printed.
    """
    try:
        drawing = subprocess.run(
            DRAW_COMMAND, input=text.encode(), capture_output=True, check=True, timeout=TIMEOUT_S
        )
    except FileNotFoundError:
        print_failure("no QR code, because qrencode is not installed (apt-get install qrencode)")
    except subprocess.CalledProcessError as error:
        print_failure(f"no QR code: {error.stderr.decode('utf-8', 'replace').strip()}")
    except subprocess.TimeoutExpired:
        print_failure(f"no QR code, because qrencode took more than {TIMEOUT_S:g} s")
    else:
        print(drawing.stdout.decode(), end="", flush=True)
