"""Probabilities of the next character in a short text: a static model for each script with a table,
and a learning model for other scripts.

A table (`text_table_latin.bin` and others, made by `build/text_table.py`) contains the
probabilities. The method is prediction by partial matching (Cleary and Witten 1984). The longest
context in the table has the possible next symbols, or an escape to a shorter context. All numbers
are integers, so that all machines decode the same text. `docs/reference/on-air.md` describes the
method.
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

CONTEXT_SYMBOLS_MAX = 6
"""Maximum number of earlier symbols from which a table predicts the next symbol."""
WEIGHTS = tuple(max(1, (1 << 12) * 2**level // 3**level) for level in range(16))
"""Weights of the levels in the table. Each weight is two thirds of the previous weight."""
DIGITS = "0123456789"
BETWEEN_WORDS = " \n.,!?-:;()'\"/"
"""Characters between the words of a script without a table."""
_LEARNT_WEIGHT = 16
"""Weight that a symbol gains each time it occurs."""


class Script(NamedTuple):
    """Characters of a table. A capital has the symbol of its letter."""

    letters: str
    capitals: str
    """Capitals of the first letters. The last letters may have no capital."""
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
"""Scripts with a table, in the order of their numbers on air."""
# Do not use `str.lower`, which differs between versions of Unicode.
LETTER_CAPITALS = {
    letter: capital
    for script in SCRIPTS.values()
    for letter, capital in zip(script.letters, script.capitals, strict=False)
}
LETTER_BY_CAPITAL = {capital: letter for letter, capital in LETTER_CAPITALS.items()}


class TextAlphabet:
    """Characters with their symbols. Four more symbols follow: any digit, *shift* (the next letter
    is a capital), any other character, and the end.
    """

    def __init__(self, characters: str) -> None:
        self.characters = characters
        self.digit, self.shift, self.other, self.end = range(len(characters), len(characters) + 4)
        self._symbol = {character: symbol for symbol, character in enumerate(characters)}
        self._symbol |= dict.fromkeys(DIGITS, self.digit)

    def get_symbol(self, character: str) -> int:
        """Return the symbol of a character. A capital has the symbol of its small letter. Return
        `other` if the character has no symbol.
        """
        direct = self._symbol.get(character)
        return (
            self._symbol.get(LETTER_BY_CAPITAL.get(character, ""), self.other)
            if direct is None
            else direct
        )

    def split_into_symbols(self, text: Iterable[str], *, capitals: bool = False) -> Iterator[int]:
        """Yield the symbols of a text, which may follow a capital (`capitals`). A capital after a
        capital needs no shift.
        """
        for character in text:
            symbol = self.get_symbol(character)
            upper = character in LETTER_BY_CAPITAL
            if upper and not capitals and symbol != self.other and character not in self._symbol:
                yield self.shift
            yield symbol
            capitals = upper

    def find_capital(self, symbol: int) -> str | None:
        """Return the capital letter that has the same symbol, or None if there is none."""
        capital = LETTER_CAPITALS.get(self.characters[symbol])
        return None if capital in self._symbol else capital


class Model(Protocol):
    alphabet: TextAlphabet

    def code_symbol(self, coder: Coder, symbols_before: list[int], symbol: int = 0) -> int:
        """Code the next symbol, and return it. A decoder ignores `symbol` and finds the symbol in
        its input.
        """


class Table:
    """Static model of a script with a table. The table is a tree of contexts. The children of a
    context have one more symbol at the front.

    The root is the empty context, after which every symbol is possible. The file contains the
    columns one after another, each after its length in 4 bytes. The first columns contain, for each
    context, the number of children, the front symbol, the number of possible next symbols, and the
    level of the escape. The last columns contain the next symbols and their levels.
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

    def find_contexts(self, symbols_before: list[int]) -> list[int]:
        """Return the known contexts before the next symbol, the longest first."""
        nodes = [0]
        for symbol in symbols_before[: -CONTEXT_SYMBOLS_MAX - 1 : -1]:
            start, end = self._below[nodes[-1]], self._below[nodes[-1] + 1]
            child = self._fronts.find(symbol, start, end)
            if child < 0:
                break
            # The list has no entry for the root, node 0, so a child's number is its index plus 1.
            nodes.append(child + 1)
        return nodes[::-1]

    def code_symbol(self, coder: Coder, symbols_before: list[int], symbol: int = 0) -> int:
        """Code a symbol with the longest context that contains it. Raises RemoteProtocolError if no
        symbol is possible, because the input is damaged.
        """
        excluded: set[int] = set()
        for context in self.find_contexts(symbols_before):
            start, end = self._follow[context], self._follow[context + 1]
            symbols, weights = [], []
            for index in range(start, end):
                each = self._symbols[index]
                if each not in excluded:
                    symbols.append(each)
                    weights.append(WEIGHTS[self._levels[index]])
            if not symbols:
                continue
            if context:
                weights.append(WEIGHTS[self._escapes[context]])
            at = coder.choose(weights, symbols.index(symbol) if symbol in symbols else len(symbols))
            if at < len(symbols):
                return symbols[at]
            excluded.update(symbols)
        raise RemoteProtocolError("packed text rules out every symbol")


class Block:
    """Model of a script without a table: the letters of 256 code points, and the characters between
    words. A symbol is more likely the more often it has occurred.
    """

    def __init__(self, number: int) -> None:
        letters = "".join(map(chr, range(number << 8, (number + 1) << 8)))
        self.alphabet = TextAlphabet(BETWEEN_WORDS + letters)
        self._weights = [48, *[4] * (len(BETWEEN_WORDS) - 1), *[1] * 256, 8, 0, 4, 4]

    def code_symbol(self, coder: Coder, symbols_before: list[int], symbol: int = 0) -> int:
        """Code a symbol, and make it more likely from now on."""
        choice = coder.choose(self._weights, symbol)
        self._weights[choice] += _LEARNT_WEIGHT
        return choice


@cache
def get_alphabet(script: str) -> TextAlphabet:
    """Return the symbols of a script of SCRIPTS. The symbols are built only once."""
    return TextAlphabet(SCRIPTS[script].characters)


@cache
def get_table(script: str) -> Table:
    """Return the table of a script. The table is loaded when the first text needs it."""
    return Table(get_alphabet(script), read_data("fieldagent.wire", f"text_table_{script}.bin"))
