"""API with which an administrator sends commands to a kit and reads the kit's answers."""

from __future__ import annotations

from typing import Any

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.query import make_page, refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access.bodies import (
    make_choice_reader,
    make_conflict,
    make_integer_reader,
    make_line_reader,
    make_not_found,
    read_body,
)
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.access.repeats import find_answer, read_repeatable, store_result
from fieldagent.hub.administration.acts import AdministrationContext, read_place
from fieldagent.hub.administration.devices import find_device
from fieldagent.hub.field import radio_key
from fieldagent.hub.field.command_sending import (
    SET,
    CommandCost,
    compute_cost,
    is_paid,
    store_command,
)
from fieldagent.hub.field.delta_sending import UPDATE
from fieldagent.hub.records import commands
from fieldagent.hub.records.commands import BEARERS, CommandToSend
from fieldagent.hub.store.contract import Db
from fieldagent.package.reading import Field
from fieldagent.system.wording import sentence
from fieldagent.wire.command import NotACommand, RemoteCommand, parse_command
from fieldagent.wire.proof import prove_command

COMMAND_MAX = 200
CREDITS_MAX = 1_000
COMMAND_FIELDS = {"command": Field(make_line_reader(COMMAND_MAX), "text", required=True)}
ORDER = {
    **COMMAND_FIELDS,
    "by": Field(make_choice_reader(BEARERS), "by"),
    "credits": Field(make_integer_reader(0, CREDITS_MAX), "credits"),
}


class CommandsApi:
    """Routes for commands. The hub pays for a satellite message if the link has not delivered a
    command after `grace` seconds.
    """

    def __init__(self, acts: AdministrationContext, grace: float) -> None:
        self._acts = acts
        self._grace = grace

    def make_routes(self) -> list[Route]:
        """Return the routes for commands to a kit. Only administrators can use them."""
        route = self._acts.route
        return [
            route("GET", "/api/devices/{id}/commands", self.list_commands),
            route("POST", "/api/devices/{id}/commands", self.order),
            route("POST", "/api/devices/{id}/commands/cost", self.answer_cost),
        ]

    async def list_commands(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Return a page of the commands to a kit with their answers, newest first. Raises Problem
        404 if the device is in another workspace.
        """
        refuse_others(request, ("before", "limit"))
        before, limit = read_place(request)

        def find(db: Db) -> list[dict[str, Any]]:
            device = find_device(db, caller, id)
            now = self._acts.clock()
            return commands.list_commands(db, device, now, limit=limit + 1, before=before)

        rows = await self._acts.store.read(find)
        next_number = rows[limit - 1]["number"] if len(rows) > limit else None
        return make_page(request, {"commands": rows[:limit]}, "before", next_number)

    async def answer_cost(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Return the cost of a command and its answer over satellite, without sending the
        command.
        """
        refuse_others(request, ())
        command = _read_command(read_body(request, COMMAND_FIELDS)["text"])
        now = self._acts.clock()

        def find(db: Db) -> CommandCost:
            device = find_device(db, caller, id)
            at = commands.compute_next_number(db, device, now)
            return compute_cost(db, device, at, prove_command(at, command, b""), now)

        quote = await self._acts.store.read(find)
        return make_json_response(
            {
                "linked": quote.linked,
                "reached": quote.is_reachable,
                "fits": quote.fits,
                "down": quote.bytes_down,
                "up": quote.bytes_up,
                "credits": quote.credits,
                "creditsLeft": quote.credits_left,
            }
        )

    async def order(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Send a command if the caller accepts its cost. A request with an Idempotency-Key is done
        only once.
        """
        refuse_others(request, ())
        body = read_body(request, ORDER)
        command = _read_command(body["text"])
        bearer, agreed = body.get("by", ""), body.get("credits", 0)
        repeat = read_repeatable(request, caller)

        def store_order(db: Db, now: float) -> dict[str, Any]:
            earlier_answer = find_answer(db, repeat)
            device = find_device(db, caller, id)
            at = commands.compute_next_number(db, device, now)
            quote = compute_cost(db, device, at, prove_command(at, command, b""), now)
            if earlier_answer is not None:
                return {
                    **_get_command_or_404(db, device, int(earlier_answer), now),
                    "credits": quote.credits,
                }
            if is_paid(quote, bearer) and quote.credits > agreed:
                raise Refused(
                    sentence(
                        "command and answer cost {credits} credits over satellite: accept with"
                        ' "credits": {credits}, or wait for the link with "by": "ip"',
                        credits=quote.credits,
                    )
                )
            grace = self._grace if quote.linked else 0.0
            order = CommandToSend(caller.workspace, device, at, command, bearer, str(caller.member))
            at = store_command(db, order, grace, now)
            store_result(db, repeat, str(at), now)
            return {**_get_command_or_404(db, device, at, now), "credits": quote.credits}

        return make_json_response(await self._acts.carry_out(caller, store_order), 202)


def _get_command_or_404(db: Db, device: int, command: int, now: float) -> dict[str, Any]:
    """Return a sent command in the form that people see. Raises Problem 404 if the command was
    deleted.
    """
    for row in commands.list_commands(db, device, now, limit=1, before=command + 1):
        if row["number"] == command:
            return row
    raise make_not_found("command", str(command))


def _read_command(text: str) -> RemoteCommand:
    """Parse the text of a command. Raises Problem if the text is not a command."""
    try:
        command = parse_command(text.split())
    except NotACommand as error:
        raise make_conflict(str(error), "command") from None
    if command.verb == SET.number:
        raise make_conflict(
            "the key that signs set is not on the hub: use `fieldagent hub command`", "command"
        )
    if command.verb == UPDATE.number:
        raise make_conflict(
            "the file for update is not on the hub: use `fieldagent hub command`", "command"
        )
    if command.verb == radio_key.VERB:
        raise make_conflict("a radio-key applies to all kits: use /api/radio-key", "command")
    return command
