"""Packed text: shorter for messages on which no table was trained, never longer, and safe to
decode.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import cbor2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fieldagent.package.package import Message, Waypoint
from fieldagent.wire import text_code
from fieldagent.wire.credit import compute_credits
from fieldagent.wire.envelope import PACKED_BYTES, Entry, compute_item_digest, decode, encode
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.text_code import (
    BLOCK,
    BYTE,
    CHARACTERS_PER_BYTE_MAX,
    CONTEXT_SYMBOLS_MAX,
    FAR,
    LETTER_CAPITALS,
    PLANES,
    SCRIPTS,
    TABLE,
    TEXT_MAX,
    CodedText,
    Decoder,
    Encoder,
    get_table,
    pack,
    unpack,
)
from tests.bench.field_texts import BY_TRADE, FIELD_TEXTS, TRADES, packed_share
from tests.wire.field_messages import FIELD_MESSAGES

TIME = 1_790_000_000
NUMBER = 50_000_000
"""In the range of a kit's journal."""
SAID = [text for texts in FIELD_MESSAGES.values() for text in texts]
WRITTEN = [text for texts in FIELD_TEXTS.values() for text in texts]
MOST = {"en": 0.48, "de": 0.48, "fr": 0.46, "es": 0.47, "uk": 0.30, "el": 0.29, "ar": 0.33}
"""Maximum ratio to UTF-8, by language."""
LANGUAGE = {"latin": "en", "cyrillic": "uk", "greek": "el", "arabic": "ar"}


def test_texts_outside_the_training_set_take_half_the_bytes() -> None:
    ratios = {language: packed_share(texts) for language, texts in FIELD_MESSAGES.items()}
    assert max(ratios.values()) <= 0.5, ratios


@pytest.mark.parametrize("language", FIELD_TEXTS)
def test_packed_texts_of_each_language_stay_below_their_share(language: str) -> None:
    assert packed_share(FIELD_TEXTS[language]) <= MOST[language]


def test_documented_packing_ratios_match_the_code() -> None:
    text = (Path(__file__).parents[2] / "docs/reference/on-air.md").read_text()
    _, _, table_ = text.partition("| English | German | French |")
    shares = table_.splitlines()[2].strip("| ").split(" | ")
    assert shares == [f"{packed_share(FIELD_TEXTS[language]):.3f}" for language in MOST]


def test_every_language_has_texts_of_each_trade() -> None:
    sizes = {
        language: {trade: len(set(texts)) for trade, texts in trades.items()}
        for language, trades in BY_TRADE.items()
    }
    assert sizes == {
        **dict.fromkeys(("en", "de", "fr", "es", "uk"), dict.fromkeys(TRADES, 60)),
        **dict.fromkeys(("el", "ar"), dict.fromkeys(TRADES, 4)),
    }


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("Мы дошли до перевала, всё хорошо", 0.35),
        ("Стигнахме до хижата, всичко е наред", 0.35),
        ("Дођосмо до куће, киша пада", 0.4),
        ("ما خوبیم و فردا صبح برمی‌گردیم", 0.55),
        # Scripts without a table.
        ("שלום, אנחנו בסדר ונחזור מחר בבוקר", 0.55),
        ("Մենք լավ ենք, վաղը կվերադառնանք", 0.55),
        ("ჩვენ კარგად ვართ, ხვალ დავბრუნდებით", 0.4),
        ("हम ठीक हैं, कल सुबह लौटेंगे", 0.45),
        # A word in another script, and a letter.
        ("Прибули, GPS не працює, ETA 18:00", 0.6),
        ("Team at Київ, all ok", 0.7),
        ("Jsme v pořádku, zítra se vrátíme, voda není", 0.75),
    ],
)
def test_texts_of_untrained_languages_are_packed(text: str, most: float) -> None:
    assert packed_share([text]) <= most
    packed = pack(text)
    assert isinstance(packed, bytes)
    assert unpack(packed) == text


@pytest.mark.parametrize("script", SCRIPTS)
def test_table_contains_each_letter_in_both_cases(script: str) -> None:
    known = SCRIPTS[script]
    assert len(set(known.characters)) == len(known.characters)
    # The others have no capital, or a capital of two letters.
    with_capital = known.letters[: len(known.capitals)]
    assert with_capital.upper() == known.capitals
    assert {LETTER_CAPITALS[letter] for letter in with_capital} == set(known.capitals)
    # Rare letters do not justify their own model.
    beside = " ".join(FIELD_TEXTS[LANGUAGE[script]][:4])
    for letter in known.letters:
        upper = LETTER_CAPITALS.get(letter, letter)
        text = f"{beside} {letter}{letter} {upper}{letter} {letter}{upper} {upper}{upper}{letter}"
        packed = pack(text)
        assert isinstance(packed, bytes)
        assert unpack(packed) == text


