"""`fieldagent update`, as used by people and by root's unit."""

from __future__ import annotations

import argparse

from fieldagent.extensions.fleet import system_trial, system_update, trial, update_offer
from fieldagent.extensions.fleet import update as programs
from fieldagent.extensions.fleet.fetching import UpdateRefused
from fieldagent.extensions.fleet.system_slots import SystemSlots
from fieldagent.extensions.fleet.trial import Place
from fieldagent.extensions.fleet.update_order import UpdateOrder
from fieldagent.system import system_image
from fieldagent.system.exit_codes import IO_FAILED
from fieldagent.system.log_lines import print_failure, refuse_settings
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.terminal import escape_lines
from fieldagent.system.wording import describe_reason


def update(arguments: argparse.Namespace) -> int:
    """Install a program, or a whole system if the argument is a system image. With options,
    continue a started update, print the result of the last update, or (for root's unit) install the
    program that the hub has offered.
    """
    update_place, order = Place(arguments.state), _order(arguments)
    if arguments.offered:
        return update_offer.process_offer(order, update_place)
    try:
        if arguments.go_on:
            if update_place.system.exists():
                return system_trial.continue_trial(update_place, SystemSlots())
            return trial.continue_trial(update_place)
        if arguments.last:
            return programs.show_last(update_place, as_json=arguments.json)
        if order.what.endswith(system_image.SUFFIX):
            system_update.begin_system_update(order, update_place, SystemSlots())
            system_update.follow_trial(update_place)
            return programs.show_last(update_place, as_json=arguments.json)
        offered_trial = programs.begin_update(order, update_place)
    except UpdateRefused as refused:
        print_failure(f"nothing was changed: {escape_lines(str(refused))}")
        return refused.code
    except InvalidSettings as wrong:
        return refuse_settings(wrong)
    except OSError as error:
        as_root = "; only root can update: use sudo" if isinstance(error, PermissionError) else ""
        print_failure(f"the update stopped: {describe_reason(error)}{as_root}")
        return IO_FAILED
    return programs.follow_update(update_place, offered_trial, as_json=arguments.json)


def _order(arguments: argparse.Namespace) -> UpdateOrder:
    return UpdateOrder(
        what=arguments.what or "",
        program=arguments.program,
        settings=arguments.config,
        key=arguments.key,
        older=arguments.older,
        minutes=arguments.within,
        steady=arguments.steady,
    )
