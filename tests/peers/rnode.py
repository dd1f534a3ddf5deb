"""LoRa boards with RNode firmware, for `lora_boards`: written only from its list of commands.
`python -m tests.peers.rnode FOLDER COUNT`. Possible faults of a board: it is `unprovisioned`, or
starts by itself with `stored` settings.
"""

from __future__ import annotations

from tests.peers.lora_boards import Board, main


class Rnode(Board):
    firmware = bytes([1, 80])

    def reset(self) -> None:
        self.on = False
        self.kept: dict[int, bytes] = {}
        if self.broken == "stored":
            self.on = True
            self.kept = {1: bytes(4), 2: bytes(4), 4: b"\x0c"}
        self.spent = 0.0
        self.left = False
        self.write(0x55, b"\xf8")

    def receive_message(self, frame: bytes) -> bytes | None:
        command, content = frame[0], frame[1:]
        if command == 0x00:
            # As if each byte took a millisecond, which counts for an hour.
            limit = int.from_bytes(self.kept.get(0x0C, b"\xff\xff"), "big") / 10_000 * 3600
            if not self.on:
                self.write(0x90, b"\x02")
            elif self.spent + len(content) / 1000 > limit:
                self.write(0x90, b"\x04")
            else:
                self.spent += len(content) / 1000
                return content
        elif command == 0x06:
            if content == b"\x01" and self.broken == "unprovisioned":
                self.write(0x90, b"\x03")
                content = b"\x00"
            if content != b"\xff":
                self.on = content == b"\x01"
            self.write(0x06, bytes([self.on]))
            self.write(0x27, b"\x01\x57")
        elif command == 0x08 and content == b"\x73":
            self.write(0x08, b"\x46")
        elif command == 0x0A:
            self.left = True
        elif command == 0x50:
            self.write(0x50, self.firmware)
        elif command in (0x01, 0x02, 0x03, 0x04, 0x05, 0x0B, 0x0C):
            # The chip has steps in frequency, and at most 22 dBm.
            if command == 0x01:
                content = (int.from_bytes(content, "big") - 42).to_bytes(4, "big")
            if command == 0x03:
                content = bytes([min(content[0], 22)])
            self.kept[command] = content
            self.write(command, content)
        return None

    def refuse(self) -> None:
        self.write(0x90, b"\x04")

    def end(self) -> None:
        self.write(0x21, b"\0\0\0\1")
        self.write(0x0F, b"\x01")

    def hear(self, packet: bytes) -> None:
        self.write(0x23, bytes([157 - 117]))
        self.write(0x24, (-22).to_bytes(1, "big", signed=True))
        self.write(0x00, packet)

    def tuned(self) -> object:
        return tuple(self.kept[each] for each in (1, 2, 4)) if self.on else None

    def told(self) -> str:
        kept = " ".join(f"{key:x}={value.hex()}" for key, value in sorted(self.kept.items()))
        return f"{'on' if self.on else 'off'} {kept}{' left' * self.left}"


if __name__ == "__main__":
    main(Rnode)
