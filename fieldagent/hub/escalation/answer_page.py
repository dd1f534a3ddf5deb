"""The page behind the link in what a contact is told: it shows the incident, and asks before it
answers.

Mail scanners and previews follow links: GET and HEAD change nothing, and POST answers once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from urllib.parse import parse_qs

from fieldagent.http.message import FORM, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.api import sos_desk
from fieldagent.hub.escalation import alarm_link, notice
from fieldagent.hub.escalation.alarm_link import AlarmLink
from fieldagent.hub.records import sos
from fieldagent.hub.records.owed import WORD_MAX
from fieldagent.hub.records.sos import Sos, SosState, Who
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.writing import clock_time
from fieldagent.page.files import POLICY
from fieldagent.store.group import NOT_STORED

BODY = 4_096
"""Bytes of the form."""
_HEADERS = (
    ("Content-Security-Policy", POLICY.replace("form-action 'none'", "form-action 'self'")),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    # The address is a secret of whom it was sent to.
    ("Referrer-Policy", "no-referrer"),
    ("X-Robots-Tag", "noindex"),
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>{title}</title>
  <link rel="icon" href="/console/file/icon.svg">
  <link rel="stylesheet" href="/console/file/console.css">
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
        <label>Words for the kit, if you like
          <input name="text" maxlength="{most}" autocomplete="off"></label>
        <button>I have it</button>
      </form>"""


class AnswerPage:
    """`clock` is Unix time."""

    def __init__(self, store: Store, *, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    def routes(self) -> list[Route]:
        post = partial(Route, "POST", alarm_link.PATH, self.answer, body=BODY, takes=(FORM,))
        return [Route("GET", alarm_link.PATH, self.look), post()]

    async def look(self, request: Request, token: str) -> Response:
        def read(db: Db) -> Response:
            link = alarm_link.find(db, token)
            if link is None:
                return _forged()
            found = _incident(db, link)
            return self._over(db, link, found) or _asking(db, link, found)

        return await self._store.read(read)

    async def answer(self, request: Request, token: str) -> Response:
        text = _text(request)

        def carry_out(db: Db) -> Response:
            link = alarm_link.find(db, token, locked=True)
            if link is None:
                return _forged()
            found = _incident(db, link, locked=True)
            over = self._over(db, link, found)
            if over is not None:
                return over
            now = self._clock()
            try:
                sos_desk.acknowledge_as(db, found, Who(None, link.name), text, now)
            except Refused as refused:
                return _shown(409, "Answered already", str(refused))
            alarm_link.note_used(db, link, now)
            return _answered(db, link, found)

        try:
            return await self._store.commit(carry_out)
        except NOT_STORED:
            why = "The hub cannot write it down now. Nobody knows that you have it: try again."
            return _shown(503, "Not answered", why)

    def _over(self, db: Db, link: AlarmLink, found: Sos) -> Response | None:
        """Return why the link answers nothing any more, or None where it does."""
        if link.used is not None:
            told = f"It was used at {clock_time(link.used)}, and works once."
            return _shown(410, "This link was used", told, *_standing(db, found))
        if found.state != SosState.OPEN:
            return _shown(409, "Answered already", *_standing(db, found))
        if link.expires <= self._clock():
            told = "A link works for three days, and until the SOS is raised again."
            return _shown(410, "This link has expired", told, *_standing(db, found))
        return None


def _incident(db: Db, link: AlarmLink, *, locked: bool = False) -> Sos:
    ((workspace,),) = db.execute("SELECT workspace FROM sos WHERE id = ?", link.sos)
    found = sos.named(db, workspace, link.sos, locked=locked)
    assert found is not None, "its links go with it"
    return found


def _asking(db: Db, link: AlarmLink, found: Sos) -> Response:
    told = sos_desk.for_a_pager(db, found.id, "")
    said = notice.said_in(db, found)
    lines = [f"Raised {clock_time(found.raised)}. Nobody has answered yet."]
    lines += [f"It says: {said}"] if said else []
    place, where = "<p>No position is known.</p>", told.get("position")
    if where is not None:
        words = f"{where['latitude']:.5f} {where['longitude']:.5f}, {clock_time(where['at'])}"
        link_to_map = f'<a href="{escape(where["map"])}" rel="noreferrer">map</a>'
        link_to_app = f'<a href="{escape(where["geo"])}">in your map program</a>'
        place = f"<p>Position: {escape(words)} ({link_to_map}, {link_to_app})</p>"
    ask = f"Press the button if you, {notice.visible(link.name)}, have it from here."
    tells = "Nothing goes to its kit" if "revokedSince" in told else "Its kit is told your name"
    lines.append(f"{ask} {tells}, and nobody else is called.")
    title = f"{notice.title(found)} of {notice.device_in_words(told)}"
    *before, last = (f"<p>{escape(line)}</p>" for line in lines)
    form = _FORM.format(most=WORD_MAX)
    return _page(200, title, "\n      ".join([*before, place, last, form]))


def _answered(db: Db, link: AlarmLink, found: Sos) -> Response:
    told = sos_desk.for_a_pager(db, found.id, "")
    kit = notice.visible(told["device"])
    lines = [f"{kit} is told that {notice.visible(link.name)} has it, as soon as it is reached."]
    lines.append("Dispatchers see it at the desk, where it is closed when it is over.")
    return _shown(200, f"You have {notice.title(found)}", *lines)


def _standing(db: Db, found: Sos) -> list[str]:
    if found.state == SosState.OPEN:
        return [f"{notice.title(found)} is open: answer it at the console, or call your desk."]
    return [notice.visible(sos_desk.why_over(db, found)) + "."]


def _forged() -> Response:
    why = "The hub has sent no such link. See that all of it was copied, or call your desk."
    return _shown(404, "This link is unknown here", why)


def _shown(status: int, title: str, *lines: str) -> Response:
    return _page(status, title, "\n      ".join(f"<p>{escape(line)}</p>" for line in lines))


def _page(status: int, title: str, content: str) -> Response:
    text = _PAGE.format(title=escape(title), content=content)
    return Response(status, text.encode(), "text/html; charset=utf-8", _HEADERS)


def _text(request: Request) -> str:
    """Return the one field of the form. Raises Problem."""
    try:
        fields: Mapping[str, list[str]] = parse_qs(request.body.decode())
    except ValueError:
        raise Problem(400, "the body is no form") from None
    return notice.visible(" ".join(fields.get("text", [])))[:WORD_MAX]
