"""LoRa boards with MeshCore's KISS modem firmware, for `lora_boards`: written only from the
firmware's document. `python -m tests.peers.meshcore FOLDER COUNT`.
"""

from __future__ import annotations

import struct

from tests.peers.lora_boards import Board, main

DEFAULT = struct.pack("<IIBB", 915_000_000, 250_000, 10, 5)


class Meshcore(Board):
    def reset(self) -> None:
        self.radio, self.power, self.delay = DEFAULT, 22, 50

    def say(self, *frame: int, more: bytes = b"") -> None:
        self.write(6, bytes(frame) + more)

    def receive_message(self, frame: bytes) -> bytes | None:
        if frame[0] == 6 and len(frame) > 1:
            self.command(frame[1], frame[2:])
        elif frame[0] == 1:
            self.delay = frame[1]
        elif frame[0] == 0 and len(frame) <= 256:
            return frame[1:]
        return None

    def command(self, sub: int, content: bytes) -> None:
        if sub == 0x09:
            good = len(content) == 10 and 5 <= content[8] <= 12 and 5 <= content[9] <= 8
            if good:
                self.radio = content
            self.say(*(0xF0,) if good else (0xF1, 2))
        elif sub == 0x0A:
            if content[0] > 22:
                self.say(0xF1, 2)
                return
            self.power = content[0]
            self.say(0xF0)
        elif sub == 0x0B:
            self.say(0x8B, more=self.radio)
        elif sub == 0x0F:
            # As if each byte took a millisecond.
            self.say(0x8F, more=struct.pack("<I", content[0]))
        elif sub == 0x13:
            self.say(0x93, more=struct.pack("<H", 3987))
        elif sub == 0x17:
            self.say(0x97)
        else:
            # An early firmware has neither version nor signal report.
            self.say(0xF1, 5)

    def refuse(self) -> None:
        self.say(0xF1, 7)

    def end(self) -> None:
        self.say(0xF8, 1)

    def hear(self, packet: bytes) -> None:
        self.write(0, packet)
        self.say(0xF9, more=struct.pack("<bb", -22, -117))

    def tuned(self) -> object:
        return self.radio[:9]

    def told(self) -> str:
        return f"{self.radio.hex()} {self.power} {self.delay}"


if __name__ == "__main__":
    main(Meshcore)
