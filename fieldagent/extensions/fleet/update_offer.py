"""`fieldagent update --offered`: root's unit installs the program that the hub has offered, or
records the reason why it refuses.

An offer contains a version and a URL. The file at this URL must be signed by the builder of this
kit's programs and must have the offered version. This version must be newer than the current
program. So a compromised hub cannot install anything else. The offer is removed when its trial is
on disk, or when the reason for the refusal is recorded. So a power failure does no harm at any
time.
"""

from __future__ import annotations

import time
from pathlib import Path

from fieldagent.agent import outcomes
from fieldagent.agent.outcomes import PROGRAM_DELTA, PROGRAM_OFFER
from fieldagent.agent.settings import load
from fieldagent.extensions.fleet import update
from fieldagent.extensions.fleet.fetching import ServerUnreachable, UpdateRefused
from fieldagent.extensions.fleet.settings_trial import SettingsPlace
from fieldagent.extensions.fleet.trial import Place
from fieldagent.extensions.fleet.update_order import UpdateOrder
from fieldagent.kit.root_units import lock_folder, read_offer, remove_offer
from fieldagent.system.exit_codes import IO_FAILED, OK, REFUSED
from fieldagent.system.log_lines import print_failure, refuse_settings
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.terminal import escape_lines
from fieldagent.system.wording import describe_reason
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.kit_note import ProgramOffer, decode
from fieldagent.wire.signed_delta import SignedDelta, parse_payload

CHECK_INTERVAL_S = 5.0
"""Seconds between two checks for the end of another change."""
RETRY_PAUSES_S = (30.0, 120.0, 600.0)
"""Seconds before each further attempt to fetch the program."""


def process_offer(order: UpdateOrder, place: Place) -> int:
    """Process the hub's offer when nothing else is on trial. `order` contains the program to
    replace and the conditions of the trial. Return an exit code.
    """
    others = (place.trial, place.system, SettingsPlace(place.folder).trial)
    try:
        while True:
            with lock_folder(place.folder):
                # After a power failure, the other units continue their trials first.
                if not any(each.exists() for each in others):
                    return _process_stored_offer(order, place)
            time.sleep(CHECK_INTERVAL_S)
    except InvalidSettings as wrong:
        return refuse_settings(wrong)
    except OSError as error:
        print_failure(f"the program that the hub offered waits: {describe_reason(error)}")
        return IO_FAILED


def _process_stored_offer(order: UpdateOrder, place: Place) -> int:
    state = load(order.settings).state_directory
    offer_file = state / PROGRAM_OFFER
    if (body := read_offer(offer_file)) is None:
        return OK
    number, refused = _begin_offered_trial(order, place, body, state)
    if refused:
        print_failure(f"nothing was changed: {escape_lines(refused)}")
        outcomes.write_outcome(place.offered, number, "refused", refused)
    remove_offer(state / PROGRAM_DELTA)
    remove_offer(offer_file)
    return REFUSED if refused else OK


def _begin_offered_trial(
    order: UpdateOrder, place: Place, body: bytes, state: Path
) -> tuple[int, str]:
    """Begin the trial of an offer, unless this offer was already processed. Return the number of
    the offer, and the reason for a refusal or an empty string.
    """
    try:
        offer = decode(body)
    except RemoteProtocolError as error:
        return 0, str(error)
    if not isinstance(offer, ProgramOffer):
        return 0, "the agent's file offers no program"
    last = outcomes.read_offer_report(place.offered)
    if last is not None and last.number == offer.number:
        return offer.number, ""
    program_name = offer.url or "the program from a command"
    try:
        brought_delta = None if offer.url else _read_sent_delta(state)
        _begin(order._replace(what=program_name), place, offer, brought_delta)
    except UpdateRefused as refused:
        return offer.number, str(refused)
    return offer.number, ""


def _read_sent_delta(state: Path) -> SignedDelta:
    """Return the delta that the agent has stored beside its offer. Raises UpdateRefused if the
    delta is damaged.
    """
    try:
        return parse_payload(read_offer(state / PROGRAM_DELTA) or b"")
    except ValueError as wrong:
        raise UpdateRefused(f"the agent's offer: {wrong}") from None


def _begin(
    order: UpdateOrder, place: Place, offer: ProgramOffer, sent_delta: SignedDelta | None
) -> None:
    """Begin the update. If the server cannot be reached, try again. Raises UpdateRefused if the
    program is refused, or if the server stays unreachable.
    """
    for pause in RETRY_PAUSES_S:
        try:
            update.begin_update(order, place, offer, sent_delta)
            return
        except ServerUnreachable as away:
            print_failure(f"{away}; it is tried again in {pause:g} s")
            time.sleep(pause)
    update.begin_update(order, place, offer, sent_delta)
