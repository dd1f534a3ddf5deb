"""Replaces `mmcli`: prints the answers of ModemManager 1.20 from the files of a folder.

It runs without our packages, because it replaces a third-party program.
"""

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

HOME = Path(os.environ["STAND_IN_MODEM"])
MESSAGES, FAULTS = HOME / "messages", HOME / "faults"
PATH = "/org/freedesktop/ModemManager1/SMS/"
ERRORS = "org.freedesktop.ModemManager1.Error"
MODEM: dict[str, Any] = {
    "3gpp": {"imei": "490154203237518", "registration-state": "home"},
    "dbus-path": "/org/freedesktop/ModemManager1/Modem/0",
    "generic": {
        "equipment-identifier": "490154203237518",
        "signal-quality": {"recent": "yes", "value": "67"},
        "state": "registered",
        "state-failed-reason": "--",
        "unlock-required": "--",
    },
}


def fault(name: str) -> str | None:
    try:
        return (FAULTS / name).read_text()
    except FileNotFoundError:
        return None


def fail(text: str) -> None:
    sys.exit(f"error: {text}")


def show(value: object) -> None:
    if (said := fault("no-json")) is not None:
        print(said)
    else:
        print(json.dumps(value, separators=(",", ":")))


def modem() -> None:
    generic = dict(MODEM["generic"])
    if (wants := fault("locked")) is not None:
        generic.update({"state": "locked", "unlock-required": wants})
    if (reason := fault("failed")) is not None:
        generic.update({"state": "failed", "state-failed-reason": reason})
    if fault("searching") is not None:
        generic["state"] = "searching"
    show({"modem": {**MODEM, "generic": generic}})


def create(properties: str) -> None:
    match = re.fullmatch(
        r"number='(\+[0-9]+)',text='([^']+)',delivery-report-request=(yes|no)", properties
    )
    if match is None:
        sys.exit(f"Error parsing properties string: '{properties}'")
    place = len(list(MESSAGES.iterdir())) + 1
    message = {
        "content": {"number": match[1], "text": match[2], "data": "--"},
        "properties": {"pdu-type": "submit", "state": "unknown", "message-reference": "--"},
    }
    (MESSAGES / str(place)).write_text(json.dumps(message))
    print(f"Successfully created new SMS: {PATH}{place}")


def send(place: str) -> None:
    if (reason := fault("refuses")) is not None:
        (FAULTS / "refuses").unlink()
        fail(f"couldn't send the SMS: 'GDBus.Error:{reason}'")
    message = json.loads((MESSAGES / place).read_text())
    left = HOME / "left"
    with left.open("a") as file:
        file.write(f"SMS to {message['content']['number']}: {message['content']['text']!r}\n")
    if fault("hangs-after") is not None:
        signal.pause()
    if fault("loses") is not None:
        (FAULTS / "loses").unlink()
        fail("couldn't send the SMS: 'Timeout was reached'")
    reference = str(len(left.read_text().splitlines()))
    message["properties"].update({"state": "sent", "message-reference": reference})
    (MESSAGES / place).write_text(json.dumps(message))
    print("successfully sent the SMS")


def main(arguments: list[str]) -> None:
    if fault("hangs") is not None:
        signal.pause()
    if fault("floods") is not None:
        while True:
            print("x" * 65_536)
    words = {word: value for word, _, value in (each.partition("=") for each in arguments)}
    if fault("no-modem") is not None:
        fail("couldn't find modem")
    if "-s" in words:
        place = arguments[arguments.index("-s") + 1]
        if not (MESSAGES / place).exists():
            fail(f"couldn't find SMS at '{PATH}{place}': 'not found in any modem'")
        if "--send" in words:
            send(place)
        else:
            show({"sms": {"dbus-path": PATH + place, **json.loads((MESSAGES / place).read_text())}})
        return
    changes = {"--messaging-create-sms", "--messaging-delete-sms"} & words.keys()
    if changes and fault("not-allowed") is not None:
        action = "org.freedesktop.ModemManager1.Messaging"
        reason = f"PolicyKit authorization failed: not authorized for '{action}'"
        fail(f"couldn't: 'GDBus.Error:{ERRORS}.Core.Unauthorized: {reason}'")
    if "--messaging-list-sms" in words:
        places = sorted((each.name for each in MESSAGES.iterdir()), key=int)
        show({"modem.messaging.sms": [PATH + each for each in places]})
    elif "--messaging-create-sms" in words:
        create(words["--messaging-create-sms"])
    elif "--messaging-delete-sms" in words:
        (MESSAGES / words["--messaging-delete-sms"].removeprefix(PATH)).unlink()
        print("successfully deleted SMS from modem")
    else:
        modem()


if __name__ == "__main__":
    main(sys.argv[1:])
