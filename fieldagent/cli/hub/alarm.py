"""`fieldagent hub alarm …`: a dispatcher's actions on the hub's own alarms."""

from __future__ import annotations

from fieldagent.cli.hub.sos import (
    make_dispatcher_command,
    make_hand_over_command,
    make_list,
    make_show_command,
)
from fieldagent.hub.api import sos_desk
from fieldagent.hub.records.sos import ALARM

list_incidents = make_list(ALARM)
show = make_show_command(ALARM)
acknowledge = make_dispatcher_command(ALARM, sos_desk.acknowledge)
take_over = make_dispatcher_command(ALARM, sos_desk.take_over)
close = make_dispatcher_command(ALARM, sos_desk.close_incident)
note = make_dispatcher_command(ALARM, sos_desk.add_note)
hand_over = make_hand_over_command(ALARM)
