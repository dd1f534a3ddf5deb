"""Remote commands to a kit. A command consists of the number of a verb, and arguments.
`docs/reference/on-air.md`, "Commands", describes the format, and `docs/how-to/remote-commands.md`
the meaning of each command.

The table VERBS contains everything that the hub and the kit must know about a verb. The numbers of
verbs never change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from fieldagent.package.package import CommandAnswer, CommandOutcome
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import sentence
from fieldagent.wire.minisign_text import SignatureParts
from fieldagent.wire.signed_delta import DIGEST_BYTES
from fieldagent.wire.strict_cbor import expect, is_in_range, is_int, read_bytes

ARGUMENTS_MAX = 8
ARGUMENT_MAX_BYTES = 2_000
"""Maximum bytes of a byte string, or characters of a text."""
ANSWER_BYTES, ANSWER_BYTES_MAX = 200, 1_500
"""Default and maximum size in bytes of an answer whose size the command can set."""
STATUS_BYTES = 32
SENTENCE_BYTES = 60
"""Approximate size of an answer that is a sentence."""

Argument = int | str | bytes


class NotACommand(Exception):
    """Error: a command is not valid. The message describes the error and the correct form."""


@dataclass(frozen=True, slots=True)
class RemoteCommand:
    """A command from the hub to one kit. The number of its entry is the Unix time when the command
    was written, or the last number plus 1 if this is higher.
    """

    verb: int
    arguments: tuple[Argument, ...] = ()
    proof: bytes = b""
    """Proof that the command comes from the hub (see `wire.proof`)."""


class Verb(NamedTuple):
    number: int
    name: str
    argument_form: str
    """Form of the verb's arguments, for people."""
    description: str
    read: Callable[[Sequence[str]], tuple[Argument, ...]]
    """Parser of the words that a person has written, which returns the arguments. Raises
    NotACommand."""
    can_have: Callable[[tuple[Argument, ...]], bool]
    """Function that returns True if the verb can have these arguments."""
    answer_bytes: Callable[[tuple[Argument, ...]], int]
    """Function that returns the maximum or approximate size of the answer in bytes."""
    allowed: bool = False
    """True if a kit allows the verb by default, because it changes nothing or protects the group's
    key from a thief."""


def _read_nothing(arguments: Sequence[str]) -> tuple[Argument, ...]:
    if arguments:
        raise NotACommand(
            sentence("takes no arguments, not {words}", words=repr(" ".join(arguments)))
        )
    return ()


def _read_size(arguments: Sequence[str]) -> tuple[Argument, ...]:
    if not arguments:
        return ()
    if (
        len(arguments) > 1
        or not _SIZE.fullmatch(arguments[0])
        or int(arguments[0]) > ANSWER_BYTES_MAX
    ):
        raise NotACommand(
            sentence(
                "takes the maximum size of the answer in bytes, 20 to {most}", most=ANSWER_BYTES_MAX
            )
        )
    return (int(arguments[0]),)


_SIZE = re.compile(r"[2-9][0-9]|[1-9][0-9]{2,3}")
_ID = re.compile(r"-?[0-9]{1,10}")


def _read_package(arguments: Sequence[str]) -> tuple[Argument, ...]:
    if not arguments or not _ID.fullmatch(arguments[0]):
        raise NotACommand("takes the id of a Package, and the maximum size of the answer in bytes")
    return (int(arguments[0]), *_read_size(arguments[1:]))


def _read_satellite(arguments: Sequence[str]) -> tuple[Argument, ...]:
    if list(arguments) != ["satellite"]:
        raise NotACommand("takes the word satellite, which names the modem")
    return ()


HOLDABLE_KINDS = ("message", "location", "waypoint", "data")
"""Kinds of Packages that a command can hold back."""


def _read_kind(arguments: Sequence[str]) -> tuple[Argument, ...]:
    if len(arguments) != 1 or arguments[0] not in HOLDABLE_KINDS:
        raise NotACommand(sentence("takes one of {words}", words=", ".join(HOLDABLE_KINDS)))
    return (arguments[0],)


def _is_kind(arguments: tuple[Argument, ...]) -> bool:
    return len(arguments) == 1 and arguments[0] in HOLDABLE_KINDS


def _is_bare(arguments: tuple[Argument, ...]) -> bool:
    return not arguments


def _is_size(arguments: tuple[Argument, ...]) -> bool:
    return not arguments or (
        len(arguments) == 1 and is_in_range(arguments[0], minimum=20, maximum=ANSWER_BYTES_MAX)
    )


