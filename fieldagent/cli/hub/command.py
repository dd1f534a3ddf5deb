"""`fieldagent hub command KIT …`: sends a command to a kit, over its link or satellite, and shows
the answer.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fieldagent.cli.hub import settings
from fieldagent.cli.hub.opened_store import Result, make_store_command, show_list
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.field import delta_sending, radio_key
from fieldagent.hub.field.command_sending import (
    SET,
    CommandCost,
    compute_cost,
    is_paid,
    store_command,
)
from fieldagent.hub.field.delta_sending import UPDATE, DeltaCost
from fieldagent.hub.records import audit, commands
from fieldagent.hub.records.commands import CommandToSend
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.settings import HubSettings, find_price
from fieldagent.hub.store.contract import Db, Store
from fieldagent.system.exit_codes import ERROR, OK
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.minisign import NotSigned
from fieldagent.system.program_delta import NoDelta, parse_delta
from fieldagent.system.signed_release import DELTA, check_release_as
from fieldagent.system.terminal import escape_lines, format_local_time
from fieldagent.system.wording import describe_reason, format_count
from fieldagent.wire.command import NotACommand, RemoteCommand, parse_command
from fieldagent.wire.proof import prove_command
from fieldagent.wire.settings_change import make_command_arguments
from fieldagent.wire.signed_delta import make_signed_delta

ANSWER_CHECK_S = 0.5
"""Seconds between two checks for the answer."""


class _CommandTarget(NamedTuple):
    workspace: int
    device: int


@make_store_command
def send_command(arguments: argparse.Namespace, hub: HubSettings, store: Store) -> Result:
    """Send a command to the kit and wait `--wait` seconds for the answer. If there are no words,
    list earlier commands. If the command costs money, ask for confirmation first. Scripts need
    --yes or --by ip.
    """
    kit = store.run_once(lambda db: _find_kit(db, arguments))
    if not arguments.words:
        return _list(arguments, store, kit)
    command, delta = _read(arguments.words), None
    number = store.run_once(lambda db: commands.compute_next_number(db, kit.device, time.time()))
    if command.verb == SET.number:
        number, command = _sign_settings(arguments, store, number)
    if command.verb == UPDATE.number:
        payload = _read_delta(arguments)
        command = delta_sending.make_command(payload)
        delta = store.run_once(lambda db: _price_delta(db, arguments, kit, payload))
    estimate = store.run_once(
        lambda db: compute_cost(db, kit.device, number, _make_sample(command), time.time())
    )
    price = _format_price(estimate, hub, None if delta is None else delta.cost)
    _confirm_price(arguments, estimate, price)
    # Do not wait for an answer if the kit has no link.
    grace = float(hub.satellite_grace) if estimate.linked else 0.0
    order = CommandToSend(
        kit.workspace, kit.device, number, command, arguments.by or "", audit.ADMINISTRATION
    )

    def carry(db: Db) -> int:
        now = time.time()
        if delta is not None:
            delta_sending.add_delta(db, delta.posting, grace, now)
        return store_command(db, order, grace, now)

    return _wait(arguments, store, kit, store.run_once(carry), price)


def _find_kit(db: Db, arguments: argparse.Namespace) -> _CommandTarget:
    workspace = directory.find_workspace(db, arguments.workspace)
    return _CommandTarget(workspace, directory.find_device_named(db, workspace, arguments.device))


def _read(words: list[str]) -> RemoteCommand:
    try:
        command = parse_command(words)
    except NotACommand as wrong:
        raise Refused(str(wrong)) from None
    if command.verb == radio_key.VERB:
        raise Refused("a radio-key is for all kits: `fieldagent hub device radio-key`")
    return command


def _sign_settings(
    arguments: argparse.Namespace, store: Store, number: int
) -> tuple[int, RemoteCommand]:
    """Sign the settings with minisign. Their number is above all earlier numbers of the kit. Raises
    Refused if a setting is invalid or cannot be signed.
    """
    if arguments.secret_key is None:
        raise Refused(
            "set needs --secret-key FILE: the secret minisign key for the kit's update-key"
        )
    kit = store.run_once(lambda db: settings.find_kit(db, arguments))
    change = settings.make_change(kit, arguments.words[1:], max(number, kit.last + 1))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "settings"
        settings.write(file, change)
        settings.sign(file, arguments.secret_key, "-t", SET.name)
        signature = file.with_name(f"{file.name}.minisig").read_text()
    return change.number, RemoteCommand(SET.number, make_command_arguments(change, signature))


class _DeltaPosting(NamedTuple):
    posting: Posting
    cost: DeltaCost | None


def _read_delta(arguments: argparse.Namespace) -> bytes:
    """Return the payload for the kit: the delta with its signature. Raises Refused if the file is
    not a valid delta of the builder.
    """
    file = Path(arguments.words[1])
    signature = file.with_name(f"{file.name}.minisig")
    try:
        delta = file.read_bytes()
        parse_delta(delta)
        signed = make_signed_delta(delta, signature.read_text())
        release = check_release_as(DELTA, signed.signature.comment, time.time())
    except OSError as error:
        raise Refused(f"{error.filename} cannot be read: {describe_reason(error)}") from None
    except (ValueError, NoDelta, NotSigned) as wrong:
        raise Refused(f"{file}: {wrong}; `build/delta` makes and signs one") from None
    print(f"{file.name} makes {release.version}", file=sys.stderr)
    return signed.encode_payload()


def _price_delta(
    db: Db, arguments: argparse.Namespace, kit: _CommandTarget, payload: bytes
) -> _DeltaPosting:
    """Return how the delta will be posted, and its price. Raises Refused if the delta can only wait
    for the link.
    """
    if arguments.by == "satellite":
        raise Refused("a delta goes over the link if there is one: omit --by, or use --by ip")
    now = time.time()
    posting = delta_sending.make_posting(db, kit.device, payload, paid=not arguments.by, now=now)
    estimate = delta_sending.compute_cost(db, posting, now)
    if estimate is None and not arguments.by:
        raise Refused(
            f"the hub knows no satellite modem of this kit for a delta of {len(payload):,} bytes:"
            " use --by ip to wait for the link"
        )
    return _DeltaPosting(posting, estimate)


def _make_sample(command: RemoteCommand) -> RemoteCommand:
    """Return the command with an invalid proof of the correct length, to compute its size."""
    return prove_command(0, command, b"")


def _format_price(estimate: CommandCost, hub: HubSettings, delta: DeltaCost | None) -> str:
    """Return, for people, the price of the command, its answer and the delta over satellite."""
    down = estimate.bytes_down + (0 if delta is None else delta.bytes)
    size = f"{down} bytes there, at most {estimate.bytes_up} back"
    if delta is not None:
        size = f"{format_count(delta.parts + 1, 'message')} of {size}"
    if not estimate.credits:
        return f"over satellite {size}"
    all_of_it = estimate.credits + (0 if delta is None else delta.credits)
    price = find_price(hub, estimate.operator)
    money = "" if price is None else f" ({price.format_amount(all_of_it)})"
    left_text = (
        "" if estimate.credits_left is None else f"; {estimate.credits_left} left here today"
    )
    return f"over satellite {format_count(all_of_it, 'credit')}{money}: {size}{left_text}"


def _confirm_price(arguments: argparse.Namespace, estimate: CommandCost, price: str) -> None:
    """Ask the user to confirm the price. Raises Refused if the user does not."""
    if not is_paid(estimate, arguments.by or "") or arguments.yes:
        return
    if not sys.stdin.isatty():
        raise Refused(f"{price}: use --yes to accept the cost, or --by ip to wait for the link")
    print(f"{price}. Send it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("nothing was sent")


def _wait(
    arguments: argparse.Namespace, store: Store, kit: _CommandTarget, number: int, price: str
) -> int:
    until = time.monotonic() + arguments.wait
    while True:
        row = store.run_once(lambda db: _make_row(db, kit, number))
        if row["answer"] is not None or time.monotonic() >= until:
            break
        time.sleep(ANSWER_CHECK_S)
    if arguments.json:
        return _print_answer(arguments, [{**row, "cost": price}], row)
    for line in _format_lines(row):
        print(line)
    if row["answer"] is None:
        print(
            f"{price}; `fieldagent hub command {arguments.device}` shows the answer once it is here"
        )
    return _print_answer(arguments, [], row)


def _make_row(db: Db, kit: _CommandTarget, number: int) -> dict[str, Any]:
    command_rows = commands.list_commands(db, kit.device, time.time(), limit=100)
    return next(each for each in command_rows if each["number"] == number)


def _print_answer(
    arguments: argparse.Namespace, rows: list[dict[str, Any]], row: dict[str, Any]
) -> int:
    if rows:
        show_list(arguments, rows)
    return OK if row["outcome"] in (None, "done") else ERROR


def _format_lines(row: dict[str, Any]) -> list[str]:
    state = row["outcome"] or row["state"]
    heading = f"{row['number']}  {row['command']}  {format_local_time(row['given'])}  {state}"
    reason_text = f": {row['reason']}" if row["reason"] else ""
    person_text = f" by {row['answeredBy']}" if row["answeredBy"] else ""
    answer = escape_lines(row["answer"] or "").splitlines()
    return [f"{heading}{person_text}{reason_text}", *(f"    {line}" for line in answer)]


def _list(arguments: argparse.Namespace, store: Store, kit: _CommandTarget) -> int:
    rows = store.run_once(
        lambda db: commands.list_commands(
            db, kit.device, time.time(), limit=max(1, arguments.limit)
        )
    )
    if arguments.json:
        return show_list(arguments, rows)
    print("\n".join(line for row in rows for line in _format_lines(row)) or "none")
    return OK
