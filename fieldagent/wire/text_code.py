"""Compresses short texts, with static models of short messages and an arithmetic coder.

A general compressor cannot learn from a few dozen bytes, so the models already contain the likely
continuations (`text_models`). A text begins with the Latin model, and changes to the model of
another script at a letter of that script. `docs/reference/on-air.md` describes the format.
"""

from __future__ import annotations

from functools import lru_cache

from fieldagent.wire.arithmetic_code import Coder, Decoder, Encoder
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.text_models import (
    BETWEEN_WORDS,
    CONTEXT_SYMBOLS_MAX,
    DIGITS,
    LETTER_BY_CAPITAL,
    SCRIPTS,
    Block,
    Model,
    TextAlphabet,
    get_table,
)

CHARACTERS_PER_BYTE_MAX = 8
"""Maximum characters per packed byte, which limits the cost of hostile input."""
TEXT_MAX = 2_000
"""Maximum characters of a packed text. A longer text is not packed."""
_CAPITALS = ((39, 1), (2, 30))
"""Weights of a small letter and a capital, after one capital, and after two or more."""
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
        """Code the character of `text` at the index `offset`."""
        character = text[offset]
        if self.alphabet.get_symbol(character) == self.alphabet.other:
            self.code_symbol(self.alphabet.other)
            way = self.code_other(self._code_choice(text, offset))
            if way < BLOCK:
                self.append_unknown(way, character)
                return
            self.change(way, ord(character) >> 8)
        capitals = bool(self.characters) and self.characters[-1] in LETTER_BY_CAPITAL
        for symbol in self.alphabet.split_into_symbols(character, capitals=capitals):
            self.code_symbol(symbol)
        self.append_known(symbol, character)

    def _code_choice(self, text: str, offset: int) -> int:
        """Return how to code a character that is not in the model: NEAR, FAR, BLOCK or a table. If
        the next letter is in the model again, the character is coded alone (NEAR or FAR), because
        two changes of the model cost more.
        """
        character, number = text[offset], ord(text[offset])
        script = _LETTERS.get(LETTER_BY_CAPITAL.get(character, character))
        follow = (
            each
            for each in text[offset + 1 : offset + _LOOK_AHEAD_MAX]
            if each not in _BETWEEN_WORDS
        )
        next_character = next(follow, character)
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
    """Compress a text. Return the text itself if its UTF-8 is not longer than the compressed
    bytes.
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
            way = coded_text.code_other()
            if way < BLOCK:
                coded_text.append_unknown(way)
                owed = 0
            else:
                coded_text.change(way)
        elif symbol != alphabet.shift:
            coded_text.append_known(symbol)
    raise RemoteProtocolError("packed text has no end")
