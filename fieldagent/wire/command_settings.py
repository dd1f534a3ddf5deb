"""Compact form of signed settings in a command.

The kit rebuilds the signed text (`wire.settings_change`), because it knows the head of the text,
and the number is the command's number. The signature is a complete minisign signature. The kit's
root unit verifies it in the same way as settings that arrive over the link.

| argument | |
|---|---|
| text | the kit's name at the hub |
| text | the settings, one line `NAME=VALUE` each |
| 74 bytes | algorithm, key and signature, as in minisign's second line |
| text | the trusted comment |
| 64 bytes | its signature |
"""

from __future__ import annotations

from fieldagent.wire.command import Argument
from fieldagent.wire.minisign_text import SignatureParts, split_signature
from fieldagent.wire.settings_change import SettingsChange

UNTRUSTED_COMMENT = "by a command"


def make_arguments(change: SettingsChange, signature: str) -> tuple[Argument, ...]:
    """Return the arguments of the command for a change. `signature` is minisign's file. Raises
    ValueError if it is invalid.
    """
    lines = "\n".join(f"{name}={value}" for name, value in change.pairs)
    return (change.device, lines, *split_signature(signature))


def parse_offer(command_number: int, kit: str, arguments: tuple[Argument, ...]) -> tuple[str, str]:
    """Return the signed text and its minisign signature file. `kit` is the result of
    `settings_change.get_kit_id` for the kit's token. Raises NotAChange if a setting is invalid.
    """
    device, lines, first, comment, second = arguments
    assert isinstance(first, bytes) and isinstance(second, bytes) and isinstance(comment, str)
    pairs = (line.partition("=") for line in str(lines).split("\n"))
    change = SettingsChange(
        str(device), kit, command_number, tuple((name, value) for name, _, value in pairs)
    )
    return change.format_text(), SignatureParts(first, comment, second).format_signature(
        UNTRUSTED_COMMENT
    )
