"""Fields, parameters and responses that the descriptions of both APIs share."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from fieldagent.http.openapi import (
    NULL,
    NamedPart,
    Schema,
    answer,
    constant,
    enumeration,
    extensible_record,
    header,
    integer,
    list_of,
    named_problem,
    named_record,
    nullable,
    number,
    one_of,
    query,
    record,
    schema,
    text,
)
from fieldagent.package.package import ALTITUDE_MAX, ALTITUDE_MIN, SPEED_MAX_M_S, PositionSource
from fieldagent.package.reading import INT32 as INT32_RANGE
from fieldagent.package.reading import ITEM_BYTES_MAX

MALFORMED = named_problem(
    "Malformed", "The request is not HTTP or not JSON, or a header is malformed"
)
NO_LENGTH = named_problem("NoLength", "The length is missing")
LARGER_THAN_1_MIB = named_problem("LargerThan1MiB", "The body is larger than 1 MiB")
NOT_JSON = named_problem("NotJson", "The content type is not application/json")
HTTP_PROBLEM = named_problem("OfHttp", "An error of HTTP itself, or a fault of the server")
WRONG_HOST = "The Host, Origin or proxy is not allowed"
USED_KEY_TEXT = "The body has faults, or the Idempotency-Key was used with another body"

INT64_MAX = 2**63 - 1
SAFE_INTEGER_MAX = 2**53 - 1
"""Largest integer that JavaScript reads exactly."""
INT32 = integer(format="int32", minimum=INT32_RANGE[0], maximum=INT32_RANGE[-1])
SECONDS = integer(format="int32", minimum=1, maximum=INT32_RANGE[-1])
ROW = integer(minimum=1, maximum=INT64_MAX)
"""Number of a row of the database."""
UNIX_TIME = number("Unix time")
NEXT_PAGE = nullable(text("Path of the next page"))
READ_RECEIPT = enumeration("read", None, description="read: the sender requests a read receipt")
NAMED_RECORD = record({"id": text(), "name": text()})

FAULT = {"detail": text(), "pointer": text("JSON Pointer (RFC 6901)")}


def problem_schema(**codes: Schema) -> NamedPart:
    """Return the schema of problems (RFC 9457). `codes` are further fields, which may be absent."""
    fields = {
        "title": text(),
        "status": integer(),
        "detail?": text(),
        **{f"{name}?": each for name, each in codes.items()},
        "errors?": list_of(record(FAULT), "All faults of the request"),
    }
    return schema("Problem", extensible_record(fields, "RFC 9457"))


IDEMPOTENCY_KEY = NamedPart(
    "parameters",
    "IdempotencyKey",
    header(
        "Idempotency-Key",
        text(pattern=r'^("[ !#-\[\]-~]{1,255}"|[!#-~]([ -~]{0,253}[!-~])?)$'),
        "Makes a repeated call count once; with or without quotes, 1 to 255 printable ASCII "
        "characters",
    ),
)
ALIVE_PARAMETER = query(
    "alive",
    number(minimum=1, maximum=60),
    "Seconds without an event after which an event `alive`, without an id, is sent; without this, "
    "a comment is sent every 15 seconds",
)
METRICS = answer(
    "OpenMetrics 1.0", text(), "application/openmetrics-text; version=1.0.0; charset=utf-8"
)
THIS_DOCUMENT = answer("OpenAPI 3.1", {"type": "object"})
UP_SCHEMA = record({"status": constant("UP")})
DOWN_RECORD = record({"status": constant("DOWN"), "reason": text()})

MINUTE = "[0-5][0-9]"
HOUR = "([01][0-9]|2[0-3])"
TIMESTAMP = text(
    "ISO 8601 with an offset or Z; other forms of ISO 8601 are accepted too, and a time without "
    "an offset is UTC",
    pattern=r"^(19[89][0-9]|20[0-9]{2})-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
    rf"T{HOUR}:{MINUTE}:{MINUTE}(\.[0-9]{{1,6}})?(Z|[+-](0[0-9]|1[0-3]):{MINUTE})$",
    examples=["2026-05-04T10:00:00Z"],
)


def _make_degrees_schema(maximum: int, text_form: str, description: str) -> dict[str, Any]:
    """Return the schema of a coordinate: a number, or a text with a decimal point or comma."""
    pattern = rf"^[+-]?(0*({text_form}([.,][0-9]*)?|{maximum}([.,]0*)?)|[.,][0-9]+)$"
    either = (number(minimum=-maximum, maximum=maximum), text(pattern=pattern, maxLength=64))
    return one_of(*either, description=description, examples=["47.3769"])


def coordinate_fields(description: str) -> dict[str, dict[str, Any]]:
    """Return the fields of a position on earth."""
    return {
        "latitude": _make_degrees_schema(90, "[0-8]?[0-9]", description),
        "longitude": _make_degrees_schema(180, "(1[0-7][0-9]|[0-9]?[0-9])", description),
    }


WGS84 = "WGS84, decimal degrees"
COORDINATE_TEXT = (
    f"{WGS84}; as text also with a comma, or with minutes and seconds: 47° 22' 36.8\" N"
)
_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_BASE64_MAX = len(base64.b64encode(bytes(ITEM_BYTES_MAX)))
DATA_SCHEMA = named_record(
    "Data",
    {"payload": text(contentEncoding="base64", pattern=_BASE64, maxLength=_BASE64_MAX)},
    "Raw bytes",
)
LOCATION = named_record(
    "Location",
    {
        **coordinate_fields(COORDINATE_TEXT),
        "timestamp?": nullable(TIMESTAMP),
        "altitude?": nullable(
            number("Metres above mean sea level", minimum=ALTITUDE_MIN, maximum=ALTITUDE_MAX)
        ),
        "speedOverGround?": nullable(number("m/s", minimum=0, maximum=SPEED_MAX_M_S)),
        "courseOverGround?": nullable(
            number("Degrees clockwise from true north", minimum=0, maximum=360)
        ),
        "source?": enumeration(
            *PositionSource, None, description="Source of the position of an SOS"
        ),
    },
    "A position report",
)
WAYPOINT = named_record(
    "Waypoint",
    {
        **coordinate_fields(WGS84),
        "timestamp?": nullable(TIMESTAMP),
        "name": text("Name of the point of interest", maxLength=ITEM_BYTES_MAX),
        "notes?": nullable(text("Additional notes", maxLength=ITEM_BYTES_MAX)),
    },
    "A point of interest",
)


def variants(
    routing: Mapping[str, Schema],
    items: Mapping[str, Schema],
    description: str,
    **more: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the schema of a body with exactly one of these items. `more` contains further keywords
    for the body with a certain item.
    """
    absent = {f"{kind}?": NULL for kind in items}
    options = []
    for kind, item in items.items():
        fields = {**routing, **absent, kind: item}
        del fields[f"{kind}?"]
        options.append(record(fields, title=f"with {kind}", **more.get(kind, {})))
    return one_of(*options, description=description)
