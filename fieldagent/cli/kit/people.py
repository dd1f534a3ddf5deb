"""`fieldagent people`: shows the possible addressees of a Package."""

from __future__ import annotations

import argparse
from typing import Any

from fieldagent.cli.kit.answer import make_calling, show
from fieldagent.kit.local_http import call
from fieldagent.system.exit_codes import OK
from fieldagent.system.terminal import escape_line

NO_PEOPLE_TEXT = (
    "no people from the hub yet: the directory arrives over the link; `send --to NAME` works"
    " without it, because the hub finds the person"
)
PART = "only people who have written before; the whole directory arrives over the link to the hub"


@make_calling
def print_people(arguments: argparse.Namespace) -> int:
    """Print the users, groups and kits in the hub's last directory."""
    answer = call(arguments.port, "GET", "/api/people").body
    show(arguments, answer, "\n".join(_format_lines(answer)))
    return OK


def _format_lines(answer: dict[str, Any]) -> list[str]:
    people_lines = [_format_line(each, answer["owner"]) for each in answer["people"]]
    if not people_lines:
        return [NO_PEOPLE_TEXT]
    return people_lines if answer["complete"] else [*people_lines, PART]


def _format_line(row: dict[str, Any], owner: int | None) -> str:
    owner_mark = "  (this kit's)" if row["kind"] == "user" and row["to"] == owner else ""
    radios = f"  {', '.join(row['radios'])}" if row["radios"] else ""
    return escape_line(f"{row['kind']:<8}{row['name']}{owner_mark}{radios}")
