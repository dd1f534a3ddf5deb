"""`fieldagent hub usage`: shows the cost of satellite messages, by the hub's count and by the
operator's count.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial

from fieldagent.cli.hub.opened_store import make_store_command, run_with_store, show, show_list
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Row
from fieldagent.hub.operator.registry import get_operators
from fieldagent.hub.records import usage
from fieldagent.hub.records.usage_file import COLUMN_NAMES, CountedDay, WrongUsageFile, parse_usage
from fieldagent.hub.settings import HubSettings, find_price
from fieldagent.hub.store.contract import Db, Store
from fieldagent.system.exit_codes import REFUSED, USAGE
from fieldagent.system.log_lines import print_failure
from fieldagent.system.terminal import escape_line
from fieldagent.system.wording import describe_reason, format_count


def import_usage(arguments: argparse.Namespace) -> int:
    """Import a file with an operator's count. If one line is invalid, import nothing."""
    try:
        days = _read(arguments)
    except (WrongUsageFile, OSError, UnicodeDecodeError) as wrong:
        reason = "it is not UTF-8 text" if isinstance(wrong, UnicodeDecodeError) else wrong
        text = (
            describe_reason(reason)
            if isinstance(reason, OSError)
            else f"{arguments.file}: {reason}"
        )
        print_failure(escape_line(f"nothing was imported: {text}"))
        return REFUSED

    def store_usage(settings: HubSettings, store: Store) -> int:
        operators = get_operators(settings.operators)
        if arguments.operator not in operators:
            print_failure(f"unknown operator {arguments.operator!r}: use {', '.join(operators)}")
            return USAGE
        counts = store.run_once(lambda db: usage.store_counts(db, arguments.operator, days))
        if counts.strangers:
            stranger_list = ", ".join(counts.strangers)
            print(
                f"no device has these IMEIs; their days are not imported: {stranger_list}",
                file=sys.stderr,
            )
        return show(arguments, {"days": counts.days, "unknownImeis": len(counts.strangers)})

    return run_with_store(arguments, store_usage)


def _read(arguments: argparse.Namespace) -> list[CountedDay]:
    named_columns = dict(arguments.columns or ())
    for column in named_columns:
        if column not in COLUMN_NAMES:
            raise WrongUsageFile(f"--columns accepts {', '.join(COLUMN_NAMES)}, not {column!r}")
    with arguments.file.open(encoding="utf-8-sig", newline="") as lines:
        return parse_usage(lines, named_columns, arguments.date_format)


@make_store_command
def list_usage(arguments: argparse.Namespace, settings: HubSettings, store: Store) -> int:
    """Show each kit and day, with the hub's count and the operator's count."""
    since, until = usage.choose_days(arguments.since, arguments.until, time.time())

    def find(db: Db) -> list[usage.UsageDay]:
        workspace = directory.find_workspace(db, arguments.workspace)
        device = arguments.device and directory.find_device_named(db, workspace, arguments.device)
        return usage.list_days(db, workspace, since, until, device or None)

    days = store.run_once(find)
    prices = partial(find_price, settings)
    rows: list[Row] = [usage.make_row(each, prices) for each in days]
    code = show_list(arguments, rows)
    if not arguments.json and days:
        print(_format_sum(usage.compute_total(days, prices), days))
    return code


def _format_sum(total: usage.Total, days: Sequence[usage.UsageDay]) -> str:
    """Return the sum of the credits as text."""
    text = f"{format_count(total.ours, 'credit')} here" + (
        f", {total.money}" if total.money else ""
    )
    if any(each.theirs is not None and each.unit == "credit" for each in days):
        money = f", {total.their_money}" if total.their_money else ""
        text += f"; on the imported days, {total.compared} here"
        text += f" and {total.theirs} there{money}"
    return text
