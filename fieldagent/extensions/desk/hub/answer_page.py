"""Web page behind the link in a notification. The page shows the incident, and asks for
confirmation before it acknowledges.

Mail scanners and previews open links, so GET and HEAD change nothing. POST acknowledges once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from typing import Any
from urllib.parse import parse_qs

from fieldagent.extensions.desk.hub import alarm_link, notice
from fieldagent.extensions.desk.hub.alarm_link import AlarmLink
from fieldagent.extensions.desk.hub.language import find_canned, translate
from fieldagent.http.headers import choose_language
from fieldagent.http.message import FORM, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.api import sos_desk
from fieldagent.hub.records import sos
from fieldagent.hub.records.due_receipts import UPDATE_TEXT_MAX, shorten_update_text
from fieldagent.hub.records.sos import Actor, Sos, SosState
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.writing import format_clock_time
from fieldagent.page.files import CONTENT_SECURITY_POLICY
from fieldagent.page.language import LANGUAGES
from fieldagent.store.group import NOT_STORED
from fieldagent.system.wording import make_visible

BODY = 4_096
"""Largest number of bytes of the form."""
_HEADERS = (
    (
        "Content-Security-Policy",
        CONTENT_SECURITY_POLICY.replace("form-action 'none'", "form-action 'self'"),
    ),
    ("Cache-Control", "no-store"),
    ("Vary", "Accept-Language"),
    ("X-Content-Type-Options", "nosniff"),
    # The URL of the page is a secret of its recipient.
    ("Referrer-Policy", "no-referrer"),
    ("X-Robots-Tag", "noindex"),
)
_PAGE = """<!doctype html>
<html lang="{language}" dir="auto">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>{title}</title>
  <link rel="icon" href="/console/file/icon.svg">
  <link rel="stylesheet" href="/console/file/console.css">
  <script type="module" src="/console/file/local.js"></script>
</head>
<body>
  <main>
    <section>
      <h1>{title}</h1>
      {content}
    </section>
  </main>
