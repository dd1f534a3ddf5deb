"""Each decoder as one function of untrusted bytes.

It returns, or raises a documented error of the decoder. Anything else is a fault. If a stream is
cut into frames, the result must not depend on the pieces in which the bytes arrive.
"""

from __future__ import annotations

import urllib.parse
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h11

from fieldagent.agent import settings as agent_settings
from fieldagent.agent.channels.recognition import UnrecognisedDevice
from fieldagent.extensions import NAMES
from fieldagent.http.limits import Limits
from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.protocol import MissingPart
from fieldagent.http.query import convert_to_origin_form, query_pairs, split_path
from fieldagent.kit.devices import get_all_kinds
from fieldagent.package.reading import InvalidPackage, parse_package
from fieldagent.package.strict_json import NotJson
from fieldagent.package.writing import make_canonical
from fieldagent.system.properties import InvalidSettings
from fieldagent.wire import (
    ax25,
    cobs,
    directip,
    envelope,
    fragments,
    gpsd,
    jwt,
    kiss,
    link,
    meshcore_companion,
    meshcore_kiss,
    meshtastic,
    nmea,
    node,
    rnode,
    rockblock,
    sbd,
    sms_frame,
    sms_pdu,
    strict_cbor,
    text_code,
)
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.lora import LoraSettings
from fieldagent.wire.protobuf import ProtobufSchema
from tests.http.serving import Requests

Decoder = Callable[[bytes], None]


def in_pieces(data: bytes) -> Iterator[bytes]:
    """Yield pieces whose length comes from the first byte, so that the fuzzer can choose it."""
    size = (data[0] if data else 0) % 16 + 1
    for start in range(0, len(data), size):
        yield data[start : start + size]


