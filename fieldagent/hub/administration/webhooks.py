"""API that adds and tests webhooks. It also handles the requests that webhooks did not accept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fieldagent.http.client import Opener
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.query import make_page, refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access.bodies import (
    make_integer_reader,
    make_line_reader,
    make_not_found,
    read_body,
    read_flag,
    read_id,
)
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.access.repeats import find_answer, read_repeatable, store_result
from fieldagent.hub.administration.acts import AdministrationContext, read_place
from fieldagent.hub.records import sending
from fieldagent.hub.store.contract import Db
from fieldagent.hub.webhook import webhook_directory
from fieldagent.hub.webhook.webhook_directory import AFTER_MAX, BATCH_MAX, Webhook
from fieldagent.hub.webhook.webhooks import test_call
from fieldagent.package.reading import Field, WrongValue
from fieldagent.system.properties import WrongProperty
from fieldagent.system.wording import sentence
from fieldagent.webhook.delivery import HandoverOutcome

URL_MAX, VALUE_MAX = 2_000, 1_000


def _read_headers(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict) or len(value) > 20:
        raise WrongValue("must be an object of at most 20 names with their values")
    read_line = make_line_reader(VALUE_MAX, least=0)
    return {make_line_reader(VALUE_MAX)(name): read_line(each) for name, each in value.items()}


NEW_WEBHOOK_FIELDS = {
    "url": Field(make_line_reader(URL_MAX), "url", required=True),
    "secret": Field(make_line_reader(VALUE_MAX), "secret"),
    "unsigned": Field(read_flag, "unsigned"),
    "username": Field(make_line_reader(VALUE_MAX), "username"),
    "password": Field(make_line_reader(VALUE_MAX), "password"),
    "headers": Field(_read_headers, "headers"),
    "after": Field(make_integer_reader(1, AFTER_MAX), "after"),
    "batch": Field(make_integer_reader(1, BATCH_MAX), "batch"),
    "steps": Field(read_flag, "steps"),
    "untried": Field(read_flag, "untried"),
}
SECRET = {"secret": NEW_WEBHOOK_FIELDS["secret"], "only": Field(read_flag, "only")}
REPLAY = {"requestId": Field(make_line_reader(), "request_id")}


class WebhooksApi:
    """Routes for webhooks. `open_stream` connects only to addresses that a webhook may have."""

    def __init__(self, acts: AdministrationContext, open_stream: Opener) -> None:
        self._acts = acts
        self._open_stream = open_stream

    def make_routes(self) -> list[Route]:
        """Return the routes for webhooks and their failures. Only administrators can use them."""
        route = self._acts.route
        return [
            route("GET", "/api/webhooks", self.list),
            route("POST", "/api/webhooks", self.add),
            route("DELETE", "/api/webhooks/{id}", self.remove),
            route("POST", "/api/webhooks/{id}/enable", self.enable),
            route("POST", "/api/webhooks/{id}/secret", self.renew_secret),
            route("POST", "/api/webhooks/{id}/test", self.test),
            route("GET", "/api/webhook-failures", self.answer_failures),
            route("POST", "/api/webhook-failures/replay", self.replay),
        ]

    async def list(self, request: Request, caller: Caller) -> Response:
        """Return the workspace's webhooks, without their secrets."""
        refuse_others(request, ())
        rows = await self._acts.store.read(
            lambda db: webhook_directory.list_webhooks(db, caller.workspace)
        )
        return make_json_response({"webhooks": rows})

    async def add(self, request: Request, caller: Caller) -> Response:
        """Add a webhook. Unless the body sets `untried`, test the webhook first, and add it only if
        it accepts the test message.
        """
        refuse_others(request, ())
        body = read_body(request, NEW_WEBHOOK_FIELDS)
        untried = body.pop("untried", False)
        try:
            webhook = webhook_directory.make_webhook(**body)
        except WrongProperty as error:
            raise _make_fault(error) from None
        # Check permission and rate before the hub calls the URL.
        limit = await self._acts.carry_out(
            caller,
            lambda db, now: (
                ""
                if untried
                else sending.record_webhook_test(db, caller.workspace, webhook.url, now)
            ),
        )
        if not untried:
            await self._try(webhook, limit)

        def store_webhook(db: Db, now: float) -> dict[str, Any]:
            id_ = webhook_directory.add_webhook(
                db, caller.workspace, webhook, now=now, actor=str(caller.member)
            )
            return {"id": id_, "secret": " ".join(webhook.secrets)}

        return make_json_response(await self._acts.carry_out(caller, store_webhook), 201)

    async def remove(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Remove a webhook and its waiting requests, and respond with status 204. Raises Problem
        404 if the workspace does not have the webhook.
        """
        refuse_others(request, ())

        def delete_webhook(db: Db, now: float) -> None:
            webhook_id = _find_webhook(db, caller, id).id
            webhook_directory.remove_webhook(
                db, caller.workspace, webhook_id, now=now, actor=str(caller.member)
            )

        await self._acts.carry_out(caller, delete_webhook)
        return Response(204)

    async def enable(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Enable a webhook again, retry its failed requests immediately, and respond with status
        204. Raises Problem 404 if the workspace does not have the webhook.
        """
        refuse_others(request, ())

        def enable_webhook(db: Db, now: float) -> None:
            webhook_id = _find_webhook(db, caller, id).id
            webhook_directory.enable_webhook(
                db, caller.workspace, webhook_id, now=now, actor=str(caller.member)
            )

        await self._acts.carry_out(caller, enable_webhook)
        return Response(204)

    async def renew_secret(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Create another secret, sign with it from now on, and return it. A request with an
        Idempotency-Key is done only once. A repeat must not create a second secret, because the
        receiver may still use the previous secret. Raises Problem 404, 422.
        """
        refuse_others(request, ())
        body = read_body(request, SECRET) if request.body else {}
        repeatable = read_repeatable(request, caller)
        try:
            signing = webhook_directory.read_or_make_secrets(body.get("secret") or "")
        except WrongProperty as error:
            raise _make_fault(error) from None

        def store_secret(db: Db, now: float) -> tuple[str, ...]:
            is_repeated = find_answer(db, repeatable) is not None
            webhook = _find_webhook(db, caller, id)
            if is_repeated:
                return webhook.secrets[: len(signing)]
            webhook_directory.sign_with(
                *(db, caller.workspace, webhook.id, signing),
                only=bool(body.get("only")),
                now=now,
                actor=str(caller.member),
            )
            store_result(db, repeatable, "", now)
            return signing

        newest = await self._acts.carry_out(caller, store_secret)
        return make_json_response({"id": int(id), "secret": " ".join(newest)})

    async def test(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Send a test message to a webhook. Raises Problem if the webhook does not accept the
        message.
        """
        refuse_others(request, ())

        def prepare_test(db: Db, now: float) -> tuple[Webhook, str]:
            webhook = _find_webhook(db, caller, id)
            return webhook, sending.record_webhook_test(db, caller.workspace, webhook.url, now)

        await self._try(*await self._acts.carry_out(caller, prepare_test))
        return Response(204)

    async def _try(self, webhook: Webhook, limit: str) -> None:
        """Send a test message to the webhook. Raises Problem if the webhook does not accept the
        message. `limit` is the reason why no test may be sent now, or empty. If it is not empty,
        raise Problem with this reason.
        """
        if limit:
            raise Problem(429, limit, headers=(("Retry-After", "3600"),))
        result = await test_call(webhook, clock=self._acts.clock, open_stream=self._open_stream)
        if result.outcome is not HandoverOutcome.HANDED:
            detail = sentence("did not accept the test message: {reason}", reason=result.reason)
            raise Problem(
                422, sentence("the webhook {told}", told=detail), errors=[(detail, "/url")]
            )

    async def answer_failures(self, request: Request, caller: Caller) -> Response:
        """Return a page of the requests that the hub does not retry automatically, newest first."""
        refuse_others(request, ("before", "limit"))
        before, limit = read_place(request)
        rows, next_id = await self._acts.store.read(
            lambda db: webhook_directory.list_dead_letters(db, caller.workspace, before, limit)
        )
        return make_page(request, {"failures": rows}, "before", next_id)

    async def replay(self, request: Request, caller: Caller) -> Response:
        """Send dead letters again: the dead letters of the item in the body, or all dead
        letters.
        """
        refuse_others(request, ())
        body = read_body(request, REPLAY) if request.body else {}
        request_id = body.get("request_id")

        def replay_posts(db: Db, now: float) -> int:
            return webhook_directory.replay_dead_letters(
                db, caller.workspace, request_id, now=now, actor=str(caller.member)
            )

        return make_json_response({"replayed": await self._acts.carry_out(caller, replay_posts)})


def _make_fault(error: WrongProperty) -> Problem:
    # The text of the error begins with a verb, so put the name of the member before it.
    text = str(error)
    member = "secret" if "whsec_" in text else "steps" if "steps" in text else "url"
    detail = sentence("{member} {text}", member=member, text=text)
    return Problem(422, detail, errors=[(text, f"/{member}")])


def _find_webhook(db: Db, caller: Caller, text: str) -> Webhook:
    """Return the webhook. Raises Problem if the webhook is not in the caller's workspace."""
    try:
        return webhook_directory.find_webhook(db, caller.workspace, read_id(text))
    except Refused:
        raise make_not_found("webhook", text) from None
