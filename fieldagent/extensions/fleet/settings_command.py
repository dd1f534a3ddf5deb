"""`fieldagent settings`: shows the result of the last settings from the hub. Root's unit also uses
this command to continue the trial of settings.
"""

from __future__ import annotations

import argparse
import json

from fieldagent.agent import outcomes
from fieldagent.extensions.fleet import settings_trial
from fieldagent.extensions.fleet.settings_trial import SettingsPlace
from fieldagent.system.exit_codes import ERROR, IO_FAILED, OK
from fieldagent.system.log_lines import print_failure, refuse_settings
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.terminal import escape_lines
from fieldagent.system.wording import describe_reason
from fieldagent.wire.kit_note import OfferReport

PHASE_TEXTS = {
    "trial": "are on trial: they stay if the link to the hub and all channels return",
    "taken": "are in force",
    "refused": "were refused, and nothing was changed",
    "back": "did not work, and the previous ones are in force again",
}


def show_last_result(arguments: argparse.Namespace) -> int:
    """Print the result of the last offer, and return ERROR if the offer was not accepted. With
    --go-on, for root's unit, take the due steps.
    """
    if not arguments.go_on:
        return _show_last(
            outcomes.read_offer_report(arguments.state / outcomes.SETTINGS), arguments.json
        )
    settings_place = SettingsPlace(arguments.state)
    try:
        return settings_trial.continue_trial(
            settings_place,
            arguments.config,
            arguments.key,
            minutes=arguments.within,
            steady=arguments.steady,
        )
    except InvalidSettings as wrong:
        return refuse_settings(wrong)
    except OSError as error:
        print_failure(f"settings from the hub wait: {describe_reason(error)}")
        return IO_FAILED


def _show_last(report: OfferReport | None, as_json: bool) -> int:
    if as_json:
        document = None
        if report is not None:
            document = {
                "number": report.number,
                "state": report.state,
                "why": report.reason or None,
            }
        print(json.dumps(document))
    elif report is None:
        print("no settings from the hub yet")
    else:
        reason_text = f": {report.reason}" if report.reason else ""
        print(escape_lines(f"settings {report.number} {PHASE_TEXTS[report.state]}{reason_text}"))
    return ERROR if report is not None and report.reason else OK
