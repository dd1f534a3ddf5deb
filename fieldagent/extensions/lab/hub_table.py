"""Table of the hub's commands that this extension adds."""

from __future__ import annotations

from fieldagent.cli.hub.table import make_hub_table

COMMANDS = make_hub_table(
    """
device make [Test] -> test_kits:make_test_kits @whole: add test kits for `fieldagent simulate fleet`
  kits N count: number of kits
  --workspace! NAME: name of the new workspace
  --tokens! FILE path: file for their tokens
""",
    "fieldagent.extensions.lab",
)
