"""Makes a table of `fieldagent.wire.text_code`: probabilities of the next symbol in short
messages of a script.

    build/text_table.py SCRIPT LOCALE TABLE

It counts dialogue and frequencies of words, in the languages of the script. The dialogue is the
texts of Battle for Wesnoth 1.16.9 and their translations (GPL-2.0-or-later). LOCALE is their folder
(in Debian 12 `/usr/share/games/wesnoth/1.16/locale`, after an installation of wesnoth-1.16-did,
-dw, -httt, -l, -nr, -thot, -tsg, -ttb and -utbs). The frequencies are wordfreq 3.1.1 (CC BY-SA
4.0), which must be installed. The table contains no text of either. It is part of the on-air
format: a new table needs a new number, and this one stays.
"""

from __future__ import annotations

import argparse
import gettext
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import wordfreq

from fieldagent.wire.text_code import CONTEXT_SYMBOLS_MAX, WEIGHTS, get_alphabet


class Language(NamedTuple):
    lines: int
    """Weight of each message of the dialogue."""
    words: int
    """Total weight of the words from the frequency list; 0 if the language has no list."""


class Training(NamedTuple):
    languages: dict[str, Language]
    followers: int
    """Number of pairs of a context and a next symbol in the table."""


TRAININGS = {
    # With half as many followers, the table is 10 kB smaller, and messages are longer by 2 % of
    # their UTF-8 size. With twice as many, the table is 20 kB larger, and messages are shorter by 1
    # %.
    "latin": Training(dict.fromkeys(("en", "de", "fr", "es", "it"), Language(2, 400_000)), 10_000),
    "cyrillic": Training(
        {
            "uk": Language(8, 400_000),
            "ru": Language(1, 100_000),
            "bg": Language(1, 100_000),
            "sr": Language(1, 0),
            "mk": Language(1, 50_000),
        },
        10_000,
    ),
    "greek": Training({"el": Language(2, 400_000)}, 4_000),
    "arabic": Training({"ar": Language(2, 400_000)}, 4_000),
}
UNITS = {
    "cyrillic": {"km": "км", "min": "хв", "h": "год"},
    "greek": {"km": "χλμ", "min": "λεπτά", "h": "ώρες"},
    "arabic": {"km": "كم", "min": "دقيقة", "h": "ساعة"},
}
"""Abbreviations of units in the letters of the script, by their Latin form."""
UNKNOWN = "\ufffd"
OCCURRENCES_MIN = 8
"""Minimum number of occurrences of a context."""


def make_messages(text: str, chance: random.Random) -> Iterator[str]:
    """Yield messages as people would send them: a sentence or two, often without the last full stop
    or a capital, and with numbers.
    """
    text = re.sub(r"<[^>]*>|[\n|]", " ", text)
    for old, new in (("’", "'"), ("“", '"'), ("”", '"'), ("…", "..."), ("\xa0", " "), ("—", "-")):
        text = text.replace(old, new)
    sentences = re.findall(r"\S.*?(?:[.!?]+(?=\s|$)|$)", text)
    while sentences:
        count = chance.choice((1, 1, 2))
        message, sentences = " ".join(sentences[:count]), sentences[count:]
        if message.endswith(".") and chance.random() < 0.6:
            message = message.rstrip(".")
        if chance.random() < 0.25:
            message = message[:1].lower() + message[1:]
        words = [
            f"{make_number(chance)} {word}" if at and chance.random() < 0.03 else word
            for at, word in enumerate(message.split())
        ]
        yield " ".join(words)


def make_number(chance: random.Random) -> str:
    small, hour = str(chance.randrange(1, 20)), str(chance.randrange(24))
    minute = f"{chance.randrange(0, 60, 5):02}"
    return chance.choice(
        (
            small,
            small,
            str(chance.randrange(20, 400)),
            f"{hour}:{minute}",
            f"{hour}:{minute}",
            f"{hour}h",
            f"{hour}h{minute}",
            f"{small} km",
            f"{small} h",
            f"{minute} min",
            f"{small}.{chance.randrange(10)}",
            f"{small},{chance.randrange(10)}",
            f"{small}{chance.choice('abc')}",
            f"{chance.randrange(90)}.{chance.randrange(10**4):04}",
            f"{small}-{chance.randrange(9)}",
            f"{small}/{chance.randrange(1, 13)}",
        )
    )


def read_dialogue(locale: Path, languages: Iterable[str]) -> dict[str, list[str]]:
    texts: defaultdict[str, set[str]] = defaultdict(set)
    for language in languages:
        for path in sorted((locale / language / "LC_MESSAGES").glob("*.mo")):
            with path.open("rb") as file:
                catalog = gettext.GNUTranslations(file)._catalog
            for original, translated in catalog.items():
                if original and isinstance(original, str):
                    texts["en"].add(original.rpartition("\x04")[2])
                    texts[language].add(translated)
    return {
        language: sorted(" ".join(text.split()) for text in texts[language]) for language in texts
    }


def make_training_texts(script: str, locale: Path) -> list[tuple[bytes, int]]:
    """Return the training texts as symbols, each with its weight. A message begins and ends with
    the symbol END. A single word does not.
    """
    chance = random.Random(1)
    texts: Counter[bytes] = Counter()
    languages = TRAININGS[script].languages
    lines = read_dialogue(locale, languages)
    for language, counts in languages.items():
        for line in lines[language]:
            for message in make_messages(line, chance):
                if written := adapt_to_script(script, message):
                    texts[encode(script, written)] += counts.lines
        for word, times in list_words(language, counts.words):
            if written := adapt_to_script(script, word):
                texts[encode(script, f" {written} ")[1:-1]] += times
    return sorted(texts.items())


