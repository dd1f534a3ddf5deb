"""Request targets (RFC 9112 3.2, RFC 3986): strict percent-decoding."""

from __future__ import annotations

import re

from fieldagent.http.problem import Problem

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ESCAPE = re.compile(rb"%(..)")
_AFTER_AUTHORITY = re.compile(r"([/?]|$)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def decode(text: str) -> str:
    """Decode one percent-encoded component. Raises Problem 400 if the result is not printable
    UTF-8.
    """
    if "%" not in text:
        return text
    if _BAD_ESCAPE.search(text):
        raise Problem(400, "the request target holds % without two hex digits behind it")
    octets = _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), text.encode("ascii"))
    try:
        decoded = octets.decode("utf-8")
    except UnicodeDecodeError:
        raise Problem(400, "the request target is not UTF-8") from None
    if _CONTROL.search(decoded):
        raise Problem(400, "the request target holds a control character")
    return decoded


def convert_to_origin_form(target: str, host: str, options: bool) -> str:
    """Return the origin-form of an absolute-form (RFC 9112 3.2.2). Raises Problem 400 if the target
    names another server.
    """
    authority, slash, rest = _AFTER_AUTHORITY.split(target.partition("://")[2], maxsplit=1)
    if not host or authority.lower() != host.lower():
        # Leave target and host out of the text, because the target can contain a password.
        raise Problem(400, "the request target and Host name different servers")
    if slash == "/":
        return "/" + rest
    return "/?" + rest if slash else "*" if options else "/"


def split_path(path: str) -> tuple[str, ...]:
    """Return the decoded segments of an absolute path. An encoded slash stays within its
    segment."""
    return tuple(decode(segment) for segment in path[1:].split("/"))


def query_pairs(query: str) -> tuple[tuple[str, str], ...]:
    """Parse `a=1&b` as (("a", "1"), ("b", "")). A plus sign is a space, as in forms."""
    pairs = (pair.partition("=") for pair in query.replace("+", " ").split("&") if pair)
    return tuple((decode(name), decode(value)) for name, _, value in pairs)
