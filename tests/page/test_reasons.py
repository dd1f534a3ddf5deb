"""Each reason that a person can see on a page is found in the code and translated in each
catalogue.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from fieldagent.page.language import ENGLISH, LANGUAGES
from fieldagent.page.reasons import translate_templates
from tests.page.reasons import GIVERS, forms, reasons
from tests.page.texts import places


@pytest.mark.parametrize("language", [each for each in LANGUAGES if each != ENGLISH])
def test_catalogue_translates_exactly_the_reasons_in_the_code(language: str) -> None:
    wanted = reasons()
    there: dict[str, str] = json.loads(translate_templates(language))
    assert {form: where for form, where in wanted.items() if form not in there} == {}, "is missing"
    assert there.keys() - wanted.keys() == set(), "nobody says it"
    for form, said in there.items():
        assert said.strip() == said != "", form
        assert Counter(places(said)) == Counter(places(form)), form


def test_known_reasons_are_found_in_the_code() -> None:
    wordings = reasons()
    assert len(wordings) > 350
    for form in (
        *("no signal", "no answer", "replaced by Package {1}", "{1}; next try {2}"),
        *("the budget of today is spent: {1}; {2}", "{1} bytes, {2} {3}", "may have left"),
        *(
            "the network does not answer",
            "RockBLOCK could not read the data",
            "no credits left today",
        ),
        *(
            "the receiver answered {1}",
            "the mail relay {1}: {2}",
            "the hub refuses the token: correct hub-token",
        ),
    ):
        assert form in wordings, form


def test_reason_without_a_translation_is_detected(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        """
TABLE = {1: "it is full", 2: "it is empty"}

def ended(code, host, seconds, tries):
    more = f" after {tries} tries" if tries else ""
    text = f"{host} is mute"
    text += "; is it on?"
    if code in TABLE:
        raise ModemSilent(f"the store says {code}: {TABLE[code]}")
    settle(reason=text)
    settle(reason=f"given up{more}" if seconds else "not tried")
    return ChannelDelivery(ERROR, "too late for {}".format(host) if tries else "late, " + host)
"""
    )
    assert {*forms(module, GIVERS)} == {
        *("the store says {1}: {2}", "it is full", "it is empty", "{1} is mute", "{1}; is it on?"),
        *("given up", "given up after {1} tries", "not tried", "late, {1}"),
    }
