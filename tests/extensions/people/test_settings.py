"""The kit's settings of the people's radio."""

from __future__ import annotations

from pathlib import Path

from fieldagent.agent.settings import parse
from fieldagent.extensions.people.settings import KEYS

GOOD = {
    "mesh-port": "tcp://192.168.4.2",
    "mesh-protocol": "meshtastic",
    "mesh-people": "!A1b2c3d4 Ada, !0badf00d Ben of the hut",
    "mesh-join-code": "edelweiss",
    "mesh-word": "@kit",
    "mesh-credits-per-day": "5",
    "mesh-positions": "900",
    "mesh-callsign": "HB9ABC-7",
    "mesh-baud": "19200",
    "mesh-calls": "HB9ABC-9, hb9xyz-*",
    "mesh-sos": "hb9abc-9",
    "mesh-language": "uk",
}


def test_every_mesh_setting_is_read() -> None:
    assert GOOD.keys() == {key.name for key in KEYS}
    text = "".join(f"{name}={value}\n" for name, value in GOOD.items())
    mesh = parse(text, Path("agent.properties")).parts["mesh"]
    people = {"!a1b2c3d4": "Ada", "!0badf00d": "Ben of the hut"}
    known = ("tcp://192.168.4.2", "meshtastic", people, "edelweiss", "@kit", 5, 900)
    calls = {"hb9abc-9", "hb9xyz-*"}
    assert mesh == (*known, "HB9ABC-7", 19200, calls, {"hb9abc-9"}, "uk")
