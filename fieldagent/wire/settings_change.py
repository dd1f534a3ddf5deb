"""Text of a settings change for one kit, and its compact form in a command. The kit's operator
reads and signs the text.

    fieldagent settings
    device: kit-ada
    kit: 5f1c…
    number: 1795271234
    satellite-credits-per-day=20

`kit` is the SHA-256 of the kit's hub-token in hexadecimal, so that another kit refuses the text.
`number` is the Unix time when the text was written, or the last number plus 1 if this is higher. A
kit accepts each number only once. A setting without a value after = is removed.

In a command, the kit rebuilds the signed text, because it knows the head of the text, and the
number is the command's number. The signature is a complete minisign signature. The kit's root unit
verifies it in the same way as settings that arrive over the link.

| argument | |
|---|---|
| text | the kit's name at the hub |
| text | the settings, one line `NAME=VALUE` each |
| 74 bytes | algorithm, key and signature, as in minisign's second line |
| text | the trusted comment |
| 64 bytes | its signature |
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.command import Argument
from fieldagent.wire.minisign_text import SignatureParts, split_signature

HEAD = "fieldagent settings"
_FORM = re.compile(
    rf"{HEAD}\ndevice: ([^\n]+)\nkit: ([0-9a-f]{{64}})\nnumber: ([1-9][0-9]{{0,15}})\n"
    r"((?:[a-z0-9-]+=[^\n]*\n)+)"
)


class NotAChange(Exception):
    """The text is not a settings change. The message describes the error."""


@dataclass(frozen=True, slots=True)
class SettingsChange:
    device: str
    """Name of the kit at the hub, for people."""
    kit: str
    number: int
    pairs: tuple[tuple[str, str], ...]
    """Names and values. An empty value removes the setting."""

    def format_text(self) -> str:
        """Return the text of the change, for signing. Raises NotAChange if a name or value has an
        invalid character, or if a name occurs twice.
        """
        head = f"{HEAD}\ndevice: {self.device}\nkit: {self.kit}\nnumber: {self.number}\n"
        text = head + "".join(f"{name}={value}\n" for name, value in self.pairs)
        with suppress(NotAChange):
            if parse_change(text) == self:
                return text
        raise NotAChange("a name or a value has an invalid character, or occurs twice")


def parse_change(text: str) -> SettingsChange:
    """Parse a settings change. Raises NotAChange if the text has another form."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise NotAChange(
            f"the signed text does not have the form {HEAD!r} (docs/how-to/change-settings.md)"
        )
    device, kit, number, lines = match.groups()
    pairs = tuple(
        (name, value) for name, _, value in (line.partition("=") for line in lines.split("\n")[:-1])
    )
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise NotAChange("a setting is named twice")
    if not all(value.isprintable() for _, value in pairs):
        raise NotAChange("a value has an invisible character")
    return SettingsChange(device, kit, int(number), pairs)


def get_kit_id(token: str) -> str:
    """Return the id of the kit with the hub-token `token`, as the text contains it."""
    return hashlib.sha256(token.encode()).hexdigest()


UNTRUSTED_COMMENT = "by a command"


def make_command_arguments(change: SettingsChange, signature: str) -> tuple[Argument, ...]:
    """Return the arguments of the command for a change. `signature` is minisign's file. Raises
    ValueError if it is invalid.
    """
    lines = "\n".join(f"{name}={value}" for name, value in change.pairs)
    return (change.device, lines, *split_signature(signature))


def parse_command_arguments(
    command_number: int, kit: str, arguments: tuple[Argument, ...]
) -> tuple[str, str]:
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
