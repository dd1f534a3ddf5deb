"""Settings as a command brings them: the text that their operator has signed, in few bytes.

The kit writes the text anew (`wire.settings_change`): its head says what it knows, the number is
the command's. The signature is minisign's, whole, and root's unit of the kit verifies it as it does
those that come over the link.

| argument | |
|---|---|
| text | the kit's name at the hub |
| text | the settings, a line `NAME=VALUE` each |
| 74 bytes | algorithm, key and signature, as in minisign's second line |
| text | the trusted comment |
| 64 bytes | its signature |
"""

from __future__ import annotations

from fieldagent.wire.command import Argument
from fieldagent.wire.minisign_text import SignatureParts, parts_of
from fieldagent.wire.settings_change import SettingsChange

UNTRUSTED = "by a command"


def arguments_of(change: SettingsChange, signature: str) -> tuple[Argument, ...]:
    """Return the arguments of the command that brings it. `signature` is minisign's file. Raises
    ValueError where that is none."""
    lines = "\n".join(f"{name}={value}" for name, value in change.pairs)
    return (change.device, lines, *parts_of(signature))


def offer_of(number: int, kit: str, arguments: tuple[Argument, ...]) -> tuple[str, str]:
    """Return the text and its signature, as minisign's file has it; `kit` is `kit_of` its token.
    Raises NotAChange."""
    device, lines, first, comment, second = arguments
    assert isinstance(first, bytes) and isinstance(second, bytes) and isinstance(comment, str)
    pairs = (line.partition("=") for line in str(lines).split("\n"))
    change = SettingsChange(
        str(device), kit, number, tuple((name, value) for name, _, value in pairs)
    )
    return change.text(), SignatureParts(first, comment, second).text(UNTRUSTED)