def read_envelope(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        original = envelope.decode(data)
        if original.entries:
            # Decoded data can be encoded again with the same meaning. (An entry without a time has
            # that of the first entry.)
            again = envelope.decode(envelope.encode(original.entries, origin=original.origin))
            said, heard = (
                [(e.sequence, e.content, e.sos) for e in each.entries] for each in (original, again)
            )
            assert said == heard
            packed = envelope.encode(original.entries, origin=original.origin, is_packed=True)
            if len(packed) <= envelope.PACKED_BYTES:
                read = [(e.sequence, e.content, e.sos) for e in envelope.decode(packed).entries]
                # A track contains its positions in the order of their numbers.
                assert Counter(read) == Counter(said)


def read_tagged(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        envelope.decode(data, keys=[bytes(32)])


def read_cbor(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        strict_cbor.decode_single(data)


def read_text(data: bytes) -> None:
    packed = data[: envelope.PACKED_BYTES]
    with suppress(RemoteProtocolError):
        text = text_code.unpack(packed)
        assert len(text) <= min(text_code.TEXT_MAX, text_code.CHARACTERS_PER_BYTE_MAX * len(packed))
        # Text that was packed in another way is packed again, unless UTF-8 is equally short.
        again = text_code.pack(text)
        assert text == (text_code.unpack(again) if isinstance(again, bytes) else again)


def join_slices(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        envelope.decode(fragments.join(dict(enumerate(in_pieces(data)))))


def read_link(data: bytes) -> None:
    """Decode messages, each after a byte with its length."""
    hello = link.LinkHello()
    ours = link.IpLink(hello)
    ours.receive(ours.make_hello())
    with suppress(RemoteProtocolError, LocalProtocolError):
        ours.send(b"one")
        while data:
            size = data[0]
            event = ours.receive(data[1 : 1 + size])
            if isinstance(event, link.MessageReceived):
                ours.acknowledge(event.number)
            data = data[1 + size :]


def converse(data: bytes) -> None:
    """Decode a modem's answers after each command of a driver."""
    for command in (
        sbd.AT_PREFIX,
        sbd.STATUS,
        sbd.READ_BINARY,
        sbd.make_write_command(2),
        sbd.SESSION,
    ):
        conversation = sbd.Conversation()
        conversation.send(command)
        for piece in in_pieces(data):
            conversation.receive_data(piece)
            while (event := conversation.next_event()) is not sbd.NEED_DATA:
                if isinstance(event, sbd.Ready):
                    conversation.send_payload(b"ab")
                elif isinstance(event, sbd.ModemReply):
                    try_each(_OF_A_REPLY, event)


_OF_A_REPLY: tuple[Callable[[sbd.ModemReply], Any], ...] = (
    sbd.parse_session,
    sbd.parse_status,
    sbd.parse_write,
    sbd.parse_serial_number,
    sbd.parse_number,
)
_OF_A_MESSAGE: tuple[Callable[[Any], Any], ...] = (
    directip.parse_mobile_originated,
    directip.parse_mobile_terminated,
    directip.parse_confirmation,
    directip.parse_mo_confirmation,
    directip.salvage_payload,
)


def try_each(readers: Iterable[Callable[[Any], Any]], value: Any) -> None:
    for read in readers:
        with suppress(RemoteProtocolError):
            read(value)


def read_kiss(data: bytes) -> None:
    whole, cut = kiss.KissDeframer(), kiss.KissDeframer()
    frames = list(whole.receive_data(data))
    assert frames == [frame for piece in in_pieces(data) for frame in cut.receive_data(piece)]
    assert whole.damaged == cut.damaged
    for _, content in frames:
        with suppress(RemoteProtocolError):
            ax25.decode(content)


def read_meshcore(data: bytes) -> None:
    """Decoded settings of a radio can be encoded again."""
    for _, content in kiss.KissDeframer().receive_data(data):
        if (word := meshcore_kiss.decode_message(content)) is None:
            continue
        settings = meshcore_kiss.decode_settings(word.content)
        if settings is not None:
            assert meshcore_kiss.encode_settings(settings) == word.content
            assert settings.format_settings()
        signal = meshcore_kiss.decode_signal(word.content)
        assert signal is None or (abs(signal.snr) <= 32 and abs(signal.rssi) <= 128)
        number = meshcore_kiss.decode_number(word.content)
        assert number is None or 0 <= number < 1 << 32


OF_A_COMPANION: tuple[Callable[[bytes], Any], ...] = (
    meshcore_companion.decode_self,
    meshcore_companion.decode_device,
    meshcore_companion.decode_sent,
    meshcore_companion.decode_ack,
    meshcore_companion.decode_advert,
    meshcore_companion.decode_time,
    meshcore_companion.decode_telemetry,
    meshcore_companion.describe_error,
)
TO_A_COMPANION: tuple[Callable[[bytes], Any], ...] = (
    meshcore_companion.decode_send_text,
    meshcore_companion.decode_send_channel_text,
    meshcore_companion.decode_position,
    meshcore_companion.decode_number,
)


def read_companion(data: bytes) -> None:
    """Contacts, channels and texts can be encoded again with the same meaning."""
    whole, cut = meshcore_companion.CompanionDeframer(), meshcore_companion.CompanionDeframer()
    frames = list(whole.receive_data(data))
    assert frames == [frame for piece in in_pieces(data) for frame in cut.receive_data(piece)]
    assert whole.damaged == cut.damaged
    for content in [*frames, data]:
        try_each((*OF_A_COMPANION, *TO_A_COMPANION), content)
        with suppress(RemoteProtocolError):
            contact = meshcore_companion.decode_contact(content)
            again = meshcore_companion.encode_contact(contact)
            assert meshcore_companion.decode_bare_contact(again)._replace(name="") == (
                contact._replace(name="")
            )
        with suppress(RemoteProtocolError):
            channel = meshcore_companion.decode_channel(content)
            said = meshcore_companion.encode_channel(channel)
            assert len(said) == len(content[1:50])
            assert meshcore_companion.is_private(channel) in (True, False)
        with suppress(RemoteProtocolError):
            text = meshcore_companion.decode_text(content)
            if text.type != meshcore_companion.TextType.SIGNED:
                again = meshcore_companion.encode_text(text)
                assert meshcore_companion.decode_text(again) == text._replace(snr=text.snr or 0.0)


def read_sms(data: bytes) -> None:
    """Decode SMS from and to a modem."""
    for sent in (False, True):
        with suppress(RemoteProtocolError):
            message = sms_pdu.decode(data, is_sent=sent)
            if isinstance(message, sms_pdu.StatusReport):
                assert message.state in sms_pdu.ReportState
            else:
                assert isinstance(message.content.text, str)


def read_sms_frame(data: bytes) -> None:
    """A decoded frame can be encoded again with the same meaning, and only its author's key matches
    its tag.
    """
    with suppress(RemoteProtocolError):
        frame = sms_frame.parse_frame(data.decode("utf-8", "replace"))
        again = sms_frame.parse_frame(frame.encode_text(bytes(32)))
        assert again.make_plain() == frame.make_plain()
        assert again.is_tagged_by(bytes(32))


SAID_BY_MESH: tuple[ProtobufSchema[Any], ...] = (meshtastic.FROM_RADIO, meshtastic.TO_RADIO)
IN_MESH_PACKETS: tuple[ProtobufSchema[Any], ...] = (
    meshtastic.POSITION,
    meshtastic.WAYPOINT,
    meshtastic.USER,
    meshtastic.ROUTING,
)


def read_meshtastic(data: bytes) -> None:
    """Frames of a host and of a radio can be encoded again with the same meaning."""
    whole, cut = meshtastic.Deframer(), meshtastic.Deframer()
    messages = list(whole.receive_data(data))
    assert messages == [each for piece in in_pieces(data) for each in cut.receive_data(piece)]
    assert whole.damaged == cut.damaged
    for message in [*messages, data]:
        for schema in SAID_BY_MESH:
            with suppress(RemoteProtocolError):
                content = schema.decode(message)
                # Compared as text: a float may be NaN, which equals nothing.
                assert repr(schema.decode(schema.encode(content))) == repr(content)
    try_each((each.decode for each in IN_MESH_PACKETS), data)


def read_rnode(data: bytes) -> None:
    """A setting that agrees with ours is equal to it, except for the step of the frequency."""
    ours = rnode.make_settings_commands(LoraSettings(869_525_000, 125_000, 8, 5), 14)
    for command, content in kiss.KissDeframer().receive_data(data):
        assert rnode.describe_setting(command, content)
        for each in ours:
            assert not rnode.is_same_value(each, content) or len(content) == len(each.content)
        rssi, snr = rnode.decode_rssi(content), rnode.decode_snr(content)
        assert rssi is None or -157 <= rssi <= 98
        assert snr is None or -32 <= snr <= 32
        battery = rnode.decode_battery(content)
        assert battery is None or 0 <= battery.percent <= 100


def read_cobs(data: bytes) -> None:
    whole, cut = cobs.CobsDeframer(300), cobs.CobsDeframer(300)
    frames = list(whole.receive_data(data))
    assert frames == [frame for piece in in_pieces(data) for frame in cut.receive_data(piece)]
    for coded in frames:
        with suppress(RemoteProtocolError):
            frame = cobs.decode(coded)
            assert cobs.decode(cobs.encode(frame)) == frame


def read_node(data: bytes) -> None:
    """Decode a node that sends a correct hello, and then anything in frames with correct
    checksums.
    """
    ours, other = node.NodeLink(node.NodeHello(boot=1)), node.NodeLink(node.NodeHello(boot=2))
    ours.open(0.0)
    other.open(0.0)
    other.receive_data(ours.data_to_send(), 0.0)
    ours.receive_data(other.data_to_send(), 0.0)
    while data:
        plain, data = data[1 : 1 + data[0]], data[1 + data[0] :]
        coded = cobs.encode(plain + zlib.crc32(plain).to_bytes(4, "big"))
        ours.receive_data(coded + cobs.DELIMITER, 0.0)
    while ours.next_event() is not None:
        pass
    ours.tick(1.0)


def read_directip(data: bytes) -> None:
    buffer = bytearray(data)
    with suppress(RemoteProtocolError):
        elements = directip.extract_message(buffer)
        if elements is not None:
            try_each(_OF_A_MESSAGE, elements)


def read_rockblock(data: bytes) -> None:
    text = data.decode("latin-1")
    form = dict(urllib.parse.parse_qsl(text))
    rockblock.parse_mobile_originated(form, now=0.0)
    with suppress(RemoteProtocolError):
        rockblock.verify_token(form, jwt.PublicKey(2**2047 + 1, 65537))
    with suppress(RemoteProtocolError):
        rockblock.parse_answer(data)


def read_key(data: bytes) -> None:
    with suppress(LocalProtocolError):
        jwt.parse_public_key(data.decode("latin-1"))


def read_gps(data: bytes) -> None:
    for line in data.split(b"\n"):
        with suppress(RemoteProtocolError):
            gpsd.parse_line(line)


def read_package(data: bytes) -> None:
    with suppress(NotJson, InvalidPackage):
        package = parse_package(data)
        # The id is not part of the content.
        assert parse_package(make_canonical(package).encode()) == replace(package, id=None)


def read_settings(data: bytes) -> None:
    with suppress(InvalidSettings):
        agent_settings.parse(data.decode("utf-8", "replace"), Path("agent.properties"), {})


def serve(data: bytes) -> None:
    """Check that each division into pieces gives the same requests and the same refusal."""
    assert _requests([data]) == _requests(in_pieces(data))


def _requests(pieces: Iterable[bytes]) -> list[Request | None]:
    """Return the requests that a handler would get, with None at the end after a refusal."""
    requests = Requests(Limits())
    seen: list[Request | None] = []
    with suppress(h11.LocalProtocolError):
        try:
            for piece in filter(None, pieces):
                requests.protocol.receive(piece)
                while not isinstance(request := requests.next(), MissingPart):
                    seen.append(request)
                    answer = Response(204)
                    requests.protocol.respond(answer, date=b"", close=False, head_only=False)
                    if not requests.protocol.start_next_cycle():
                        return seen
        except Problem:
            seen.append(None)
    return seen


def read_target(data: bytes) -> None:
    text = data.decode("ascii", "ignore")
    with suppress(Problem):
        split_path(convert_to_origin_form(text, "localhost", False))
    with suppress(Problem):
        query_pairs(text)


def recognise_device(data: bytes) -> None:
    """Let each kind of device check any data from a port."""
    for kind in get_all_kinds():
        kind.is_answer(data)
    nmea.read_satellite_count(nmea.parse_sentences(data))
    assert UnrecognisedDevice(data, echoes=False).describe_facts()


DECODERS: dict[str, Decoder] = {
    "envelope": read_envelope,
    "tagged": read_tagged,
    "cbor": read_cbor,
    "text": read_text,
    "fragments": join_slices,
    "link": read_link,
    "modem": converse,
    "kiss": read_kiss,
    "meshcore": read_meshcore,
    "companion": read_companion,
    "sms": read_sms,
    "sms-frame": read_sms_frame,
    "rnode": read_rnode,
    "device": recognise_device,
    "meshtastic": read_meshtastic,
    "cobs": read_cobs,
    "node": read_node,
    "directip": read_directip,
    "rockblock": read_rockblock,
    "key": read_key,
    "gps": read_gps,
    "package": read_package,
    "settings": read_settings,
    "http": serve,
    "target": read_target,
}


def all_decoders() -> dict[str, Decoder]:
    """Return the decoders of the core and of each extension that has a `decoders` module."""
    decoders = dict(DECODERS)
    for name in NAMES:
        if find_spec(f"tests.extensions.{name}.decoders") is not None:
            decoders |= import_module(f"tests.extensions.{name}.decoders").DECODERS
    return decoders
