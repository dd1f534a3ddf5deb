"""Fetches a file of an update from a path or a URL. An interrupted download can be continued."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fieldagent.system.exit_codes import REFUSED
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import describe_reason

FILE_MAX_BYTES = 20_000_000
TIMEOUT_S = 60.0
"""Seconds without a byte after which a download fails."""
CHUNK_BYTES = 65_536


class UpdateRefused(Exception):
    """Error: the update was refused, and nothing was changed. The text contains the reason and the
    fix.
    """

    def __init__(self, text: str, code: int = REFUSED) -> None:
        super().__init__(text)
        self.code = code


class ServerUnreachable(UpdateRefused):
    """Error: a network or server is down, so a later attempt may succeed."""


class FetchedFile(NamedTuple):
    content: bytes
    is_continued: bool = False
    """True if a part of the file came from an earlier attempt."""


def fetch_file(
    source: str,
    part: Path | None = None,
    report: Callable[[int, int | None], None] = lambda done, whole: None,
) -> FetchedFile:
    """Return the file at a path or a URL. Downloaded bytes are stored in `part` until the file is
    complete. A later attempt for the same URL downloads only the rest (RFC 9110, sections 13.1.5
    and 14). `report` is called with the number of bytes so far, and with the number of all bytes or
    None. Raises ServerUnreachable if the server does not respond, and UpdateRefused if the file is
    missing or too large.
    """
    try:
        if not source.startswith(("https://", "http://")):
            content = Path(source).read_bytes()
            _check_size(source, len(content))
            return FetchedFile(content)
        return _download(source, part, report)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and part and part.exists():
            part.unlink()
            return fetch_file(source, part, report)
        failure_type = ServerUnreachable if error.code >= 500 else UpdateRefused
        raise failure_type(f"{source} cannot be read: {error}") from None
    except (FileNotFoundError, ValueError) as error:
        raise UpdateRefused(f"{source} cannot be read: {_describe_error(error)}") from None
    except (OSError, http.client.HTTPException) as error:
        raise ServerUnreachable(f"{source} cannot be read: {describe_reason(error)}") from None


def is_served(source: str) -> bool:
    """Return True if a small file exists at the URL. Raises ServerUnreachable if the server does
    not respond.
    """
    try:
        fetch_file(source)
    except ServerUnreachable:
        raise
    except UpdateRefused:
        return False
    return True


def _describe_error(error: Exception) -> str:
    return describe_reason(error) if isinstance(error, OSError) else str(error)


def _check_size(source: str, size: int) -> None:
    if size > FILE_MAX_BYTES:
        raise UpdateRefused(
            f"{source} is larger than {FILE_MAX_BYTES:,} bytes: it is not a fieldagent program"
        )


class _Part(NamedTuple):
    """Bytes from an earlier attempt. `validator` is the ETag or date of the file to which they
    belong.
    """

    validator: str = ""
    content: bytes = b""


def _download(
    source: str, part: Path | None, report: Callable[[int, int | None], None]
) -> FetchedFile:
    known_part = _read_part(part, source)
    request = urllib.request.Request(source)
    if known_part.content:
        request.add_header("Range", f"bytes={len(known_part.content)}-")
        request.add_header("If-Range", known_part.validator)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        is_continued = bool(known_part.content) and _can_continue(answer, len(known_part.content))
        content = bytearray(known_part.content if is_continued else b"")
        start = len(content)
        length = answer.headers.get("Content-Length")
        total_size = start + int(length) if length else None
        validator = _read_validator(answer)
        kept_part = part if validator else None
        if not is_continued:
            kept_part = _begin_download(kept_part, source, validator)
        while chunk := answer.read(CHUNK_BYTES):
            content += chunk
            kept_part = _add_bytes(kept_part, chunk)
            _check_size(source, len(content))
            report(len(content), total_size)
    if total_size is not None and len(content) < total_size:
        raise ServerUnreachable(
            f"{source} was interrupted after {len(content):,} of {total_size:,} bytes"
        )
    if part is not None:
        part.unlink(missing_ok=True)
    return FetchedFile(bytes(content), is_continued)


def _read_validator(answer: Any) -> str:
    """Return the strong validator of the served bytes (RFC 9110, section 8.8), or an empty text if
    there is none.
    """
    tag: str = answer.headers.get("ETag", "")
    if tag.startswith('"'):
        return tag
    return "" if tag else str(answer.headers.get("Last-Modified", ""))


def _can_continue(answer: Any, offset: int) -> bool:
    content_range: str = answer.headers.get("Content-Range", "")
    return answer.status == HTTPStatus.PARTIAL_CONTENT and content_range.startswith(
        f"bytes {offset}-"
    )


def _begin_download(part: Path | None, source: str, validator: str) -> Path | None:
    """Create the file for the download, and return its path. Return None if the disk does not allow
    this. In this case, the download is not stored.
    """
    if part is None:
        return None
    try:
        part.write_bytes(json.dumps({"address": source, "mark": validator}).encode() + b"\n")
    except OSError:
        return None
    return part


def _add_bytes(part: Path | None, chunk: bytes) -> Path | None:
    if part is None:
        return None
    try:
        with part.open("ab") as file:
            file.write(chunk)
    except OSError:
        return None
    return part


def _read_part(part: Path | None, source: str) -> _Part:
    try:
        head_line, _, content = part.read_bytes().partition(b"\n") if part else (b"", b"", b"")
        source_document = json.loads(head_line or b"{}")
        if source_document.get("address") == source:
            return _Part(str(source_document["mark"]), content)
    except (OSError, ValueError, KeyError, AttributeError):
        pass
    return _Part()
