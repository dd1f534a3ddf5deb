"""One line of a GPIO chip, over Linux's character device (linux/gpio.h, version 2, from 5.10)."""

from __future__ import annotations

import os
import struct
from fcntl import ioctl
from pathlib import Path

DEVICE_FOLDER = Path("/dev")
PI_CHIPS = ("pinctrl-bcm2835", "pinctrl-bcm2711", "pinctrl-rp1")
"""Labels of the chips that drive a Raspberry Pi's header: models up to 3 and Zero 2 W, model 4,
model 5."""
GET_CHIP_INFO = 0x8044B401
GET_LINE = 0xC250B407
SET_VALUES = 0xC010B40F
GET_VALUES = 0xC010B40E
INPUT, OUTPUT = 1 << 2, 1 << 3
_CHIP = struct.Struct("=32s32sI")
_REQUEST = struct.Struct("=64I32sQI5I240xII5Ii")
_VALUES = struct.Struct("=QQ")


class GpioLine:
    """GPIO line that is opened as an output, and is low until `set_high` is called. `place` is a
    line's number, or CHIP/LINE. Raises OSError if the line cannot be opened.
    """

    def __init__(self, place: str) -> None:
        chip, _, line = place.rpartition("/")
        with find_chip(chip).open("rb", buffering=0) as device:
            request = _encode_request(int(line), OUTPUT)
            ioctl(device, GET_LINE, request)
        self._line = _REQUEST.unpack(request)[-1]

    def set_high(self) -> None:
        """Set the output to high. Raises OSError if the driver of the chip refuses."""
        ioctl(self._line, SET_VALUES, _VALUES.pack(1, 1))

    def close(self) -> None:
        """Release the line. The chip's driver decides whether the line keeps its level or becomes
        an input.
        """
        os.close(self._line)


class GpioInput:
    """GPIO line of the Raspberry Pi's header that is opened as an input. Raises OSError if the line
    cannot be opened.
    """

    def __init__(self, line: int) -> None:
        with find_chip("").open("rb", buffering=0) as device:
            request = _encode_request(line, INPUT)
            ioctl(device, GET_LINE, request)
        self._line = _REQUEST.unpack(request)[-1]

    def is_high(self) -> bool:
        """Return True if the line is high. Raises OSError."""
        values = bytearray(_VALUES.pack(0, 1))
        ioctl(self._line, GET_VALUES, values)
        return bool(_VALUES.unpack(values)[0] & 1)

    def close(self) -> None:
        """Release the line."""
        os.close(self._line)


def _encode_request(line: int, flags: int) -> bytearray:
    return bytearray(
        _REQUEST.pack(
            *(line, *[0] * 63),
            b"fieldagent",
            *(flags, 0, *[0] * 5),
            *(1, 0, *[0] * 5),
            0,
        )
    )


def find_chip(name: str) -> Path:
    """Return the device file of the chip `name`. If `name` is empty, return the device file of the
    chip that drives a Raspberry Pi's header. Raises OSError.
    """
    if name:
        return DEVICE_FOLDER / name
    for path in sorted(DEVICE_FOLDER.glob("gpiochip*")):
        with path.open("rb", buffering=0) as device:
            answer = bytearray(_CHIP.size)
            ioctl(device, GET_CHIP_INFO, answer)
        if _CHIP.unpack(answer)[1].rstrip(b"\0").decode("ascii", "replace") in PI_CHIPS:
            return path
    raise FileNotFoundError("no GPIO chip of a Raspberry Pi was found: name one, gpio:gpiochip0/17")
