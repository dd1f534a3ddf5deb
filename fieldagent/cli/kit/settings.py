"""`fieldagent settings`: what became of the settings that the hub has brought last; and, for root's
unit, the steps that are left of them."""

from __future__ import annotations

import argparse
import json

from fieldagent.agent import outcomes
from fieldagent.kit import settings_trial
from fieldagent.kit.settings_trial import SettingsPlace
from fieldagent.system.exit_codes import ERROR, IO_FAILED, OK
from fieldagent.system.log_lines import complain, refuse_settings
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.terminal import escaped_lines
from fieldagent.system.wording import reason_of
from fieldagent.wire.kit_note import OfferReport

IN_WORDS = {
    "trial": "are on trial: they stay where the link to the hub and all channels return",
    "taken": "are in force",
    "refused": "were refused, and nothing was changed",
    "back": "did not do, and those of before are in force again",
}


def settings(given: argparse.Namespace) -> int:
    """Print what became of the last offer, and return ERROR where it was not taken. With --go-on,
    which is root's unit's, take the steps that are due."""
    if not given.go_on:
        return _last(outcomes.of_offer(given.state / outcomes.SETTINGS), given.json)
    place = SettingsPlace(given.state)
    try:
        return settings_trial.go_on(
            place, given.config, given.key, minutes=given.within, steady=given.steady
        )
    except InvalidSettings as wrong:
        return refuse_settings(wrong)
    except OSError as error:
        complain(f"settings from the hub wait: {reason_of(error)}")
        return IO_FAILED


def _last(found: OfferReport | None, as_json: bool) -> int:
    if as_json:
        told = None
        if found is not None:
            told = {"number": found.number, "state": found.state, "why": found.why or None}
        print(json.dumps(told))
    elif found is None:
        print("the hub has brought no settings yet")
    else:
        why = f": {found.why}" if found.why else ""
        print(escaped_lines(f"settings {found.number} {IN_WORDS[found.state]}{why}"))
    return ERROR if found is not None and found.why else OK
