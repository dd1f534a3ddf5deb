"""Simulated SMS services for the contract test of kinds of contact."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.extensions.desk.test_contract import SECRET, StandIn
from tests.hub.push_service import push_service

PHONE = "+41791234567"


@contextmanager
def _sms_gate(home: Path) -> Iterator[StandIn]:
    with push_service(None) as service:
        more = {"sms-gate-user": "sms", "sms-gate-password": SECRET}
        settings = {"sms-gate-address": service.address, **more}
        yield StandIn(PHONE, service.got, service.answers, 500, settings)


@contextmanager
def _twilio(home: Path) -> Iterator[StandIn]:
    with push_service(None) as service:
        account = {"twilio-account": "AC1", "twilio-token": SECRET, "twilio-from": "+15005550006"}
        settings = {"twilio-address": service.address, **account}
        yield StandIn(PHONE, service.got, service.answers, 400, settings)


@contextmanager
def _sms(home: Path) -> Iterator[StandIn]:
    with push_service(None) as service:
        settings = {"sms-webhook": f"{service.address}/send"}
        yield StandIn(PHONE, service.got, service.answers, 503, settings)


STAND_INS = {"sms-gate": _sms_gate, "twilio": _twilio, "sms": _sms}
