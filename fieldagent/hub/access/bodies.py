"""Reads the JSON bodies of calls that change something. All errors of a body are reported in one
response.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from fieldagent.http.guard import get_required_body
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.hub.access.directory import IMEI
from fieldagent.hub.access.user_names import NAME_CHARACTERS_MAX
from fieldagent.hub.contract import NUMBER_MAX, parse_id
from fieldagent.package.reading import (
    Fault,
    Field,
    Reader,
    WrongValue,
    number_of_faults,
    read_members,
    read_text,
)
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.system.wording import sentence

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def read_body(
    request: Request,
    members: Mapping[str, Field],
    load: Callable[[bytes], Any] = load_document,
) -> dict[str, Any]:
    """Return the values of the body's members, by attribute name. `load` parses the JSON. Raises
    Problem with all errors in the body.
    """
    try:
        document = load(get_required_body(request))
    except NotJson as error:
        raise Problem(400, str(error)) from None
    if not isinstance(document, dict):
        raise Problem(
            422, sentence("the body must be an object with {members}", members=", ".join(members))
        )
    faults: list[Fault] = []
    values = read_members(document, members, "", faults)
    if faults:
        errors = [(fault.detail, fault.pointer) for fault in faults]
        raise Problem(
            422,
            sentence("nothing was changed: {faults}", faults=number_of_faults(faults)),
            errors=errors,
        )
    return values


def make_conflict(detail: str, member: str) -> Problem:
    """Return the Problem 409 about one member of the body, for an error that depends on stored
    rows.
    """
    return Problem(
        409,
        sentence("{member} {detail}", member=member, detail=detail),
        errors=[(detail, f"/{member}")],
    )


def make_line_reader(size: int = NAME_CHARACTERS_MAX, least: int = 1) -> Reader:
    """Return a reader for one line of `least` to `size` characters, without control characters. The
    reader raises WrongValue.
    """

    def read(value: Any) -> str:
        text = read_text(value)
        if not least <= len(text) <= size:
            raise WrongValue(
                sentence(
                    "must have {least} to {size} characters, has {text}",
                    least=least,
                    size=size,
                    text=len(text),
                )
            )
        if _CONTROL.search(text):
            raise WrongValue("must be one line, without control characters")
        return text

    return read


def make_pattern_reader(pattern: re.Pattern[str], description: str) -> Reader:
    """Return a reader for a text that matches `pattern` completely. Error texts contain
    `description`, such as "64 hexadecimal digits".
    """

    def read(value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise WrongValue(sentence("must be {what}", what=description))
        return value

    return read


read_imei = make_pattern_reader(IMEI, "15 digits")


def read_flag(value: Any) -> bool:
    """Return a JSON true or false. Raises WrongValue for any other value, including 0 and 1."""
    if not isinstance(value, bool):
        raise WrongValue("must be true or false")
    return value


def make_integer_reader(low: int, high: int) -> Callable[[Any], int]:
    """Return a reader for a whole number from `low` to `high`, both included. The reader accepts
    12.0 and rejects true. The reader raises WrongValue.
    """

    def read(value: Any) -> int:
        if isinstance(value, float) and value.is_integer():
            # In JSON Schema, 12.0 is an integer. Some clients can send only floats.
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise WrongValue(
                sentence("must be a whole number from {low} to {high}", low=low, high=high)
            )
        return value

    return read


def read_user(value: Any) -> int:
    """Return a user's id from a JSON text such as "7". Raises WrongValue for any other value."""
    number = parse_id(value) if isinstance(value, str) else None
    if number is None:
        raise WrongValue(sentence('must be the number of a user, "1" to "{most}"', most=NUMBER_MAX))
    return number


def make_choice_reader(choices: Collection[str]) -> Reader:
    """Return a reader for one of `choices`. The reader raises WrongValue with the choices."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise WrongValue(sentence("must be one of {words}", words=", ".join(choices)))
        return value

    return read


def make_choices_reader(choices: Collection[str]) -> Callable[[Any], list[str]]:
    """Return a reader for an array with at least one of `choices`. The reader removes duplicates
    and keeps the order. The reader raises WrongValue.
    """

    def read(value: Any) -> list[str]:
        if not isinstance(value, list) or not value:
            raise WrongValue(
                sentence("must be an array of some of {words}", words=", ".join(choices))
            )
        return list(dict.fromkeys(make_choice_reader(choices)(each) for each in value))

    return read


def read_id(text: str) -> int:
    """Return the id of a row in a path, or 0 if the text is not an id."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def make_not_found(object_name: str, text: str) -> Problem:
    """Return the Problem 404 for an id that does not exist in this workspace."""
    return Problem(
        404,
        sentence(
            "no {what} of this workspace has the number {text}", what=object_name, text=text[:40]
        ),
    )
