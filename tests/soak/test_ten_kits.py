"""Ten kits on one air that loses three of ten packets: real agents, real time, and all post at
once.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.extensions.lab.simulator.test_simulate_node import kit, nodes
from tests.processes import Agent

KITS, LOSS = 10, 0.3
MINUTES = 10
QUIET = 60.0
"""Seconds without an arrival at a hook."""
EACH = re.compile(r'"content":"(word \d+ of \d+|SOS of \d+)"')


def heard(running: Agent) -> Counter[str]:
    """Return the number of deliveries of each text to its hook."""
    lines = [line for line in running.output() if "hook: " in line]
    return Counter(text for line in lines for text in EACH.findall(line))


def posts(running: Agent, content: str, **members: int) -> None:
    """Post without waiting for the result."""
    body = {"message": {"content": content}, **members}
    answer = running.call("POST", "/api/package", body, Prefer="wait=0")
    assert answer.status == 202, answer


@pytest.mark.full
def test_ten_kits_receive_every_message_once_within_ten_minutes(tmp_path: Path) -> None:
    arguments = ("--nodes", str(KITS), "--loss", str(LOSS), "--seed", "3")
    with ExitStack() as stack:
        stack.enter_context(nodes(tmp_path, *arguments))
        kits = [stack.enter_context(kit(tmp_path, number)) for number in range(1, KITS + 1)]
        texts = {f"word {n} of {number}" for number in range(1, KITS + 1) for n in (1, 2)}
        for number, each in enumerate(kits, 1):
            for n in (1, 2):
                posts(each, f"word {n} of {number}")
        posts(kits[0], "SOS of 1", priority=100)
        texts.add("SOS of 1")

        def lacking() -> dict[int, set[str]]:
            missing = {
                number: {text for text in texts if not text.endswith(f" of {number}")}
                - {*heard(each)}
                for number, each in enumerate(kits, 1)
            }
            return {number: texts for number, texts in missing.items() if texts}

        began = time.monotonic()
        while lacking():
            assert time.monotonic() - began < MINUTES * 60, lacking()
            time.sleep(1)
        print(f"everybody had everything after {time.monotonic() - began:.0f} s")
        quiet = time.monotonic() + QUIET
        while time.monotonic() < quiet:
            time.sleep(1)
        twice = {
            number: [text for text, count in heard(each).items() if count > 1]
            for number, each in enumerate(kits, 1)
        }
        assert not any(twice.values()), twice
