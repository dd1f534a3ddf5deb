"""Texts like those of people in the field: hikers, sailors, medics, drivers and rescuers. There are
60 of each in five languages, and four of each in Greek and Arabic. They were written for this
purpose, and no code table was made from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fieldagent.wire.text_code import pack

LANGUAGES = ("en", "de", "fr", "es", "uk", "el", "ar")
TRADES = ("hikers", "sailors", "medics", "drivers", "rescuers")


def _read(language: str) -> dict[str, list[str]]:
    """Return the texts by trade. In a file, a line that begins with # names a trade, and its texts
    follow, one per line.
    """
    trades: dict[str, list[str]] = {}
    trade = ""
    for line in Path(__file__).with_name(f"{language}.txt").read_text("utf-8").splitlines():
        if line.startswith("# "):
            trade = line.removeprefix("# ")
        else:
            trades.setdefault(trade, []).append(line)
    return trades


BY_TRADE = {language: _read(language) for language in LANGUAGES}
FIELD_TEXTS: dict[str, tuple[str, ...]] = {
    language: tuple(text for texts in trades.values() for text in texts)
    for language, trades in BY_TRADE.items()
}
"""Texts by language."""


def packed_share(texts: Sequence[str]) -> float:
    """Return the bytes of the texts, packed if that is shorter, as a ratio to UTF-8."""
    sent = [pack(text) for text in texts]
    sizes = [len(each if isinstance(each, bytes) else each.encode()) for each in sent]
    return sum(sizes) / sum(len(text.encode()) for text in texts)
