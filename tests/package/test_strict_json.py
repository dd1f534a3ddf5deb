"""Malicious JSON bodies: each is refused with a text, at a low cost."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fieldagent
from fieldagent.package import strict_json
from fieldagent.package.reading import InvalidPackage, parse_package
from fieldagent.package.strict_json import MEMBERS_MAX, NotJson, load_document
from tests.hostile_bodies import BODIES

MANY = ",".join(f'"m{number}":1' for number in range(40_000))
OBJECT = f"more than {MEMBERS_MAX} members in the object at line"
ARRAY = f"more than {MEMBERS_MAX} members in the array at line"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (f'{{{MANY},"m39999":1}}', f"{OBJECT} 1, column 1$"),
        (f'{{"message":\n  {{{MANY}}}}}', f"{OBJECT} 2, column 3$"),
        ('{"channels": [' + ",".join(['"Radio"'] * 65) + "]}", f"{ARRAY} 1, column 14$"),
        ("[" + "[]," * 300_000, f"{ARRAY} 1, column 1$"),
        ("[" * 17, "nested deeper than 16 at line 1, column 17$"),
        ('{"a":' * 100_000, "nested deeper than 16 at line 1, column 81$"),
        ('""' * 100_000, "too many parts at line 1, column 2001$"),
        ("[" + ",".join(["[" + ",".join("1" * 60) + "]"] * 60) + "]", "too many parts"),
        ('{"x": "' + "\\" * 100_001, "Unterminated string"),
        ('\\"' * 100_000, "Expecting value at line 1, column 1$"),
        ("}" * 50 + "]" * 50, "Expecting value"),
        ('{"id": ' + "9" * 5000 + "}", "value has 5000 digits$"),
    ],
)
def test_oversized_structure_is_refused_with_its_place(body: str, said: str) -> None:
    with pytest.raises(NotJson, match=said):
        load_document(body.encode())


@pytest.mark.parametrize("at", [0, 1, 40, 62])
def test_duplicate_member_is_reported_by_name(at: int) -> None:
    names = [f"m{number}" for number in range(MEMBERS_MAX - 1)]
    members = ",".join(f'"{name}":1' for name in [*names, names[at]])
    with pytest.raises(NotJson, match=f'the member "m{at}" occurs more than once'):
        load_document(f"{{{members}}}".encode())


@pytest.mark.parametrize(
    "unit", ["[", "{,", ",]", '"', "\\", '\\"', "\\\\", '\\\\"', '\\\\\\",', "\n"]
)
def test_brackets_inside_a_string_are_not_structure(unit: str) -> None:
    document = {"a": unit * 5_000, "b": [unit * 1_000] * MEMBERS_MAX}
    assert load_document(json.dumps(document).encode()) == document


def test_code_does_not_rely_on_recursion_error() -> None:
    """The depth at which Python fails, and the kind of failure, differ between versions."""
    for path in Path(fieldagent.__file__).parent.rglob("*.py"):
        assert "RecursionError" not in path.read_text(), path


documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children, max_size=5) | st.dictionaries(st.text(), children),
    max_leaves=12,
)


@given(documents, st.booleans(), st.sampled_from([None, 1]))
def test_json_within_the_limits_is_read_as_by_the_standard_library(
    document: Any, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(document, ensure_ascii=ascii_only, indent=indent)
    assert load_document(text.encode()) == json.loads(text)


PIECES = st.sampled_from(
    ["[", "]", "{", "}", ",", '"', "\\", "1", ",1" * 60, "[" * 14, '"a"' * 330]
)


@given(st.lists(PIECES, max_size=60).map("".join))
def test_quick_check_accepts_no_body_beyond_the_limits(text: str) -> None:
    if strict_json._is_small(text):
        strict_json._check_limits(text)
    else:
        assert len(text) > strict_json.DEPTH_MAX


@pytest.mark.parametrize("name", BODIES)
def test_body_is_parsed_within_a_second_whatever_its_structure(name: str) -> None:
    """Quadratic code took minutes for these, so a second is generous."""
    before = time.thread_time()
    with suppress(NotJson, InvalidPackage):
        parse_package(BODIES[name])
    assert time.thread_time() - before < 1
