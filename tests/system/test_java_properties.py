"""Java's properties format, by its documentation and compared with a third-party library."""

from __future__ import annotations

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.system.java_properties import NoProperties, format_pair, read_pairs, remove_pairs

CASES = {
    "a=b": [("a", "b")],
    "a = b ": [("a", "b ")],
    "a:b\na b\n a\t=\tb": [("a", "b")] * 3,
    "# a\n! b\n\n  # c\na\r\nb\rc": [("a", ""), ("b", ""), ("c", "")],
    "a=b\\\n   c\\\n  d": [("a", "bcd")],
    "a=b\\\\\nc=d": [("a", "b\\"), ("c", "d")],
    "a=b\\\n# c": [("a", "b# c")],
    "a\\=b\\:c\\ d = e=f": [("a=b:c d", "e=f")],
    "a=\\t\\n\\r\\f\\x\\\\": [("a", "\t\n\r\fx\\")],
    "a=\\u00e4\\ud83d\\ude00\\ud83d": [("a", "ä\U0001f600\ud83d")],
    "a=1\na=2": [("a", "1"), ("a", "2")],
    "=b": [("", "b")],
    "\\\n\na\\": [("a", "")],
}


@pytest.mark.parametrize("text", CASES)
def test_properties_are_read_as_documented(text: str) -> None:
    assert list(read_pairs(text)) == CASES[text]


@pytest.mark.parametrize("text", ["a=\\u12g4", "a=\\u12", "a=\\u", "\\uzzzz=b", "a=\\u+123"])
def test_invalid_unicode_escape_is_refused(text: str) -> None:
    with pytest.raises(NoProperties, match="four hexadecimal digits"):
        list(read_pairs(text))


@given(st.text(st.sampled_from("ab=:#! \t\f\n\r\\u0d8cät\x0b\x85\u2028"), max_size=40))
def test_properties_are_read_as_by_another_library(text: str) -> None:
    try:
        expected = javaproperties.loads(text)
    except javaproperties.InvalidUEscapeError:
        with pytest.raises(NoProperties):
            list(read_pairs(text))
        return
    assert dict(read_pairs(text)) == expected


LINES = "# of a=1\na=1\n b : 2\\\n  3\r\nc=4\r! a=5\n\na\\=b=6\na"


@pytest.mark.parametrize(
    ("names", "left"),
    [
        ((), LINES),
        (("a",), "# of a=1\n b : 2\\\n  3\r\nc=4\r! a=5\n\na\\=b=6\n"),
        (("b",), "# of a=1\na=1\nc=4\r! a=5\n\na\\=b=6\na"),
        (("c", "a=b"), "# of a=1\na=1\n b : 2\\\n  3\r\n! a=5\n\na"),
    ],
)
def test_removed_name_leaves_all_other_lines_unchanged(names: tuple[str, ...], left: str) -> None:
    assert remove_pairs(LINES, names) == left


@given(st.text(alphabet="ab=:#!\\ \t\n\r", max_size=30), st.sampled_from(["a", "b", "ab", ""]))
def test_removal_keeps_all_other_pairs(text: str, name: str) -> None:
    expected = [pair for pair in read_pairs(text) if pair[0] != name]
    assert list(read_pairs(remove_pairs(text, [name]))) == expected


@given(st.text(alphabet=st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs"))))
def test_formatted_pair_is_read_unchanged(value: str) -> None:
    assert list(read_pairs(format_pair("name", value))) == [("name", value)]
