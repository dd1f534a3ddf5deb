"""Parses and changes Java properties, in the format of java.util.Properties.load(Reader). Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

_END = re.compile(r"\r\n|\r|\n")
_NATURAL = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_BLANK = " \t\f"
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPED = re.compile(r"\\(u.{0,4}|.)", re.DOTALL)
_HEXADECIMAL = re.compile(r"u[0-9A-Fa-f]{4}")
_ESCAPES_BY_LETTER = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class NoProperties(Exception):
    """The text has an invalid escape. The message contains the escape."""


def read_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield pairs of a key and a value, in their order. A repeated key is yielded again. Raises
    NoProperties.
    """
    for line in _read_logical_lines(text):
        key = _KEY.match(line)
        assert key is not None, "the pattern also matches nothing"
        yield _unescape(key[1]), _unescape(line[key.end() :])


def format_pair(name: str, value: str) -> str:
    """Return the line for a pair of a name and a value. `name` must not need escapes."""
    escaped = value.replace("\\", "\\\\")
    blank_first = value[:1] in tuple(_BLANK)
    return f"{name}={escaped}\n" if not blank_first else f"{name}=\\{escaped}\n"


def remove_pairs(text: str, names: Collection[str]) -> str:
    """Return the text without the lines that set these names. Raises NoProperties."""
    kept_lines, line = "", ""
    for natural in _NATURAL.findall(text):
        line += natural
        content = natural.rstrip("\r\n")
        comment = line == natural and content.lstrip(_BLANK)[:1] in ("#", "!")
        if not comment and (len(content) - len(content.rstrip("\\"))) % 2:
            continue
        if not any(name in names for name, _ in read_pairs(line)):
            kept_lines += line
        line = ""
    return kept_lines if any(name in names for name, _ in read_pairs(line)) else kept_lines + line


def set_pairs(text: str, settings: Mapping[str, str]) -> str:
    """Return the text with these settings at its end, and without earlier lines for them. Raises
    NoProperties.
    """
    after = remove_pairs(text, settings)
    if after and not after.endswith(("\n", "\r")):
        after += "\n"
    return after + "".join(format_pair(name, value) for name, value in settings.items())


def _read_logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments and blank lines. A line that ends with a backslash continues in
    the next line, whose leading blanks are ignored.
    """
    line = ""
    is_continued = False
    for natural in _END.split(text):
        natural = natural.lstrip(_BLANK)
        if not is_continued and natural[:1] in ("", "#", "!"):
            continue
        line += natural
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if is_continued:
            line = line[:-1]
            continue
        if line:
            yield line
        line = ""
    if line:
        yield line


def _unescape(text: str) -> str:
    """Return the text with escapes decoded. A character beyond 16 bits is escaped as two halves
    (UTF-16).
    """
    if "\\" not in text:
        return text
    plain = _ESCAPED.sub(_unescape_character, text)
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _unescape_character(match: re.Match[str]) -> str:
    escape = match[1]
    if not escape.startswith("u"):
        return _ESCAPES_BY_LETTER.get(escape, escape)
    if not _HEXADECIMAL.fullmatch(escape):
        raise NoProperties(f"\\{escape} is no character: \\u and four hexadecimal digits are")
    return chr(int(escape[1:], 16))
