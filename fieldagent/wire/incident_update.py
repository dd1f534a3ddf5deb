"""Encodes and decodes an incident update in an envelope, and canned texts
(docs/reference/on-air.md).
"""

from __future__ import annotations

from typing import Any

from fieldagent.package import canned
from fieldagent.package.package import IncidentState, IncidentUpdate
from fieldagent.wire.member import expect, is_in_range, is_int, read_bytes, read_text
from fieldagent.wire.tag import TAG_BYTES

_STATES_BY_NUMBER = (
    IncidentState.OPEN,
    IncidentState.SEEN,
    IncidentState.CLOSED,
    IncidentState.CALLED_OFF,
)
"""States by their numbers on the air."""


def decode_incident_update(
    time: int,
    incident: Any,
    state: Any,
    station: Any = None,
    person: Any = None,
    text: Any = None,
    proof: Any = None,
) -> IncidentUpdate:
    """Parse the members of an entry after its time. Raises RemoteProtocolError for malformed
    data.
    """
    expect(is_in_range(incident, minimum=0), "number of the incident")
    expect(is_in_range(state, minimum=0, maximum=len(_STATES_BY_NUMBER) - 1), "word known here")
    expect(station is None or is_in_range(station, minimum=1), "station")
    expect(proof is None or len(read_bytes(proof)) == TAG_BYTES, "proof of 8 bytes")
    person_name = "" if person is None else read_text(person)
    update_text = "" if text is None else decode_text(text)
    return IncidentUpdate(
        incident, _STATES_BY_NUMBER[state], station or 0, person_name, update_text, proof or b""
    )


def encode_incident_update(update: IncidentUpdate) -> list[Any]:
    """Encode an incident update: return the members of its entry."""
    text = encode_text(update.text) if update.text else None
    members = (update.station or None, update.by or None, text, update.proof or None)
    return [update.incident, _STATES_BY_NUMBER.index(update.state), *members]


def decode_text(value: Any) -> str:
    """Parse a text or the number of a canned text, and return the text. Raises RemoteProtocolError
    for malformed data.
    """
    if is_int(value):
        expect(is_in_range(value, minimum=0, maximum=canned.NUMBER_MAX), "number of canned words")
        return canned.get_text(value)
    return read_text(value)


def encode_text(text: str) -> str | int:
    """Return the text, or the number of an equal canned text."""
    number = canned.find_number(text)
    return text if number is None else number
