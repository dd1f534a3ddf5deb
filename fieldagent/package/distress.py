"""Recognises a call for help in a person's text: `SOS` in the forms that people and keyboards
write.

| text                                              | call                             |
|---------------------------------------------------|----------------------------------|
| `SOS`, `MAYDAY` first, with any signs around it   | SOS                              |
| `СОС`, `S.O.S.`, `S O S`, fullwidth, 🆘, Morse    | SOS                              |
| `SOS CANCEL` and nothing else                     | CANCEL                           |
| `help`, `Hilfe`, `au secours`; `sos` further on   | MAYBE: ask if it is one          |
| `sos …` in small letters, on a channel            | MAYBE: in Spanish, "you are"     |
"""

from __future__ import annotations

import re
from enum import Enum
from unicodedata import category, normalize

from fieldagent.system.lazy_named_tuple import NamedTuple

TEXT_MAX = 1_000
"""Maximum number of characters that are examined."""
_S = "[s\N{CYRILLIC SMALL LETTER ES}\N{GREEK SMALL LETTER SIGMA}\N{GREEK SMALL LETTER FINAL SIGMA}]"
_O = "[o0\N{CYRILLIC SMALL LETTER O}\N{GREEK SMALL LETTER OMICRON}]"
"""Letter O as three alphabets write it, and zero."""
_SOS = rf"{_S}+{_O}+{_S}+(?:{_O}+{_S}+)*|{_S}([. *_-]{{1,2}}){_O}\2{_S}|mayday|ме[ий]дей|мэйдэй"
_CALL = re.compile(rf"[\W_]*({_SOS})(?![^\W\d_])[\W_]*")
_CANCEL = re.compile(r"[\W_]*sos[\W_]+cancel[\W_]*")
_CYRILLIC = re.compile("[\u0430-\u0456]")
_WORD_PATTERN = re.compile(r"[^\W\d_]+")
_MORSE = re.compile(r"\s*(?:\.\.\.|…)\s*(?:---|—-|-—|—)\s*(?:\.\.\.|…)")
HELP = {
    "en": ("help", "emergency"),
    "de": ("hilfe", "notfall", "notruf"),
    "fr": ("secours", "urgence", "aide"),
    "es": ("ayuda", "socorro", "auxilio", "emergencia"),
    "uk": ("допоможіть", "допомога", "рятуйте", "помогите", "спасите"),
}
"""Words for help in the languages of the page. Russian words are listed under Ukrainian."""


class Call(Enum):
    NONE = 0
    MAYBE = 1
    CANCEL = 2
    SOS = 3


class Reading(NamedTuple):
    call: Call
    remaining_words: str
    """The words after `SOS`. For any other call, the whole text."""


def read(text: str, *, direct: bool = True) -> Reading:
    """Return the call in a text. If `direct` is False, the text was sent to a group channel of
    handhelds. There, only an SOS in capital letters counts as a call.
    """
    visible = "".join(each for each in text if category(each) != "Cf" and each != "\ufe0f")
    wide = normalize("NFKC", visible[:TEXT_MAX].replace("🆘", " SOS "))
    if (morse := _MORSE.match(wide)) is not None:
        return Reading(Call.SOS, wide[morse.end() :].strip())
    small = _fold_case(wide)
    if _CANCEL.fullmatch(small):
        return Reading(Call.CANCEL, text)
    call = _CALL.match(small)
    if call is not None:
        if direct or wide[call.start(1) : call.end(1)].isupper():
            return Reading(Call.SOS, wide[call.end() :].strip())
        return Reading(Call.MAYBE, text)
    words = _WORD_PATTERN.findall(_strip_accents(small))
    asks_for_help = direct and not _LANGUAGES.keys().isdisjoint(words)
    is_asked = "sos" in words or "mayday" in words or asks_for_help
    return Reading(Call.MAYBE if is_asked else Call.NONE, text)


def _fold_case(text: str) -> str:
    """Return the text in small letters, with one letter for each character."""
    return "".join(each.lower() if len(each.lower()) == 1 else each for each in text)


def _strip_accents(text: str) -> str:
    """Return the text without accents, so that words with a missing accent are also found."""
    return "".join(each for each in normalize("NFD", text) if category(each) != "Mn")


_LANGUAGES = {_strip_accents(word): language for language in HELP for word in HELP[language]}


def find_help_language(text: str) -> str | None:
    """Return the language of the first word for help in a text. If there is no such word, return
    Ukrainian if the text contains a Cyrillic letter, otherwise None.
    """
    small = _strip_accents(_fold_case(normalize("NFKC", text[:TEXT_MAX])))
    known_languages = (
        _LANGUAGES[folded_word]
        for folded_word in _WORD_PATTERN.findall(small)
        if folded_word in _LANGUAGES
    )
    return next(known_languages, "uk" if _CYRILLIC.search(small) else None)
