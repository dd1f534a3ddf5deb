"""The short text of a notice for an SMS, in each language."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib.resources import files

import pytest

from fieldagent.extensions.sms.hub.short_text import make_short_text
from fieldagent.hub.contact.contract import Notice
from fieldagent.page.files import CATALOGUES
from fieldagent.page.language import LANGUAGES, translate_from
from fieldagent.wire import sms_alphabet
from fieldagent.wire.sms_alphabet import Alphabet
from tests.page.texts import places

PACKAGE = "fieldagent.extensions.sms.hub"


@pytest.mark.parametrize("language", CATALOGUES)
def test_catalogue_contains_exactly_the_texts_in_use(language: str) -> None:
    folder = files(PACKAGE)
    source = folder.joinpath("short_text.py").read_text()
    wanted = {*re.findall(r'\btranslate\("([^"]+)"', source)}
    there = json.loads(folder.joinpath(language).read_text())
    assert there.keys() == wanted
    for text, translated in there.items():
        assert translated.strip() == translated != "" and places(translated) == places(text), text


@pytest.mark.parametrize("language", LANGUAGES)
def test_sms_contains_position_code_and_text_in_each_language(language: str) -> None:
    """A Cyrillic SMS has 70 characters, so the text of a person in distress is shortened but
    kept.
    """
    subject = "SOS 12 of kit-ada"
    notice = Notice(
        *("id", subject, "all of it", 12, "kit-ada"),
        said="ногу зламано, двоє з нами, йдемо до хатини біля озера " * 3,
        link="https://hub.example.org/answer/12.0123456789012345678901",
        code="471123",
        place="https://osm.org/?mlat=46.50000&mlon=-117.25000",
        language=language,
    )
    by_code, by_link = make_short_text(notice, answers=True), make_short_text(notice, answers=False)
    assert "OK 471123" in by_code and notice.link in by_link
    for text in (by_code, by_link):
        assert sms_alphabet.count_parts(text) <= 3
        assert subject in text and notice.place in text and "ногу зламано" in text
    # In the other languages, each letter is one of the 160.
    latin = make_short_text(replace(notice, said="leg broken", place=""), answers=True)
    assert (sms_alphabet.choose_alphabet(latin) is Alphabet.UCS2) == (language == "uk")
    assert translate_from(PACKAGE, language, "Other text goes to the kit.") in latin


def test_typographic_characters_do_not_shorten_an_sms() -> None:
    """A phone writes ’ for ', and each such character would turn 160 characters into 70."""
    said = "the rope’s gone – “help” … " * 6
    notice = Notice("id", "SOS 12\u00a0: kit-ada", "all of it", said=said, code="471123")
    text = make_short_text(notice, answers=True)
    assert sms_alphabet.choose_alphabet(text) is Alphabet.GSM7
    assert "SOS 12 : kit-ada" in text and 'the rope\'s gone - "help" ...' in text
    # A program gets the text as it is.
    assert make_short_text(replace(notice, whole=True, text=said), answers=True) == said
