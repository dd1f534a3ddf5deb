"""Replies of real mail programs, from the test data of Mailgun's library talon."""

from __future__ import annotations

from pathlib import PurePath
from uuid import uuid4

import pytest

from fieldagent.extensions.desk.hub import mail_reading
from tests.public_data import fetch_sdist, read_files

pytestmark = pytest.mark.full

RUSSIAN = "android"
"""The only reply in a language that the hub does not have."""


def test_replies_of_mail_programs_contain_only_their_own_text() -> None:
    """Without a file for its expected text, a reply is "Hello"."""
    files = read_files(fetch_sdist("talon", "1.4.4"), "/tests/fixtures/standard_replies/")
    contents = {PurePath(name).name: content for name, content in files.items()}
    mails = {name.removesuffix(".eml"): each for name, each in contents.items() if "eml" in name}
    assert len(mails) == 12
    for name, mail in mails.items():
        if name == RUSSIAN:
            continue
        # The address to which the reply goes contains the id of the message.
        addressed = f"Delivered-To: sos+{uuid4()}@example.org\n".encode() + mail
        parsed = mail_reading.parse_mail(addressed, "sos@example.org")
        assert parsed is not None, name
        assert parsed["text"] == "Hello", name
