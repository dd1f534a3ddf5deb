"""The simulated RNode, tested with a program for real ones."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.extensions.lab.simulator.test_simulate_node import nodes
from tests.processes import Running


def test_reticulum_delivers_a_message_over_simulated_rnodes(tmp_path: Path) -> None:
    """Reticulum sets the boards up and reads the settings back, and a message and its proof arrive.
    One side waits until its board is ready, and the other does not.
    """
    with nodes(tmp_path, "--kind", "rnode", "--seed", "7") as air:

        def person(number: int, flow: str, *to: str) -> Running:
            command = [sys.executable, "-m", "tests.peers.lxmf_person", str(tmp_path / f"{number}")]
            return Running(
                [*command, str(tmp_path / "air" / f"node-{number}"), flow, *to], "address "
            )

        with person(1, "yes") as ada:
            address = ada.lines[-1].split()[-1]
            with person(2, "no", address) as ben:
                assert "board on" in ada.lines and "board on" in ben.lines
                assert ada.expect("came ") == "came hut reached, all well -80"
                ben.expect("delivered")
        air.expect("node 1 transmits")
