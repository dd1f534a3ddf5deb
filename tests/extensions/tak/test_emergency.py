"""The question to a TAK phone whose chat reads like a call for help."""

from __future__ import annotations

import pytest

from fieldagent.extensions.tak import emergency
from fieldagent.page.language import LANGUAGES, read_catalogue


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_emergency_question_is_in_each_catalogue(language: str) -> None:
    (text,) = read_catalogue("fieldagent.extensions.tak", language).items()
    assert text[0] == emergency.QUESTION
    assert "911" in text[1] and "SOS" in text[1]
