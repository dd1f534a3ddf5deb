"""Each text of the kit to people is in each catalogue, and short enough for their radios."""

from __future__ import annotations

import pytest

from fieldagent.extensions.people import replies
from fieldagent.extensions.people.aprs import AprsPeople
from fieldagent.extensions.people.meshcore import MeshcorePeople
from fieldagent.extensions.people.post import PARTS_MAX, count_parts
from fieldagent.page.language import LANGUAGES, read_catalogue
from tests.page.texts import places

MESH_ONLY = (replies.GUEST_REPLY, replies.WITHHELD_REPLY)
"""Texts that an APRS station never gets, because it is always unproved."""
TEXTS = {name: text for name, text in vars(replies).items() if name.isupper()}


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_catalogue_translates_exactly_the_replies_in_use(language: str) -> None:
    there = read_catalogue("fieldagent.extensions.people", language)
    assert set(there) == set(TEXTS.values())
    for text, said in there.items():
        assert said.strip() == said != "", text
        assert places(said) == places(text), text


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_every_reply_fits_the_smallest_radio(language: str, text: str) -> None:
    size = MeshcorePeople.text_bytes if text in MESH_ONLY else AprsPeople.text_bytes
    assert count_parts(replies.translate(language, text), size) <= PARTS_MAX
