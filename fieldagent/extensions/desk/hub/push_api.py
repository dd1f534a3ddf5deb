"""Routes of the console for web push, with which the hub notifies a dispatcher's browser even if
the page is closed.
"""

from __future__ import annotations

from fieldagent.extensions.desk.hub import contacts
from fieldagent.extensions.desk.hub.browser import NO_PUSH, NO_SUBJECT, find_subject
from fieldagent.http.guard import get_required_body
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.hub.access.caller import Caller, Purpose
from fieldagent.hub.part import PartHost
from fieldagent.hub.store.contract import Db
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.page.language import ENGLISH, LANGUAGES
from fieldagent.system.wording import sentence

BODY = 4_096
TEXT_MAX = 1_000
PATH = "/console/push"
_MEMBERS = ("endpoint", "p256dh", "auth")


class PushRoutes:
    """Routes for push subscriptions."""

    def __init__(self, host: PartHost) -> None:
        self._store = host.store
        self._authentication = host.authentication
        self._clock = host.clock
        self._reach = host.reach

    def make_routes(self) -> list[Route]:
        """Return the routes of push subscriptions, for users who may answer an SOS."""
        may_answer = self._authentication.judge(Purpose.ACKNOWLEDGE)
        return [
            Route("GET", PATH, self.answer_key, judge=may_answer),
            Route("POST", PATH, self.subscribe, judge=may_answer, body=BODY),
            Route("DELETE", PATH, self.unsubscribe, judge=may_answer, body=BODY),
        ]

    async def answer_key(self, request: Request, caller: Caller) -> Response:
        """Return the hub's public key. A subscription with this key accepts messages only from this
        hub. Raises Problem 409 if the subject is empty, and 404 if the library is missing.
        """
        self._check_subject()
        _require_library()
        from fieldagent.extensions.desk.hub import web_push

        key = await self._store.commit(web_push.read_hub_key)
        return make_json_response({"key": web_push.get_public_text(key)})

    async def subscribe(self, request: Request, caller: Caller) -> Response:
        """Store a browser's push subscription as a contact of its dispatcher, and respond with
        status 201 and the contact's id. Raises Problem 409, 422.
        """
        self._check_subject()
        members = _read_members(request, _MEMBERS, ("language",))
        language = members.pop("language", ENGLISH)
        if language not in LANGUAGES:
            raise Problem(
                422, sentence("language must be one of {languages}", languages=", ".join(LANGUAGES))
            )
        _require_library()
        from fieldagent.extensions.desk.hub.web_push import Subscription

        subscription = Subscription(**members)
        if fault := subscription.find_fault():
            raise Problem(422, sentence("this is not a push subscription: {fault}", fault=fault))

        def store_subscription(db: Db) -> int:
            return contacts.add_browser(
                db,
                caller.workspace,
                caller.member,
                f"{caller.name}'s browser",
                subscription.encode(),
                now=self._clock(),
                language=language,
            )

        return make_json_response({"id": await self._store.commit(store_subscription)}, 201)

    def _check_subject(self) -> None:
        """Raise Problem 409 if the subject is empty, because push services would then refuse all
        messages of this hub.
        """
        if not find_subject(self._reach.host.desk, self._reach.own.get("mail-from")):
            raise Problem(409, NO_SUBJECT)

    async def unsubscribe(self, request: Request, caller: Caller) -> Response:
        """Remove the subscription of this browser."""
        endpoint = _read_members(request, _MEMBERS[:1])["endpoint"]
        await self._store.commit(
            lambda db: contacts.remove_browser(db, caller.workspace, caller.member, endpoint)
        )
        return Response(204)


def _require_library() -> None:
    """Raise Problem if the extra with the library is not installed."""
    try:
        from fieldagent.extensions.desk.hub import web_push  # noqa: F401
    except ImportError:
        raise Problem(404, NO_PUSH) from None


def _read_members(
    request: Request, names: tuple[str, ...], more: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return the members `names` of the body. The members in `more` are optional. Raises Problem
    400 if the body is not JSON, and Problem 422 if a member is missing, unknown or not a text.
    """
    try:
        body = load_document(get_required_body(request))
    except NotJson as error:
        raise Problem(400, str(error)) from None
    if not isinstance(body, dict) or body.keys() - set(more) != set(names):
        raise Problem(
            422, sentence("the body must be an object with {names}", names=", ".join(names))
        )
    if not all(isinstance(each, str) and 0 < len(each) <= TEXT_MAX for each in body.values()):
        raise Problem(
            422,
            sentence(
                "{names} are text of at most {most} characters",
                names=", ".join(names),
                most=TEXT_MAX,
            ),
        )
    return body
