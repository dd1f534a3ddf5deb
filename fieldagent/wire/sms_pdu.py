"""SMS in the form that a GSM modem uses in PDU mode (3GPP TS 23.040, 9.2; 27.005, 4).

A PDU begins with the service centre's address (SCA), followed by the TPDU, of which there are three
kinds. A SUBMIT goes to the network, a DELIVER comes from the network, and a STATUS-REPORT contains
the result of a SUBMIT. `encode` and `decode` convert all three to bytes and back. `split` divides a
text or data into the contents of one or more messages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire import sms_alphabet
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError

OCTETS = 140
"""Maximum octets of user data in one message."""
_NUMBER = re.compile(r"\+?[0-9*#]{1,20}", re.ASCII)
_DIGITS = "0123456789*#abc"
_DELIVER, _SUBMIT, _REPORT = 0, 1, 2
_RELATIVE, _ASKS_REPORT, _HEADER, _HAS_REPORT = 0x10, 0x20, 0x40, 0x20
_INTERNATIONAL, _UNKNOWN, _ALPHANUMERIC = 0x91, 0x81, 0xD0


class Coding(Enum):
    """Encoding of user data. The value is the data coding scheme on the air (TS 23.038, 4)."""

    GSM7 = 0x00
    DATA = 0x04
    UCS2 = 0x08


class Part(NamedTuple):
    """Position of a message among several (TS 23.040, 9.2.3.24.1)."""

    reference: int
    """Reference of all parts: 8 bits, or 16 from other senders."""
    total: int
    number: int
    """Number of the part, from 1."""


class Content(NamedTuple):
    """Text or bytes of one SMS, without the user data header."""

    coding: Coding
    body: bytes
    """Octets; with GSM7, one septet per byte."""
    part: Part | None = None

    @property
    def text(self) -> str:
        """Return the text of GSM7 or UCS2. An incomplete surrogate pair is replaced."""
        if self.coding is Coding.GSM7:
            return sms_alphabet.decode_septets(self.body)
        return self.body.decode("utf-16-be", "replace")


class Submit(NamedTuple):
    number: str
    """Telephone number in digits, with a plus sign if it is international."""
    content: Content
    report: bool = True
    """True if the network must send a status report."""
    validity: int = 0xA7
    """TP-VP, relative: A7 is 24 hours, FF 63 weeks (TS 23.040, 9.2.3.12.1)."""
    reference: int = 0
    """TP-MR. The modem replaces this number by its own."""


class Deliver(NamedTuple):
    number: str
    """Sender's number in digits, or a name. The sender can be forged."""
    content: Content
    at: float
    """Unix time at the service centre."""


class StatusReport(NamedTuple):
    reference: int
    """TP-MR of the SUBMIT: 8 bits, which repeat."""
    number: str
    """Receiver of the SUBMIT."""
    at: float
    """Unix time when the SUBMIT reached the service centre."""
    ended: float
    status: int
    """TP-ST (TS 23.040, 9.2.3.15)."""

    @property
    def state(self) -> ReportState:
        """Return the state of the message by the ranges of TS 23.040, 9.2.3.15."""
        if self.status == 0:
            return ReportState.DELIVERED
        if self.status < 0x20:
            return ReportState.UNCONFIRMED
        return ReportState.TRYING if self.status < 0x40 else ReportState.FAILED


class ReportState(Enum):
    DELIVERED = "delivered"
    """The receiver's handset has the message."""
    UNCONFIRMED = "unconfirmed"
    """The service centre has finished, and does not know whether a handset has the message."""
    TRYING = "trying"
    FAILED = "failed"


def split(content: str | bytes, reference: int) -> list[Content]:
    """Split a text or octets into the contents of one or more messages. Each part contains
    `reference` (0 to 255). Raises LocalProtocolError if more than 255 parts are needed.
    """
    if isinstance(content, bytes):
        return _split_into_parts(
            Coding.DATA, [content[at : at + 1] for at in range(len(content))], reference
        )
    if sms_alphabet.choose_alphabet(content) is sms_alphabet.Alphabet.GSM7:
        return _split_into_parts(
            Coding.GSM7, [sms_alphabet.encode_septets(each) for each in content], reference
        )
    units = [each.encode("utf-16-be", "replace") for each in content]
    return _split_into_parts(Coding.UCS2, units, reference)


_SIZES = {Coding.GSM7: (160, 153), Coding.DATA: (140, 134), Coding.UCS2: (140, 134)}
"""Maximum bytes of `Content.body` in one message, and in each part of several."""


