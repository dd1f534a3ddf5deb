"""`fieldagent reboot`: root's unit reboots the machine if the hub has requested this.

The agent itself may not reboot the machine. It writes a request that contains the id of the current
boot. If the unit finds another boot id, the machine has already rebooted, and the unit does
nothing.
"""

from __future__ import annotations

from pathlib import Path

from fieldagent.agent.outcomes import REBOOT
from fieldagent.agent.settings import load
from fieldagent.kit import kit_health
from fieldagent.kit.root_units import read_offer, remove_offer
from fieldagent.system.elapsed_time import BOOT
from fieldagent.system.exit_codes import IO_FAILED, OK, REFUSED
from fieldagent.system.log_lines import print_failure, refuse_settings
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.wording import describe_reason


def process_request(settings: Path) -> int:
    """Remove the agent's request. Reboot the machine unless it has already rebooted since the
    request. Return an exit code.
    """
    try:
        request_file = load(settings).state_directory / REBOOT
        if (boot := read_offer(request_file)) is None:
            print_failure(
                "no restart was requested for this kit: use `fieldagent hub command KIT reboot`"
            )
            return REFUSED
        remove_offer(request_file)
        if boot.decode("ascii", "replace").strip() != BOOT.read_text().strip():
            print_failure(
                "the machine does not restart, because it has already restarted since the request"
            )
            return REFUSED
        kit_health.call_systemctl("reboot")
    except InvalidSettings as wrong:
        return refuse_settings(wrong)
    except OSError as error:
        print_failure(f"the machine stays up: {describe_reason(error)}")
        return IO_FAILED
    return OK
