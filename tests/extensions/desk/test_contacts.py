"""Contacts for an SOS outside the console: by mail and apprise, with their answers."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import time
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import trustme

from fieldagent.extensions.desk.hub import contacts, notification
from fieldagent.extensions.desk.hub.answer_page import AnswerPage
from fieldagent.http.message import Request
from fieldagent.http.routes import make_router
from fieldagent.hub.access import directory
from fieldagent.hub.api import sos_desk
from fieldagent.hub.records import sending, sos
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import open_store
from fieldagent.package.package import Message
from fieldagent.system.exit_codes import REFUSED
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult
from fieldagent.wire.envelope import Entry
from tests.hub.field import START, field_of
from tests.hub.raising import ADDRESS, BEHIND, changed, kit_of, raise_sos, settle_in, timeline
from tests.hub.relay import mail_relay
from tests.hub.test_check_in import mark_long_silent
from tests.hub.test_journey import receiver
from tests.hub.test_sos_desk import HELP
from tests.processes import (
    MODULE,
    PATIENCE,
    Hub,
    administer,
    administer_from_shell,
    agent,
    hub,
    until,
)

BERGWACHT = contacts.NewContact("Bergwacht", "bw@example.org")
LINK = re.compile(rf"{ADDRESS}(/answer/\S+)")
HANDED = HandoverResult(HandoverOutcome.HANDED)


class Page(NamedTuple):
    status: int
    title: str
    text: str
    headers: dict[str, str]


def send_form_request(running: Hub, method: str, path: str, **form: str) -> Page:
    """Send a request like a browser without scripts."""
    line = HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
    body = urlencode(form) if method == "POST" else None
    headers = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
    line.request(method, path, body, headers)
    answer = line.getresponse()
    text = answer.read().decode()
    line.close()
    title = re.search("<title>(.*)</title>", text)
    return Page(answer.status, title[1] if title else "", text, dict(answer.getheaders()))


def read_state(database: str) -> str:
    return str(administer(database, "sos", "show", "1")["state"])


def test_contact_answers_by_link_and_the_kit_gets_the_name(tmp_path: Path, database: str) -> None:
    """The console is not open: contacts with a delay get the message immediately."""
    token = settle_in(database)
    with mail_relay() as relay, receiver() as pager, receiver() as service:
        administer(database, "contact", "add", "Bergwacht", "bw@example.org", "--after", "10m")
        apprise = service.url.replace("http:", "json:")
        # In a separate process, because apprise loads modules about which Python warns.
        administer_from_shell(database, "contact", "add", "Duty", apprise, "--after", "30m")
        administer(database, "webhook", "add", pager.url, "--after", "20", "--untried")
        settings = {"database": database, "webhook-allow": "127.0.0.0/8", **BEHIND}
        with (
            hub(tmp_path, {**settings, **relay.settings}) as running,
            agent(tmp_path, kit_of(running, token)) as kit,
        ):
            raise_sos(kit, database)
            mail = relay.mail()
            text = mail.get_content()
            name = f"SOS {kit.call('GET', '/api/sos').body['incident']['short']}"
            for said in (
                f"{name} of kit-ada: leg broken",
                "46.50000 7.25000",
                "https://www.openstreetmap.org/?mlat=46.50000&mlon=7.25000",
                "geo:46.50000,7.25000",
                f"{ADDRESS}/console/sos/1",
            ):
                assert said in text
            assert mail["Subject"] == f"{name} of kit-ada"
            assert (mail["To"], mail["Auto-Submitted"]) == ("bw@example.org", "auto-generated")
            until(lambda: pager.got and service.got)
            incident = pager.got[0]["payloads"][0]["events"][0]["incident"]
            assert (incident["id"], incident["device"]) == (1, "kit-ada")
            assert f"SOS {incident['short']}" == name
            assert incident["position"]["geo"] == "geo:46.50000,7.25000"
            links = [
                LINK.search(text),
                LINK.search(incident["acknowledge"]),
                LINK.search(service.got[0]["message"]),
            ]
            own, webhooks_, services_ = (each[1] for each in links if each)
            assert len({own, webhooks_, services_}) == 3
            ids = {mail["Message-ID"], pager.headers[0]["webhook-id"]}
            assert len(ids) == 2, "each escalation is a message of its own"
            figures = urlopen(f"{running.address}/metrics", timeout=PATIENCE).read().decode()
            assert "fieldagent_hub_sos_unreached 1\n" in figures

            # Mail scanners follow links, which changes nothing.
            for method in ("GET", "HEAD", "GET"):
                page = send_form_request(running, method, own)
                assert page.status == 200
                assert "form-action 'self'" in page.headers["Content-Security-Policy"]
                assert page.headers["Referrer-Policy"] == "no-referrer"
            assert f"{name} of kit-ada" in page.title and "Bergwacht" in page.text
            assert read_state(database) == "open"

            forged = own[:-1] + ("A" if own[-1] != "A" else "B")
            other = webhooks_.partition(".")[0] + "." + own.partition(".")[2]
            for wrong in (forged, other, "/answer/1", "/answer/x.y"):
                for method in ("GET", "POST"):
                    page = send_form_request(running, method, wrong, text="mine")
                    assert (page.status, page.title) == (404, "Unknown link")
            assert read_state(database) == "open"

            page = send_form_request(running, "POST", own, text="<b>heli</b> is up")
            assert (page.status, page.title) == (200, f"You have taken over {name}")
            until(lambda: kit.call("GET", "/api/sos").body["incident"]["state"] == "seen")
            last = kit.call("GET", "/api/sos").body["incident"]["steps"][-1]
            assert (last["by"], last["text"]) == ("Bergwacht", "<b>heli</b> is up")
            for method in ("GET", "POST"):
                page = send_form_request(running, method, own)
                assert (page.status, page.title) == (410, "Link already used")
                page = send_form_request(running, method, services_)
                assert (page.status, page.title) == (409, "Already answered")
                assert f"Bergwacht already has {name}" in page.text
            steps = timeline(database)
            assert ("seen", "Bergwacht", "<b>heli</b> is up") in steps
            handed = {detail for event, _, detail in steps if event == "escalated"}
            assert handed == {
                "Bergwacht (by e-mail): handed over to the mail relay",
                "Duty (by apprise): handed over to the service",
                "webhook 1",
            }
            assert ("nobody reached", "", "2 contacts of later steps are notified now") in steps
            log = "\n".join(running.output())
            assert "path=/answer/…" in log
            assert not any(link in log for link in (own, webhooks_, services_))
            shown = administer(database, "sos", "show", "1")["seen"]["by"]
            assert shown == {"id": None, "name": "Bergwacht"}


@pytest.mark.full
def test_refused_notification_is_retried_and_shown_at_the_incident(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    with mail_relay() as relay:
        relay.answers = ["451 not now"]
        administer(database, "contact", "add", "Bergwacht", "bw@example.org")
        settings = {"database": database, **BEHIND, **relay.settings}
        with (
            hub(tmp_path, settings) as running,
            agent(tmp_path, kit_of(running, token)) as kit,
        ):
            raise_sos(kit, database)
            relay.mail()
            until(lambda: "notified" in {event for event, _, _ in timeline(database)})
            events = [(event, detail) for event, _, detail in timeline(database)]
            # A periodic check may find meanwhile that no person is reached.
            events = [each for each in events if each[0] not in ("item", "nobody reached")]
            assert events[0] == ("raised", "")
            assert events[1][0] == "not notified"
            assert "the mail relay 127.0.0.1 answered 451 not now; tried again" in events[1][1]
            assert events[2:] == [
                ("notified", "Bergwacht (by e-mail): handed over to the mail relay")
            ]
            (listed,) = administer(database, "contact", "list")
            assert listed["failingSince"] is None


@pytest.mark.full
def test_answer_cancels_notifications_of_other_contacts(tmp_path: Path) -> None:
    """One contact gets the message at once and is reached, so the others keep their delay."""
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    with mail_relay() as relay:
        administer(database, "contact", "add", "First", "one@example.org")
        administer(database, "contact", "add", "Second", "two@example.org", "--after", "10m")
        settings = {"database": database, **BEHIND, **relay.settings}
        with (
            hub(tmp_path, settings) as running,
            agent(tmp_path, kit_of(running, token)) as kit,
        ):
            raise_sos(kit, database)
            link = LINK.search(relay.mail().get_content())
            assert link and send_form_request(running, "POST", link[1]).status == 200
        assert list_message_states(database) == [("handed over",), ("not needed",)]
        assert [mail["To"] for mail in relay.taken] == ["one@example.org"]
        assert "nobody reached" not in {event for event, _, _ in timeline(database)}


def list_message_states(database: str) -> Any:
    return changed(database, "SELECT state FROM alarm_message ORDER BY id")


@pytest.mark.full
def test_expired_answer_link_returns_410(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    with mail_relay() as relay:
        administer(database, "contact", "add", "Bergwacht", "bw@example.org")
        settings = {"database": database, **BEHIND, **relay.settings}
        with (
            hub(tmp_path, settings) as running,
            agent(tmp_path, kit_of(running, token)) as kit,
        ):
            raise_sos(kit, database)
            match = LINK.search(relay.mail().get_content())
            assert match
            changed(database, "UPDATE alarm_link SET expires = 5")
            for method in ("GET", "POST"):
                page = send_form_request(running, method, match[1])
                assert (page.status, page.title) == (410, "Link expired")
            assert read_state(database) == "open"


async def test_answer_link_from_before_a_repeated_sos_is_invalid(store: Store) -> None:
    async with field_of(store) as alps:
        await store.commit(lambda db: contacts.add_contact(db, 1, BERGWACHT, now=START))
        judge = make_router(AnswerPage(store, clock=alps.clock).make_routes())

        async def path() -> str:
            (message,) = await store.commit(
                lambda db: notification.claim_notifications(db, alps.now + 9, 9, ADDRESS)
            )
            await store.commit(lambda db: notification.record_result(db, message, HANDED, alps.now))
            return message.notice.link.removeprefix(ADDRESS)

        async def post(to: str) -> int:
            request = Request("POST", to, (), {})
            return (await (await judge(request)).handler(request)).status

        await alps.sends(1, HELP)
        first = await path()
        incident = await store.read(lambda db: sos.find_incident(db, 1, 1))
        assert incident is not None
        await store.commit(
            lambda db: sos_desk.close_incident(db, incident, 2, "a drill", START + 60)
        )
        alps.now += 600
        await alps.sends(1, Entry(8, Message("no drill"), int(START) + 600, sos=True, items_back=1))
        assert await post(first) == 410
        assert (
            await store.read(lambda db: sos.find_incident(db, 1, 1)) or incident
        ).state == "open"
        assert await post(await path()) == 200


async def test_failed_notification_of_an_answered_sos_is_not_retried(store: Store) -> None:
    async with field_of(store) as alps:
        await store.commit(lambda db: contacts.add_contact(db, 1, BERGWACHT, now=START))
        await alps.sends(1, HELP)
        (message,) = await store.commit(
            lambda db: notification.claim_notifications(db, alps.now + 9, 9, ADDRESS)
        )
        incident = await store.read(lambda db: sos.find_incident(db, 1, 1))
        assert incident is not None
        await store.commit(lambda db: sos_desk.acknowledge(db, incident, 2, "", alps.now))
        failed = HandoverResult(HandoverOutcome.FAILED, "no network")
        text = await store.commit(
            lambda db: notification.record_result(db, message, failed, alps.now)
        )
        assert text.endswith("no network; not tried again")
        events = await alps.rows("SELECT detail FROM sos_event WHERE event = 'not notified'")
        assert [detail for (detail,) in events] == [
            "Bergwacht (by e-mail): no network; not tried again"
        ]


async def test_answer_page_of_a_disabled_kit_does_not_promise_delivery(store: Store) -> None:
    async with field_of(store) as alps:
        await store.commit(lambda db: contacts.add_contact(db, 1, BERGWACHT, now=START))
        judge = make_router(AnswerPage(store, clock=alps.clock).make_routes())
        await alps.sends(1, HELP)
        (message,) = await store.commit(
            lambda db: notification.claim_notifications(db, alps.now + 9, 9, ADDRESS)
        )
        disabled = partial(directory.set_disabled, table="device", id_=1)
        await store.commit(lambda db: disabled(db, when=alps.now, now=alps.now))
        for method in ("GET", "POST"):
            request = Request(method, message.notice.link.removeprefix(ADDRESS), (), {})
            page = await (await judge(request)).handler(request)
            assert page.status == 200 and b"Nothing is sent to its kit" in page.body
            assert b"is told" not in page.body


def test_mail_relay_gets_the_password_only_over_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    (tmp_path / "password").write_text("of the relay\n")
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    id_ = str(administer(database, "contact", "add", "Bergwacht", "bw@example.org")["id"])
    with mail_relay(tls) as relay:
        more = {
            "database": database,
            "smtp-tls": "starttls",
            "smtp-user": "hub",
            "smtp-password-file": str(tmp_path / "password"),
        }
        lines = {**relay.settings, **more}
        config = tmp_path / "hub.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        result = run_contact_test(config, id_)
        assert result[0] != 0 and "certificate" in result[1].lower(), "a stranger's certificate"
        assert not relay.logins
        result = run_contact_test(config, id_, SSL_CERT_FILE=str(tmp_path / "ca.pem"))
        assert result == (0, "Bergwacht: the service accepted the test message\n")
        assert relay.logins == [("hub", "of the relay")]
        assert "This is a test" in relay.mail().get_content()


def test_contact_tests_from_the_shell_have_the_daily_limit(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    id_ = str(administer(database, "contact", "add", "Bergwacht", "bw@example.org")["id"])
    most = sending.ADDRESS_PER_DAY_MAX[sending.TEST]

    def spend(db: Db) -> list[str]:
        refusal = partial(sending.record_message_or_refuse, db, 1, "bw@example.org", sending.TEST)
        return [refusal(now=time.time()) for _ in range(most - 1)]

    store = open_store(database)
    assert store.run_once(spend) == [""] * (most - 1)
    with mail_relay() as relay:
        lines = {**relay.settings, "database": database}
        config = tmp_path / "hub.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        assert run_contact_test(config, id_)[0] == 0
        code, said = run_contact_test(config, id_)
        assert (code, f"limit of {most} messages a day to one address" in said) == (
            REFUSED,
            True,
        ), said


def run_contact_test(config: Path, id_: str, **environment: str) -> tuple[int, str]:
    """Return exit code and output of `fieldagent hub contact test`."""
    done = subprocess.run(
        [*MODULE, "hub", "contact", "test", id_, "--config", str(config)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("nobody", "neither an e-mail address nor a URL"),
        ("a b@example.org", "neither an e-mail address nor a URL"),
        ("bw@example.org\nBcc: x@example.org", "neither an e-mail address nor a URL"),
        ("nosuch://x", "apprise does not know this form"),
    ],
)
def test_invalid_contact_address_is_rejected(tmp_path: Path, address: str, why: str) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    with pytest.raises(AssertionError, match=why):
        administer_from_shell(database, "contact", "add", "Bergwacht", address)


@pytest.mark.full
def test_overdue_alarm_is_sent_only_to_contacts_of_alarms(tmp_path: Path, database: str) -> None:
    settle_in(database)
    administer(database, "device", "checkin", "kit-ada", "--every", "12h")
    with closing(open_store(database)) as store:
        store.run_once(mark_long_silent)
    for about, mail in (("alarms", "base@example.org"), ("sos", "rescue@example.org")):
        administer(database, "contact", "add", about, mail, "--about", about)
    with mail_relay() as relay, hub(tmp_path, {"database": database, **relay.settings}):
        notice = relay.mail()
        assert (notice["To"], notice["Subject"]) == ("base@example.org", "Overdue 1 of kit-ada")
        assert "Nothing heard from kit-ada ever" in notice.get_content()
        until(lambda: "handed over" in str(administer(database, "alarm", "show", "1")["timeline"]))
        assert [each["To"] for each in relay.taken] == ["base@example.org"]
