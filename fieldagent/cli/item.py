"""Makes items from the arguments of `send` and `push`, in the JSON of both APIs."""

from __future__ import annotations

import argparse
import base64
import importlib
import io
import sys
from pathlib import Path
from typing import Any

from fieldagent.cli.place import read_only_place
from fieldagent.kit.local_http import CallFailed
from fieldagent.package.picture import find_picture_type
from fieldagent.package.reading import ITEM_BYTES_MAX
from fieldagent.system.exit_codes import USAGE


def _make_message(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the body of a message. Raises CallFailed if its text is empty."""
    content = sys.stdin.read() if arguments.content == "-" else arguments.content
    if not content:
        raise CallFailed("the message is empty: enter a text", USAGE)
    return {"message": {"content": content}}


def _make_location(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the body of a position report. Raises CallFailed if the position is invalid."""
    members = {
        **_read_position(arguments),
        "altitude": arguments.altitude,
        "speedOverGround": arguments.speed,
        "courseOverGround": arguments.course,
    }
    return {"location": members}


def _make_waypoint(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the body of a waypoint. Raises CallFailed if the position is invalid."""
    return {
        "waypoint": {**_read_position(arguments), "name": arguments.name, "notes": arguments.notes}
    }


def _make_file_item(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the body of raw bytes. Raises CallFailed if the file cannot be read."""
    return _make_data(_read_content(arguments.file))


def _make_picture(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return a picture as data: unchanged, or scaled to `--bytes`.

    Raises CallFailed if the file is not a picture, is too large, or cannot be scaled on this
    machine.
    """
    raw = _read_content(arguments.file)
    if find_picture_type(raw) is None:
        raise CallFailed(
            f"{arguments.file} is not a JPEG, PNG, WebP, AVIF or GIF: send it with `send data`",
            USAGE,
        )
    if arguments.most_bytes is not None and len(raw) > arguments.most_bytes:
        raw = _scale_picture(raw, arguments.most_bytes)
    if len(raw) > ITEM_BYTES_MAX:
        raise CallFailed(
            f"{arguments.file} has {len(raw)} bytes, but a Package takes {ITEM_BYTES_MAX}:"
            " scale it with --bytes 30000",
            USAGE,
        )
    return _make_data(raw)


def _read_content(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise CallFailed(f"cannot read {file}: {error.strerror}", USAGE) from None


def _make_data(raw: bytes) -> dict[str, Any]:
    return {"data": {"payload": base64.b64encode(raw).decode()}}


QUALITIES, SIDES = (60, 40, 25), (1600, 1024, 720, 480, 320, 200)
"""Qualities of WebP, and pixels of the longer side. The best combination that fits is used."""


def _scale_picture(raw: bytes, limit: int) -> bytes:
    """Return the picture as WebP of at most `limit` bytes. Raises CallFailed if the picture cannot
    be read or does not become small enough.
    """
    try:
        image = importlib.import_module("PIL.Image")
        turned = importlib.import_module("PIL.ImageOps").exif_transpose
    except ModuleNotFoundError:
        raise CallFailed(
            "--bytes needs Pillow, which is not installed here (`apt install python3-pil`, or"
            " `pip install Pillow`): scale the picture otherwise, or send it from the kit's page,"
            " which scales it in the browser",
            USAGE,
        ) from None
    try:
        picture = turned(image.open(io.BytesIO(raw))).convert("RGB")
    except (OSError, ValueError) as error:
        raise CallFailed(f"the picture cannot be read: {error}", USAGE) from None
    for side in SIDES:
        smaller = picture.copy()
        smaller.thumbnail((side, side))
        for quality in QUALITIES:
            output = io.BytesIO()
            smaller.save(output, "WEBP", quality=quality, method=6)
            if output.tell() <= limit:
                return output.getvalue()
    raise CallFailed(f"the picture does not fit {limit} bytes at {SIDES[-1]} pixels either", USAGE)


def _read_position(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the position of the arguments. Raises CallFailed if it is not a position."""
    return {**read_only_place(arguments.place).get_degrees(), "timestamp": arguments.timestamp}


BODY_MAKERS = {
    "message": _make_message,
    "location": _make_location,
    "waypoint": _make_waypoint,
    "data": _make_file_item,
    "picture": _make_picture,
}


def make_item(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the body of the item of `arguments.kind`. Raises CallFailed if an argument is
    invalid.
    """
    return BODY_MAKERS[arguments.kind](arguments)