def _split_into_parts(coding: Coding, units: Sequence[bytes], reference: int) -> list[Content]:
    """Distribute the units over parts. A unit is never split; it can be an escape with its
    character, or a surrogate pair.
    """
    whole, part = _SIZES[coding]
    if sum(map(len, units)) <= whole:
        return [Content(coding, b"".join(units))]
    bodies = [bytearray()]
    for unit in units:
        if len(bodies[-1]) + len(unit) > part:
            bodies.append(bytearray())
        bodies[-1] += unit
    if len(bodies) > 255:
        raise LocalProtocolError(f"it needs {len(bodies)} messages, but the maximum is 255")
    return [
        Content(coding, bytes(body), Part(reference, len(bodies), number))
        for number, body in enumerate(bodies, 1)
    ]


def encode(message: Submit | Deliver | StatusReport) -> bytes:
    """Encode a PDU with an empty SCA, because the modem knows the service centre's address. AT+CMGS
    needs the length without the first byte. Raises LocalProtocolError if the message cannot be
    encoded.
    """
    if isinstance(message, Submit):
        first = (
            _SUBMIT
            | _RELATIVE
            | (_ASKS_REPORT if message.report else 0)
            | _make_header_bit(message)
        )
        head = bytes((0, first, message.reference)) + _encode_address(message.number)
        scheme = bytes((0, message.content.coding.value, message.validity))
        return head + scheme + _encode_user_data(message.content)
    if isinstance(message, Deliver):
        # The flag 04 means that no more messages wait at the service centre.
        head = bytes((0, _DELIVER | 0x04 | _make_header_bit(message))) + _encode_address(
            message.number
        )
        scheme = bytes((0, message.content.coding.value))
        return head + scheme + _encode_moment(message.at) + _encode_user_data(message.content)
    head = bytes((0, _REPORT | 0x04, message.reference)) + _encode_address(message.number)
    return (
        head + _encode_moment(message.at) + _encode_moment(message.ended) + bytes((message.status,))
    )


def _make_header_bit(message: Submit | Deliver) -> int:
    return 0 if message.content.part is None else _HEADER


def _encode_address(number: str) -> bytes:
    """Return an address: number of digits, type, and digits, two per byte, swapped (9.1.2.5)."""
    if not _NUMBER.fullmatch(number):
        raise LocalProtocolError(f"{number!r} is not a telephone number")
    digits = number.removeprefix("+")
    kind = _INTERNATIONAL if number.startswith("+") else _UNKNOWN
    nibbles = [_DIGITS.index(each) for each in digits] + [0xF] * (len(digits) % 2)
    pairs = zip(nibbles[::2], nibbles[1::2], strict=True)
    return bytes((len(digits), kind)) + bytes(low | high << 4 for low, high in pairs)


