"""A simulated radio channel with people's radios of one kind. The firmware's official client is
each person's app.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.extensions.lab.simulator.test_simulate_node import nodes
from tests.processes import Running


@contextmanager
def people_air(
    kind: str, home: Path, *more: str, people: int = 2
) -> Iterator[tuple[Running, list[int]]]:
    """Yield the process of the radio channel, and the TCP ports of the people's radios."""
    count = str(people + 1)
    how = ("--kind", kind, "--nodes", count, "--tcp-port", "0", "--seed", "7")
    with nodes(home, *how, *more) as air:
        lines = [line for line in air.lines if "tcp://" in line]
        yield air, [int(line.rpartition(":")[2]) for line in lines]


def client(kind: str, port: int) -> Running:
    return Running([sys.executable, "-m", f"tests.peers.{kind}_person", str(port)], "ready ")


def learn(person: Running, what: str) -> Any:
    """Wait for the person's next event with the key `what`, and return its value."""
    return json.loads(person.expect(f'{{"{what}"'))
