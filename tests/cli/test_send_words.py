"""Words with which `send` shows the end of a Package."""

from __future__ import annotations

from typing import Any

import pytest

from fieldagent.cli.kit.send import _format_reasons

CANCELED = {"status": "Canceled", "reason": "delivered over Cellular"}


@pytest.mark.parametrize(
    ("status", "channels", "words"),
    [
        (
            "Delivered",
            {"Satellite": CANCELED, "Cellular": {"status": "Delivered", "reason": ""}},
            " (Satellite Canceled: delivered over Cellular)",
        ),
        ("Error", {"Radio": {"status": "Error", "reason": "expired"}}, " (Radio: expired)"),
        (None, {"Radio": {"status": None, "reason": "no signal"}}, " (Radio: no signal)"),
        ("Delivered", {"Radio": {"status": "Delivered", "reason": ""}}, ""),
    ],
)
def test_result_of_send_shows_unneeded_channels_as_canceled(
    status: str | None, channels: dict[str, Any], words: str
) -> None:
    assert _format_reasons({"status": status, "channels": channels}) == words
