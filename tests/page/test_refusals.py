"""Each refusal text of the APIs is in each catalogue, and a caller gets it in the requested
language.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest
import trio

from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route, make_router
from fieldagent.hub.part import list_hub_parts
from fieldagent.page.files import CATALOGUES
from fieldagent.page.refusals import read_common_catalogue, translate_problems
from fieldagent.system.wording import join_sentences, sentence, translate_text
from tests.page.texts import places

ROOT = Path(str(files("fieldagent")))
REFUSES = {
    *("AgentStopping", "Conflict", "Fault", "InvalidPackage", "KeyReused", "NoCoordinate"),
    *("NotACommand", "NotJson", "NotOnDisk", "Problem", "Refused", "StoreFull", "UnknownPackage"),
    *(
        "WrongHours",
        "WrongShape",
        "WrongValue",
        "WrongWeek",
        "make_pattern_reader",
        "make_not_now",
        "sentence",
    ),
    *("make_too_many_problem", "make_unauthorized", "make_not_found", "make_conflict"),
}
"""Callees that make a text for people: errors, and functions that make them."""
FIRST = {"Fault", "sentence", "make_too_many_problem", "make_not_found", "make_conflict"}
"""Callees whose first argument is the only text."""
ALSO = {"webhook/signature.py", "hub/webhook/webhook_directory.py"}
"""In these modules `WrongProperty` is about typed input, elsewhere about a settings file."""
TO_PROGRAMS = (
    *(
        "hub/operator/",
        "hub/bridge/",
        "extensions/mqtt/",
        "extensions/tak/",
        "hub/store/sqlite",
        "hub/store/opening",
    ),
    *(
        f"extensions/places/hub/{name}"
        for name in ("fence_command", "osmand", "owntracks", "route_command", "traccar", "tracker_")
    ),
    *("hub/field/ip_link", "hub/field/trackers", "extensions/sms/hub/", "extensions/desk/hub/imap"),
    *("hub/settings.py", "hub/contract.py", "extensions/desk/hub/answer_page.py"),
    *(f"extensions/desk/hub/{name}_command.py" for name in ("contact", "quiet", "watch")),
    *("store/group.py", "hub/store/postgres.py", "hub/store/postgres_schema.py"),
    *("hub/records/usage_file.py", "hub/field/operator_handover.py", "hub/service/synthetic_item"),
)
"""These modules send texts to operators, services, trackers, phone programs, the hub itself, its
starter, or the command line."""
FOR_PROGRAMS = re.compile(
    r"""
    ^must\ be\ (a\ )?(string|JSON|GeoJSON)|^must\ be\ an\ (array|integer|object)
    |^must\ be\ (a\ 32-bit|0,\ 1|true|an?\ object|the\ number\ of\ a\ user\ or\ workspace)
    |^the\ body\ (is(?!\ larger)|must)|body\ has\ no|nested\ deeper|base64\ \(|surrogate
    |^may\ only\ be
    |Idempotency-Key|^\?(?!week)|x-api-key|Authorization|link\ token|the\ key,\ or|console's\ cookie
    |trackers\ can|--workspace|sourceUserId|^the\ (source|target|key)\ .*(workspace|push|may)
    |known\ member|exactly\ one\ of|is\ required\ for|language\ must\ be\ one\ of
    |are\ text\ of\ at\ most
    |no\ such\ tile|cancel\ call|not\ a\ tracker's|^(workspace\ \{name\}|no\ \{table\})|^name\ the
    |^must\ be\ \{words\}$|^names\ one|delta\ has|is\ not\ a\ circle
    |^this\ version\ knows|these\ arguments$
    """,
    re.VERBOSE,
)
"""Texts for programs with wrong calls, which no page makes."""
BOTH = ("http/problem.py", "http/limits.py", "http/headers.py", "package", "store", "webhook")
CATALOGUE = {
    "page/refusals": BOTH,
    "hub/refusals": ("hub", "wire/command.py"),
    "agent/refusals": (
        *("agent/api", "agent/entrance", "agent/journal", "agent/outbound", "agent/refusals"),
    ),
    **{
        folder: (folder.removesuffix("/refusals"),)
        for part in list_hub_parts()
        if (folder := part.refusals.removeprefix("fieldagent.").replace(".", "/"))
    },
}
"""Rooms whose refusals are in a catalogue, by the folder of the catalogue."""
ABOVE = {
    "agent/refusals": ("page/refusals",),
    "hub/refusals": ("page/refusals",),
    "page/refusals": (),
}
"""Catalogues that have the common texts of another one. An extension has those of the hub."""


def modules(rooms: tuple[str, ...]) -> Iterator[Path]:
    for room in rooms:
        paths = [ROOT / room] if room.endswith(".py") else sorted((ROOT / room).rglob("*.py"))
        yield from (path for path in paths if not name_of(path).startswith(TO_PROGRAMS))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def refusals(path: Path) -> Iterator[ast.expr]:
    """Yield the texts given to refusing functions. A name stands for its assigned value."""
    tree = ast.parse(path.read_text())
    known = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    refuses = REFUSES | ({"WrongProperty"} if name_of(path) in ALSO else set())
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
        if name not in refuses:
            continue
        arguments = call.args[:1] if name in FIRST else list(call.args)
        arguments += [each.value for each in call.keywords if each.arg in ("detail", "errors")]
        for each in arguments:
            for text in _first_of_pairs(each):
                yield known.get(text.id, text) if isinstance(text, ast.Name) else text


def _first_of_pairs(argument: ast.expr) -> Iterator[ast.expr]:
    if not isinstance(argument, ast.List):
        yield argument
        return
    yield from (each.elts[0] for each in argument.elts if isinstance(each, ast.Tuple))


@cache
def texts(rooms: tuple[str, ...]) -> dict[str, str]:
    """Return each text of those rooms for people, and its place in the code."""
    return {
        each.value: f"{name_of(path)}:{each.lineno}"
        for path in modules(rooms)
        for each in refusals(path)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
        # A text without words is the same in all languages.
        if re.search("[a-z]{3}", re.sub(r"\{\w+\}", "", each.value))
        if not FOR_PROGRAMS.search(each.value)
    }


def load_catalogue(folder: str, language: str) -> dict[str, str]:
    translations: dict[str, str] = json.loads((ROOT / folder / language).read_text())
    return translations


@pytest.mark.parametrize("folder", CATALOGUE)
@pytest.mark.parametrize("language", CATALOGUES)
def test_catalogue_translates_exactly_the_refusals_in_the_code(folder: str, language: str) -> None:
    wanted, there = texts(CATALOGUE[folder]), load_catalogue(folder, language)
    above = ABOVE.get(folder, ("page/refusals", "hub/refusals"))
    elsewhere = {text for each in above for text in texts(CATALOGUE[each])}
    missing = {text: where for text, where in wanted.items() if text not in {*there, *elsewhere}}
    assert missing == {}
    assert there.keys() - wanted.keys() == set(), "nobody says it"
    for text, said in there.items():
        # A text that follows another one begins with a space.
        assert said.rstrip() == said != "" and said.startswith(" ") == text.startswith(" "), text
        assert {*places(said)} <= {*places(text)}, text


@pytest.mark.parametrize("folder", CATALOGUE)
def test_refusals_contain_values_only_in_sentence_placeholders(folder: str) -> None:
    """Values must be in places of a `sentence`, which can be found in a catalogue."""
    offenders = {
        f"{name_of(path)}:{each.lineno} {ast.unparse(each)}"
        for path in modules(CATALOGUE[folder])
        for each in refusals(path)
        if isinstance(each, ast.JoinedStr | ast.BinOp) and not FOR_PROGRAMS.search(_bare(each))
    }
    assert offenders == set()


@pytest.mark.full
def test_every_sentence_gets_values_for_its_placeholders() -> None:
    """A placeholder with a wrong name would be shown with its braces."""
    calls = {
        (call.args[0].value, tuple(each.arg or "" for each in call.keywords))
        for path in ROOT.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "sentence"
        if isinstance(call.args[0], ast.Constant)
    }
    assert len(calls) > 100
    wrong = {
        form for form, names in calls if {*places(str(form))} != {f"{{{name}}}" for name in names}
    }
    assert wrong == set()


def _bare(node: ast.expr) -> str:
    return ast.unparse(node).removeprefix("f").strip("'\"")


def test_sentence_remains_translatable_through_exceptions() -> None:
    inner = sentence("must be from {low} to {high}", low=1, high=9)
    text = str(ValueError(sentence("{name} {why}", name="{high}", why=inner)))
    assert text == "{high} must be from 1 to 9"
    german = {"must be from {low} to {high}": "muss von {low} bis {high} sein"}
    assert translate_text(text, german) == "{high} muss von 1 bis 9 sein"
    assert translate_text(join_sentences([inner, sentence("{a}", a="{b}")]), german) == (
        "muss von 1 bis 9 sein; {b}"
    )
    assert translate_text("as it stands", german) == "as it stands"
    assert json.loads(json.dumps({"told": text})) == {"told": "{high} must be from 1 to 9"}


def test_missing_catalogue_is_treated_as_empty() -> None:
    assert read_common_catalogue("xx", "fieldagent.hub.refusals") == {}


async def refuse_in_language(accepted: str) -> dict[str, object]:
    """Return the problem document for a caller who accepts those languages, with its headers."""

    async def handler(request: Request) -> Response:
        why = sentence("must be from {low} to {high} {unit}", low=1, high=9, unit="degrees")
        raise Problem(422, "nothing was changed", errors=[(why, "/latitude")])

    judge = translate_problems(
        make_router([Route("GET", "/", handler)]), "fieldagent.agent.refusals"
    )
    request = Request("GET", "/", (), {"accept-language": accepted}, b"")
    admission = await judge(request)
    try:
        await admission.handler(request)
    except Problem as problem:
        answer = problem.make_response()
        return {**json.loads(answer.body), **dict(answer.headers)}
    raise AssertionError("it is refused")


@pytest.mark.parametrize(
    ("accepted", "language", "detail", "why"),
    [
        ("de-CH, en;q=0.5", "de", "nichts wurde geändert", "muss von 1 bis 9 Grad sein"),
        ("it, uk;q=0.8, en;q=0.5", "uk", "нічого не змінено", "має бути від 1 до 9 градусів"),
        ("", None, "nothing was changed", "must be from 1 to 9 degrees"),
        ("it", None, "nothing was changed", "must be from 1 to 9 degrees"),
    ],
)
def test_refusal_is_translated_to_the_callers_language(
    accepted: str, language: str | None, detail: str, why: str
) -> None:
    problem = trio.run(refuse_in_language, accepted)
    assert (problem["detail"], problem["errors"]) == (
        detail,
        [{"detail": why, "pointer": "/latitude"}],
    )
    assert problem.get("Content-Language") == language