def list_words(language: str, count: int) -> Iterator[tuple[str, int]]:
    listed = wordfreq.get_frequency_dict(language, "small") if count else {}
    for word, frequency in sorted(listed.items()):
        if times := round(frequency * count):
            # wordfreq writes a final sigma as σ. People write ς.
            yield re.sub("σ$", "ς", word), times


def adapt_to_script(script: str, text: str) -> str:
    """Return the text in the form that the model of the script encodes. Each word in Latin letters
    becomes one unknown symbol, because another model encodes it. The result is empty if no letter
    is in the script.
    """
    if script == "latin":
        return text
    for unit, own in UNITS[script].items():
        text = re.sub(rf"(?<=\d) ?{unit}\b", f" {own}", text)
    text = re.sub(r"[A-Za-zÀ-ž]+(?:['-][A-Za-zÀ-ž]+)*", UNKNOWN, text)
    known = get_alphabet(script)
    letters = sum(
        len(known.characters) > known.get_symbol(each) > 0 and each.isalpha() for each in text
    )
    return text if letters or text.isdigit() else ""


def encode(script: str, message: str) -> bytes:
    known = get_alphabet(script)
    return bytes([known.end, *known.split_into_symbols(message), known.end])


Counts = dict[bytes, Counter[int]]


def count_followers(texts: Sequence[tuple[bytes, int]]) -> Counts:
    """Count the next symbols after each context of up to `CONTEXT_SYMBOLS_MAX` symbols."""
    counts: Counts = {b"": Counter()}
    for size in range(CONTEXT_SYMBOLS_MAX + 1):
        below = {context for context, after in counts.items() if len(context) == size - 1}
        seen: defaultdict[bytes, Counter[int]] = defaultdict(Counter)
        for text, times in texts:
            for at in range(max(1, size), len(text)):
                context = text[at - size : at]
                if not size or context[1:] in below:
                    seen[context][text[at]] += times
        counts |= {
            context: after
            for context, after in seen.items()
            if after.total() >= OCCURRENCES_MIN or not size
        }
    return counts


def choose_contexts(counts: Counts, symbols: int, followers: int) -> dict[bytes, list[int]]:
    """Return the contexts, each with its followers. Only the `followers` pairs that save the most
    bits are included, and all symbols for the empty context.
    """
    gains = []
    for context, after in counts.items():
        if not context:
            continue
        shorter = counts[context[1:]]
        total, total_shorter = after.total(), shorter.total()
        for symbol, times in after.items():
            likely, likely_shorter = (times - 0.7) / total, shorter[symbol] / total_shorter
            if times >= 4 and likely > likely_shorter:
                gains.append((times * math.log2(likely / likely_shorter), context, symbol))
    gains.sort(reverse=True)
    kept: dict[bytes, list[int]] = {b"": list(range(symbols))}
    for _, context, symbol in gains[:followers]:
        kept.setdefault(context, []).append(symbol)
        while context := context[1:]:
            kept.setdefault(context, [])
    return kept


def count_coded(
    kept: dict[bytes, list[int]], texts: Iterable[tuple[bytes, int]]
) -> dict[bytes, tuple[dict[int, float], float]]:
    """Return for each context the number of times that the coder finds each follower, and the
    number of times that it finds none.
    """
    met: dict[bytes, dict[int, float]] = {
        context: dict.fromkeys(after, 0.5) for context, after in kept.items()
    }
    missed = {context: 0.5 + 0.5 * len(after) ** 0.5 for context, after in kept.items()}
    for text, times in texts:
        for at in range(1, len(text)):
            symbol = text[at]
            for size in range(min(CONTEXT_SYMBOLS_MAX, at), -1, -1):
                context = text[at - size : at]
                after = met.get(context)
                if not after:
                    continue
                if symbol in after:
                    after[symbol] += times
                    break
                missed[context] += times
    return {context: (after, missed[context]) for context, after in met.items()}


def choose_level(share: float) -> int:
    return min(range(16), key=lambda each: abs(math.log(WEIGHTS[each] / WEIGHTS[0] / share)))


def encode_table(weights: dict[bytes, tuple[dict[int, float], float]]) -> bytes:
    """Return the bytes of the table: its columns one after another. In each column, contexts are in
    the order of their length.
    """
    below: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for context in sorted(weights):
        if context:
            below[context[1:]].append(context)
    columns: list[list[int]] = [[], [], [], [], [], []]
    tree = [b""]
    for context in tree:
        after, missed = weights[context]
        most = max([missed, *after.values()])
        columns[0].append(len(below[context]))
        columns[1] += [child[0] for child in below[context]]
        columns[2].append(len(after))
        columns[3].append(choose_level(missed / most) if context and after else 15)
        for symbol, times in sorted(after.items(), key=lambda each: (-each[1], each[0])):
            columns[4].append(symbol)
            columns[5].append(choose_level(times / most))
        tree += below[context]
    return b"".join(len(column).to_bytes(4) + bytes(column) for column in columns)


def main() -> None:
    parser = argparse.ArgumentParser(prog="build/text_table.py")
    parser.add_argument("script", choices=TRAININGS)
    parser.add_argument("locale", type=Path)
    parser.add_argument("table", type=Path)
    arguments = parser.parse_args()
    texts = make_training_texts(arguments.script, arguments.locale)
    symbols = get_alphabet(arguments.script).end + 1
    kept = choose_contexts(count_followers(texts), symbols, TRAININGS[arguments.script].followers)
    arguments.table.write_bytes(encode_table(count_coded(kept, texts)))
    print(f"{len(kept)} contexts, {arguments.table.stat().st_size} bytes")


if __name__ == "__main__":
    main()
