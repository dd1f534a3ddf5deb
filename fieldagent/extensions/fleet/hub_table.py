"""Table of the hub's commands that this extension adds."""

from __future__ import annotations

from fieldagent.cli.argument_types import TYPES, count
from fieldagent.cli.hub.table import make_hub_table


def read_waves(text: str) -> tuple[int | None, ...]:
    """Return the sizes of waves. Only the last size can be None, which means all remaining kits."""
    *sizes, last = text.split(",")
    return (*map(count, sizes), None if last == "all" else count(last))


read_waves.__name__ = "list of numbers such as 1,10,all"

COMMANDS = make_hub_table(
    """
update [Kits]: update the program of kits, in waves
update offer -> hub_update_command:offer: offer a signed program; the offer stops if a kit rolls
      back
  version: version of the program, such as 0.2.0
  url: URL of the program; URL.minisig is its signature
  --devices! KITS: kit-a,kit-b in this order, or all
  --waves waves=1,10,all: number of kits in each wave (1,10,all)
  --within MINUTES 1..10080=120: minutes until an updating kit must be back (120)
update list -> hub_update_command:list_offers @table: list offers, newest first
  --limit count=20: maximum number of offers (20)
update show -> hub_update_command:show_kits @table: show the result of an offer at each kit
  number? number: number of the offer (the newest)
update stop -> hub_update_command:stop: stop an offer; kits that have begun continue
""",
    "fieldagent.extensions.fleet",
    {**TYPES, "waves": read_waves},
)
