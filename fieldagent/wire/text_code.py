"""Compresses short texts, with static models of short messages and an arithmetic coder.
`docs/reference/on-air.md` describes the format.

A general compressor cannot learn from a few dozen bytes, so the models already contain the likely
continuations. A table (`text_table_latin.bin` and others, made by `build/text_table.py`) contains
the probabilities of the next character in a script. The method is prediction by partial matching
(Cleary and Witten 1984): the longest context in the table has the possible next symbols, or an
escape to a shorter context. For other scripts, there is a learning model. All numbers are integers,
so that all machines decode the same text.

A text begins with the Latin model, and changes to the model of another script at a letter of that
script.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate
from typing import Protocol

from fieldagent.system.data_files import read_data
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import RemoteProtocolError

_BITS, _LEAST = 32, 1 << 24


class Coder(Protocol):
    """Encoder or decoder of the arithmetic code. Both take the same steps: the encoder gets each
    choice as an argument, and the decoder finds the choice in its input.
    """

    def choose(self, weights: Sequence[int], choice: int) -> int:
        """Encode or decode one of the weighted choices, and return its index. A decoder ignores
        `choice`.
        """


class Encoder:
    def __init__(self) -> None:
        self._low, self._range, self._bytes = 0, 1 << _BITS, _BITS // 8

    def choose(self, weights: Sequence[int], choice: int) -> int:
        """Encode the choice `choice` among weighted choices."""
        unit = self._range // sum(weights)
        self._low += unit * sum(weights[:choice])
        self._range = unit * weights[choice]
        while self._range < _LEAST:
            self._low, self._range, self._bytes = self._low << 8, self._range << 8, self._bytes + 1
        return choice

    def finish(self) -> bytes:
        """Return the encoded choices: the shortest number in the remaining range, without trailing
        zeros.
        """
        for cut in range(self._bytes * 8, -1, -8):
            number = -(-self._low >> cut) << cut
            if number < self._low + self._range:
                return number.to_bytes(self._bytes).rstrip(b"\0")
        raise AssertionError("the last cut fits")


class Decoder:
    def __init__(self, body: bytes) -> None:
        self._rest = iter(body)
        self._range, self._code = 1 << _BITS, 0
        for _ in range(_BITS // 8):
            self._code = self._code << 8 | next(self._rest, 0)

    def choose(self, weights: Sequence[int], choice: int) -> int:
        """Decode the next choice and return its index. `choice` is ignored. After the end of the
        number, zeros are read.
        """
        upper_ends = list(accumulate(weights))
        unit = self._range // upper_ends[-1]
        target = min(self._code // unit, upper_ends[-1] - 1)
        choice = next(index for index, end in enumerate(upper_ends) if target < end)
        self._code -= unit * (upper_ends[choice] - weights[choice])
        self._range = unit * weights[choice]
        while self._range < _LEAST:
            self._code, self._range = self._code << 8 | next(self._rest, 0), self._range << 8
        return choice


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


CHARACTERS_PER_BYTE_MAX = 8
"""Maximum characters per packed byte, which limits the cost of hostile input."""
TEXT_MAX = 2_000
"""Maximum characters of a packed text. A longer text is not packed."""
_CAPITALS = ((39, 1), (2, 30))
"""Two pairs with the weights of a small letter and of a capital. The first pair applies after one
capital, the second after two or more."""
_TEN, BYTE = [1] * 10, [1] * 256
PLANES = [16, 8] + [1] * 15
"""Weights of Unicode planes. The second plane contains the emoji."""
NEAR, FAR, BLOCK, TABLE = range(4)
"""Choices for a character that is not in the model. NEAR: only this character, from the block of
256 code points that was named last. FAR: only this character, whose block is named. BLOCK: change
to the model of a block. TABLE and up: change to the model of a script."""
_OTHERS = (8, 4, 2, 4, 4, 1, 2)
_FIRST_BLOCK = 1
"""Block that is valid until a block is named. This block contains the accented letters of Central
Europe and of Turkish."""
_SCRIPTS = tuple(SCRIPTS)
_LETTERS = {letter: script for script, known in SCRIPTS.items() for letter in known.letters}
_BETWEEN_WORDS = frozenset(BETWEEN_WORDS + DIGITS)
_LOOK_AHEAD_MAX = 16
"""Maximum characters to look ahead, to detect a single word of another script."""
assert len(_OTHERS) == TABLE + len(SCRIPTS)


class CodedText:
    """The coded part of a text, in the encoder or the decoder. Both take the same steps: the
    encoder gets each symbol and character as arguments, and the decoder finds them in its input.
    """

    def __init__(self, coder: Coder) -> None:
        self._coder = coder
        self._model: Model = get_table(_SCRIPTS[0])
        self._own = TABLE
        """The current model: BLOCK, or TABLE plus the number of a script."""
        self._before = [self._model.alphabet.end]
        self._block = _FIRST_BLOCK
        self.characters: list[str] = []

    @property
    def alphabet(self) -> TextAlphabet:
        """Return the symbols of the current model, which change with the script."""
        return self._model.alphabet

    def code_symbol(self, symbol: int = 0) -> int:
        """Code the next symbol of the model, and return it."""
        next_symbol = self._model.code_symbol(self._coder, self._before, symbol)
        self._before.append(next_symbol)
        return next_symbol

    def append_known(self, symbol: int, character: str = "\0") -> None:
        """Append the character of a symbol that is not *shift*, *other*, or the end."""
        alphabet = self.alphabet
        if symbol == alphabet.digit:
            self.characters.append(DIGITS[self._coder.choose(_TEN, DIGITS.find(character))])
            return
        next_character, capital = alphabet.characters[symbol], alphabet.find_capital(symbol)
        if capital and self._is_capital(character == capital):
            next_character = capital
        self.characters.append(next_character)

    def _is_capital(self, is_upper: bool) -> bool:
        if self._before[-2] == self.alphabet.shift:
            return True
        capitals = [each in LETTER_BY_CAPITAL for each in self.characters[-2:]]
        if not any(capitals[-1:]):
            return False
        return bool(self._coder.choose(_CAPITALS[capitals == [True, True]], int(is_upper)))

    def code_other(self, choice: int = 0) -> int:
        """Code the choice after the symbol *other*, and return the choice: NEAR, FAR, BLOCK, or
        TABLE plus the number of a script.
        """
        weights = list(_OTHERS)
        if self._own != BLOCK:
            weights[self._own] = 0
        return self._coder.choose(weights, choice)

    def append_unknown(self, choice: int, character: str = "\0") -> None:
        """Append a character that is not in the model, with the choice NEAR or FAR."""
        number = ord(character)
        if choice == FAR:
            self._choose_block(number >> 8)
        number = self._block << 8 | self._coder.choose(BYTE, number & 255)
        self.characters.append(chr(number))

    def change(self, model: int, block: int = 0) -> None:
        """Change to another model: BLOCK, or TABLE plus the number of a script."""
        if model == BLOCK:
            self._choose_block(block)
            self._model = Block(self._block)
        else:
            self._model = get_table(_SCRIPTS[model - TABLE])
        self._own = model
        last = self.characters[-CONTEXT_SYMBOLS_MAX:]
        self._before = [self.alphabet.end, *self.alphabet.split_into_symbols(last)]

    def _choose_block(self, block: int) -> None:
        plane = self._coder.choose(PLANES, block >> 8)
        self._block = plane << 8 | self._coder.choose(BYTE, block & 255)
        if 0xD8 <= self._block < 0xE0:
            raise RemoteProtocolError("packed text holds half of a surrogate pair")

    def write(self, text: str, offset: int) -> None:
        """Encode the character of `text` at the index `offset`, and change the model if this saves
        bytes.
        """
        character = text[offset]
        if self.alphabet.get_symbol(character) == self.alphabet.other:
            self.code_symbol(self.alphabet.other)
            model_choice = self.code_other(self._code_choice(text, offset))
            if model_choice < BLOCK:
                self.append_unknown(model_choice, character)
                return
            self.change(model_choice, ord(character) >> 8)
        capitals = bool(self.characters) and self.characters[-1] in LETTER_BY_CAPITAL
        for symbol in self.alphabet.split_into_symbols(character, capitals=capitals):
            self.code_symbol(symbol)
        self.append_known(symbol, character)

    def _code_choice(self, text: str, offset: int) -> int:
        """Return the choice with which to encode a character that is not in the model: NEAR, FAR,
        BLOCK, or TABLE plus the number of a script. If the next letter is in the model again, the
        character is coded alone (NEAR or FAR), because two changes of the model cost more.
        """
        character, number = text[offset], ord(text[offset])
        script = _LETTERS.get(LETTER_BY_CAPITAL.get(character, character))
        next_letters = (
            each
            for each in text[offset + 1 : offset + _LOOK_AHEAD_MAX]
            if each not in _BETWEEN_WORDS
        )
        next_character = next(next_letters, character)
        if self.alphabet.get_symbol(next_character) == self.alphabet.other:
            if script:
                return TABLE + _SCRIPTS.index(script)
            if [ord(each) >> 8 for each in text[offset + 1 : offset + 2]] == [number >> 8]:
                return BLOCK
        return NEAR if number >> 8 == self._block else FAR


# Cache the result, because a waiting text is encoded again for each message that may be combined
# with it.
@lru_cache(maxsize=64)
def pack(text: str) -> bytes | str:
    """Compress a text. Return the text itself if its UTF-8 is not longer than the compressed bytes,
    if it has more than TEXT_MAX characters, or if it has more than CHARACTERS_PER_BYTE_MAX
    characters per compressed byte.
    """
    if len(text) > TEXT_MAX:
        return text
    coder = Encoder()
    coded_text = CodedText(coder)
    for at in range(len(text)):
        coded_text.write(text, at)
    coded_text.code_symbol(coded_text.alphabet.end)
    packed = coder.finish()
    worth = len(packed) < len(text.encode()) and len(text) <= CHARACTERS_PER_BYTE_MAX * len(packed)
    return packed if worth else text


def unpack(packed_text: bytes) -> str:
    """Decompress a text. Raises RemoteProtocolError if it is damaged."""
    coded_text = CodedText(Decoder(packed_text))
    owed = 0
    while len(coded_text.characters) <= min(TEXT_MAX, CHARACTERS_PER_BYTE_MAX * len(packed_text)):
        alphabet, symbol = coded_text.alphabet, coded_text.code_symbol()
        if symbol == alphabet.end:
            return "".join(coded_text.characters)
        makes_none = {alphabet.other: 1, alphabet.shift: 2}.get(symbol, 0)
        # A change or a shift cannot follow a change, and a shift cannot follow a shift. Otherwise a
        # text could be endless.
        if 0 < makes_none <= owed:
            break
        owed = makes_none
        if symbol == alphabet.other:
            model_choice = coded_text.code_other()
            if model_choice < BLOCK:
                coded_text.append_unknown(model_choice)
                owed = 0
            else:
                coded_text.change(model_choice)
        elif symbol != alphabet.shift:
            coded_text.append_known(symbol)
    raise RemoteProtocolError("packed text has no end")
