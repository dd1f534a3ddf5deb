"""Web push: the hub's posts, checked by a push service of the tests and third-party libraries, and
their effect in Chromium's service worker.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import trustme

from tests import browser
from tests.hub.push_service import Browser, PushService, push_service, vapid_claims
from tests.hub.raising import changed, kit_of, timeline
from tests.hub.test_console import call, console, settle_in, sign_in, sign_in_as_olga
from tests.processes import Hub, administer, agent, hub, until

pytest.importorskip("cryptography", reason="needs extra `push`")

from cryptography.hazmat.primitives.asymmetric import ec

from fieldagent.extensions.desk.hub import mail, web_push
from fieldagent.extensions.desk.hub.browser import find_subject
from fieldagent.extensions.desk.hub.web_push import Subscription, encrypt
from fieldagent.hub.contact.contract import Notice
from fieldagent.hub.store.opening import open_store
from fieldagent.webhook.delivery import HandoverOutcome


def test_web_push_encryption_matches_the_rfc_8291_example() -> None:
    """RFC 8291, 5 and appendix A."""
    once = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
    number = int.from_bytes(base64.urlsafe_b64decode(once + "="))
    subscription = Subscription(
        "https://push.example.net/push/JzLQ3raZJfFBR0aqvOMsLrt54w4rJUsV",
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "BTBZMqHH6r4Tts7J_aSIgg",
    )
    sealed = encrypt(
        b"When I grow up, I want to be a watermelon",
        subscription,
        salt=base64.urlsafe_b64decode("DGv6ra1nlYgDCS1FRnbzlw=="),
        once=ec.derive_private_key(number, ec.SECP256R1()),
    )
    assert base64.urlsafe_b64encode(sealed).rstrip(b"=").decode() == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27ml"
        "mlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPT"
        "pK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


@contextmanager
def hub_with_push_service(
    home: Path, database: str, **settings: str
) -> Iterator[tuple[Hub, PushService]]:
    """Yield a hub, and a push service with a certificate that the hub trusts."""
    authority = trustme.CA()
    (home / "ca.pem").write_bytes(authority.cert_pem.bytes())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    mail = {"smtp-host": "127.0.0.1", "mail-from": "sos@example.org"}
    more = {"database": database, "webhook-allow": "127.0.0.0/8", **mail, **settings}
    with (
        push_service(tls) as service,
        hub(home, more, SSL_CERT_FILE=str(home / "ca.pem")) as running,
    ):
        yield running, service


def sign_in_olga(running: Hub) -> dict[str, str]:
    _, headers, _ = sign_in(running, "olga@example.org")
    return {"Cookie": headers["Set-Cookie"].partition(";")[0], "Origin": running.address}


@pytest.mark.full
def test_browsers_of_a_dispatcher_ring_until_unsubscribed(tmp_path: Path, database: str) -> None:
    token = settle_in(database)
    with hub_with_push_service(tmp_path, database) as (running, service):
        mine = sign_in_olga(running)
        key = json.loads(call(running, "GET", "/console/push", **mine)[2])["key"]
        phone, laptop = service.browser("phone"), service.browser("laptop")
        for each in (phone, laptop, phone):
            assert call(running, "POST", "/console/push", each.subscription, **mine)[0] == 201
        assert len(administer(database, "contact", "list")) == 2
        with agent(tmp_path, kit_of(running, token)) as kit:
            service.answers = [503]
            kit.call("POST", "/api/sos", {"text": "leg broken"})
            service.pushed(3)
            messages = {
                pushed.path: (phone if "phone" in pushed.path else laptop).read(pushed)
                for pushed in service.got
            }
            short = kit.call("GET", "/api/sos").body["incident"]["short"]
            expected = {
                "title": f"SOS {short} of kit-ada",
                "body": "leg broken",
                "sos": 1,
                "device": "kit-ada",
            }
            assert list(messages.values()) == [expected, expected]
            for pushed in service.got:
                claims, by = vapid_claims(pushed)
                assert by == key
                assert claims["aud"] == service.address
                assert time.time() < claims["exp"] <= time.time() + 86_400
                assert claims["sub"].startswith("mailto:")
                assert (pushed.headers["Urgency"], pushed.headers["TTL"]) == ("high", "3600")
            # The closed page is reached, so other contacts keep their delay.
            until(lambda: sum(event == "notified" for event, _, _ in timeline(database)) == 2)
            events = {event for event, _, _ in timeline(database)}
            assert "nobody reached" not in events and "not notified" in events
            administer(database, "sos", "close", "1", "a drill", "--by", "Olga")
            until(lambda: kit.call("GET", "/api/sos").body["incident"]["state"] == "closed")
            # One browser has unsubscribed at its service, and the hub forgets it.
            service.answers = [410, 404]
            kit.call("POST", "/api/sos", {"text": "again"})
            until(lambda: administer(database, "contact", "list") == [])
            gone = [detail for event, _, detail in timeline(database, 2) if event == "not notified"]
            assert gone == 2 * [
                "Olga's browser (by web push): the browser no longer accepts push messages"
            ]


@pytest.mark.full
def test_damaged_subscription_does_not_block_other_browsers(tmp_path: Path, database: str) -> None:
    token = settle_in(database)
    with hub_with_push_service(tmp_path, database) as (running, service):
        mine = sign_in_olga(running)
        phone, laptop = service.browser("phone"), service.browser("laptop")
        for each in (phone, laptop):
            assert call(running, "POST", "/console/push", each.subscription, **mine)[0] == 201
        first = administer(database, "contact", "list")[0]["id"]
        with closing(open_store(database)) as store:
            sql = "UPDATE alarm_contact SET address = '{' WHERE id = ?"
            store.run_once(lambda db: db.execute(sql, first))
        shown = administer(database, "contact", "list")
        assert shown[0]["address"] == "damaged in the hub's database"
        with agent(tmp_path, kit_of(running, token)) as kit:
            kit.call("POST", "/api/sos", {"text": "leg broken"})
            service.pushed(1)
            assert laptop.read(service.got[0])["body"] == "leg broken"
            until(lambda: [each for each in timeline(database) if each[0] == "not notified"])
        known = {"endpoint": laptop.subscription["endpoint"]}
        assert call(running, "DELETE", "/console/push", known, **mine)[0] == 204


@pytest.mark.parametrize(
    ("desk", "mail_from", "subject"),
    [
        ("https://hub.example.org", None, "https://hub.example.org"),
        ("https://hub.example.org", "sos@example.org", "https://hub.example.org"),
        ("", "sos@example.org", "mailto:sos@example.org"),
        ("http://hub.example.org", "sos@example.org", "mailto:sos@example.org"),
        ("https://localhost:9443", "sos@example.org", "mailto:sos@example.org"),
        ("https://127.0.0.1:9443", None, ""),
        ("", None, ""),
    ],
)
def test_vapid_subject_identifies_the_hub_operator(
    desk: str, mail_from: str | None, subject: str
) -> None:
    assert find_subject(desk, mail_from) == subject


def test_subscription_is_rejected_without_a_vapid_subject(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    with hub(tmp_path, {"database": database}) as running:
        mine, one = sign_in_olga(running), Browser("https://push.example.org/1").subscription
        for method, body in (("GET", None), ("POST", one)):
            status, _, text = call(running, method, "/console/push", body, **mine)
            assert status == 409 and b"set console-address or mail-from" in text
        assert administer(database, "contact", "list") == []


async def test_rejection_reason_of_a_push_service_is_reported() -> None:
    reason = b'{"reason":\x00"BadJwtToken"}' + b" " * 9_000

    async def refuse(*_: Any) -> Any:
        head = b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n" % len(reason)
        stream, far = trio.testing.memory_stream_pair()
        await far.send_all(head + reason)
        return stream

    notice = Notice("id", "SOS 1", "words")
    subscription = {**Browser("http://push.example.org/1").subscription}
    result = await web_push.send(
        json.dumps(subscription),
        notice,
        key=ec.generate_private_key(ec.SECP256R1()),
        subject="mailto:sos@example.org",
        clock=lambda: 0.0,
        open_stream=refuse,
    )
    assert result.outcome is HandoverOutcome.FAILED
    assert result.reason.startswith("the receiver answered 403 Forbidden: {")
    assert "BadJwtToken" in result.reason and result.reason.isprintable()


@pytest.mark.parametrize(
    ("alarm", "payload", "header"),
    [
        ("", {"sos": 7}, ("fieldagent-sos", "1")),
        ("fence", {"alarm": "fence", "id": 7}, ("fieldagent-alarm", "fence")),
    ],
)
def test_alarm_is_marked_apart_from_sos_in_push_and_mail(
    alarm: str, payload: dict[str, Any], header: tuple[str, str]
) -> None:
    notice = Notice("id", "subject", "words", 7, "kit", "words", alarm=alarm)
    told = json.loads(web_push._encode_payload(notice))
    assert told == {"title": "subject", "body": "words", "device": "kit", **payload}
    own = {"mail-from": "sos@example.org", "imap-host": None}
    sent = mail._make_mail(own, "duty@example.org", notice)
    assert [each for each in sent.items() if each[0].startswith("fieldagent-")] == [header]


def test_only_permitted_users_subscribe_a_valid_browser(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    with hub_with_push_service(tmp_path, database) as (running, service):
        mine, one = sign_in_olga(running), service.browser("phone").subscription
        plain = {**one, "endpoint": one["endpoint"].replace("https:", "http:")}
        for wrong in (
            plain,
            {**one, "p256dh": one["auth"]},
            {**one, "auth": "AAAA"},
            *({**one, "endpoint": each} for each in ("https://[", "https://", "https://x:y/")),
            {"endpoint": one["endpoint"]},
            {**one, "more": "x"},
        ):
            assert call(running, "POST", "/console/push", wrong, **mine)[0] == 422, wrong
        elsewhere = {**mine, "Origin": "https://evil.example"}
        assert call(running, "POST", "/console/push", one, **elsewhere)[0] == 403
        _, headers, _ = sign_in(running, "mia@example.org")
        mia = {"Cookie": headers["Set-Cookie"].partition(";")[0], "Origin": running.address}
        assert call(running, "POST", "/console/push", one, **mia)[0] == 403, "no dispatcher"
        assert call(running, "POST", "/console/push", one, **mine)[0] == 201
        end = {"endpoint": one["endpoint"]}
        assert call(running, "DELETE", "/console/push", end, **mine)[0] == 204
        assert administer(database, "contact", "list") == []


@pytest.mark.full
def test_escalation_rings_again_only_for_current_dispatchers(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    administer(database, "user", "role", "Mia", "dispatcher")
    with hub_with_push_service(tmp_path, database) as (running, service):
        phone, other = service.browser("olga"), service.browser("mia")
        assert (
            call(running, "POST", "/console/push", phone.subscription, **sign_in_olga(running))[0]
            == 201
        )
        _, headers, _ = sign_in(running, "mia@example.org")
        mia = {"Cookie": headers["Set-Cookie"].partition(";")[0], "Origin": running.address}
        assert call(running, "POST", "/console/push", other.subscription, **mia)[0] == 201
        administer(database, "user", "role", "Mia", "member")
        administer(database, "webhook", "add", service.address, "--after", "1", "--untried")
        with agent(tmp_path, kit_of(running, token)) as kit:
            kit.call("POST", "/api/sos", {"text": "leg broken"})
            service.pushed(1)
            # The minute is over.
            changed(database, "UPDATE webhook_delivery SET not_before = 0")
            administer(database, "sos", "note", "1", "waited", "--by", "Olga")
            service.pushed(3)
        paths = sorted(pushed.path for pushed in service.got)
        assert paths == ["/", "/push/olga", "/push/olga"]


@pytest.mark.full
def test_handover_request_rings_only_for_the_requested_dispatcher(
    tmp_path: Path, database: str
) -> None:
    token = settle_in(database)
    administer(database, "user", "role", "Mia", "dispatcher")
    with hub_with_push_service(tmp_path, database) as (running, service):
        phone = {"olga": service.browser("olga"), "mia": service.browser("mia")}
        for name, browser_ in phone.items():
            _, headers, _ = sign_in(running, f"{name}@example.org")
            mine = {"Cookie": headers["Set-Cookie"].partition(";")[0], "Origin": running.address}
            subscription = browser_.subscription
            assert call(running, "POST", "/console/push", subscription, **mine)[0] == 201
        # Her console's language has changed meanwhile.
        for language, status in (("xx", 422), ("de", 201)):
            subscription = {**browser_.subscription, "language": language}
            assert call(running, "POST", "/console/push", subscription, **mine)[0] == status
        with agent(tmp_path, kit_of(running, token)) as kit:
            kit.call("POST", "/api/sos", {"text": "leg broken"})
            service.pushed(2)
            administer(database, "sos", "acknowledge", "1", "--by", "Olga")
            administer(
                database, "sos", "hand-over", "1", "Mia", "--note", "heli at 14:00", "--by", "Olga"
            )
            asked = service.pushed(3)
            short = kit.call("GET", "/api/sos").body["incident"]["short"]
            assert asked.path == "/push/mia"
            assert phone["mia"].read(asked) == {
                "title": f"SOS {short} von kit-ada übernehmen?",
                "body": "Olga: heli at 14:00",
                "sos": 1,
                "device": "kit-ada",
            }
            until(lambda: [event for event, _, _ in timeline(database)][-1] == "notified")
            administer(database, "sos", "take-over", "1", "--by", "Mia")
        assert len(service.got) == 3


SUBSCRIBED = """
const given = %s;
let made = null;
const one = { endpoint: given.endpoint, toJSON: () => ({ endpoint: given.endpoint,
  keys: { p256dh: given.p256dh, auth: given.auth } }),
  unsubscribe: async () => { made = null; return true; } };
