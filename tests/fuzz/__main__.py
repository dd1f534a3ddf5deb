"""Fuzzes each decoder in a separate process, one process per processor:

    tests/run fuzz [--seconds 3600] [NAME ...]

The inputs start with those of `corpus/NAME`. An input that crashes a decoder is written there as
`crash-…`. `pytest tests/fuzz` tests all of them at each change.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parent / "corpus"
INPUT_MAX = 4096
"""Maximum bytes of one input."""
SLOW = 5
"""Seconds after which one input is a fault."""
KEPT = 40
"""Inputs of each decoder in the repository: the smallest with additional coverage."""


def fuzz_one(name: str) -> None:
    """Fuzz in a separate process, because libFuzzer never returns."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["fieldagent", "tests.fuzz.decoders"]):
        from tests.fuzz.decoders import all_decoders

    atheris.Setup([sys.argv[0], *sys.argv[3:]], all_decoders()[name])
    atheris.Fuzz()


def run(name: str, seconds: int) -> str:
    """Return the result as one line."""
    own = CORPUS / name
    own.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as news:
        options = [f"-max_total_time={seconds}", f"-max_len={INPUT_MAX}", f"-timeout={SLOW}"]
        done = _libfuzzer(name, *options, f"-artifact_prefix={own}/", news, str(own))
        tried = re.findall(r"stat::number_of_executed_units: *([0-9]+)", done.stderr)
        covered = re.findall(r"^#([0-9]+)\t.* cov: ([0-9]+)", done.stderr, re.MULTILINE)
        _keep_the_smallest(name, Path(news))
    inputs = int(tried[-1]) if tried else 0
    edges = covered[-1][1] if covered else "0"
    last = next((int(number) for number, cov in covered if cov == edges), 0)
    figures = f"{inputs:>12,} inputs, {edges:>5} edges, the last new one at {last:,}"
    if done.returncode:
        return f"{name:<12}{figures}  FAILED\n{done.stderr[-4000:]}"
    return f"{name:<12}{figures}"


def _libfuzzer(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz", "--one", name, *arguments]
    return subprocess.run(
        [*command, "-print_final_stats=1"], capture_output=True, text=True, errors="replace"
    )


def _keep_the_smallest(name: str, inputs: Path) -> None:
    """Add the smallest found inputs to the kept inputs. Each found input adds coverage."""
    own = CORPUS / name
    room = KEPT - len(list(own.iterdir()))
    for new in sorted(inputs.iterdir(), key=lambda path: path.stat().st_size)[: max(0, room)]:
        shutil.copy(new, own / new.name[:12])


def main() -> int:
    from tests.fuzz.decoders import all_decoders

    parser = argparse.ArgumentParser(prog="tests/run fuzz")
    parser.add_argument("--seconds", type=int, default=3600, help="for each decoder (3600)")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(all_decoders()))
    chosen = parser.parse_args()
    failed = False
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [pool.submit(run, name, chosen.seconds) for name in chosen.names or all_decoders()]
        for each in runs:
            print(each.result(), flush=True)
            failed |= "FAILED" in each.result()
    return int(failed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        fuzz_one(sys.argv[2])
    sys.exit(main())
