"""What people write in distress, in five languages, and what only looks like it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.package.distress import Call, read

CASES = {
    Call.SOS: [
        *("SOS", "sos", "Sos", "SOS!", " sos, ", "SOS: broken leg", "sos-help", "SOS 2 people"),
        *("СОС", "сос", "СОС! зламана нога", "SОS", "ΣΟΣ", "σος"),
        *("S.O.S.", "s.o.s", "S O S", "S-O-S", "s. o. s.", "S_O_S", "S0S"),
        *("🆘", "🆘🆘", "🆘 we are stuck", "*SOS*", "**SOS** help", '"SOS"', "(SOS)", "!!!SOS!!!"),
        *("¡SOS!", "ＳＯＳ", "ｓｏｓ", "S\u200bOS", "SOSSOS", "SOSOSOS", "SOOOS", "sos 🙏"),
        *("MAYDAY", "Mayday, mayday, mayday", "МЕЙДЕЙ", "...---...", "... --- ...", "…—…"),
        *("SOS Beinbruch am Grat", "SOS jambe cassée", "SOS pierna rota", "SOS зламана нога"),
        *("SOS cancel my hike I broke my leg", "SOS cancel? we need a doctor"),
    ],
    Call.CANCEL: ["SOS CANCEL", "sos cancel", " SOS CANCEL! ", "`SOS CANCEL`", "SOS\ncancel"],
    Call.MAYBE: [
        *(
            "help",
            "Help me!",
            "we need help",
            "HELP",
            "please send sos",
            "this is no sos",
            "an SOS",
        ),
        *("Hilfe", "Hilfe, Lawine", "Notfall am Gletscher", "au secours", "à l'aide", "urgence"),
        *("ayuda", "socorro", "¡Auxilio!", "emergencia", "допоможіть", "Рятуйте!", "допомога"),
    ],
    Call.NONE: [
        *("", "hello", "so so", "So s'il te plaît", "so, see you", "sosta", "sospecha", "resource"),
        *(
            "SOSO",
            "Sosnowiec",
            "all is well",
            "mayor",
            "helpful hut",
            "сосна",
            "cancel",
            "👍",
            "...",
        ),
        *("mayflower", "👍", "...", "0", "s", "s o", "aides", "---"),
    ],
}


@pytest.mark.parametrize(("call", "text"), [(each, text) for each in CASES for text in CASES[each]])
def test_direct_text_is_classified_by_its_distress_words(call: Call, text: str) -> None:
    assert read(text).call is call


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("SOS la mejor", Call.SOS),
        ("S.O.S. at the hut", Call.SOS),
        ("🆘", Call.SOS),
        ("MAYDAY", Call.SOS),
        ("*СОС*", Call.SOS),
        ("sos la mejor", Call.MAYBE),
        ("Sos un genio", Call.MAYBE),
        ("mayday parade tonight", Call.MAYBE),
        ("can you help me with the stove", Call.NONE),
        ("sosta", Call.NONE),
    ],
)
def test_channel_text_needs_capitals_to_be_an_sos(text: str, call: Call) -> None:
    assert read(text, direct=False).call is call


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("SOS: leg broken", "leg broken"),
        ("S.O.S. leg broken", "leg broken"),
        ("🆘 leg broken", "leg broken"),
        ("SOS cancel my hike", "cancel my hike"),
        ("SOS", ""),
    ],
)
def test_words_after_the_distress_call_are_kept(text: str, rest: str) -> None:
    assert read(text).remaining_words == rest


@given(st.text(max_size=300), st.booleans())
def test_any_text_is_classified_without_an_error(text: str, direct: bool) -> None:
    read(text, direct=direct)
