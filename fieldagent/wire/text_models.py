"""What is likely to follow what in a short text: a static model for each script, and a learning one
for those without.

A table (`text_table_latin.bin` and others, which `build/text_table.py` makes) holds what is known
beforehand. It is prediction by partial matching (Cleary and Witten 1984): the longest context that
the table knows tells what may follow, or that it is something else, which a shorter one then tells.
Everything is integers, so that every machine reads the same. Described in
`docs/reference/on-air.md`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import accumulate
from typing import Protocol

from fieldagent.system.data_files import read_data
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.arithmetic_code import Coder
from fieldagent.wire.errors import RemoteProtocolError

ORDER = 6
"""Symbols of a context, at most."""
WEIGHTS = tuple(max(1, (1 << 12) * 2**level // 3**level) for level in range(16))
"""What a level in the table stands for: each is two thirds of the one before."""
DIGITS = "0123456789"
BETWEEN = " \n.,!?-:;()'\"/"
"""What stands between the words of a script without a table."""
_LEARNT = 16
"""What a symbol gains in weight, each time that it is met."""


class Script(NamedTuple):
    """The characters that a table knows. A capital is known by its letter."""

    letters: str
    capitals: str
    """Those of the first letters; the last ones may have none."""
    signs: str

    @property
    def characters(self) -> str:
        """Return the space, the letters and the signs, in the order of their symbols."""
        return f" {self.letters}{self.signs}"


SCRIPTS = {
    "latin": Script(
        "abcdefghijklmnopqrstuvwxyzàáâäãåæçèéêëìíîïñòóôöõøœùúûüß",
        "ABCDEFGHIJKLMNOPQRSTUVWXYZÀÁÂÄÃÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÖÕØŒÙÚÛÜ",
        "\n.,!?-:;()'\"/+&%@#=*_<>€°$¿¡",
    ),
    "cyrillic": Script(
        "абвгдежзийклмнопрстуфхцчшщъыьэюяёіїєґўђјљњћџѓќѕѝәғқңөұүһҗ",
        "АБВГДЕЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯЁІЇЄҐЎЂЈЉЊЋЏЃЌЅЍӘҒҚҢӨҰҮҺҖ",
        "\n.,!?-:;()'\"/+&%@#=*_<>€°$№«»„“”’–—…₴₽",
    ),
    "greek": Script(
        "αβγδεζηθικλμνξοπρστυφχψωάέήίόύώϊϋΐΰς",
        "ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩΆΈΉΊΌΎΏΪΫ",
        "\n.,!?-:;()'\"/+&%@#=*_<>€°$·«»’–—…",
    ),
    "arabic": Script(
        "ابتثجحخدذرزسشصضطظعغفقكلمنهويءآأؤإئةىپچژگکیٹڈڑںہھے"
        "٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹\u064b\u064c\u064d\u064e\u064f\u0650\u0651\u0652\u0640\u200c",
        "",
        "\n.,!?-:;()'\"/+&%@#=*_<>€°$،؛؟۔٪«»",
    ),
}
"""Those with a table, in the order of their numbers on air."""
# Not `str.lower`, which differs from one version of Unicode to the next.
CAPITAL = {
    letter: capital
    for script in SCRIPTS.values()
    for letter, capital in zip(script.letters, script.capitals, strict=False)
}
FOLDED = {capital: letter for letter, capital in CAPITAL.items()}


class TextAlphabet:
    """Characters by their symbols. Behind those stand four more: any digit, that the letter behind
    it is a capital, any other character, and the end."""

    def __init__(self, characters: str) -> None:
        self.characters = characters
        self.digit, self.shift, self.other, self.end = range(len(characters), len(characters) + 4)
        self._symbol = {character: symbol for symbol, character in enumerate(characters)}
        self._symbol |= dict.fromkeys(DIGITS, self.digit)

    def symbol(self, character: str) -> int:
        """Return a character's symbol, of a capital its letter's; `other` where it has none."""
        direct = self._symbol.get(character)
        return self._symbol.get(FOLDED.get(character, ""), self.other) if direct is None else direct

    def symbols(self, text: Iterable[str], *, capitals: bool = False) -> Iterator[int]:
        """Yield the symbols of a text, which stands behind a capital or not. A capital after a
        capital has no shift ahead."""
        for character in text:
            symbol = self.symbol(character)
            upper = character in FOLDED
            if upper and not capitals and symbol != self.other and character not in self._symbol:
                yield self.shift
            yield symbol
            capitals = upper

    def capital(self, symbol: int) -> str | None:
        """Return the capital that has the same symbol, or None."""
        capital = CAPITAL.get(self.characters[symbol])
        return None if capital in self._symbol else capital


class Model(Protocol):
    alphabet: TextAlphabet

    def code(self, coder: Coder, before: list[int], symbol: int = 0) -> int:
        """Code the symbol that follows, and return it; a decoder finds it."""


class Table:
    """A table, as a tree of contexts: below one, those that are a symbol longer at its front.

    At its root, the empty context, every symbol may follow. The columns stand one after another,
    the length of each in 4 bytes ahead: of each context how many are below it, their front symbols,
    how many symbols may follow it, and the level of anything else; then those symbols, and their
    levels.
    """

    def __init__(self, alphabet: TextAlphabet, table: bytes) -> None:
        self.alphabet = alphabet
        columns = []
        while table:
            size = 4 + int.from_bytes(table[:4])
            columns.append(table[4:size])
            table = table[size:]
        below, self._fronts, follow, self._escapes, self._symbols, self._levels = columns
        self._below = array("H", accumulate(below, initial=0))
        self._follow = array("H", accumulate(follow, initial=0))

    def contexts(self, before: list[int]) -> list[int]:
        """Return those that end what stands before, the longest first."""
        nodes = [0]
        for symbol in before[: -ORDER - 1 : -1]:
            start, end = self._below[nodes[-1]], self._below[nodes[-1] + 1]
            child = self._fronts.find(symbol, start, end)
            if child < 0:
                break
            # The root is below none.
            nodes.append(child + 1)
        return nodes[::-1]

    def code(self, coder: Coder, before: list[int], symbol: int = 0) -> int:
        """Code a symbol by the longest context that knows it. Raises RemoteProtocolError."""
        excluded: set[int] = set()
        for context in self.contexts(before):
            start, end = self._follow[context], self._follow[context + 1]
            known, weights = [], []
            for place in range(start, end):
                each = self._symbols[place]
                if each not in excluded:
                    known.append(each)
                    weights.append(WEIGHTS[self._levels[place]])
            if not known:
                continue
            if context:
                weights.append(WEIGHTS[self._escapes[context]])
            at = coder.choose(weights, known.index(symbol) if symbol in known else len(known))
            if at < len(known):
                return known[at]
            excluded.update(known)
        raise RemoteProtocolError("packed text rules out every symbol")


class Block:
    """The letters of a script without a table, those of 256 code points, and what stands between
    them. Each is the likelier the more often it was met."""

    def __init__(self, number: int) -> None:
        letters = "".join(map(chr, range(number << 8, (number + 1) << 8)))
        self.alphabet = TextAlphabet(BETWEEN + letters)
        self._weights = [48, *[4] * (len(BETWEEN) - 1), *[1] * 256, 8, 0, 4, 4]

    def code(self, coder: Coder, before: list[int], symbol: int = 0) -> int:
        """Code a symbol, which is the likelier from here on."""
        choice = coder.choose(self._weights, symbol)
        self._weights[choice] += _LEARNT
        return choice


@cache
def alphabet(script: str) -> TextAlphabet:
    """Return the symbols of a script of SCRIPTS, made once."""
    return TextAlphabet(SCRIPTS[script].characters)


@cache
def table(script: str) -> Table:
    """Return a script's table, which is read for the first text that needs it."""
    return Table(alphabet(script), read_data("fieldagent.wire", f"text_table_{script}.bin"))
