"""Properties as Java has them: by its documentation, and against a library that others keep."""

from __future__ import annotations

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.system.java_properties import NoProperties, pairs

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
def test_what_a_text_holds(text: str) -> None:
    assert list(pairs(text)) == CASES[text]


@pytest.mark.parametrize("text", ["a=\\u12g4", "a=\\u12", "a=\\u", "\\uzzzz=b", "a=\\u+123"])
def test_an_escape_that_is_none_is_told(text: str) -> None:
    with pytest.raises(NoProperties, match="four hexadecimal digits"):
        list(pairs(text))


@given(st.text(st.sampled_from("ab=:#! \t\f\n\r\\u0d8cät\x0b\x85\u2028"), max_size=40))
def test_it_reads_what_others_read(text: str) -> None:
    try:
        expected = javaproperties.loads(text)
    except javaproperties.InvalidUEscapeError:
        with pytest.raises(NoProperties):
            list(pairs(text))
        return
    assert dict(pairs(text)) == expected
