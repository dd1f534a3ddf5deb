"""File with the tokens of test kits. `fieldagent hub device make` writes the file, and `simulate
fleet` reads it.

The file has a heading that prevents the use of real kits' tokens. Otherwise, real kits would lose
their links to emulated kits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

HEADING = "# Tokens of test kits for `fieldagent simulate fleet`"
_TOKEN = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


class NoTokens(ValueError):
    """Error: the text is not a token file. The message contains the reason and the fix."""


def format_tokens(workspace: str, tokens: Sequence[str]) -> str:
    """Return the text of a token file: a heading, and one token per line."""
    title = f"# {len(tokens)} in workspace {workspace!r}"
    deletion_hint = "# `fieldagent hub workspace delete` with that name takes all of it away again"
    return "\n".join([HEADING, title, deletion_hint, *tokens, ""])


def parse_tokens(text: str) -> list[str]:
    """Return the tokens in the file's text, in their order. Raises NoTokens if the heading or a
    token is wrong.
    """
    heading, *lines = text.split("\n")
    if heading != HEADING:
        raise NoTokens(
            "the file is not from `fieldagent hub device make`, and a real kit would lose its link"
            " to an emulated one: make test kits at your hub"
        )
    tokens = [line for line in map(str.strip, lines) if line and line[0] != "#"]
    for number, token in enumerate(tokens, 1):
        if not _TOKEN.fullmatch(token):
            raise NoTokens(f"token {number} of {len(tokens)} is damaged: take that line out")
    if not tokens:
        raise NoTokens("the file has no token: create the test kits again")
    return tokens
