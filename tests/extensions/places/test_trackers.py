"""Third-party trackers, from their report to the desk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from fieldagent.extensions.places.hub import osmand, traccar
from fieldagent.http.message import Request as HttpRequest
from fieldagent.hub.contract import ItemResult
from fieldagent.hub.store.contract import Store
from tests.cli.test_arguments import fieldagent
from tests.hub.field import field_of
from tests.hub.raising import kit_of, settle_in
from tests.hub.test_journey import receiver
from tests.hub.test_trackers import DOG, says, tracked, words_for_ada
from tests.processes import Hub, administer, agent, hub, until


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (osmand, b"id=867567&lat=45.9&lon=7.6&alarm=s%00s"),
        (osmand, b"id=867567&lat=45.9&lon=7.6&alarm=" + b"x" * 9_000),
        (osmand, b"id=867567%00&lat=45.9&lon=7.6"),
        (traccar, b'{"device": {"uniqueId": "867567\\u0000"}, "position": {}}'),
    ],
)
async def test_odd_tracker_texts_are_accepted_or_refused_and_printable(
    store: Store, kind: Any, body: bytes
) -> None:
    async with field_of(store) as alps:
        await tracked(alps)
        word = kind.parse_report(HttpRequest("POST", "/", (), {"content-length": "1"}, body))
        became = ItemResult.TAKEN if word.ident == DOG else ItemResult.REFUSED
        assert await says(alps, word) is became
        assert all(text.isprintable() for text in await words_for_ada(alps))


def send(address: str, body: Any = None, query: str = "") -> tuple[int, bytes]:
    data = None if body is None else json.dumps(body).encode()
    head = {} if body is None else {"Content-Type": "application/json"}
    try:
        with urlopen(Request(address + query, data, head), timeout=60) as answer:
            return answer.status, answer.read()
    except HTTPError as refused:
        return refused.code, refused.read()


def addresses(running: Hub, database: str) -> dict[str, str]:
    """Return the addresses by kind, and the number of all of them as `id`."""
    added = administer(database, "tracker", "source", "add", "the dogs")
    return {
        name: str(value).replace("https://YOUR-HUB", running.address)
        for name, value in added.items()
    }


def test_tracker_alarm_reaches_desk_kit_and_webhook(tmp_path: Path, database: str) -> None:
    """Ben carries a phone with Traccar Client, Mia one with OwnTracks, and neither has a kit."""
    token = settle_in(database)
    for name, ident in (("Ben", "123456"), ("Mia", "mia/phone")):
        administer(database, "user", "add", name)
        administer(database, "tracker", "add", f"{name}'s phone", "--id", ident, "--user", name)
    settings = {"database": database, "webhook-allow": "127.0.0.0/8"}
    with hub(tmp_path, settings) as running, receiver() as desk:
        administer(database, "webhook", "add", desk.url, "--unsigned", "--untried")
        source = addresses(running, database)
        with agent(tmp_path, kit_of(running, token)) as kit:

            def came() -> str:
                return json.dumps(kit.call("GET", "/api/inbound").body)

            place = "?id=123456&lat=45.91&lon=7.61&timestamp=1790000000"
            assert send(source["osmand"], query=place) == (200, b"")
            phone = {"_type": "location", "topic": "owntracks/mia/phone", "lat": 46.0, "lon": 7.5}
            assert send(source["owntracks"], phone) == (200, b"[]")
            until(lambda: came().count('"latitude"') == 2)
            assert send(source["osmand"], query=f"{place}&alarm=sos")[0] == 200
            until(
                lambda: "No answer can be sent" in json.dumps(kit.call("GET", "/api/inbound").body)
            )
        (raised,) = administer(database, "sos", "list")
        assert (raised["device"]["name"], raised["state"]) == ("Ben's phone", "open")
        until(lambda: len(desk.got) >= 3)
        shown = administer(database, "tracker", "list")
        assert [(row["name"], row["tracker"], row["alarm"]) for row in shown] == [
            ("Ben's phone", "123456", "sos"),
            ("Mia's phone", "mia/phone", ""),
        ]
        # Third-party data, and an unknown tracker.
        status, answer = send(source["osmand"], query="?id=7&lat=45.91&lon=7.61")
        assert status == 404 and b"the tracker '7' is not added" in answer
        running.expect("`fieldagent hub tracker add NAME --id '7' --user USER`")
        assert send(source["osmand"], query="?id=7&alarm=sos")[0] == 404
        running.expect("delivered an alarm of the tracker '7'")
        assert send(source["osmand"], query="?lat=45.91&lon=7.61&alarm=sos")[0] == 400
        running.expect("sends a report that is refused: id must be 1 to 100 characters")
        wrong = f"{running.address}/source/osmand/source_wrong"
        assert send(wrong, query=place)[0] == 404
        assert send(f"{running.address}/source/rocket/x", {})[0] == 404
        administer(database, "tracker", "source", "revoke", source["id"])
        assert send(source["osmand"], query=place)[0] == 404
    secret = source["osmand"].rpartition("/")[2]
    assert secret.startswith("source_") and secret not in "\n".join(running.output())


def test_misplaced_command_is_answered_with_the_right_one() -> None:
    done = fieldagent("hub", "source", "add", "dogs")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'tracker source'?" in done.stderr
