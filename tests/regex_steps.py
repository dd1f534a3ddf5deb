"""Counts the steps of a backtracking matcher, so that a test can find expressions that need more
than linear time. Python's `re` does not show its steps, and a test measures no time.

`cost` is the number of steps on a text. `pumps` are texts that may be repeated to make the
expression slow: an example of each part, and of parts in a row.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

sre: Any = importlib.import_module("re._constants")
parser: Any = importlib.import_module("re._parser")
Node = tuple[Any, Any]
Rest = Callable[[int], bool]
SEARCHES = {"search", "finditer", "findall", "sub", "subn", "split"}
STEPS_MAX = 3_000_000


class TooMany(Exception):
    """Error: the matcher needs more than STEPS_MAX steps."""


class Matcher:
    """One expression on one text, given as code points."""

    def __init__(self, pattern: re.Pattern[Any], text: str) -> None:
        self.steps = 0
        self._flags = pattern.flags
        self._text = text
        self._groups: dict[int, tuple[int, int]] = {}
        self._nodes = [*parser.parse(pattern.pattern, pattern.flags)]

    def finds(self, how: str) -> bool:
        """Match as `how` says, and return True if the expression was found."""
        end = len(self._text)
        if how not in SEARCHES:
            rest: Rest = (lambda at: at == end) if how == "fullmatch" else _ends
            return self._match(self._nodes, 0, rest)
        is_found, at = False, 0
        while at <= end and not (is_found and how == "search"):
            ends: list[int] = []
            if self._match(self._nodes, at, _noting(ends)):
                is_found, at = True, max(ends[0], at + 1)
            else:
                at += 1
        return is_found

    def _step(self) -> None:
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise TooMany

    def _match(self, nodes: Sequence[Node], at: int, rest: Rest) -> bool:
        if not nodes:
            return rest(at)
        self._step()
        (kind, value), more = nodes[0], nodes[1:]
        if _is_single(kind):
            return self._is_one(kind, value, at) and self._match(more, at + 1, rest)
        if kind is sre.BRANCH:
            return any(self._match([*each, *more], at, rest) for each in value[1])
        if kind is sre.SUBPATTERN:
            group, inner = value[0], value[3]

            def noted(to: int) -> bool:
                if group is not None:
                    self._groups[group] = at, to
                return self._match(more, to, rest)

            return self._match([*inner], at, noted)
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            return self._repeat(kind, value, more, at, rest)
        if kind is sre.ATOMIC_GROUP:
            ends: list[int] = []
            found = self._match([*value], at, _noting(ends))
            return found and self._match(more, ends[0], rest)
        if kind in (sre.ASSERT, sre.ASSERT_NOT):
            return self._looks(value, at) is (kind is sre.ASSERT) and self._match(more, at, rest)
        if kind is sre.AT:
            return self._is_at(value, at) and self._match(more, at, rest)
        if kind is sre.GROUPREF:
            begin, end = self._groups.get(value, (0, 0))
            same = self._text[begin:end]
            found = self._text.startswith(same, at)
            return found and self._match(more, at + len(same), rest)
        raise NotImplementedError(kind)

    def _repeat(self, kind: Any, value: Any, more: Sequence[Node], at: int, rest: Rest) -> bool:
        least, most, inner = value[0], value[1], [*value[2]]
        if len(inner) == 1 and _is_single(inner[0][0]):
            return self._repeat_one(kind, least, most, inner[0], more, at, rest)

        def again(count: int, to: int) -> bool:
            self._step()
            may = count < most

            def next_(end: int) -> bool:
                return (end > to or count < least) and again(count + 1, end)

            if kind is sre.MIN_REPEAT and count >= least and self._match(more, to, rest):
                return True
            if may and self._match(inner, to, next_):
                return True
            return kind is not sre.MIN_REPEAT and count >= least and self._match(more, to, rest)

        return again(0, at)

    def _repeat_one(
        self, kind: Any, least: int, most: int, one: Node, more: Sequence[Node], at: int, rest: Rest
    ) -> bool:
        count = 0
        while True:
            if kind is sre.MIN_REPEAT and count >= least and self._match(more, at + count, rest):
                return True
            if count == most or not self._is_one(*one, at + count):
                break
            self._step()
            count += 1
        if kind is sre.MIN_REPEAT:
            return False
        if kind is sre.POSSESSIVE_REPEAT:
            return count >= least and self._match(more, at + count, rest)
        while count >= least:
            self._step()
            if self._match(more, at + count, rest):
                return True
            count -= 1
        return False

    def _looks(self, value: Any, at: int) -> bool:
        direction, inner = value
        begins = [at] if direction == 1 else range(at, -1, -1)
        exact: Rest = _ends if direction == 1 else (lambda to: to == at)
        # What stands behind an expression is short: `(?<!\r)`.
        return any(self._match([*inner], begin, exact) for begin in [*begins][:2])

    def _is_at(self, where: Any, at: int) -> bool:
        text, end = self._text, len(self._text)
        if where in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
            is_line = self._flags & re.MULTILINE and text[at - 1 : at] == "\n"
            return at == 0 or bool(is_line)
        if where in (sre.AT_END, sre.AT_END_STRING):
            return (
                at == end
                or text[at:] == "\n"
                or bool(self._flags & re.MULTILINE and text[at] == "\n")
            )
        before, after = (text[i : i + 1].isalnum() for i in (max(at - 1, 0), at))
        return (before != after) is (where is sre.AT_BOUNDARY)

    def _is_one(self, kind: Any, value: Any, at: int) -> bool:
        if at >= len(self._text):
            return False
        char = self._text[at]
        if kind is sre.ANY:
            return char != "\n" or bool(self._flags & re.DOTALL)
        folds = bool(self._flags & re.IGNORECASE)
        among = {char, char.lower(), char.upper()} if folds else {char}
        if kind is sre.LITERAL:
            return chr(value) in among
        if kind is sre.NOT_LITERAL:
            return chr(value) not in among
        return any(_is_in(value, each) for each in among)


def cost(pattern: re.Pattern[Any], how: str, text: str) -> int:
    """Return the steps of `pattern.<how>(text)`."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        matcher = Matcher(pattern, text)
        matcher.finds(how)
        return matcher.steps
    finally:
        sys.setrecursionlimit(limit)


