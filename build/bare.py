"""Sources without comments and docstrings. Each line keeps its number, for tracebacks."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from bytecode import FUNCTIONS, arguments, blocks

TEXT_OR_COMMENT = re.compile(
    r"""
      "{3} [^"\\]* (?: (?: \\. | "(?!"") ) [^"\\]* )* "{3}
    | '{3} [^'\\]* (?: (?: \\. | '(?!'') ) [^'\\]* )* '{3}
    | " (?: \\. | [^"\\] )* "
    | ' (?: \\. | [^'\\] )* '
    | (?P<comment> [ \t\f]* \# [^\n]* )
    """,
    re.DOTALL | re.VERBOSE,
)
"""Strings of Python before 3.12, in which a text in braces has other quotes than the text around
it. `tokenize` does the same in ten times the time."""


def strip(tree: Path) -> None:
    """Strip all sources in a tree. Licenses stay as files beside them. JSON loses its
    white space.
    """
    for path in sorted(tree.rglob("*.py")):
        path.write_text(bare(path.read_text()))
    for path in sorted(tree.rglob("*.json")):
        content = json.loads(path.read_text())
        path.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")))


def bare(source: str) -> str:
    source = TEXT_OR_COMMENT.sub(lambda match: "" if match["comment"] else match[0], source)
    lines = source.splitlines()
    nodes = [*blocks(ast.parse(source))]
    # From the end of a line, so that earlier columns stay valid.
    for row, begin, end in sorted(_types(nodes, lines), reverse=True):
        line = lines[row - 1].encode()
        lines[row - 1] = (line[:begin] + line[end:]).decode()
    for node in nodes:
        if isinstance(node, ast.Expr) and _is_text(node.value) and _is_alone(node, lines):
            assert node.end_lineno is not None
            lines[node.lineno - 1] = f'{" " * node.col_offset}""'
            for row in range(node.lineno, node.end_lineno):
                lines[row] = ""
    return tighten("\n".join(lines) + "\n")


def tighten(source: str) -> str:
    """Return a source with the same meaning and fewer blanks: 4 % less in an archive. Each line
    keeps its number, and texts stay.
    """
    return _outdent(_join_tokens(source))


def _join_tokens(source: str) -> str:
    """Return a source without the blanks between tokens that end or begin with a sign."""
    lines = source.split("\n")
    texts = 0
    before: tokenize.TokenInfo | None = None
    cuts: list[tuple[int, int, int]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        # From Python 3.12 on, an f-string consists of several tokens.
        texts += (token.type == _TEXT_BEGINS) - (token.type == _TEXT_ENDS)
        if (
            before is not None
            and before.end[0] == token.start[0]
            and before.type in _JOINED
            and token.type in _JOINED
            and not texts
            and not (before.type in _WORDS and token.type in _WORDS)
            and not (before.type == tokenize.NUMBER and token.string.startswith("."))
        ):
            cuts.append((token.start[0], before.end[1], token.start[1]))
        before = token
    # From the end of a line, so that earlier columns stay valid.
    for row, begin, end in reversed(cuts):
        lines[row - 1] = lines[row - 1][:begin] + lines[row - 1][end:]
    return "\n".join(lines)


_TEXT_BEGINS = getattr(tokenize, "FSTRING_START", -1)
_TEXT_ENDS = getattr(tokenize, "FSTRING_END", -1)
_WORDS = (tokenize.NAME, tokenize.NUMBER, tokenize.STRING, _TEXT_BEGINS, _TEXT_ENDS)
_JOINED = (*_WORDS, tokenize.OP)


def _outdent(source: str) -> str:
    """Return a source with one blank for four of its indentation. Lines within a text stay."""
    texts = {
        row
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno is not None
        for row in range(node.lineno, node.end_lineno)
    }
    lines = source.split("\n")
    for row, line in enumerate(lines):
        if row not in texts:
            text = line.lstrip(" ")
            lines[row] = " " * -(-(len(line) - len(text)) // 4) + text
    return "\n".join(lines)


def _types(nodes: Iterable[ast.AST], lines: list[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the type annotations of arguments and results, which compiled code does not have either
    (`bytecode.py`): row, first and last byte. Those on several lines stay.
    """
    for said, mark in _said(nodes):
        if said is None or said.lineno != said.end_lineno or said.end_col_offset is None:
            continue
        before = lines[said.lineno - 1].encode()[: said.col_offset].rstrip()
        if before.endswith(mark):
            yield said.lineno, len(before) - len(mark), said.end_col_offset


def _said(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr | None, bytes]]:
    for node in nodes:
        if isinstance(node, FUNCTIONS):
            yield node.returns, b"->"
            yield from ((each.annotation, b":") for each in arguments(node))


def _is_alone(node: ast.Expr, lines: list[str]) -> bool:
    """Return True if its lines contain nothing else."""
    assert node.end_lineno is not None
    before = lines[node.lineno - 1].encode()[: node.col_offset]
    behind = lines[node.end_lineno - 1].encode()[node.end_col_offset :]
    return not before.strip() and not behind.strip()


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