def _is_package(arguments: tuple[Argument, ...]) -> bool:
    return (
        bool(arguments) and is_in_range(arguments[0], minimum=-(2**31)) and _is_size(arguments[1:])
    )


def get_answer_size(arguments: Sequence[Argument]) -> int:
    """Return the maximum size of the answer in bytes: the last argument if it is a number,
    otherwise the default.
    """
    last = arguments[-1] if arguments else ANSWER_BYTES
    return last if isinstance(last, int) else ANSWER_BYTES


def _get_size(arguments: tuple[Argument, ...]) -> int:
    return get_answer_size(arguments)


def _get_package_size(arguments: tuple[Argument, ...]) -> int:
    return get_answer_size(arguments[1:])


def _read_settings(arguments: Sequence[str]) -> tuple[Argument, ...]:
    """Return only the lines with settings. The program that signs the settings adds the other
    arguments (`wire.settings_change`).
    """
    if not arguments or not all(_SETTING.fullmatch(each) for each in arguments):
        raise NotACommand("takes settings, each as NAME=VALUE; NAME= removes one")
    return ("\n".join(arguments),)


_SETTING = re.compile(r"[a-z0-9-]+=[^\n]*")


def _is_signed_settings(arguments: tuple[Argument, ...]) -> bool:
    match arguments:
        case [str(), str(lines), bytes(first), str(comment), bytes(second)]:
            return bool(lines) and SignatureParts(first, comment, second).has_valid_form()
    return False


KEY_STEPS = ("1", "2", "3")
"""Steps of a change of a group's radio-key: receive with both keys, send with the new key, use only
the new key."""
SEALED_KEY_BYTES = 41
"""Size of a key that is sealed by `wire.sealed_key`."""


def _read_key_step(arguments: Sequence[str]) -> tuple[Argument, ...]:
    """Return only the step. The program that has the key adds the sealed key
    (`wire.sealed_key`).
    """
    if len(arguments) != 1 or arguments[0] not in KEY_STEPS:
        raise NotACommand(sentence("takes a step: {steps}", steps=", ".join(KEY_STEPS)))
    return (int(arguments[0]),)


def _is_key_step(arguments: tuple[Argument, ...]) -> bool:
    match arguments:
        case [int(step), bytes(key)]:
            return str(step) in KEY_STEPS and len(key) == SEALED_KEY_BYTES
    return False


def _read_file(arguments: Sequence[str]) -> tuple[Argument, ...]:
    """Return only the file. The program that reads the file replaces it by the digest of its
    contents (`wire.signed_delta`).
    """
    if len(arguments) != 1:
        raise NotACommand("takes a file made by build/delta, with its signature in the same folder")
    return (arguments[0],)


def _is_digest(arguments: tuple[Argument, ...]) -> bool:
    match arguments:
        case [bytes(digest)]:
            return len(digest) == DIGEST_BYTES
    return False


def _get_sentence_size(arguments: tuple[Argument, ...]) -> int:
    return SENTENCE_BYTES


VERBS = (
    Verb(
        1,
        "status",
        "",
        "versions, disk, temperature, voltage, uptime, links, budget and clock, in 32 bytes",
        _read_nothing,
        _is_bare,
        lambda arguments: STATUS_BYTES,
        allowed=True,
    ),
    Verb(
        2,
        "log",
        "[BYTES]",
        "the newest warnings, compressed to that size (200)",
        _read_size,
        _is_size,
        _get_size,
        allowed=True,
    ),
    Verb(
        3,
        "show",
        "ID [BYTES]",
        "the history of a Package, compressed to that size (200)",
        _read_package,
        _is_package,
        _get_package_size,
        allowed=True,
    ),
    Verb(
        4,
        "trace",
        "[BYTES]",
        "the last that went over the satellite modem's line, without payloads (200)",
        _read_size,
        _is_size,
        _get_size,
        allowed=True,
    ),
    Verb(
        5,
        "retry",
        "satellite",
        "let the modem send waiting items now",
        _read_satellite,
        _is_bare,
        _get_sentence_size,
    ),
    Verb(
        6,
        "heal",
        "satellite",
        "the next step for a silent modem, now",
        _read_satellite,
        _is_bare,
        _get_sentence_size,
    ),
    Verb(
        7,
        "restart",
        "",
        "restart the agent",
        _read_nothing,
        _is_bare,
        _get_sentence_size,
    ),
    Verb(8, "reboot", "", "restart the computer", _read_nothing, _is_bare, _get_sentence_size),
    Verb(
        9,
        "set",
        "NAME=VALUE ...",
        "try settings that the operator has signed, and roll back if they fail",
        _read_settings,
        _is_signed_settings,
        _get_sentence_size,
    ),
    Verb(
        10,
        "hold",
        "KIND",
        "hold items of a kind (message, location, waypoint, data) back from satellite",
        _read_kind,
        _is_kind,
        _get_sentence_size,
    ),
    Verb(
        11,
        "resume",
        "KIND",
        "send items of that kind over satellite again",
        _read_kind,
        _is_kind,
        _get_sentence_size,
    ),
    Verb(
        12,
        "radio-key",
        "STEP",
        "a step of the change to a new radio-key; `hub device radio-key` sends it",
        _read_key_step,
        _is_key_step,
        _get_sentence_size,
        allowed=True,
    ),
    Verb(
        13,
        "update",
        "FILE",
        "try an update from a signed delta, and roll back if it fails",
        _read_file,
        _is_digest,
        _get_sentence_size,
    ),
)
"""All verbs that the hub can send to a kit."""
VERB_BY_NAME = {verb.name: verb for verb in VERBS}
VERB_BY_NUMBER = {verb.number: verb for verb in VERBS}


