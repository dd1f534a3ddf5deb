"""The text of remote settings: the decoded text equals the encoded one, and nothing else is
accepted.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fieldagent.wire.settings_change import NotAChange, SettingsChange, get_kit_id, parse_change

KIT = get_kit_id("x" * 40)
TEXT = f"fieldagent settings\ndevice: kit-ada\nkit: {KIT}\nnumber: 7\nsos-repeat=900\ngpsd=\n"
NAMES = st.from_regex(re.compile(r"[a-z0-9-]{1,20}", re.ASCII), fullmatch=True)


def test_settings_change_survives_encoding() -> None:
    change = SettingsChange("kit-ada", KIT, 7, (("sos-repeat", "900"), ("gpsd", "")))
    assert parse_change(TEXT) == change
    assert change.format_text() == TEXT


@pytest.mark.full
@given(st.text(min_size=1), st.integers(1), st.dictionaries(NAMES, st.text(), min_size=1))
def test_any_valid_settings_change_survives_encoding(
    device: str, number: int, pairs: dict[str, str]
) -> None:
    change = SettingsChange(device, KIT, number, tuple(pairs.items()))
    try:
        text = change.format_text()
    except NotAChange:
        assume(False)
    assert parse_change(text) == change


@pytest.mark.parametrize(
    "text",
    [
        "",
        TEXT + "\n",
        TEXT.removesuffix("\n"),
        TEXT.replace("\n", "\r\n"),
        TEXT.replace("number: 7", "number: 07"),
        TEXT.replace("number: 7\n", ""),
        TEXT.replace(KIT, KIT[1:]),
        TEXT + "sos-repeat=1\n",
        TEXT.replace("900", "900\x0b1"),
        TEXT.replace("900", "900\u202e1"),
        TEXT.partition("sos")[0],
        "#!/bin/sh\n" + TEXT,
    ],
)
def test_any_other_text_raises(text: str) -> None:
    with pytest.raises(NotAChange):
        parse_change(text)
