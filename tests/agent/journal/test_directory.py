"""A kit that has the hub's directory refuses a misspelt addressee before anything is queued."""

from __future__ import annotations

from pathlib import Path

import pytest
from trio.testing import MockClock

from fieldagent.agent.journal import directory
from fieldagent.agent.journal.directory import NoSuchPerson
from fieldagent.package.package import SOS_PRIORITY, Message, Package
from fieldagent.wire.kit_note import DIRECTORY_MAX, Directory, DirectoryEntry
from tests.kit import Kit, kit

PEOPLE = (
    DirectoryEntry("user", 2, "Ben"),
    DirectoryEntry("user", 1, "Ada"),
    DirectoryEntry("group", 1, "rescue"),
    DirectoryEntry("device", 4, "hut"),
)
NEW = ". If the person is new, use the user's number"


async def refusal(there: Kit, to: str | int | None) -> str:
    """Return the reason to refuse a Package for this addressee, or "" if it is queued."""
    queued = len(there.outbox)
    try:
        await there.intake.accept(Package(Message("come"), to=to))
    except NoSuchPerson as refused:
        ((fault),) = refused.faults
        assert fault.pointer == "/to"
        assert len(there.outbox) == queued
        return str(fault.detail)
    return ""


@pytest.mark.parametrize(
    ("to", "says"),
    [
        *((each, "") for each in ("Ben", "ben", "user:Ben", "rescue", "device:hut", None, 2, 99)),
        *((each, "") for each in ("+41 79 123 45 67", "dora@example.org")),
        # This program has written to the kit, but is not in the directory.
        ("Zoe", ""),
        ("Benn", f"no such person: Benn; nearest: Ben{NEW}"),
        ("group:resuce", f"no such person: resuce; nearest: rescue{NEW}"),
        ("user:rescue", f"no such person: rescue{NEW}"),
        ("Xaver", f"no such person: Xaver{NEW}"),
    ],
)
async def test_misspelt_addressee_is_rejected_with_nearest_name(
    tmp_path: Path, clock: MockClock, to: str | int | None, says: str
) -> None:
    async with kit(tmp_path) as there:
        await directory.store_directory(there.journal, Directory(1, 9, PEOPLE))
        assert await refusal(there, to) == says


async def test_addressee_is_accepted_without_complete_directory(
    tmp_path: Path, clock: MockClock
) -> None:
    async with kit(tmp_path) as there:
        assert await refusal(there, "Benn") == ""
        full = tuple(DirectoryEntry("user", n, f"user {n}") for n in range(1, DIRECTORY_MAX + 1))
        await directory.store_directory(there.journal, Directory(1, 9, full))
        assert await refusal(there, "Benn") == ""


async def test_sos_to_unknown_addressee_is_accepted(tmp_path: Path, clock: MockClock) -> None:
    async with kit(tmp_path) as there:
        await directory.store_directory(there.journal, Directory(1, 9, PEOPLE))
        await there.intake.accept(Package(Message("help"), priority=SOS_PRIORITY, to="Benn"))
