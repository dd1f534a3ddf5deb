"""Text files written by people. An editor may add a byte order mark, which is not part of
the text.
"""

from __future__ import annotations

from pathlib import Path


def read_text_file(path: Path, errors: str = "strict") -> str:
    """Return the text of a UTF-8 file without its byte order mark. Raises OSError, and
    UnicodeDecodeError if `errors` is "strict"."""
    return path.read_text(encoding="utf-8-sig", errors=errors)


def read_first_line(path: Path) -> str:
    """Return the first line, such as a password. Raises OSError, UnicodeDecodeError."""
    return read_text_file(path).partition("\n")[0]