def test_script_table_is_loaded_at_its_first_use() -> None:
    get_table.cache_clear()
    for text, tables in [("all well", 1), ("ok 👍 שלום", 1), ("все добре", 2), ("بخير", 3)]:
        pack.__wrapped__(text)
        assert get_table.cache_info().currsize == tables


def test_nearly_every_packed_message_fits_one_credit() -> None:
    spent = {
        packed: sum(
            compute_credits(len(encode([Entry(NUMBER, Message(text), TIME)], is_packed=packed)))
            for text in SAID
        )
        for packed in (False, True)
    }
    assert (len(SAID), spent[False]) == (33, 63)
    assert spent[True] <= 35


def vectors() -> list[tuple[str, str]]:
    text = (Path(__file__).parents[2] / "docs/reference/on-air-vectors.json").read_text()
    return [*json.loads(text)["packed texts"].items()]


@pytest.mark.parametrize(("text", "packed"), vectors())
def test_vectors_are_written_and_read(text: str, packed: str) -> None:
    assert pack(text) == bytes.fromhex(packed)
    assert unpack(bytes.fromhex(packed)) == text


def test_documentation_contains_text_vectors() -> None:
    assert len(vectors()) >= 5


DIGITS = "0123456789"


def written(script: str) -> st.SearchStrategy[str]:
    known = SCRIPTS[script]
    return st.text(st.sampled_from(known.characters + known.capitals + DIGITS), max_size=30)


known = st.sampled_from(sorted(SCRIPTS)).flatmap(written)
hebrew = st.text(st.characters(min_codepoint=0x5D0, max_codepoint=0x5EA) | st.just(" "))
mixed = st.lists(known | hebrew | st.sampled_from(WRITTEN)).map("".join)
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@given(known | mixed | any_text | st.sampled_from(SAID + WRITTEN).map(str.upper))
@example("")
@example("👍 ok, à 14h30 au col 🏔️")
@example("نحن بخير")
@example("McDonald ABC aBC ÉÀ ß ẞ İ ſ ǅ")
@example("ДДA AAД Дa aД ΣΑΣ ς ЁЙ")
@example("Сектор B4, ETA 14:10, №5 — «Ok»")
@example("שלום 5 ABC אב Б א")
@example("ѣѣ Ѣ Ѡѡ А")
@example("Д" * 500)
@example("一二三 \U00020000\U00020001")
@example("a" * 500)
@example("ok " * TEXT_MAX)
@example("\0\x7f\ufeff\U0010ffff")
def test_every_text_survives_packing_and_never_grows(text: str) -> None:
    packed = pack(text)
    if isinstance(packed, bytes):
        assert len(packed) < len(text.encode())
        assert unpack(packed) == text
    else:
        assert packed == text


@cache
def beginnings() -> list[bytes]:
    texts = [*WRITTEN, "שלום חברים", "👍👍👍 ok Д"]
    return [packed for text in texts if isinstance(packed := pack(text), bytes)]


hostile = st.binary(max_size=PACKED_BYTES) | st.binary(max_size=8).map(lambda b: b + bytes(400))
begun = st.deferred(lambda: st.sampled_from(beginnings()))
behind = st.tuples(begun, st.integers(0, 60), hostile).map(
    lambda each: (each[0][: each[1]] + each[2])[:PACKED_BYTES]
)


@given(hostile | behind)
@example(b"")
@example(bytes(PACKED_BYTES))
@example(b"\xff" * PACKED_BYTES)
def test_any_bytes_are_refused_or_unpacked_to_bounded_text(packed: bytes) -> None:
    try:
        text = unpack(packed)
    except RemoteProtocolError:
        return
    assert len(text) <= min(TEXT_MAX, CHARACTERS_PER_BYTE_MAX * len(packed))
    text.encode()


class Counting(Decoder):
    choices = 0

    def choose(self, weights: Sequence[int], chosen: int) -> int:
        type(self).choices += 1
        return super().choose(weights, chosen)


