"""Items as the arguments of `send` and `push` tell them, in the JSON of both APIs."""

from __future__ import annotations

import argparse
import base64
import sys
from pathlib import Path
from typing import Any

from fieldagent.kit.local_http import CallFailed
from fieldagent.system.exit_codes import USAGE


def message_of(given: argparse.Namespace) -> dict[str, Any]:
    """Raises CallFailed where there is nothing to say."""
    content = sys.stdin.read() if given.content == "-" else given.content
    if not content:
        raise CallFailed("a message without a character says nothing: give its text", USAGE)
    return {"message": {"content": content}}


def location_of(given: argparse.Namespace) -> dict[str, Any]:
    members = {
        **_position(given),
        "altitude": given.altitude,
        "speedOverGround": given.speed,
        "courseOverGround": given.course,
    }
    return {"location": members}


def waypoint_of(given: argparse.Namespace) -> dict[str, Any]:
    return {"waypoint": {**_position(given), "name": given.name, "notes": given.notes}}


def data_of(given: argparse.Namespace) -> dict[str, Any]:
    """Raises CallFailed when the file cannot be read."""
    try:
        raw = sys.stdin.buffer.read() if given.file == "-" else Path(given.file).read_bytes()
    except OSError as error:
        raise CallFailed(f"cannot read {given.file}: {error.strerror}", USAGE) from None
    return {"data": {"payload": base64.b64encode(raw).decode()}}


def _position(given: argparse.Namespace) -> dict[str, Any]:
    return {
        "latitude": given.latitude,
        "longitude": given.longitude,
        "timestamp": given.timestamp,
    }
