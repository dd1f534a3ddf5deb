"""Strict parser of JSON bodies (RFC 8259). The time for parsing is proportional to the length.

The sender may be anonymous. So a body with more strings, brackets and commas than a valid body can
have is refused before any object is built.
"""

from __future__ import annotations

import json
import re
from typing import Any

from fieldagent.system.wording import Sentence, sentence

MEMBERS_MAX = 64
"""Maximum members of one object or array. The largest object of the interface, a push, has 13
members."""
DEPTH_MAX = 16
PARTS_MAX = 1000
"""Maximum number of strings, brackets and commas in one body."""

_BETWEEN_BRACKETS = re.compile(r'[^"\[\]{},]*')


class NotJson(Exception):
    """Error: the body is not JSON, or exceeds a limit. The message contains the reason."""


def load_document(
    body: bytes, *, members_max: int = MEMBERS_MAX, parts_max: int = PARTS_MAX
) -> Any:
    """Return the value of a body. The limits are parameters, because a few bodies, such as a shape
    on the map, need higher limits. Raises NotJson if the body is not JSON or exceeds a limit.
    """
    try:
        text = body.decode()
        if not _is_small(text):
            _check_limits(text, members_max, parts_max)
        return _decode(text)
    except UnicodeDecodeError as error:
        raise NotJson(
            sentence("the body is not UTF-8: byte {start} does not fit", start=error.start)
        ) from None
    except json.JSONDecodeError as error:
        position_text = _describe_position(error.lineno, error.colno)
        raise NotJson(
            sentence("the body is not JSON: {msg}{where}", msg=error.msg, where=position_text)
        ) from None
    except ValueError as error:
        # Do not use Python's message for a number with thousands of digits, because it describes
        # how a program could allow such a number.
        reason = str(error).partition("; use sys.")[0]
        raise NotJson(sentence("the body is not usable JSON: {error}", error=reason)) from None


def _is_small(text: str) -> bool:
    """Return True if the text cannot exceed a limit, even if all its brackets and commas are
    outside strings.
    """
    bracket_count = text.count("{") + text.count("[")
    commas = text.count(",")
    others = text.count('"') + text.count("}") + text.count("]")
    return (
        bracket_count <= DEPTH_MAX
        and commas < MEMBERS_MAX
        and bracket_count + commas + others <= PARTS_MAX
    )


def check_depth(text: str) -> None:
    """Raise NotJson if brackets are nested deeper than DEPTH_MAX.

    Call this function for text that `json` parses directly, because the maximum depth of `json` and
    its exception differ between versions of Python.
    """
    if text.count("{") + text.count("[") > DEPTH_MAX:
        _check_limits(text, members_max=len(text), parts_max=len(text))


def _check_limits(text: str, members_max: int = MEMBERS_MAX, parts_max: int = PARTS_MAX) -> None:
    """Check the limits, counting only brackets and commas outside strings. Raises NotJson if a
    limit is exceeded.
    """
    # Replace escapes by characters of the same length, so that the next quote ends a string.
    text = text.replace("\\\\", "..").replace('\\"', "..")
    open_brackets: list[tuple[int, str]] = []
    commas: list[int] = []
    at = parts = 0
    while (at := _end_of_scalars(text, at)) < len(text):
        parts += 1
        if parts > parts_max:
            raise NotJson(
                sentence(
                    "the body has too many parts{place}",
                    place=_describe_place(text, at),
                )
            )
        part = text[at]
        if part in "{[":
            open_brackets.append((at, "object" if part == "{" else "array"))
            commas.append(0)
            if len(open_brackets) > DEPTH_MAX:
                raise NotJson(
                    sentence(
                        "the body is nested deeper than {most}{place}",
                        most=DEPTH_MAX,
                        place=_describe_place(text, at),
                    )
                )
        elif part in "}]" and open_brackets:
            open_brackets.pop()
            commas.pop()
        elif part == "," and open_brackets:
            commas[-1] += 1
            if commas[-1] >= members_max:
                at, kind = open_brackets[-1]
                raise NotJson(
                    sentence(
                        "more than {most} members in the {kind}{place}",
                        most=members_max,
                        kind=kind,
                        place=_describe_place(text, at),
                    )
                )
        elif part == '"' and (at := text.find('"', at + 1)) < 0:
            return  # The parser reports a string without an end, which is not JSON.
        at += 1


def _end_of_scalars(text: str, index: int) -> int:
    match = _BETWEEN_BRACKETS.match(text, index)
    assert match is not None, "it also matches nothing"
    return match.end()


def _describe_place(text: str, index: int) -> Sentence:
    line_begin = text.rfind("\n", 0, index) + 1
    line = text.count("\n", 0, index) + 1
    return _describe_position(line, index - line_begin + 1)


def _describe_position(line: int, column: int) -> Sentence:
    return sentence(" at line {line}, column {column}", line=line, column=column)


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"the member {json.dumps(name)[:60]} occurs more than once")
        members[name] = value
    return members


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


_decode = json.JSONDecoder(object_pairs_hook=_make_object, parse_constant=_refuse_constant).decode
