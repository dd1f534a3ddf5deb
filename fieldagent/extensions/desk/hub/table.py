"""Table of the hub's commands that this extension adds."""

from __future__ import annotations

from fieldagent.cli.argument_types import TYPES, read_minute
from fieldagent.cli.hub.table import make_hub_table
from fieldagent.page.language import ENGLISH, LANGUAGES


def read_watch_hours(text: str) -> tuple[int, int] | None:
    """Parse watch hours, and return their beginning and end in minutes since midnight. Both are
    equal for `always`. Return None for `none`.
    """
    if text in ("always", "none"):
        return (0, 0) if text == "always" else None
    start, end = text.split("-")
    return read_minute(start), read_minute(end)


read_watch_hours.__name__ = "hours such as 06:00-22:00, always or none"

COMMANDS = make_hub_table(
    f"""
contact [Alarms]: manage contacts, their chain, quiet hours and the watch
contact add -> contact_command:add: add a contact
  name: name of the person or duty; kits show it
  address: an e-mail address, a telephone number such as +41791234567 (SMS), or an Apprise URL such
      as tgram://… (needs apprise)
  --after 5m wait=0: time without an answer until this contact is notified, such as 30s, 5m or 2h
      (at once); contacts with the same time are one step
  --tries NUMBER 1..20=1: number of notifications until someone answers (1)
  --every 5m wait=300: time between two notifications (5m)
  --about (all|sos|alarms)=all: events of which the contact is notified; alarms come from the hub
      itself, such as an overdue kit (all)
  --language ({"|".join(LANGUAGES)})={ENGLISH}: language of the notifications (en)
contact list -> contact_command:list_contacts @table: list contacts in the order of notification
contact test -> contact_command:test: send a test to a contact
  id number: number in the list
contact remove -> contact_command:remove: remove a contact and everything that waits for it
  id number: number in the list
contact chain: show or test the order in which contacts are notified
contact chain list -> contact_command:show_steps @table: list the steps, and those that cannot work
contact chain test -> contact_command:test_steps: send a test to every contact, step by step
contact quiet: manage hours in which alarms wait, but never an SOS or an overdue kit
contact quiet set -> quiet_command:set_hours: set quiet hours
  hours 22:00-06:00|none: local times; an SOS or an overdue kit notifies at once all the same
  --zone ZONE =UTC: time zone, such as Europe/Zurich (UTC)
  --contact number: number of one contact (the whole workspace)
contact quiet inherit -> quiet_command:inherit: let a contact use the workspace's quiet hours again
  contact number: number of the contact
contact quiet list -> quiet_command:list_quiet_hours @table: list quiet hours
contact watch: manage the watch at the desk
contact watch show -> watch_command:show_watch @table: show who is on watch, and requested
      hand-overs
contact watch take -> watch_command:take_watch: put a dispatcher on watch
  user: name, number or e-mail address of the user
  --for 8h wait=28800 >length: length of the watch (8h)
contact watch hand-over -> watch_command:hand_over: request a hand-over; the watch stays until the
      other dispatcher accepts
  user: dispatcher on watch
  to: dispatcher who should take over
  --note NOTE =: information for that dispatcher
contact watch end -> watch_command:end_watch: end the watch of a dispatcher
  user: name, number or e-mail address of the user
  --note NOTE =: information for the next dispatcher
contact watch hours -> watch_command:set_hours: set the hours in which someone must be on watch
      (UTC); five minutes without anyone are an alarm
  hours 06:00-22:00|always|none watch_hours: times in UTC
""",
    "fieldagent.extensions.desk.hub",
    {**TYPES, "watch_hours": read_watch_hours},
)
