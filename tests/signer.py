"""Signs files with the real minisign."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.machine import tool

BUILD = Path(__file__).parents[1] / "build"


class Signer:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._minisign = tool("minisign", "minisign")
        self._secret, public = folder / "secret", folder / "public"
        keys = ["-p", str(public), "-s", str(self._secret)]
        subprocess.run([self._minisign, "-G", "-W", *keys], check=True, stdout=subprocess.DEVNULL)
        self.public = public.read_text()

    def sign(self, file: Path, *how: str) -> str:
        made = ["-Sm", str(file), "-s", str(self._secret), *how]
        subprocess.run([self._minisign, *made], check=True, stdout=subprocess.DEVNULL)
        return file.with_name(f"{file.name}.minisig").read_text()

    def release(self, program: Path, *how: str) -> str:
        """Sign a program as a release does, and return the signature."""
        made: list[str | Path] = [BUILD / "sign", program, "-s", str(self._secret), *how]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
        return program.with_name(f"{program.name}.minisig").read_text()

    def delta(self, program: Path, before: Path) -> Path:
        """Return a signed delta that makes `program` from `before`."""
        tool("zstd", "zstd")
        made: list[str | Path] = [BUILD / "delta", program, before, "-s", self._secret]
        output = subprocess.check_output(made, text=True)
        return Path(output.partition(": ")[0])