</body>
</html>
"""
_FORM = """<form method="post">
        <label>{words}
          <input name="text" maxlength="{most}" autocomplete="off"></label>
        <button>{button}</button>
      </form>"""


class AnswerPage:
    """Web page behind the link in a notification. `clock` returns Unix time."""

    def __init__(self, store: Store, *, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    def make_routes(self) -> list[Route]:
        """Return the routes that show the question (GET) and acknowledge the incident (POST)."""
        post = partial(Route, "POST", alarm_link.PATH, self.answer, body=BODY, media_types=(FORM,))
        return [Route("GET", alarm_link.PATH, self.show_question), post()]

    async def show_question(self, request: Request, token: str) -> Response:
        """Show the incident behind a link, and ask for confirmation. If the link is forged or no
        longer valid, show the reason instead.
        """
        language = _choose_language(request)

        def read(db: Db) -> Response:
            link = alarm_link.find_link(db, token)
            if link is None:
                return _make_forged_page(language)
            incident = _find_incident(db, link)
            return self._find_end_page(db, link, incident, language) or _make_question_page(
                db, link, incident, language
            )

        return await self._store.read(read)

    async def answer(self, request: Request, token: str) -> Response:
        """Acknowledge the incident in the name of the link's contact, if the link is still valid.
        Respond with status 503 if the acknowledgement cannot be stored.
        """
        language = _choose_language(request)
        text = find_canned(language, _read_text(request))

        def carry_out(db: Db) -> Response:
            link = alarm_link.find_link(db, token, locked=True)
            if link is None:
                return _make_forged_page(language)
            incident = _find_incident(db, link, locked=True)
            end_page = self._find_end_page(db, link, incident, language)
            if end_page is not None:
                return end_page
            now = self._clock()
            try:
                sos_desk.acknowledge_as(db, incident, Actor(None, link.name), text, now)
            except Refused:
                return _make_answered_before_page(db, incident, language)
            alarm_link.mark_link_used(db, link, now)
            return _make_answered_page(db, link, incident, language)

        try:
            return await self._store.commit(carry_out)
        except NOT_STORED:
            reason = (
                "The hub could not store your answer, so no one knows that you take over. Try"
                " again."
            )
            return _make_shown_page(
                503, language, translate(language, "Not answered"), translate(language, reason)
            )

    def _find_end_page(
        self, db: Db, link: AlarmLink, incident: Sos, language: str
    ) -> Response | None:
        """Return a page with the reason why the link is no longer valid, or None if the link is
        still valid.
        """
        state_text = _describe_state(db, incident, language)
        if link.used is not None:
            text = "It was used at {time}. Each link works once."
            used_text = translate(language, text, time=format_clock_time(link.used))
            return _make_shown_page(
                410, language, translate(language, "Link already used"), used_text, state_text
            )
        if incident.state != SosState.OPEN:
            return _make_answered_before_page(db, incident, language)
        if link.expires <= self._clock():
            text = translate(
                language, "A link works for three days, or until the SOS is raised again."
            )
            return _make_shown_page(
                410, language, translate(language, "Link expired"), text, state_text
            )
        return None


def _choose_language(request: Request) -> str:
    return choose_language(request.headers.get("accept-language", ""), LANGUAGES)


def _find_incident(db: Db, link: AlarmLink, *, locked: bool = False) -> Sos:
    ((workspace,),) = db.execute("SELECT workspace FROM sos WHERE id = ?", link.sos)
    incident = sos.find_incident(db, workspace, link.sos, locked=locked)
    assert incident is not None, "its links go with it"
    return incident


def _make_question_page(db: Db, link: AlarmLink, incident: Sos, language: str) -> Response:
    facts = sos_desk.describe_for_pager(db, incident.id, "")
    newest_text, time = (
        notice.find_newest_text(db, incident, language),
        format_clock_time(incident.raised),
    )
    raised_text = translate(language, "Raised {time}. No one has answered yet.", time=time)
    lines = [translate(language, "Text: {text}", text=newest_text)] if newest_text else []
    ask = "{name}, press the button only if you take over."
    lines.append(translate(language, ask, name=make_visible(link.name)))
    if sos_desk.can_kit_receive(db, incident):
        consequence = translate(
            language, "Its kit receives your name, and no other contact is alerted."
        )
    else:
        consequence = translate(
            language, "Nothing is sent to its kit, and no other contact is alerted."
        )
    lines[-1] += f" {consequence}"
    title = notice.name_incident(incident, notice.describe_device(facts, language), language)
    *before, last = (f"<p>{escape(line)}</p>" for line in lines)
    form = _FORM.format(
        words=escape(translate(language, "Message to the kit (optional)")),
        button=escape(translate(language, "Take over")),
        most=UPDATE_TEXT_MAX,
    )
    position_html = f"<p>{_format_place(facts.get('position'), language)}</p>"
    parts = [f"<p>{_add_time_element(raised_text, time)}</p>", *before, position_html, last, form]
    return _make_page(200, language, title, "\n      ".join(parts))


def _add_time_element(text: str, time: str) -> str:
    """Return `text` as HTML with a `time` element. The browser shows the time in its own time
    zone.
    """
    return escape(text).replace(time, f'<time datetime="{time}">{time}</time>')


def _format_place(position: Mapping[str, Any] | None, language: str) -> str:
    """Return HTML with the last position of the kit and links to a map."""
    if position is None:
        return escape(translate(language, "Position unknown."))
    place_text = f"{position['latitude']:.5f} {position['longitude']:.5f}"
    time = format_clock_time(position["at"])
    position_text = translate(language, "Position: {where}, {time}", where=place_text, time=time)
    by_web = (
        f'<a href="{escape(position["map"])}" rel="noreferrer">{translate(language, "map")}</a>'
    )
    by_app = f'<a href="{escape(position["geo"])}">{translate(language, "in your map app")}</a>'
    return f"{_add_time_element(position_text, time)} ({by_web}, {by_app})"


def _make_answered_page(db: Db, link: AlarmLink, incident: Sos, language: str) -> Response:
    facts = sos_desk.describe_for_pager(db, incident.id, "")
    kit, name = make_visible(facts["device"]), make_visible(link.name)
    text = "The hub notifies {kit} that {name} takes over as soon as the kit can be reached."
    lines = [translate(language, text, kit=kit, name=name)]
    if not sos_desk.can_kit_receive(db, incident):
        lines = [
            translate(language, "Nothing is sent to its kit, and no other contact is alerted.")
        ]
    desk = "Dispatchers see your answer at the desk, and close the SOS there when it is over."
    lines.append(translate(language, desk))
    title = translate(
        language, "You have taken over {what}", what=notice.make_title(incident, language)
    )
    return _make_shown_page(200, language, title, *lines)


def _make_answered_before_page(db: Db, incident: Sos, language: str) -> Response:
    title = translate(language, "Already answered")
    return _make_shown_page(409, language, title, _describe_state(db, incident, language))


def _describe_state(db: Db, incident: Sos, language: str) -> str:
    if incident.state == SosState.OPEN:
        text = "{what} is open. Answer it in the console, or call your desk."
        return translate(language, text, what=notice.make_title(incident, language))
    return f"{notice.explain_end(db, incident, language)}."


def _make_forged_page(language: str) -> Response:
    reason = "The hub did not send this link. Check that you copied all of it, or call your desk."
    title = translate(language, "Unknown link")
    return _make_shown_page(404, language, title, translate(language, reason))


def _make_shown_page(status: int, language: str, title: str, *lines: str) -> Response:
    content = "\n      ".join(f"<p>{escape(line)}</p>" for line in lines)
    return _make_page(status, language, title, content)


def _make_page(status: int, language: str, title: str, content: str) -> Response:
    text = _PAGE.format(language=language, title=escape(title), content=content)
    return Response(status, text.encode(), "text/html; charset=utf-8", _HEADERS)


def _read_text(request: Request) -> str:
    """Return the text field of the form as one visible line. Raises Problem 400 if the body is not
    a form.
    """
    try:
        fields: Mapping[str, list[str]] = parse_qs(request.body.decode())
    except ValueError:
        raise Problem(400, "the body is no form") from None
    return shorten_update_text(make_visible(" ".join(fields.get("text", []))))
