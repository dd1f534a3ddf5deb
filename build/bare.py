"""Removes comments, docstrings and annotations from Python sources. Each remaining line keeps its
number, so that tracebacks stay correct.
"""

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
"""Matches a string or a comment. It does not support quotes that are nested in an f-string, which
Python 3.12 allows. `tokenize` takes ten times as long."""


def strip_tree(tree: Path) -> None:
    """Strip all Python sources in a folder and its subfolders, and remove the white space between
    the tokens of JSON files.
    """
    for path in sorted(tree.rglob("*.py")):
        path.write_text(strip_source(path.read_text()))
    for path in sorted(tree.rglob("*.json")):
        content = json.loads(path.read_text())
        path.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")))


def strip_source(source: str) -> str:
    source = TEXT_OR_COMMENT.sub(lambda match: "" if match["comment"] else match[0], source)
    lines = source.splitlines()
    nodes = [*blocks(ast.parse(source))]
    # Cut from the end of each line, so that the earlier columns stay valid.
    for row, begin, end in sorted(_list_annotation_spans(nodes, lines), reverse=True):
        line = lines[row - 1].encode()
        lines[row - 1] = (line[:begin] + line[end:]).decode()
    for node in nodes:
        if isinstance(node, ast.Expr) and _is_text(node.value) and _is_alone(node, lines):
            assert node.end_lineno is not None
            lines[node.lineno - 1] = f'{" " * node.col_offset}""'
            for row in range(node.lineno, node.end_lineno):
                lines[row] = ""
    return remove_spaces("\n".join(lines) + "\n")


def remove_spaces(source: str) -> str:
    """Return an equivalent source with fewer spaces, which makes an archive 4 % smaller. Each line
    keeps its number, and strings are unchanged.
    """
    return _shorten_indentation(_join_tokens(source))


def _join_tokens(source: str) -> str:
    """Return the source without the spaces next to operators and punctuation."""
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
    # Cut from the end of each line, so that the earlier columns stay valid.
    for row, begin, end in reversed(cuts):
        lines[row - 1] = lines[row - 1][:begin] + lines[row - 1][end:]
    return "\n".join(lines)


_TEXT_BEGINS = getattr(tokenize, "FSTRING_START", -1)
_TEXT_ENDS = getattr(tokenize, "FSTRING_END", -1)
_WORDS = (tokenize.NAME, tokenize.NUMBER, tokenize.STRING, _TEXT_BEGINS, _TEXT_ENDS)
_JOINED = (*_WORDS, tokenize.OP)


def _shorten_indentation(source: str) -> str:
    """Return the source with one space for each four spaces of indentation. Lines within a string
    are unchanged.
    """
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


def _list_annotation_spans(
    nodes: Iterable[ast.AST], lines: list[str]
) -> Iterator[tuple[int, int, int]]:
    """Yield the place of each type annotation of an argument or result: line number, first byte,
    and the byte after its end. Annotations on several lines are left out.
    """
    for annotation, mark in _list_annotations(nodes):
        if (
            annotation is None
            or annotation.lineno != annotation.end_lineno
            or annotation.end_col_offset is None
        ):
            continue
        before = lines[annotation.lineno - 1].encode()[: annotation.col_offset].rstrip()
        if before.endswith(mark):
            yield annotation.lineno, len(before) - len(mark), annotation.end_col_offset


def _list_annotations(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr | None, bytes]]:
    for node in nodes:
        if isinstance(node, FUNCTIONS):
            yield node.returns, b"->"
            yield from ((each.annotation, b":") for each in arguments(node))


def _is_alone(node: ast.Expr, lines: list[str]) -> bool:
    """Return True if the lines of an expression contain no other code."""
    assert node.end_lineno is not None
    before = lines[node.lineno - 1].encode()[: node.col_offset]
    after = lines[node.end_lineno - 1].encode()[node.end_col_offset :]
    return not before.strip() and not after.strip()


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
