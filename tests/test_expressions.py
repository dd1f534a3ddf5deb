"""Every regular expression of the program takes steps in proportion to its input.

The program applies most of its expressions to bytes that anybody may send. The test repeats
parts of each expression, doubles that input, and compares the steps of a matcher (`regex_steps`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.regex_steps import SEARCHES, Matcher, TooMany, cost, pumps

PACKAGE = Path(__file__).parents[1] / "fieldagent"
METHODS = {"match", "fullmatch", *SEARCHES}
REPEATS = 30, 300
"""The second number is for an expression that takes too many steps with the first: `{0,61}` does,
and has an end."""
RATIO_MAX = 3.0
"""Steps for twice the input: 2 if linear, 4 if quadratic."""


class Use(NamedTuple):
    place: str
    pattern: re.Pattern[Any]
    how: str


def uses_in(path: Path) -> Iterator[Use]:
    """Yield each call of an expression in a module, as far as its expression is known there."""
    source = path.read_text()
    if "import re\n" not in source:
        return
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    module = vars(import_module(name.removesuffix(".__init__")))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            how, whose = node.func.attr, node.func.value
            if how in METHODS and isinstance(whose, ast.Name):
                pattern = _inline(node, module) if whose.id == "re" else module.get(whose.id)
                if isinstance(pattern, re.Pattern):
                    yield Use(f"{name}:{node.lineno}", pattern, how)


def _inline(node: ast.Call, module: dict[str, Any]) -> re.Pattern[Any] | None:
    """Return the expression of `re.search(…)`; None if it has parts that only a run knows."""
    try:
        values = [eval(ast.unparse(each), dict(module)) for each in node.args[:1]]
        flags = [eval(ast.unparse(each), dict(module)) for each in node.args[2:3]]
        return re.compile(*values, *[each for each in flags if isinstance(each, re.RegexFlag)])
    except NameError:
        return None


def is_linear(use: Use) -> bool:
    """Return True if twice the input takes about twice the steps."""
    return all(
        any(_ratio(use, pump, n) < RATIO_MAX for n in REPEATS) for pump in pumps(use.pattern)
    )


def _ratio(use: Use, pump: str, repeats: int) -> float:
    ratios = []
    for behind in ("", "\x00"):
        try:
            once, twice = (
                cost(use.pattern, use.how, pump * n + behind) for n in (repeats, 2 * repeats)
            )
        except TooMany:
            return float("inf")
        ratios.append(twice / once)
    return max(ratios)


@pytest.mark.full
def test_every_regular_expression_takes_linear_steps() -> None:
    uses = {
        (use.pattern.pattern, use.pattern.flags, use.how): use
        for path in sorted(PACKAGE.rglob("*.py"))
        for use in uses_in(path)
    }
    assert len(uses) > 150
    assert [use for use in uses.values() if not is_linear(use)] == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("expression", "how", "linear"),
    [
        (rb"<event[^>]* uid=", "search", False),
        (r"(a+)+b", "match", False),
        (r"([A-Z-]+)([^:]*):", "fullmatch", False),
        (r"[ \t]*$", "search", False),
        (r"(a|a)*b", "match", False),
        (r"[a-z]([a-z-]{0,61}[a-z])?", "fullmatch", True),
        (r"(?:a\r\n)*\r\n", "match", True),
        (r"\s*sos\b", "match", True),
        (r"[0-9]++,", "match", True),
    ],
)
def test_matcher_distinguishes_linear_from_quadratic_expressions(
    expression: str | bytes, how: str, linear: bool
) -> None:
    assert is_linear(Use("here", re.compile(expression), how)) is linear


@pytest.mark.parametrize("text", ["", "a", "sos", "  SOS: help", "x sos", "[a]b\n", "aab", "-" * 5])
@pytest.mark.parametrize("how", ["match", "fullmatch", "search"])
@pytest.mark.parametrize(
    "expression", [r"\s*(sos|mayday)\b", r"a*?b", r"(?<!a)b", r"[^b]+$", r"(.)\1", r"(?!x)\w"]
)
def test_matcher_agrees_with_re(expression: str, how: str, text: str) -> None:
    pattern = re.compile(expression, re.IGNORECASE)
    matcher = Matcher(pattern, text)
    assert matcher.finds(how) is (getattr(pattern, how)(text) is not None)