PushManager.prototype.getSubscription = async () => made;
PushManager.prototype.subscribe = async options => { window.asked = options; return made = one; };
"""
"""Replaces the browser maker's service, which Chromium cannot reach here."""


@pytest.mark.full
def test_chromium_shows_the_push_and_a_click_opens_the_console(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    with (
        browser.browser() as opened,
        hub_with_push_service(tmp_path, database) as (running, service),
        console(opened, running, "390-light") as shown,
    ):
        phone = service.browser("phone")
        shown.add_init_script(SUBSCRIBED % json.dumps(phone.subscription))
        shown.reload()
        sign_in_as_olga(shown)
        shown.get_by_role("button", name="Ring this phone or computer").click()
        shown.get_by_role("button", name="Stop ringing when the page is closed").wait_for()
        asked = shown.evaluate("[asked.userVisibleOnly, asked.applicationServerKey.length]")
        assert asked == [True, 87]
        worker = shown.context.service_workers[0]
        session, registration = open_worker_session(shown)
        shown.goto("about:blank")
        with agent(tmp_path, kit_of(running, token)) as kit:
            kit.call("POST", "/api/sos", {"text": "<b>leg broken</b>"})
            payload = json.dumps(phone.read(service.pushed(1)))
            message = {"origin": running.address, "registrationId": registration, "data": payload}
            shows = "self.registration.getNotifications().then(all => all.map(each =>"
            notifications = f"{shows} [each.title, each.body, each.tag, each.data]))"

            def rings() -> Any:
                # Chromium's tools may lose a push. A second push with the same tag replaces it.
                session.send("ServiceWorker.deliverPushMessage", message)
                return worker.evaluate(notifications)

            until(rings)
            short = kit.call("GET", "/api/sos").body["incident"]["short"]
            assert worker.evaluate(notifications) == [
                [f"SOS {short} of kit-ada", "<b>leg broken</b>", "sos-1", "/console/sos/1"]
            ]
            # A click without an open page.
            worker.evaluate(
                """async () => {
                  self.opened = [];
                  self.clients.openWindow = async path => { self.opened.push(path); };
                  const [notification] = await self.registration.getNotifications();
                  self.dispatchEvent(new NotificationEvent("notificationclick", { notification }));
                }"""
            )
            until(lambda: worker.evaluate("self.opened") == ["/console/sos/1"])
            shown.goto(f"{running.address}/console/sos/1")
            shown.locator("#sos li.open .words", has_text="<b>leg broken</b>").wait_for()
        shown.get_by_role("button", name="Sign out").click()
        shown.get_by_role("button", name="Sign in").wait_for()


def open_worker_session(shown: Any) -> tuple[Any, str]:
    """Return a developer tools session, and the number of the console's service worker in it."""
    session = shown.context.new_cdp_session(shown)
    registrations: list[str] = []
    session.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda event: registrations.extend(
            each["registrationId"] for each in event["registrations"]
        ),
    )
    session.send("ServiceWorker.enable")
    active = "navigator.serviceWorker.getRegistration('/console/').then(one => !!one?.active)"
    until(lambda: shown.evaluate(active) and registrations)
    return session, registrations[-1]