def pumps(pattern: re.Pattern[Any]) -> set[str]:
    """Return texts to repeat: an example of each part, of each two parts in a row, and of all
    parts up to one that repeats."""
    return set(filter(None, _pumps([*parser.parse(pattern.pattern, pattern.flags)])))


def _pumps(nodes: Sequence[Node]) -> Iterator[str]:
    examples = [_example(each) for each in nodes]
    yield from examples
    yield from (first + second for first, second in pairwise(examples))
    for count, (kind, value) in enumerate(nodes):
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            yield "".join(examples[:count])
            yield "".join(examples[: count + 1])
        yield from (each for inner in _inner(kind, value) for each in _pumps(inner))


def _inner(kind: Any, value: Any) -> list[list[Node]]:
    if kind is sre.BRANCH:
        return [[*each] for each in value[1]]
    if kind is sre.SUBPATTERN:
        return [[*value[3]]]
    if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return [[*value[2]]]
    return [[*value]] if kind is sre.ATOMIC_GROUP else []


def _example(node: Node) -> str:
    kind, value = node
    if kind is sre.LITERAL:
        return str(chr(value))
    if _is_single(kind):
        example: str = next(
            str(each)
            for each in chain("a1 -,:/\"'\n\r\\\xe9", map(chr, range(sys.maxunicode + 1)))
            if kind is sre.ANY
            or (kind is sre.NOT_LITERAL and ord(each) != value)
            or (kind is sre.IN and _is_in(value, each))
        )
        return example
    if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        repeated = "".join(map(_example, value[2]))
        return repeated * max(1, int(value[0]))
    inner = _inner(kind, value)
    return "".join(map(_example, inner[0])) if inner else ""


def _is_single(kind: Any) -> bool:
    return kind in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN)


_CATEGORIES: dict[Any, Callable[[str], bool]] = {
    sre.CATEGORY_DIGIT: str.isdigit,
    sre.CATEGORY_NOT_DIGIT: lambda each: not each.isdigit(),
    sre.CATEGORY_SPACE: str.isspace,
    sre.CATEGORY_NOT_SPACE: lambda each: not each.isspace(),
    sre.CATEGORY_WORD: lambda each: each.isalnum() or each == "_",
    sre.CATEGORY_NOT_WORD: lambda each: not (each.isalnum() or each == "_"),
}


def _is_in(members: Sequence[Node], char: str) -> bool:
    negated = members[0][0] is sre.NEGATE
    code = ord(char)
    for kind, value in members[negated:]:
        if (
            (kind is sre.LITERAL and value == code)
            or (kind is sre.RANGE and value[0] <= code <= value[1])
            or (kind is sre.CATEGORY and _CATEGORIES[value](char))
        ):
            return not negated
    return negated


def _noting(ends: list[int]) -> Rest:
    def note(at: int) -> bool:
        ends.append(at)
        return True

    return note


def _ends(at: int) -> bool:
    return True
