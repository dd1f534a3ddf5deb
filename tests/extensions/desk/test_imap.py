"""Answers by mail, read from a third-party IMAP server (PyPI `pymap`), and the parts of a mail that
count.
"""

from __future__ import annotations

import imaplib
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import trustme

from fieldagent.extensions.desk.hub import imap, mail_reading
from fieldagent.hub.contact.contract import AnswerServices, ContactAnswer, ContactHost
from fieldagent.store.group import StoreUnavailable
from tests.hub.raising import BEHIND, changed, kit_of, raise_sos, settle_in
from tests.hub.relay import mail_relay
from tests.processes import PATIENCE, administer, agent, free_port, hub, until

ID = "0b0e3c1e-7d3c-4c39-9d5e-2f6f0a7c1d11"
OWN = {"mail-from": "sos@example.org"}


class Mailbox:
    """Mailbox of an account at the server."""

    def __init__(self, port: int) -> None:
        self.port = port

    def open(self) -> imaplib.IMAP4:
        connection = imaplib.IMAP4("127.0.0.1", self.port, timeout=20)
        if "STARTTLS" in connection.capabilities:
            connection.starttls(ssl._create_unverified_context())
        connection.login("demouser", "demopass")
        return connection

    def deliver(self, mail: EmailMessage | bytes) -> None:
        raw = mail if isinstance(mail, bytes) else mail.as_bytes()
        with self.open() as connection:
            state, said = connection.append("INBOX", "", "", raw)
            assert state == "OK", said

    def unseen(self) -> int:
        with self.open() as connection:
            connection.select("INBOX", readonly=True)
            _, numbers = connection.uid("SEARCH", "UNSEEN")
            return len((numbers[0] or b"").split())


@contextmanager
def mail_server(
    home: Path, certificate: Sequence[str] = ("--no-tls",)
) -> Iterator[tuple[Mailbox, dict[str, str]]]:
    pytest.importorskip("pymap", reason="needs extra `test`")
    box = Mailbox(free_port())
    command = [
        str(Path(sys.executable).with_name("pymap")),
        *certificate,
        "--no-service",
        "managesieve",
    ]
    where = ["--host", "127.0.0.1", "--port", str(box.port), "dict", "--demo-data"]
    with (home / "pymap.log").open("wb") as log:
        server = subprocess.Popen([*command, *where], stdout=log, stderr=log)
        try:
            until(lambda: is_answering(box))
            password = home / "imap-password"
            password.write_text("demopass\n")
            yield (
                box,
                {
                    "imap-host": "127.0.0.1",
                    "imap-port": str(box.port),
                    "imap-tls": "none",
                    "imap-user": "demouser",
                    "imap-password-file": str(password),
                    "imap-seconds": "5",
                },
            )
        finally:
            server.terminate()
            server.wait(20)


def is_answering(box: Mailbox) -> bool:
    try:
        box.open().logout()
    except (OSError, imaplib.IMAP4.error):
        return False
    return True


def mail_from(sender: str, text: str, **headers: str) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = sender, "sos@example.org", "Re: SOS"
    for name, value in headers.items():
        if name == "to":
            mail.replace_header("To", value)
        else:
            mail[name.replace("_", "-")] = value
    mail.set_content(text)
    return mail