@given(hostile | behind)
def test_unpacking_any_bytes_takes_bounded_work(packed: bytes) -> None:
    """A character takes at most three symbols in their contexts, and the one that selects them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_code, "Decoder", Counting)
        Counting.choices = 0
        with suppress(RemoteProtocolError):
            unpack(packed)
    symbols = 4 * (1 + min(TEXT_MAX, CHARACTERS_PER_BYTE_MAX * len(packed)))
    assert Counting.choices <= (CONTEXT_SYMBOLS_MAX + 1 + 4) * symbols


LATIN, CYRILLIC = TABLE, TABLE + 1


def test_endless_model_changes_are_refused() -> None:
    """A change follows each change, or follows a capital that does not come, or two of those."""
    for what in (["change"], ["change", "shift"], ["shift"]):
        coder = Encoder()
        coded_text = CodedText(coder)
        for turn in range(100):
            if "change" in what:
                to = (CYRILLIC, LATIN)[turn % 2]
                coded_text.code_symbol(coded_text.alphabet.other)
                coded_text.code_other(to)
                coded_text.change(to)
            if "shift" in what:
                coded_text.code_symbol(coded_text.alphabet.shift)
        for character in range(3):
            coded_text.code_symbol(character)
            coded_text.append_known(character, coded_text.alphabet.characters[character])
        coded_text.code_symbol(coded_text.alphabet.end)
        with pytest.raises(RemoteProtocolError, match="no end"):
            unpack(coder.finish())


@pytest.mark.parametrize("how", [FAR, BLOCK])
def test_unpaired_surrogate_is_refused(how: int) -> None:
    coder = Encoder()
    coded_text = CodedText(coder)
    coded_text.code_symbol(coded_text.alphabet.other)
    coded_text.code_other(how)
    for weights, chosen in ((PLANES, 0), (BYTE, 0xD8), (BYTE, 0)):
        coder.choose(weights, chosen)
    with pytest.raises(RemoteProtocolError, match="surrogate"):
        unpack(coder.finish())


@given(st.sampled_from(SAID + WRITTEN), st.integers(0, 400))
def test_flipped_bit_raises_only_a_protocol_error(text: str, bit: int) -> None:
    packed = pack(text)
    assert isinstance(packed, bytes) or text in ("ok",)
    if isinstance(packed, bytes):
        body = bytearray(packed)
        body[bit // 8 % len(body)] ^= 1 << bit % 8
        try:
            unpack(bytes(body))
        except RemoteProtocolError as error:
            assert "packed text" in str(error)


def test_packed_and_plain_forms_have_the_same_item_digest() -> None:
    """Otherwise an item that arrives over satellite and over cellular would be delivered twice."""
    sent = Entry(7, Waypoint(46.5, 7.25, "Hut with water", None, "Key under the stone"), TIME)
    plain, packed = (decode(encode([sent], is_packed=each)) for each in (False, True))
    assert plain.entries == packed.entries
    assert compute_item_digest(plain.entries[0]) == compute_item_digest(packed.entries[0])
    assert (plain.is_packed, packed.is_packed) == (False, True)


def test_sos_text_is_never_packed() -> None:
    sent = Entry(7, Message("Leg broken at the upper camp"), TIME, sos=True)
    beside = replace(sent, sequence=8, sos=False)
    assert encode([sent], is_packed=True) == encode([sent])
    _, _, _, sos, other = cbor2.loads(encode([sent, beside], is_packed=True))
    assert isinstance(sos[4], str) and isinstance(other[3], bytes)


def test_large_envelope_contains_no_packed_text() -> None:
    """Decoding takes long, so our code packs no such text and refuses those of third parties."""
    many = [Entry(n, Message("Arrived at camp, all well"), TIME) for n in range(60)]
    body = encode(many, is_packed=True)
    assert len(body) > PACKED_BYTES
    read = decode(body)
    assert (read.entries, read.is_packed) == (tuple(many), False)
    packed = [[1, n, 0, pack("Arrived at camp, all well")] for n in range(60)]
    theirs = decode(cbor2.dumps([1, 0, 0, *packed]))
    assert not theirs.entries
    assert "text is missing" in theirs.not_understood[0]


def test_long_text_in_a_single_message_is_decompressed() -> None:
    """A 9704 sends it in one message."""
    sent = Entry(7, Message("At the pass, wind is strong but fine. " * 50), TIME)
    assert decode(encode([sent], is_packed=True)).entries == (sent,)
