"""The notice about an SOS."""

from __future__ import annotations

from fieldagent.extensions.desk.hub import notice
from fieldagent.extensions.desk.hub.notice import AnswerOptions
from fieldagent.hub.records import sos
from fieldagent.hub.store.contract import Store
from tests.hub.field import field_of
from tests.hub.test_revocation import ADA, BEN, revoke
from tests.hub.test_sos_desk import HELP


async def test_notice_about_a_revoked_kit_contains_the_revocation(store: Store) -> None:
    async with field_of(store) as alps:
        await revoke(alps, BEN)
        await alps.sends(ADA, HELP, origin=BEN)
        incident = await store.read(lambda db: sos.find_incident(db, 1, 1))
        assert incident is not None
        message = await store.read(
            lambda db: notice.make_notice(db, incident, "1", "", AnswerOptions())
        )
        revoked = "(revoked since 2026-09-21T14:13:20Z, possibly stolen)"
        assert message.subject == f"SOS {incident.short} of kit 2 {revoked}"