@pytest.mark.full
def test_contact_answers_an_sos_by_mail(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    token = settle_in(database)
    administer(database, "contact", "add", "Bergwacht", "bw@example.org")
    with mail_relay() as relay, mail_server(tmp_path) as (box, settings):
        before = box.unseen()
        lines = {"database": database, **BEHIND, **relay.settings, **settings}
        with hub(tmp_path, lines) as running, agent(tmp_path, kit_of(running, token)) as kit:
            raise_sos(kit, database)
            mail = relay.mail()
            back = str(mail["Reply-To"])
            assert back.startswith("sos+") and back.endswith("@example.org")
            assert "reply to this mail: start with OK" in mail.get_content()
            quoted = "\n".join(f"> {line}" for line in mail.get_content().splitlines())
            sent = f"On Mon, 1 Jan 2026, sos@example.org\nwrote:\n{quoted}"
            away = mail_from("bw@example.org", "OK", to=back, Auto_Submitted="auto-replied")
            box.deliver(away)
            box.deliver(mail_from("bw@example.org", f"Ok, two of us\n\n{sent}", to=back))
            until(lambda: changed(database, "SELECT 1 FROM sos WHERE state = 'seen'"))
            shown = administer(database, "sos", "show", "1")
            assert shown["seen"]["by"]["name"] == "Bergwacht"
            seen = [each for each in shown["timeline"] if each["event"] == "seen"]
            assert seen[0]["detail"] == "two of us"
            reply = relay.mail(2)
            short = shown["short"]
            assert reply.get_content().startswith(f"You have taken over SOS {short}.")
            answer = mail_from("bw@example.org", "Stay where you are.\n-- \nOlga")
            answer["In-Reply-To"] = str(mail["Message-ID"])
            box.deliver(answer)
            assert relay.mail(3).get_content().startswith("Your message is sent to the kit")
            until(lambda: box.unseen() <= before)
            assert changed(database, "SELECT words FROM item WHERE source_device IS NULL") == [
                ("stay where you are.",)
            ]
    rows = changed(database, "SELECT outcome FROM contact_answer ORDER BY id")
    assert rows == [("acknowledged",), ("to the kit",)]


def test_unreachable_mail_server_does_not_stop_the_hub(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    settle_in(database)
    (tmp_path / "imap-password").write_text("demopass\n")
    settings = {
        "imap-host": "127.0.0.1",
        "imap-port": str(free_port()),
        "imap-tls": "none",
        "imap-user": "demouser",
        "imap-password-file": str(tmp_path / "imap-password"),
        "imap-seconds": "5",
        "mail-from": "sos@example.org",
        "smtp-host": "127.0.0.1",
    }
    with hub(tmp_path, {"database": database, **settings}) as running:
        running.expect("mailbox for answers: 127.0.0.1: connection refused")
        with urlopen(f"{running.address}/healthz", timeout=PATIENCE) as answer:
            assert answer.status == 200


class Disk:
    """Accepts answers like the hub, or fails."""

    def __init__(self) -> None:
        self.full = True
        self.taken: list[ContactAnswer] = []

    async def receive_message(self, answer: ContactAnswer) -> None:
        if self.full:
            raise StoreUnavailable("the disk is full")
        self.taken.append(answer)

    async def report(self, message_id: str, reached: bool, reason: str = "") -> None:
        raise AssertionError("mail has none")


def make_answer_services(settings: dict[str, str], disk: Disk) -> AnswerServices:
    own = {
        **OWN,
        **settings,
        "imap-port": int(settings["imap-port"]),
        "imap-password-file": Path(settings["imap-password-file"]),
        "imap-folder": "INBOX",
    }
    nobody: Any = None
    return AnswerServices(ContactHost(nobody, own, "", nobody, nobody), disk, nobody)


@contextmanager
def tls_proxy(port: int, tls: ssl.SSLContext) -> Iterator[int]:
    """Yield a port that speaks TLS from the first byte and forwards to the server at that port."""

    class Front(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with (
                tls.wrap_socket(self.request, server_side=True) as outside,
                socket.create_connection(("127.0.0.1", port)) as inside,
            ):
                back = threading.Thread(target=hand_on, args=(inside, outside))
                back.start()
                hand_on(outside, inside)
                back.join()

    def hand_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Front) as front:
        serving = threading.Thread(target=front.serve_forever)
        serving.start()
        yield front.server_address[1]
        front.shutdown()
        serving.join()


@pytest.mark.full
@pytest.mark.parametrize("how", ["starttls", "tls"])
async def test_mail_is_read_over_tls_only_from_a_trusted_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    ours, strangers = trustme.CA(), trustme.CA()
    issued = ours.issue_cert("127.0.0.1")
    pem, trusts, others = (tmp_path / name for name in ("server.pem", "ca.pem", "others.pem"))
    issued.private_key_and_cert_chain_pem.write_to_path(pem)
    ours.cert_pem.write_to_path(trusts)
    strangers.cert_pem.write_to_path(others)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issued.configure_cert(tls)
    files = ("--cert", str(pem), "--key", str(pem))
    with (
        mail_server(tmp_path, files) as (box, settings),
        tls_proxy(box.port, tls) as front,
    ):
        port = box.port if how == "starttls" else front
        disk = Disk()
        disk.full = False
        inward = make_answer_services({**settings, "imap-tls": how, "imap-port": str(port)}, disk)
        box.deliver(mail_from("bw@example.org", "OK", to=f"sos+{ID}@example.org"))
        monkeypatch.setenv("SSL_CERT_FILE", str(others))
        with pytest.raises(ssl.SSLCertVerificationError):
            await imap.process_unseen(inward)
        assert not disk.taken
        monkeypatch.setenv("SSL_CERT_FILE", str(trusts))
        await imap.process_unseen(inward)
        assert [each.text for each in disk.taken] == ["OK"]


@pytest.mark.full
async def test_mail_is_marked_seen_only_after_storage(tmp_path: Path) -> None:
    with mail_server(tmp_path) as (box, settings):
        disk = Disk()
        inward = make_answer_services(settings, disk)
        disk.full = False
        await imap.process_unseen(inward)  # mails that were at the server at its start
        large = mail_from("bw@example.org", "x" * imap.MAIL_MAX, to=f"sos+{ID}@example.org")
        box.deliver(large)
        box.deliver(mail_from("bw@example.org", "OK", to=f"sos+{ID}@example.org"))
        disk.full = True
        with pytest.raises(StoreUnavailable):
            await imap.process_unseen(inward)
        assert box.unseen() == 1, "the large one was passed over"
        disk.full = False
        await imap.process_unseen(inward)
        await imap.process_unseen(inward)
        assert [each.text for each in disk.taken] == ["OK"]
        assert box.unseen() == 0


async def test_unreadable_mail_does_not_block_later_mails(tmp_path: Path) -> None:
    with mail_server(tmp_path) as (box, settings):
        disk, faults = Disk(), list[str]()
        disk.full = False
        inward = make_answer_services(settings, disk)._replace(
            note_fault=lambda error, where: faults.append(where)
        )
        await imap.process_unseen(inward)  # mails that were at the server at its start
        to = f"sos+{ID}@example.org"
        # An error of the library itself: UnboundLocalError.
        odd = f"From: *0*=@[\t\r\nTo: {to}\r\n\r\nOK\r\n"
        box.deliver(odd.encode())
        box.deliver(mail_from("bw@example.org", "OK", to=to))
        await imap.process_unseen(inward)
        assert [each.text for each in disk.taken] == ["OK"] and box.unseen() == 0
        assert len(faults) == 1 and "a mail that answers no current" in faults[0]


def read_mail(mail: EmailMessage) -> ContactAnswer | None:
    return read_raw_mail(mail.as_bytes())


def read_raw_mail(raw: bytes) -> ContactAnswer | None:
    answer = mail_reading.parse_mail(raw, OWN["mail-from"])
    return None if answer is None else ContactAnswer(imap.KIND_NAME, "", **answer)


LONG = b"; a=b" * 50_000
"""Parameters for which the library's parser needs quadratic time."""


async def test_hostile_mail_headers_do_not_block_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long header is refused unread, and a long part header ends the child process that
    reads it.
    """
    hasty = (
        f"from {mail_reading.__package__} import mail_reading; mail_reading.CPU_MAX_S = 0.3; main()"
    )
    monkeypatch.setattr(imap, "READ_APART", imap.READ_APART.replace("main()", hasty))
    to = f"To: sos+{ID}@example.org\r\n".encode()
    head = b"From: bw@example.org\r\n" + to + b"MIME-Version: 1.0\r\n"
    inner = b"Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: multipart/mixed"
    for raw, why in (
        (
            head + b"Content-Type: multipart/mixed" + LONG + b"\r\n\r\nOK\r\n",
            "the mail's header has",
        ),
        (head + b"From: " + b"<" * 100_000 + b"\r\n\r\nOK\r\n", "the mail's header has"),
        (head + b"To: " + b"(" * 100_000 + b"\r\n\r\nOK\r\n", "the mail's header has"),
        (head + inner + LONG + b"\r\n\r\nOK\r\n--x--\r\n", "its reader ended by -"),
    ):
        with pytest.raises(imap.MailUnreadable, match=why):
            await imap.parse_in_child_process(raw, OWN["mail-from"])


async def test_answer_with_many_relay_headers_is_read() -> None:
    relays = b"".join(b"ARC-Seal: i=%d; a=%s\r\n" % (each, b"x" * 2_000) for each in range(20))
    mail = mail_from("bw@example.org", "OK", to=f"sos+{ID}@example.org").as_bytes()
    answer = await imap.parse_in_child_process(relays + mail, OWN["mail-from"])
    assert answer is not None
    assert (answer.text, answer.answers, answer.sender) == ("OK", ID, "bw@example.org")


@pytest.mark.parametrize(
    "headers",
    [
        {"Auto_Submitted": "auto-replied"},
        {"Auto_Submitted": "auto-generated; owner-email=x"},
        {"Precedence": "bulk"},
        {"Precedence": "auto_reply"},
        {"Return_Path": "<>"},
    ],
)
def test_automatic_mail_is_not_an_answer(headers: dict[str, str]) -> None:
    to = f"sos+{ID}@example.org"
    assert read_mail(mail_from("bw@example.org", "OK", to=to)) is not None
    assert read_mail(mail_from("bw@example.org", "OK", to=to, **headers)) is None


def test_mail_from_the_hub_or_without_reference_is_not_an_answer() -> None:
    assert read_mail(mail_from("sos@example.org", "OK", to=f"sos+{ID}@example.org")) is None
    assert read_mail(mail_from("bw@example.org", "OK")) is None
    assert read_raw_mail(b"\xff\xfe no mail at all") is None
    odd = f"From: =?utf-8?q?a=00@b.example?=\r\nTo: sos+{ID}@example.org\r\n\r\nOK\r\n"
    assert read_raw_mail(odd.encode()) is None


@pytest.mark.parametrize(
    ("headers", "is_answer"),
    [
        ({"to": f"Hub <sos+{ID.upper()}@example.org>"}, True),
        ({"Cc": f"x@example.org, sos+{ID}@example.org"}, True),
        ({"Delivered_To": f"sos+{ID}@example.org"}, True),
        ({"In_Reply_To": f"<{ID}@example.org>"}, True),
        ({"References": f"<a@b> <{ID}@example.org>"}, True),
        ({"Subject_": ID}, False),
    ],
)
def test_answered_message_is_identified_by_the_mail_headers(
    headers: dict[str, str], is_answer: bool
) -> None:
    answer = read_mail(mail_from("bw@example.org", "OK", **headers))
    assert (answer is not None) == is_answer
    if answer is not None:
        assert (answer.kind, answer.answers, answer.text) == ("email", ID, "OK")


QUOTE = "> SOS 1 of kit-ada\n> Map: https://x\n"


@pytest.mark.parametrize(
    "behind",
    [
        QUOTE,
        f"On Tue, 24 Nov 2026 at 10:00, Hub <sos@example.org> wrote:\n{QUOTE}",
        f"On Tue, 24 Nov 2026 at 10:00, Hub\n<sos@example.org> wrote:\n\n{QUOTE}",
        f"Am 24.11.2026 um 10:00 schrieb sos@example.org:\n{QUOTE}",
        "-----Original Message-----\nFrom: sos@example.org\nOK",
        "________________________________\nFrom: sos@example.org",
        "-- \nOlga, Bergwacht\n+41 79 123 45 67",
        "Sent from my iPhone\n\n> On 24 Nov 2026, at 10:00, Hub <sos@example.org> wrote:",
        "Von meinem iPhone gesendet",
        "Gesendet von Outlook für Android",
        "Envoyé de mon iPhone",
        "Enviado desde mi Samsung Galaxy",
        "Надіслано з Outlook для iOS",
        "",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_only_text_before_the_quote_is_read(behind: str, end: str) -> None:
    text = f"On our way: two people.\n\nOn foot.\n\n{behind}".replace("\n", end)
    assert mail_reading.find_own_text(text) == "On our way: two people.\n\nOn foot."


TITLE = "SOS 2 of kit-ada"
SENT = (
    f"{TITLE}: broken leg\nRaised 2026-11-29T08:57:17Z. No one has answered yet.\n"
    "Position: 47.10000 8.20000, 2026-11-29T08:57:17Z\n"
)
QUOTED = "".join(f"> {line}\n" for line in SENT.splitlines())
WROTE = "On 29.11.26 at 09:57 sos@example.org wrote:\n"
OUTLOOK = "From: SOS Alps\nSent: Sunday, November 29, 2026 9:57 AM\nTo: Contact\nSubject: SOS 2\n\n"
FRENCH = (
    "    De : Alpes <sos@example.org>\n    Envoyé le : dimanche 29 novembre 2026 09:57\n"
    "    À : contact@example.org\n    Objet : SOS 2\n\n"
)


@pytest.mark.parametrize("subject", [f"Re: {TITLE}", f"AW: WG: {TITLE}", "Re: hurry", ""])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{WROTE}{QUOTED}> \n\nOK, two of us are coming\n", "OK, two of us are coming"),
        (f"{QUOTED}\nOK\n> more\ntwo of us\n-- \nOlga\n", "OK\ntwo of us"),
        (f"\n\n  {QUOTED}\nOK\n", "OK"),
        (f"OK, we go\n\n{WROTE}{QUOTED}\nThis mail is confidential.\n", "OK, we go"),
        (f"Stay where you are.\n\n{OUTLOOK}{SENT}", "Stay where you are."),
        (
            f"Stay where you are.\n\n*From:* SOS Alps\n*Date:* today\n\n{SENT}",
            "Stay where you are.",
        ),
        (
            f"Restez sur place, nous arrivons ce soir.\n\n{FRENCH}{SENT}",
            "Restez sur place, nous arrivons ce soir.",
        ),
        (f"Restez sur place.\n\n{FRENCH.replace(' :', chr(160) + ':')}{SENT}", "Restez sur place."),
        (f"We go.\n\nDe: Alpes\nEnviado el: domingo\n\n{SENT}", "We go."),
        (f"We go.\n\nVon: Alpen\nGesendet: Sonntag\n\n{SENT}", "We go."),
        (f"We go.\n\nВід: Альпи\nНадіслано: неділя\n\n{SENT}", "We go."),
        # No line introduces the quote.
        (f"We go.\n\n{SENT}", "We go."),
        ("We go.\n\n\tSOS 2 von kit-ada: Bein\n\nAusgelöst 2026-11-29T08:57:17Z\n", "We go."),
        # The mail has no text of its own.
        (f"{OUTLOOK}{SENT}", ""),
        (SENT, ""),
        (f"{WROTE}{QUOTED}", ""),
        # Texts that look like a quote but are not one.
        ("From: the hut we see you\nGo down.", "From: the hut we see you\nGo down."),
        ("SOS 2: two of us are coming\nStay there.", "SOS 2: two of us are coming\nStay there."),
        ("Sent from the hut: two people.\nGo down.", "Sent from the hut: two people.\nGo down."),
    ],
)
def test_own_text_is_found_around_the_quoted_mail(subject: str, text: str, words: str) -> None:
    assert mail_reading.find_own_text(text, subject) == words
    assert mail_reading.find_own_text(text.replace("\n", "\r\n"), subject) == words


def test_answer_below_the_quote_in_html_is_read() -> None:
    mail = mail_from("bw@example.org", "", to=f"sos+{ID}@example.org")
    mail.set_content(
        f"<div>{WROTE}</div><blockquote><p>{TITLE}</p></blockquote><p>OK, we go</p>", subtype="html"
    )
    answer = read_mail(mail)
    assert answer is not None and answer.text == "OK, we go"


def test_mail_only_in_html_is_read_without_its_quote() -> None:
    mail = mail_from("bw@example.org", "", to=f"sos+{ID}@example.org")
    mail.set_content(
        "<html><head><style>p {}</style></head><body><p>OK &amp; go</p><div>now</div>"
        "<blockquote><p>SOS 1 of kit-ada</p></blockquote></body></html>",
        subtype="html",
    )
    answer = read_mail(mail)
    assert answer is not None
    assert answer.text.split() == ["OK", "&", "go", "now"]


def test_text_before_broken_html_is_read() -> None:
    mail = mail_from("bw@example.org", "", to=f"sos+{ID}@example.org")
    mail.set_content("<p>OK, we go</p><![x[ and", subtype="html")
    answer = read_mail(mail)
    assert answer is not None and answer.text == "OK, we go"


def test_mail_in_unknown_charset_raises_no_error() -> None:
    raw = (
        f"From: bw@example.org\r\nTo: sos+{ID}@example.org\r\n"
        "Content-Type: text/plain; charset=nosuch\r\n\r\nOK\r\n"
    ).encode()
    answer = read_raw_mail(raw)
    assert answer is None or answer.text in ("", "OK")


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"imap-host": "imap.example.org", "imap-tls": "none"}, "imap-tls=none would send"),
        ({"imap-host": "imap.example.org", "imap-user": None}, "imap-host needs imap-user"),
        ({"imap-host": "imap.example.org", "mail-from": None}, "imap-host needs mail-from"),
        ({"imap-host": "127.0.0.1", "imap-tls": "none"}, ""),
    ],
)
def test_invalid_imap_settings_are_reported(own: dict[str, Any], words: str) -> None:
    whole = {"imap-user": "u", "mail-from": "sos@example.org", "imap-tls": "tls", **own}
    faults = imap.find_faults(whole)
    assert [words in each for each in faults] == ([True] if words else [])
