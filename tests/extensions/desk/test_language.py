"""The messages to contacts, in the language of each: each text is in each catalogue, and answers
are read as in English.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from fieldagent.extensions.desk.hub import answers
from fieldagent.extensions.desk.hub.language import find_canned, translate, translate_canned
from fieldagent.page.files import CATALOGUES
from tests.page.texts import places

FOLDER = Path(str(files("fieldagent.extensions.desk.hub")))
SPEAKING = ("answer_page.py", "answers.py", "mail.py", "notice.py")
TOLD = ("answer_page.py", "answers.py", "notice.py")
"""Modules whose texts are only for contacts, except for the hub's own records."""
KEPT = re.compile(
    r"SELECT|INSERT|UPDATE|DELETE|ORDER BY|LIMIT|LIKE|outcome|doctype|<\w|Content-|default-src"
    r"|no-store|nosniff|form-action|wrong code|received before|from an unknown sender"
    r"|about no alarm|without code|to no message|of a contact that|not sent|to the kit"
    r"|handed over|its links go|every part of it|wrote, but it was|the service reports|an answer by"
    r"|the body is no form|number not proved|not notified|from a removed contact"
)


def list_docstring_ids(tree: ast.AST) -> set[int]:
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def get_text_literal(node: ast.expr, names: dict[str, ast.Constant]) -> ast.Constant:
    """Return the text of a call, which is a literal or a name that was assigned directly before."""
    literal = names[node.id] if isinstance(node, ast.Name) else node
    assert isinstance(literal, ast.Constant) and isinstance(literal.value, str), ast.unparse(node)
    return literal


def find_translated_texts(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the texts of a module in order."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names: dict[str, ast.Constant] = {}
        for node in sorted(
            (each for each in ast.walk(function) if isinstance(each, ast.Assign | ast.Call)),
            key=lambda each: (each.lineno, each.col_offset),
        ):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant() as value):
                    names[name] = value
                case ast.Call(func=ast.Name(id="translate"), args=[_, text]):
                    yield get_text_literal(text, names)


def parse_modules(names: tuple[str, ...]) -> list[ast.Module]:
    return [ast.parse((FOLDER / name).read_text()) for name in names]


def test_every_module_with_translated_texts_is_checked() -> None:
    speaking = [
        path.name
        for path in FOLDER.glob("*.py")
        if re.search(r"language import .*\btranslate\b", path.read_text())
    ]
    assert sorted(speaking) == sorted(SPEAKING)


@pytest.mark.parametrize("language", CATALOGUES)
def test_catalogue_contains_exactly_the_texts_in_use(language: str) -> None:
    wanted = {
        each.value for tree in parse_modules(SPEAKING) for each in find_translated_texts(tree)
    }
    there = json.loads((FOLDER / language).read_text())
    assert wanted - there.keys() == set(), "is missing"
    assert there.keys() - wanted == set(), "nobody says it"
    for text, said in there.items():
        assert said.strip() == said != "" and places(said) == places(text), text


@pytest.mark.parametrize("name", TOLD)
def test_modules_contain_no_untranslated_text(name: str) -> None:
    tree = ast.parse((FOLDER / name).read_text())
    known = list_docstring_ids(tree) | {id(each) for each in find_translated_texts(tree)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in known
    ]
    words = [each for each in texts if re.search(r"[a-z]{2,},? [a-z]{2,}", each)]
    assert [each for each in words if not KEPT.search(each)] == []


@pytest.mark.parametrize(
    ("language", "typed"), [("de", "Hilfe ist unterwegs"), ("uk", "ДОПОМОГА В ДОРОЗІ")]
)
def test_canned_text_is_recognised_in_each_language(language: str, typed: str) -> None:
    word = "help is on its way"
    assert find_canned(language, typed) == word == find_canned("en", word)
    assert translate_canned(language, word).casefold() == typed.casefold()
    assert find_canned(language, f"{typed}!") == f"{typed}!"


def test_missing_catalogue_falls_back_to_english() -> None:
    assert translate("xx", "Map: {link}", link="{here}") == "Map: {here}"
    assert translate_canned("xx", "injury") == find_canned("xx", "injury") == "injury"


CYRILLIC = "\u043e\u043a"
"""It looks like ok."""


@pytest.mark.parametrize("ok", ["OK", " ok,", CYRILLIC, f"{CYRILLIC.upper()}.", f"o{CYRILLIC[1]}"])
def test_ok_is_recognised_in_latin_and_cyrillic(ok: str) -> None:
    assert answers.parse_answer_text(f"{ok} 471123 on our way") == (True, "471123", "on our way")


@pytest.mark.parametrize("text", ["окей 471123", "окуляри", "okay"])
def test_words_similar_to_ok_do_not_acknowledge(text: str) -> None:
    assert not answers.parse_answer_text(text).accepts
