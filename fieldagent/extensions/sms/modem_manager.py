"""Arguments and output of `mmcli`, the command of ModemManager, for text messages. No I/O.

With `-J` mmcli prints one JSON object, in which a missing value is "--". A command that fails
prints `error:` and the reason to standard error and exits with 1. Messages have object paths that
end with a number. ModemManager joins the parts of a message. The forms are those of ModemManager
1.20 (mmcli(1); D-Bus interfaces org.freedesktop.ModemManager1.Modem, .Modem.Messaging and .Sms).
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

from fieldagent.extensions.sms import sms_modem
from fieldagent.extensions.sms.sms_modem import GsmReply, SendResult
from fieldagent.package.strict_json import NotJson, check_depth
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.sms_pdu import Coding, Content, Deliver, StatusReport, Submit

ANY_MODEM = "any"
"""Name of the modem if there is only one."""
NONE = "--"
POLKIT_ACTION = "org.freedesktop.ModemManager1.Messaging"
_PATH = re.compile(r"/org/freedesktop/ModemManager1/SMS/([0-9]{1,9})", re.ASCII)
_ERROR = re.compile(r"^error: *(.+)$", re.MULTILINE)
_PLACES = "/org/freedesktop/ModemManager1/SMS/"


def make_modem_arguments(name: str) -> list[str]:
    """Return mmcli's arguments that query the state of a modem. `parse_modem` parses the output."""
    return ["-m", name, "-J"]


def make_list_arguments(name: str) -> list[str]:
    """Return mmcli's arguments that list the places of a modem's SMS. `parse_list` parses the
    output.
    """
    return ["-m", name, "-J", "--messaging-list-sms"]


def make_create_arguments(name: str, message: Submit) -> list[str]:
    """Return mmcli's arguments that create a text message. The text must not contain quotation
    marks, because mmcli cannot escape them.
    """
    report_wish = "yes" if message.report else "no"
    values = f"number='{message.number}',text='{message.content.text}'"
    return ["-m", name, f"--messaging-create-sms={values},delivery-report-request={report_wish}"]


def make_send_arguments(place: int, seconds: float) -> list[str]:
    """Return mmcli's arguments that send a created message. mmcli waits `seconds` for the
    network.
    """
    return ["-s", str(place), "--send", f"--timeout={seconds:.0f}"]


def make_query_arguments(place: int) -> list[str]:
    """Return mmcli's arguments that query one SMS and its state. `parse_message` parses the
    output.
    """
    return ["-s", str(place), "-J"]


def make_delete_arguments(name: str, place: int) -> list[str]:
    """Return mmcli's arguments that delete one SMS from the modem."""
    return ["-m", name, f"--messaging-delete-sms={_PLACES}{place}"]


class ManagedState(NamedTuple):
    state: str
    """State: locked, failed, disabled, enabled, searching, registered, connected…"""
    registered: bool
    bars: int | None
    """Signal bars, 0 to 5; None if the signal is unknown."""
    imei: str
    wants: str
    """Kind of unlock that a locked modem needs, such as sim-pin."""
    failure: str
    """Reason of a failure, such as sim-missing."""


class ManagedSms(NamedTuple):
    place: int
    message: Submit | Deliver | StatusReport | None
    """Content of the message; None if the agent does not use messages of this kind."""
    whole: bool = True
    """True if all parts of the message have arrived."""
    reference: int | None = None
    """Reference of a sent message."""


_REGISTERED = {"registered", "connecting", "connected", "disconnecting"}
_SMS_ALONE = {"home-sms-only", "roaming-sms-only"}


