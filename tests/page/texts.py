"""Finds the texts for people in a page's sources, and in its catalogues."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

READ = ("aria-label", "alt", "placeholder", "title")
"""HTML attributes whose text people read or hear."""
VOID = ("area", "br", "col", "hr", "img", "input", "link", "meta", "option", "source", "wbr")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_SKIPPED = re.compile(
    r"/\*.*?\*/|(?<![:\w])//[^\n]*"
    r"|(?P<regex>(?:(?<=[(,=:?&|!] )|(?<=\())/(?![*/ ])(?:\\.|\[[^\]]*\]|[^/\n\\])+/[gimsuy]*)",
    re.S,
)


class PageText(NamedTuple):
    """A text with its places. `other` is the plural form if it contains a number."""

    text: str
    is_counted: bool


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._silent: list[bool] = [False]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        silent = (
            self._silent[-1]
            or attributes.get("translate") == "no"
            or tag in ("head", "noscript", "script")
        )
        if not silent:
            self.found += [attributes[name] or "" for name in READ if attributes.get(name)]
        if tag not in VOID or tag == "option":
            self._silent.append(silent)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID or tag == "option":
            self._silent.pop()

    def handle_data(self, data: str) -> None:
        text = " ".join(data.split())
        if text and not self._silent[-1]:
            self.found.append(text)


def of_page(html: str) -> list[str]:
    """Return the texts for people in an HTML page, without elements marked `translate="no"`, such
    as names.
    """
    reader = _Page()
    reader.feed(html)
    return reader.found


def bare(script: str) -> str:
    """Return a script without its comments and regular expressions."""

    def without(match: re.Match[str]) -> str:
        return "0" if match["regex"] else " "

    # Mark strings first: they may contain text that looks like a comment.
    parts = re.split(r'("(?:[^"\\\n]|\\.)*")', script)
    marked = "".join(part if at % 2 == 0 else f'"{at}\0"' for at, part in enumerate(parts))
    return re.sub(r'"(\d+)\0"', lambda match: parts[int(match[1])], _SKIPPED.sub(without, marked))


def calls(script: str, name: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield each call of a function: start and end of its arguments, and the arguments."""
    for call in re.finditer(rf"(?<![\w.]){name}\(", script):
        depth, at, begin = 1, call.end(), call.end()
        arguments: list[str] = []
        while depth:
            if string := _STRING.match(script, at):
                at = string.end()
                continue
            mark = script[at]
            depth += (mark in "([{") - (mark in ")]}")
            if (mark == "," and depth == 1) or not depth:
                arguments.append(script[begin:at].strip())
                begin = at + 1
            at += 1
        yield call.end(), at, arguments


def of_script(script: str) -> Iterator[PageText]:
    """Yield the texts in `say` and `counted` of a script.

    Raises AssertionError if an argument is not a literal text.
    """
    script = bare(script)
    for _, _, arguments in calls(script, "say"):
        if arguments[0] != "text":
            assert _STRING.fullmatch(arguments[0]), f"say({arguments[0]})"
            yield PageText(json.loads(arguments[0]), is_counted=False)
    for begin, _, arguments in calls(script, "counted"):
        if script[:begin].endswith("function counted(") or arguments[1].startswith("..."):
            continue
        assert all(_STRING.fullmatch(each) for each in arguments[1:3]), arguments
        yield PageText(json.loads(arguments[2]), is_counted=True)
    # Forms of several units, spread into a call.
    for match in re.finditer(r'\[("\{n\} \w+"), ("\{n\} \w+")\]', script):
        yield PageText(json.loads(match[2]), is_counted=True)


def unsaid(script: str) -> list[str]:
    """Return texts of a script that look like texts for people but cannot be in a catalogue: two or
    more words, or one with a capital letter.
    """
    script = bare(script)
    for name in ("say", "counted"):
        for begin, end, arguments in [*calls(script, name)]:
            inside = script[begin:end]
            for each in filter(_STRING.fullmatch, arguments):
                # Keep the length, because calls are nested.
                inside = inside.replace(each, " " * len(each), 1)
            script = script[:begin] + inside + script[end:]
    script = re.sub(r'\[("\{n\} \w+"), ("\{n\} \w+")\]', "[]", script)
    script = re.sub(r'(?:class|id|className|mark): *"[^"]*"', "", script)
    texts = [each[1:-1] for each in _STRING.findall(script)] + list(_around_values(script))
    return [each for each in texts if re.search(r"[a-z]{2,},? [a-z]{2,}|\b[A-Z][a-z]+", each)]


def _around_values(script: str) -> Iterator[str]:
    """Yield the literal parts of templates around their values, also of nested ones."""
    inside = ["code"]
    begin = at = 0
    while at < len(script):
        mark = script[at]
        if inside[-1] == "text":
            if mark == "`" or script.startswith("${", at):
                yield script[begin:at]
                inside.pop() if mark == "`" else inside.append("code")
            at += mark == "\\"
        elif string := _STRING.match(script, at):
            at = string.end() - 1
        elif mark == "`":
            inside.append("text")
            begin = at + 1
        elif mark == "{":
            inside.append("block")
        elif mark == "}":
            inside.pop()
            begin = at + 1
        at += 1
        if mark == "$" and inside[-1] == "code" and script[at] == "{":
            at += 1


def catalogue(path: Path) -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = json.loads(path.read_text())
    return loaded


def places(text: str) -> list[str]:
    return sorted(set(re.findall(r"\{\w+\}", text)))
