"""Commands and their answers, each verb of the table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.package.package import CommandAnswer, CommandOutcome, Package
from fieldagent.package.reading import read_package
from fieldagent.package.writing import encode_package
from fieldagent.wire import answer_text, kit_status
from fieldagent.wire.command import (
    ANSWER_BYTES_MAX,
    ARGUMENTS_MAX,
    STATUS_BYTES,
    VERBS,
    NotACommand,
    RemoteCommand,
    Verb,
    format_command,
    get_verb,
    parse_command,
)
from fieldagent.wire.credit import CREDIT_BYTES
from fieldagent.wire.envelope import EPOCH, Entry, decode, derive_key, encode
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.kit_status import KitStatus
from fieldagent.wire.proof import derive_command_key, is_command_proved, prove_command
from fieldagent.wire.sbd import MT_BYTES
from fieldagent.wire.sealed_key import seal_key

NUMBER = 1_790_000_000
KEY, OTHER = derive_command_key(bytes(range(32))), derive_command_key(bytes(32))
TAGGED = derive_key(bytes(range(32)), "MT")

EXAMPLES = {
    "show": "show 1234",
    "retry": "retry satellite",
    "heal": "heal satellite",
    "set": "set sos-repeat=900",
    "hold": "hold location",
    "resume": "resume location",
    "radio-key": "radio-key 1",
    "update": "update fieldagent.pyz.from-0123456789abcdef",
}
"""Examples of verbs with arguments."""


def example(verb: Verb) -> list[str]:
    return EXAMPLES.get(verb.name, verb.name).split()


DIGEST = bytes(range(8))
"""Digest of the file in the example."""
SIGNED = ("kit", "sos-repeat=900", bytes(74), "set", bytes(64))
"""Arguments from settings with the operator's signature."""


def written(verb: Verb) -> RemoteCommand:
    """Return the example in its sent form."""
    command = parse_command(example(verb))
    sealed = (1, seal_key(bytes(32), bytes(range(32))))
    made = {"set": SIGNED, "radio-key": sealed, "update": (DIGEST,)}
    return replace(command, arguments=made.get(verb.name, command.arguments))


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_command_survives_encoding_in_one_message(verb: Verb) -> None:
    command = prove_command(NUMBER, written(verb), KEY)
    body = encode([Entry(NUMBER, command)], key=TAGGED)
    (entry,) = decode(body, keys=[TAGGED]).entries
    assert entry == Entry(NUMBER, command, EPOCH)
    shown = ["update", DIGEST.hex()] if verb.name == "update" else example(verb)
    assert format_command(command).split() == shown
    assert get_verb(command) is verb
    # The operator's signature alone has more than two credits, but fits in one modem's message.
    most = {"set": MT_BYTES, "radio-key": 2 * CREDIT_BYTES}
    assert len(body) <= most.get(verb.name, CREDIT_BYTES)
    assert is_command_proved(NUMBER, command, [OTHER, KEY])


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_proof_covers_key_number_verb_and_arguments(verb: Verb) -> None:
    command = prove_command(NUMBER, written(verb), KEY)
    assert not is_command_proved(NUMBER, command, [OTHER])
    assert not is_command_proved(NUMBER + 1, command, [KEY])
    assert not is_command_proved(
        NUMBER, RemoteCommand(verb.number + 1, command.arguments, command.proof), [KEY]
    )
    assert not is_command_proved(
        NUMBER, RemoteCommand(verb.number, (*command.arguments, 1), command.proof), [KEY]
    )
    for other in (
        replace(command, verb=verb.number + 1),
        replace(command, arguments=(*command.arguments, 1)),
        replace(command, proof=b""),
    ):
        assert not is_command_proved(NUMBER, other, [KEY])


def test_verbs_have_unique_numbers_and_names() -> None:
    assert len({verb.number for verb in VERBS}) == len({verb.name for verb in VERBS}) == len(VERBS)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", "'' is not a command"),
        ("explode", "use status, log"),
        ("status now", "takes no arguments, not 'now'"),
        ("log 19", "20 to 1500"),
        ("log 9999", "20 to 1500"),
        ("log 100 200", "20 to 1500"),
        ("show", "the id of a Package"),
        ("show last", "the id of a Package"),
        ("show 7 nine", "20 to 1500"),
        ("retry", "takes the word satellite"),
        ("heal radio", "takes the word satellite"),
        ("hold sos", "one of message, location"),
        ("set", "each as NAME=VALUE"),
        ("set sos-repeat", "each as NAME=VALUE"),
    ],
)
def test_invalid_command_text_is_refused_with_the_reason(words: str, why: str) -> None:
    with pytest.raises(NotACommand, match=why):
        parse_command(words.split())


