"""Parses a CSV file with a satellite operator's counts, one line per session or per day.

Operators choose and change their column names. The parser finds a column by its usual names, or by
a name from `--columns`. If a line cannot be parsed, the error names the line and the whole file is
rejected.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.credit import compute_credits

COLUMN_NAMES: Mapping[str, tuple[str, ...]] = {
    "imei": ("imei", "deviceimei", "modemimei", "hardwareimei"),
    "date": (
        *("date", "day", "time", "datetime", "timestamp", "transmittime", "sessiontime"),
        *("timeofsession", "sessiondate", "created", "sentat", "usagedate"),
    ),
    "credits": ("credits", "creditsused", "creditscharged", "credit", "units"),
    "bytes": ("bytes", "size", "length", "messagesize", "payloadsize", "bytesused", "volume"),
    "reference": ("reference", "cdrreference", "cdr", "sessionid", "messageid"),
}
"""Usual column names for each kind of content, in lower case without spaces."""
LINES_MAX = 1_000_000
_SEPARATORS = ",;\t"


class WrongUsageFile(Exception):
    """Error: the file is invalid. The text contains the error, its place and the fix."""


class CountedDay(NamedTuple):
    """An operator's count for one modem on one UTC day."""

    imei: str
    day: str
    """ISO 8601 date."""
    messages: int
    credits: int
    bytes: int
    references: tuple[str, ...]
    """The operator's ids of the sessions, if the file contains them."""


class _Columns(NamedTuple):
    imei: int
    date: int
    credits: int | None
    bytes: int | None
    reference: int | None


def parse_usage(
    lines: Iterable[str], column_names: Mapping[str, str] = {}, date_format: str | None = None
) -> list[CountedDay]:
    """Return the counts of each modem and day. `column_names` maps kinds of content to column
    names. `date_format` is a `strptime` format. Raises WrongUsageFile if the file is invalid.
    """
    days: dict[tuple[str, str], list[tuple[int, int, str]]] = {}
    for imei, day, paid, size, reference in _read_rows(lines, column_names, date_format):
        days.setdefault((imei, day), []).append((paid, size, reference))
    return [
        CountedDay(
            imei,
            day,
            len(rows),
            sum(paid for paid, _, _ in rows),
            sum(size for _, size, _ in rows),
            tuple(reference for _, _, reference in rows if reference),
        )
        for (imei, day), rows in sorted(days.items())
    ]


def _read_rows(
    lines: Iterable[str], column_names: Mapping[str, str], date_format: str | None
) -> Iterator[tuple[str, str, int, int, str]]:
    """Yield the IMEI, day, credits, bytes and reference of each line."""
    text = iter(lines)
    heading_line = next(text, "").lstrip("\ufeff")
    separator = max(_SEPARATORS, key=heading_line.count)
    (headings,) = list(_read_cells([heading_line], separator)) or [[]]
    columns = _find_columns(headings, column_names)
    for number, row in enumerate(_read_cells(text, separator), 2):
        if number > LINES_MAX:
            raise WrongUsageFile(f"the file has more than {LINES_MAX} lines: import it in parts")
        if not any(cell.strip() for cell in row):
            continue
        try:
            yield _read_row([cell.strip() for cell in row], columns, date_format)
        except (ValueError, IndexError, OverflowError) as wrong:
            reason = (
                "it has fewer columns than the first" if isinstance(wrong, IndexError) else wrong
            )
            raise WrongUsageFile(f"line {number}: {reason}") from None


def _read_cells(lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    """Yield the cells of each line. Raises WrongUsageFile if the text is not CSV, for example if a
    quotation mark is not closed.
    """
    try:
        yield from csv.reader(lines, delimiter=separator)
    except csv.Error as wrong:
        raise WrongUsageFile(f"the file is not valid CSV: {wrong}") from None


def _find_columns(headings: Sequence[str], column_names: Mapping[str, str]) -> _Columns:
    plain = [re.sub(r"[^a-z0-9]", "", each.lower()) for each in headings]
    heading_text = ", ".join(each.strip() for each in headings) or "nothing"

    def find_column(what: str) -> int | None:
        if what in column_names:
            wanted_heading = re.sub(r"[^a-z0-9]", "", column_names[what].lower())
            if wanted_heading not in plain:
                raise WrongUsageFile(
                    f"no column is called {column_names[what]!r}; there are: {heading_text}"
                )
            return plain.index(wanted_heading)
        return next((plain.index(name) for name in COLUMN_NAMES[what] if name in plain), None)

    imei, date, paid, size = (
        find_column("imei"),
        find_column("date"),
        find_column("credits"),
        find_column("bytes"),
    )
    for what, column_index in (("imei", imei), ("date", date), ("credits", paid)):
        if column_index is None and (what != "credits" or size is None):
            raise WrongUsageFile(
                f"no column with the {what} found: name it with --columns {what}=NAME;"
                f" columns: {heading_text}"
            )
    assert imei is not None and date is not None
    return _Columns(imei, date, paid, size, find_column("reference"))


def _read_row(
    row: Sequence[str], columns: _Columns, date_format: str | None
) -> tuple[str, str, int, int, str]:
    imei = row[columns.imei]
    if not re.fullmatch(r"[0-9]{15}", imei, re.ASCII):
        raise ValueError(f"{imei!r} is not an IMEI of 15 digits; a spreadsheet may have rounded it")
    size = 0 if columns.bytes is None else _read_whole_number(row[columns.bytes], "bytes")
    # A mailbox check has no bytes but costs one credit.
    paid = max(1, compute_credits(size))
    if columns.credits is not None:
        paid = _read_whole_number(row[columns.credits], "credits")
    reference = "" if columns.reference is None else row[columns.reference]
    return imei, _read_day(row[columns.date], date_format), paid, size, reference


def _read_whole_number(text: str, what: str) -> int:
    """Parse a whole number. Spreadsheets write `2.0` for 2."""
    match = re.fullmatch(r"([0-9]{1,9})(?:\.0*)?", text, re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is not a number of {what}")
    return int(match[1])


def _read_day(text: str, date_format: str | None) -> str:
    moment = _read_moment(text, date_format)
    if moment is None:
        raise ValueError(
            f"{text!r} is not a date such as 2026-09-21 14:13:20: set its format with"
            " --date-format, such as %d/%m/%Y"
        )
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).date().isoformat()


def _read_moment(text: str, date_format: str | None) -> datetime | None:
    """Parse a time, which is UTC if it contains no offset. Return None if the format is
    different.
    """
    if date_format is None:
        with suppress(ValueError):
            return datetime.fromisoformat(text)
    with suppress(ValueError):
        # The default formats are those of RockBLOCK.
        return datetime.strptime(text, date_format or "%y-%m-%d %H:%M:%S")
    return None