def _encode_moment(unix: float) -> bytes:
    """Return a time in UTC, two digits per byte, swapped (9.2.3.11)."""
    at = datetime.fromtimestamp(unix, UTC)
    parts = (at.year % 100, at.month, at.day, at.hour, at.minute, at.second, 0)
    return bytes(part // 10 | part % 10 << 4 for part in parts)


def _encode_user_data(content: Content) -> bytes:
    """Return TP-UDL and TP-UD. Raises LocalProtocolError if the content is too long."""
    part, body = content.part, content.body
    header = b"" if part is None else bytes((5, 0, 3, part.reference, part.total, part.number))
    if content.coding is not Coding.GSM7:
        length = len(header) + len(body)
        if length > OCTETS:
            raise LocalProtocolError(f"{length} octets do not fit the {OCTETS} of a message")
        return bytes((length,)) + header + body
    # The header fills whole septets; one bit of its last septet is unused.
    skip = -(8 * len(header)) % 7
    length = (8 * len(header) + skip) // 7 + len(body)
    if length > 160:
        raise LocalProtocolError(f"{length} septets do not fit the 160 of a message")
    return bytes((length,)) + header + sms_alphabet.pack(body, skip)


def decode(pdu: bytes, *, is_sent: bool = False) -> Submit | Deliver | StatusReport:
    """Decode a PDU from a modem: a DELIVER or STATUS-REPORT. If `is_sent`, decode a SUBMIT for a
    modem. Raises RemoteProtocolError for malformed data.
    """
    reader = _Reader(pdu)
    reader.read_octets(reader.read_byte())  # Skip the SCA.
    first = reader.read_byte()
    kind = first & 0x03
    if is_sent or kind == _SUBMIT:
        if kind != _SUBMIT:
            raise RemoteProtocolError(f"it is not a SUBMIT: its first octet is {first:02X}")
        return _read_submit(reader, first)
    if kind == _DELIVER:
        number = reader.read_address()
        scheme = reader.bytes_of(2)[1]
        at = reader.read_moment()
        return Deliver(number, reader.read_content(scheme, header=bool(first & _HEADER)), at)
    if kind == _REPORT:
        reference = reader.read_byte()
        number = reader.read_address()
        return StatusReport(
            reference, number, reader.read_moment(), reader.read_moment(), reader.read_byte()
        )
    raise RemoteProtocolError("its type is reserved")


def _read_submit(reader: _Reader, first: int) -> Submit:
    reference, number = reader.read_byte(), reader.read_address()
    scheme = reader.bytes_of(2)[1]
    form, validity = first & 0x18, 0xFF
    if form == _RELATIVE:
        validity = reader.read_byte()
    elif form:
        reader.read_octets(7)
    content = reader.read_content(scheme, header=bool(first & _HEADER))
    return Submit(number, content, bool(first & _ASKS_REPORT), validity, reference)


class _Reader:
    def __init__(self, pdu: bytes) -> None:
        self._rest = pdu

    def read_octets(self, size: int) -> bytes:
        if size > len(self._rest):
            raise RemoteProtocolError("the PDU ends too soon")
        octets, self._rest = self._rest[:size], self._rest[size:]
        return octets

    bytes_of = read_octets

    def read_byte(self) -> int:
        return self.read_octets(1)[0]

    def read_address(self) -> str:
        length, kind = self.read_byte(), self.read_byte()
        if length > 20:
            raise RemoteProtocolError(f"a number has {length} digits")
        data = self.read_octets((length + 1) // 2)
        if kind & 0x70 == _ALPHANUMERIC & 0x70:
            return sms_alphabet.decode_septets(sms_alphabet.unpack(data, length * 4 // 7))
        nibbles = [nibble for each in data for nibble in (each & 0xF, each >> 4)][:length]
        if 0xF in nibbles:
            raise RemoteProtocolError("a number has fewer digits than its length field")
        plus = "+" if kind & 0x70 == _INTERNATIONAL & 0x70 else ""
        return plus + "".join(_DIGITS[each] for each in nibbles)

    def read_moment(self) -> float:
        """Read a time, and return it as Unix time. The time zone is in quarters of an hour, with
        its sign in bit 3 (9.2.3.11).
        """
        *fields, zone = self.read_octets(7)
        try:
            year, month, day, hour, minute, second = map(_read_decimal, fields)
            quarters = _read_decimal(zone & 0xF7)
            offset = timedelta(minutes=15 * (-quarters if zone & 0x08 else quarters))
            zoned = timezone(offset)
            at = datetime(2000 + year, month, day, hour, minute, second, tzinfo=zoned)
            return at.timestamp()
        except (ValueError, OverflowError) as error:
            raise RemoteProtocolError(f"its time is invalid: {error}") from None

    def read_content(self, scheme: int, *, header: bool) -> Content:
        coding = _read_coding(scheme)
        length, data = self.read_byte(), self._rest
        if coding is not Coding.GSM7:
            if length > min(OCTETS, len(data)):
                raise RemoteProtocolError(f"{len(data)} octets follow, but {length} should")
            data = data[:length]
        elif length > 160:
            raise RemoteProtocolError(f"{length} septets are more than a message has")
        if not header:
            body = data if coding is not Coding.GSM7 else sms_alphabet.unpack(data, length)
            return Content(coding, body)
        if not data or data[0] + 1 > len(data):
            raise RemoteProtocolError("its header is longer than the message")
        size = data[0] + 1
        part = _find_part(data[1:size])
        if coding is not Coding.GSM7:
            return Content(coding, data[size:], part)
        skip = -(8 * size) % 7
        septets = length - (8 * size + skip) // 7
        if septets < 0:
            raise RemoteProtocolError("its header is longer than the message")
        return Content(coding, sms_alphabet.unpack(data[size:], septets, skip), part)


def _read_decimal(octet: int) -> int:
    tens, ones = octet & 0xF, octet >> 4
    if tens > 9 or ones > 9:
        raise ValueError(f"{octet:02X} are not two digits")
    return 10 * tens + ones


def _read_coding(scheme: int) -> Coding:
    """Return the coding of a data coding scheme (TS 23.038, 4). Raises RemoteProtocolError if the
    text is compressed.
    """
    if scheme & 0xC0 == 0x00:
        if scheme & 0x20:
            raise RemoteProtocolError("its text is compressed")
        return (Coding.GSM7, Coding.DATA, Coding.UCS2, Coding.GSM7)[scheme >> 2 & 0x03]
    if scheme & 0xF0 == 0xE0:
        return Coding.UCS2
    if scheme & 0xF0 == 0xF0 and scheme & 0x04:
        return Coding.DATA
    return Coding.GSM7


def _find_part(header: bytes) -> Part | None:
    """Return the part from the first header element that contains it. Other elements are
    skipped.
    """
    while len(header) >= 2:
        kind, size = header[0], header[1]
        value, header = header[2 : 2 + size], header[2 + size :]
        if len(value) < size:
            raise RemoteProtocolError("an element of its header ends too soon")
        if (kind, size) in ((0, 3), (8, 4)):
            part = Part(int.from_bytes(value[:-2]), value[-2], value[-1])
            # Ignore an element with a count of 0, or with a number above the count.
            return part if 1 <= part.number <= part.total else None
    return None
