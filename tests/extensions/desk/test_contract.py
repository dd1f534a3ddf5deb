"""The contract of each kind of contact of the core and the extensions: `fieldagent hub contact
test` with a stand-in for its service, which accepts the message, refuses it, or is away.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import ssl
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme

from fieldagent.extensions import NAMES
from fieldagent.extensions.desk.hub import contacts
from fieldagent.extensions.desk.hub.contacts import find_kind
from fieldagent.extensions.desk.hub.web_push import Subscription
from fieldagent.hub.contact.contract import ContactKind
from fieldagent.hub.contact.registry import get_contact_kinds
from fieldagent.hub.settings import parse_settings
from fieldagent.hub.store.opening import open_store
from fieldagent.system.exit_codes import OK, REFUSED
from tests.hub.push_service import push_service
from tests.hub.relay import mail_relay
from tests.processes import MODULE, PATIENCE, administer, administer_from_shell

SECRET = "s3cret"


class StandIn(NamedTuple):
    """The service of one kind of contact."""

    address: str
    taken: Sequence[Any]
    answers: list[Any]
    """Answers to the next messages in order. Afterwards it accepts them."""
    refusal: Any
    settings: dict[str, str]
    trusts: str = ""
    """A file with the authority of its certificate."""


@contextmanager
def _mail(home: Path) -> Iterator[StandIn]:
    with mail_relay() as relay:
        no = "550 no such mailbox"
        yield StandIn("bw@example.org", relay.taken, relay.answers, no, relay.settings)


@contextmanager
def _apprise(home: Path) -> Iterator[StandIn]:
    with push_service(None) as service:
        url = service.address.replace("http://", f"json://ada:{SECRET}@")
        yield StandIn(url, service.got, service.answers, 500, {})


@contextmanager
def _browser(home: Path) -> Iterator[StandIn]:
    authority, ca = trustme.CA(), home / "ca.pem"
    ca.write_bytes(authority.cert_pem.bytes())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with push_service(tls) as service:
        address = Subscription(**service.browser(SECRET).subscription).encode()
        settings = {"webhook-allow": "127.0.0.0/8", "smtp-host": "127.0.0.1"}
        settings["mail-from"] = "sos@example.org"
        yield StandIn(address, service.got, service.answers, 500, settings, str(ca))


STAND_INS: dict[str, Callable[[Path], AbstractContextManager[StandIn]]] = {
    "email": _mail,
    "apprise": _apprise,
    "push": _browser,
}
"""Stand-ins for the core's kinds by the kind's name. A new kind needs one too. An extension has its
own in a module `stand_ins`.
"""


def stand_ins() -> dict[str, Callable[[Path], AbstractContextManager[StandIn]]]:
    """Return the stand-in of each kind of the core and of all extensions."""
    found = dict(STAND_INS)
    for name in NAMES:
        place = f"tests.extensions.{name}.stand_ins"
        if importlib.util.find_spec(place) is not None:
            found |= importlib.import_module(place).STAND_INS
    return found


def _lines(settings: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def check_contact(home: Path, kind: ContactKind, service: StandIn, database: str) -> Path:
    """Add a contact, and test it while its service accepts and refuses. Return the hub's
    settings.
    """
    settings = home / "hub.properties"
    settings.write_text(_lines({"database": database, **service.settings}))
    if kind.form:
        set_up = parse_settings(_lines(service.settings), Path("hub.properties")).contact_own
        assert find_kind(service.address, get_contact_kinds(), set_up) is kind
        # In a separate process, because apprise loads modules about which Python warns.
        added = ("contact", "add", "Duty", service.address, "--config", str(settings))
        administer_from_shell(database, *added)
    else:
        with closing(open_store(database)) as store:
            store.run_once(
                lambda db: contacts.add_browser(db, 1, 2, "Duty", service.address, now=0.0)
            )
    (listed,) = administer(database, "contact", "list")
    assert (listed["kind"], listed["name"], listed["reason"]) == (kind.name, "Duty", "")
    assert SECRET not in listed["address"]
    assert run_contact_test(settings, service) == (OK, "")
    assert len(service.taken) == 1
    service.answers.append(service.refusal)
    code, reason = run_contact_test(settings, service)
    assert (code, reason != "") == (REFUSED, True)
    assert administer(database, "contact", "list")[0]["reason"] == reason
    assert run_contact_test(settings, service) == (OK, "")
    assert administer(database, "contact", "list")[0]["reason"] == ""
    return settings


def run_contact_test(settings: Path, service: StandIn) -> tuple[int, str]:
    """Return the exit code of `contact test` and its printed reason."""
    done = subprocess.run(
        [*MODULE, "hub", "contact", "test", "1", "--config", str(settings)],
        env=os.environ | ({"SSL_CERT_FILE": service.trusts} if service.trusts else {}),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert "Traceback" not in done.stderr
    line = done.stderr.strip().splitlines()[-1]
    failed = line.startswith("fieldagent: Duty: ")
    return done.returncode, line.removeprefix("fieldagent: Duty: ") if failed else ""


@pytest.mark.parametrize(
    "name",
    [
        each if each in ("email", "sms") else pytest.param(each, marks=pytest.mark.full)
        for each in get_contact_kinds()
    ],
)
def test_each_kind_of_contact_keeps_the_contract(tmp_path: Path, name: str) -> None:
    kind, database = get_contact_kinds()[name], str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "user", "add", "Ada")
    assert kind.name == name
    assert kind.by
    assert kind.service
    with stand_ins()[name](tmp_path) as service:
        settings = check_contact(tmp_path, kind, service, database)
    code, reason = run_contact_test(settings, service)
    assert (code, reason != "") == (REFUSED, True), "it is away"
    assert SECRET not in reason