def parse_command(arguments: Sequence[str]) -> RemoteCommand:
    """Return the command that a person has written. Raises NotACommand."""
    verb = VERB_BY_NAME.get(arguments[0]) if arguments else None
    if verb is None:
        known_verbs = ", ".join(VERB_BY_NAME)
        raise NotACommand(
            sentence(
                "{value} is not a command: use {known}",
                value=repr(arguments[0] if arguments else ""),
                known=known_verbs,
            )
        )
    try:
        return RemoteCommand(verb.number, verb.read(arguments[1:]))
    except NotACommand as wrong:
        raise NotACommand(sentence("{name} {wrong}", name=verb.name, wrong=wrong)) from None


def format_command(command: RemoteCommand) -> str:
    """Return the command in the form for people."""
    verb = VERB_BY_NUMBER.get(command.verb)
    if verb is None:
        return f"command {command.verb}"
    # Signed settings also have a name and a signature as arguments. Leave these out.
    signed = len(command.arguments) > 1 and verb.name == "set"
    shown_arguments = str(command.arguments[1]).split("\n") if signed else command.arguments
    arguments = [str(each) for each in shown_arguments if not isinstance(each, bytes)]
    if verb.name == "update":
        arguments = [each.hex() for each in shown_arguments if isinstance(each, bytes)]
    fixed = [verb.argument_form] if verb.argument_form.islower() else []
    return " ".join([verb.name, *fixed, *arguments])


def get_verb(command: RemoteCommand) -> Verb:
    """Return the Verb of a command, from the table. Raises NotACommand if the verb is unknown or
    the arguments do not fit.
    """
    verb = VERB_BY_NUMBER.get(command.verb)
    if verb is None:
        raise NotACommand(f"this version knows no command {command.verb}")
    if not verb.can_have(command.arguments):
        raise NotACommand(f"{verb.name} cannot have these arguments")
    return verb


def encode_command(command: RemoteCommand) -> list[Any]:
    """Encode a command: return the members of its entry after the kind and the number."""
    return [command.verb, command.proof, *command.arguments]


def decode_command(verb: Any, proof: Any, *arguments: Any) -> RemoteCommand:
    """Parse a command. Raises ValueError for malformed data."""
    expect(is_in_range(verb, minimum=1), "verb")
    expect(isinstance(proof, bytes) and len(proof) <= 64, "proof")
    expect(len(arguments) <= ARGUMENTS_MAX and all(map(_is_argument, arguments)), "arguments")
    return RemoteCommand(verb, tuple(arguments), proof)


def _is_argument(value: Any) -> bool:
    if isinstance(value, str | bytes):
        return len(value) <= ARGUMENT_MAX_BYTES
    return is_int(value) and is_in_range(value)


def encode_answer(answer: CommandAnswer) -> list[Any]:
    """Encode an answer: return the members of its entry after the time."""
    return [answer.number, int(answer.outcome), answer.body or None]


def decode_answer(time: int, number: Any, outcome: Any, body: Any = b"") -> CommandAnswer:
    """Parse the answer to a command. Raises ValueError for malformed data."""
    expect(is_in_range(number, minimum=0), "number of a command")
    expect(is_in_range(outcome, minimum=0, maximum=max(CommandOutcome)), "outcome known here")
    return CommandAnswer(number, CommandOutcome(outcome), read_bytes(body))