@pytest.mark.parametrize(
    ("number", "arguments"), [(99, ()), (1, (1,)), (2, ("x",)), (3, ()), (2, (7,))]
)
def test_unknown_verb_or_arguments_raise(number: int, arguments: tuple[int | str, ...]) -> None:
    with pytest.raises(NotACommand):
        get_verb(RemoteCommand(number, arguments))


@pytest.mark.parametrize(
    "command",
    [
        RemoteCommand(1, (1,) * (ARGUMENTS_MAX + 1)),
        RemoteCommand(1, ("x" * 2_001,)),
        RemoteCommand(1, (), bytes(65)),
        RemoteCommand(0),
    ],
)
def test_command_with_an_invalid_shape_is_reported_as_not_understood(
    command: RemoteCommand,
) -> None:
    envelope = decode(encode([Entry(NUMBER, command)]))
    assert not envelope.entries
    assert "kind 36 is damaged" in envelope.not_understood[0]


@pytest.mark.parametrize("outcome", CommandOutcome)
def test_answer_survives_encoding_on_air_and_in_the_journal(
    outcome: CommandOutcome,
) -> None:
    answer = CommandAnswer(NUMBER, outcome, b"\x00\xff")
    (entry,) = decode(encode([Entry(7, answer, NUMBER)])).entries
    assert entry == Entry(7, answer, NUMBER)
    package = Package(answer, priority=50)
    assert read_package(encode_package(package)) == package


STATUS = KitStatus(
    (0, 1, 0), 123, 12_340_000_000, 61, 48, 4_980, 7_200, 90_000, 12,
    ("ready", "not configured", "absent"), (4, None, None),
    3, 11, 39, "satellite", 1, 0, False,
)  # fmt: skip


def test_status_survives_encoding_in_32_bytes() -> None:
    assert len(kit_status.encode(STATUS)) == STATUS_BYTES
    assert kit_status.decode(kit_status.encode(STATUS)) == STATUS
    answer = CommandAnswer(NUMBER, CommandOutcome.DONE, kit_status.encode(STATUS))
    assert len(encode([Entry(50_000_000, answer, NUMBER)], key=TAGGED)) <= 100  # two credits
    assert (
        "version 0.1.0+123; disk 61 % used, 12.3 GB free; 48 °C; 4.98 V"
        in kit_status.format_lines(STATUS)
    )


def test_unknown_and_out_of_range_values_fit_the_status() -> None:
    huge = STATUS._replace(
        version=(999, 1, 2), since=10**9, disk_free=10**18, degrees=900, millivolts=10**6,
        uptime=10**12, starts=10**7, signals=(99, None, 0), credits_left=10**7, dead_letters=10**6,
        faults=10**4, trouble=True,
    )  # fmt: skip
    read = kit_status.decode(kit_status.encode(huge))
    assert (read.version[0], read.degrees, read.faults, read.trouble) == (255, 127, 127, True)
    none = STATUS._replace(degrees=None, millivolts=None, credits_left=None)
    assert kit_status.decode(kit_status.encode(none)) == none


@given(st.binary(max_size=40))
def test_any_bytes_are_a_status_or_an_error(body: bytes) -> None:
    try:
        kit_status.format_lines(kit_status.decode(body))
    except RemoteProtocolError:
        assert True


@given(st.lists(st.text(max_size=80), max_size=40), st.integers(20, ANSWER_BYTES_MAX))
def test_as_many_lines_as_fit_are_packed(lines: list[str], size: int) -> None:
    body = answer_text.pack_lines(lines, size)
    assert len(body) <= size
    text = answer_text.unpack(body)
    whole = "\n".join(lines).encode("utf-8", "replace").decode()
    assert text == whole or whole.startswith(text.removesuffix("…"))


def test_repeated_words_are_compressed() -> None:
    lines = [f"2026-09-21 WARNING no network: try {n}" for n in range(40)]
    assert answer_text.unpack(answer_text.pack_lines(lines, 200)).count("\n") > 20


@given(st.binary(max_size=60))
def test_any_bytes_are_text_or_an_error(body: bytes) -> None:
    try:
        assert isinstance(answer_text.unpack(body), str)
    except RemoteProtocolError as error:
        assert str(error)


def test_decompression_bomb_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="too long"):
        answer_text.unpack(answer_text.pack("a" * 10**6))