def parse_modem(output: str) -> ManagedState:
    """Parse the state of a modem. Raises RemoteProtocolError for malformed data."""
    details = _read_object(_read_json(output), "modem")
    generic, at_network = _read_object(details, "generic"), _read_object(details, "3gpp")
    quality = generic.get("signal-quality")
    value = quality.get("value") if isinstance(quality, dict) else None
    state = _read_text(generic, "state")
    alone = _read_text(at_network, "registration-state") in _SMS_ALONE
    percent = int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,3}", value) else None
    return ManagedState(
        state,
        state in _REGISTERED or alone,
        None if percent is None else min(5, -(-percent // 20)),
        _read_text(generic, "equipment-identifier") or _read_text(at_network, "imei"),
        _read_text(generic, "unlock-required"),
        _read_text(generic, "state-failed-reason"),
    )


def parse_list(output: str) -> list[int]:
    """Return the places of all messages. Raises RemoteProtocolError for malformed data."""
    paths = _read_json(output).get("modem.messaging.sms")
    if not isinstance(paths, list):
        raise RemoteProtocolError("mmcli lists no messages")
    matches = [_PATH.fullmatch(each) for each in paths if isinstance(each, str)]
    return sorted(int(each[1]) for each in matches if each is not None)


def parse_created(output: str) -> int:
    """Return the place of a created message. Raises RemoteProtocolError for malformed data."""
    match = _PATH.search(output)
    if match is None:
        raise RemoteProtocolError(
            f"mmcli does not name the message that it created: {output.strip()[:60]!r}"
        )
    return int(match[1])


def parse_message(place: int, output: str) -> ManagedSms:
    """Parse a text message. Raises RemoteProtocolError for malformed data."""
    message = _read_object(_read_json(output), "sms")
    content, properties = _read_object(message, "content"), _read_object(message, "properties")
    number, kind = _read_text(content, "number"), _read_text(properties, "pdu-type")
    named = _read_text(properties, "message-reference")
    reference = int(named) % 256 if re.fullmatch("[0-9]{1,9}", named) else None
    if kind == "deliver":
        at = _read_moment(_read_text(properties, "timestamp"))
        is_complete = _read_text(properties, "state") == "received"
        return ManagedSms(place, Deliver(number, _read_content(content), at), is_complete)
    if kind == "submit":
        return ManagedSms(place, Submit(number, _read_content(content)), True, reference)
    if kind == "status-report" and reference is not None:
        at = _read_moment(_read_text(properties, "timestamp"))
        discharged_at = _read_moment(_read_text(properties, "discharge-timestamp"))
        status = _STATUS.get(_read_text(properties, "delivery-state"), _TRYING)
        return ManagedSms(place, StatusReport(reference, number, at, discharged_at, status))
    return ManagedSms(place, None)


def _read_content(content: dict[str, Any]) -> Content:
    if data := _read_text(content, "data"):
        try:
            return Content(Coding.DATA, bytes.fromhex(data))
        except ValueError:
            raise RemoteProtocolError("mmcli shows octets that are not hexadecimal") from None
    return Content(Coding.UCS2, _read_text(content, "text").encode("utf-16-be", "replace"))


def _read_json(output: str) -> dict[str, Any]:
    try:
        check_depth(output)
        # mmcli does not escape all control characters.
        document = json.loads(output, strict=False)
    except (ValueError, NotJson):
        shown_output = output.strip()[:60]
        raise RemoteProtocolError(f"mmcli's answer is not JSON: {shown_output!r}") from None
    if not isinstance(document, dict):
        raise RemoteProtocolError("mmcli's answer is not a JSON object")
    return document


def _read_object(document: dict[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name)
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"mmcli does not report {name!r}")
    return value


def _read_text(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) and value != NONE else ""


def _read_moment(text: str) -> float:
    """Return the Unix time in a text, or 0 if the text contains no time."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0


_TRYING = 0x20
_STATUS = {
    "completed-received": 0x00,
    "completed-forwarded-unconfirmed": 0x01,
    "completed-replaced-by-sc": 0x02,
    "error-remote-procedure": 0x40,
    "error-incompatible-destination": 0x41,
    "error-connection-rejected": 0x42,
    "error-not-obtainable": 0x43,
    "error-qos-not-available": 0x44,
    "error-no-interworking-available": 0x45,
    "error-validity-period-expired": 0x46,
    "error-deleted-by-originating-sme": 0x47,
    "error-deleted-by-sc-administration": 0x48,
    "error-message-does-not-exist": 0x49,
    "temporary-fatal-error-congestion": 0x60,
    "temporary-fatal-error-sme-busy": 0x61,
    "temporary-fatal-error-no-response-from-sme": 0x62,
    "temporary-fatal-error-service-rejected": 0x63,
    "temporary-fatal-error-qos-not-available": 0x64,
    "temporary-fatal-error-in-sme": 0x65,
}
"""Values of TP-ST (3GPP TS 23.040, 9.2.3.15) by ModemManager's name. Other names are not final."""


def parse_error(errors: str) -> str:
    """Return mmcli's error as one line."""
    match = _ERROR.search(errors)
    error_text = match[1] if match is not None else errors.strip().partition("\n")[0]
    return error_text[:200] or "it printed nothing"


def is_not_allowed(errors: str) -> bool:
    """Return True if polkit refused this user."""
    return "Error.Core.Unauthorized" in errors


_NUMBERS = {
    "NotAllowed": 302,
    "InvalidPduParameter": 304,
    "InvalidTextParameter": 305,
    "SimNotInserted": 310,
    "SimPin": 311,
    "PhPin": 312,
    "SimFailure": 313,
    "SimBusy": 314,
    "SimWrong": 315,
    "SimPuk": 316,
    "SimPin2": 317,
    "SimPuk2": 318,
    "MemoryFull": 322,
    "NoNetwork": 331,
    "NetworkTimeout": 332,
}
"""Numbers of +CMS ERROR by their name in org.freedesktop.ModemManager1.Error.Message."""
_NAMED = re.compile(r"ModemManager1\.Error\.Message\.([A-Za-z0-9]+)")
NOT_ALLOWED = f"polkit does not allow {POLKIT_ACTION} to this user: see docs/how-to/sms.md"


def find_result(errors: str) -> SendResult:
    """Return the result of sending a message that failed. If the modem reported no error, the
    message may have been sent.
    """
    if is_not_allowed(errors):
        return SendResult(Outcome.NOT_SENT, reason=NOT_ALLOWED)
    match = _NAMED.search(errors)
    number = _NUMBERS.get(match[1]) if match is not None else None
    if number is not None:
        return sms_modem.find_result(GsmReply(False, (), number))
    return SendResult(Outcome.DOUBTFUL, reason=f"mmcli reports: {parse_error(errors)}")
