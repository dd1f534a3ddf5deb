"""`fieldagent hub alarm …`: a dispatcher's actions on the hub's own alarms."""

from __future__ import annotations

from fieldagent.cli.hub.sos import make_answer, make_hand_over, make_list, make_show
from fieldagent.hub.api import sos_desk
from fieldagent.hub.records.sos import ALARM

list_incidents = make_list(ALARM)
show = make_show(ALARM)
acknowledge = make_answer(ALARM, sos_desk.acknowledge)
take_over = make_answer(ALARM, sos_desk.take_over)
close = make_answer(ALARM, sos_desk.close)
note = make_answer(ALARM, sos_desk.write_down)
hand_over = make_hand_over(ALARM)
