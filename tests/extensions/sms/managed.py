"""A simulated modem of ModemManager: a replacement for its command `mmcli`, with its state in a
folder.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

COMMAND = Path(__file__).with_name("stand_in_mmcli.py")


class Managed:
    """The state of the stand-in. `type` accepts the simulated modem's commands, as far as tests
    need them. A fault is a file whose name identifies it. It lasts until `heals`.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.messages, self.faults = home / "messages", home / "faults"
        programs = home / "programs"
        for each in (self.messages, self.faults, programs):
            each.mkdir(parents=True)
        program = programs / "mmcli"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{COMMAND}" "$@"\n')
        program.chmod(0o755)
        path = f"{programs}:{os.environ['PATH']}"
        self.environment = {"PATH": path, "STAND_IN_MODEM": str(home)}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        return None

    def output(self) -> list[str]:
        left = self.home / "left"
        return left.read_text().splitlines() if left.exists() else []

    def breaks(self, fault: str, about: str = "") -> None:
        (self.faults / fault).write_text(about)

    def heals(self, fault: str) -> None:
        (self.faults / fault).unlink()

    def type(self, line: str) -> None:
        verb, first, rest = line.split(" ", 2)
        if verb == "sms":
            self._come({"number": first, "text": rest}, {"pdu-type": "deliver"})
        elif verb == "half":
            properties = {"pdu-type": "deliver", "state": "receiving"}
            self._come({"number": first, "text": rest}, properties)
        elif verb == "report":
            number = self.output()[int(first) - 1].split()[2].rstrip(":")
            properties = {
                "pdu-type": "status-report",
                "message-reference": first,
                "delivery-state": rest,
                "discharge-timestamp": "2026-11-25T12:00:01+00",
            }
            self._come({"number": number}, properties)
        else:
            raise ValueError(f"{line!r} is no command")

    def _come(self, content: dict[str, str], properties: dict[str, str]) -> None:
        message = {
            "content": {"number": "--", "text": "--", "data": "--", **content},
            "properties": {
                "state": "received",
                "storage": "me",
                "timestamp": "2026-11-25T12:00:00+00",
                **properties,
            },
        }
        number = len(list(self.messages.iterdir())) + 1_000
        while (self.messages / str(number)).exists():
            number += 1
        hidden = self.home / "coming"
        hidden.write_text(json.dumps(message))
        hidden.rename(self.messages / str(number))
