"""Table of the hub's commands. `fieldagent/cli/table.py` describes its form."""

from __future__ import annotations

from fieldagent.cli.argument_types import TYPES
from fieldagent.cli.table import Command, Types, read_table
from fieldagent.wire.command import VERBS

ENDINGS = """
@store
  --config FILE path: settings file (~/.config/fieldagent/hub.properties)
  --database WHERE: postgresql://… or the path of an SQLite file (as in the settings)
@whole
  @store
  --json: print JSON
@whole-table
  @whole
  --wide: all columns, also if they do not fit
@workspace
  --workspace WORKSPACE = $FIELDAGENT_WORKSPACE: number or name, if there are several; otherwise
      FIELDAGENT_WORKSPACE
  @whole
@table
  @workspace
  --wide: all columns, also if they do not fit
"""


def make_hub_table(text: str, package: str, types: Types = TYPES) -> list[Command]:
    """Return the commands of a table for `fieldagent hub`. Commands without their own ending work
    in one workspace.
    """
    return read_table(ENDINGS + text, package, types=types, above=("hub",), ending="@workspace")


_VERBS = "; ".join(
    f"{f'{each.name} {each.argument_form}'.strip()}: {each.description}" for each in VERBS
)
COMMANDS = make_hub_table(
    f"""
run [Service] -> run:run @store: run the hub
  = run, check: run the hub, or check whether it can start
  -v,--verbose: log every step
check -> check:check @whole: check the settings, database, certificate and ports of the hub
init [Service] -> directory:init @whole: create the database and the first workspace
  name: name of the workspace
  --administrator EMAIL: also add an administrator, and print a link for the first sign-in, valid
      for 7 days
  --once: do nothing if a workspace exists
database [Service]: back up, move or upgrade the database, or record a restore
database restored -> database:record_restore @whole: record that the database is a restored backup,
      so that no number is used twice
  --post: also post the items that kits have returned since the restore to webhooks
database backup -> database:back_up @whole: copy the database to FILE, also while a hub runs
  file FILE path: file to write
database move -> database:move @whole: copy the database of a stopped hub from SQLite to PostgreSQL,
      or back
  target TARGET: postgresql://… or the path of a new SQLite file
database migrate -> database:migrate @whole: create the tables in PostgreSQL, or upgrade them to
      this version
audit [Service] -> directory:show_audit_log @whole-table: show the audit log, newest first
  --limit count=100: maximum number of lines (100)
  --workspace WORKSPACE =: only of this workspace, by number or name
workspace [People]: manage workspaces, and export their data
workspace add -> directory:add_workspace @whole: add a workspace
  name: name of the workspace
workspace list -> directory:list_workspaces @whole-table: list workspaces
workspace delete -> deletion:delete(what=workspace) @whole: delete a workspace for good, with --yes
  named WORKSPACE: its name or number
  --yes: delete; without it, only list the consequences
workspace export -> export:write(what=workspace): export all data of a workspace into a new folder,
      as JSON lines and files
  folder FOLDER path: folder to create
user [People]: manage users, their roles, radios and tokens
user add -> directory:add_user: add a user
  name: name of the user, by which people address messages
  --type (User|Device|Integration|Resource)=User: a person, a device, a program or a thing (User)
  --email EMAIL =: e-mail address, for the sign-in
  --password: ask for a password (for Basic), or read a line from standard input
  @over-satellite
user join -> directory:join_user: add a user to another workspace
  user number: number of the user
  @over-satellite
user positions -> people:set_user_positions: set which positions of other kits a user's kits get
  user: name, number or e-mail address of the user
  rule (all|newest): every position, or the newest of each sender
user leave -> directory:end_membership: remove a user from a workspace
  user: name, number or e-mail address of the user
user password -> directory:set_user_password: set a user's password
  user: name, number or e-mail address of the user
user role -> directory:set_user_role: set the role of a user in the workspace
  user: name, number or e-mail address of the user
  role (member|observer|dispatcher|administrator): an observer reads everything, a dispatcher also
      answers, an administrator also manages users and devices
user radio -> people:set_user_radios: set the handheld radios of a user
  user: name, number or e-mail address of the user
  radios* RADIO: such as !a1b2c3d4; without one, all are removed
user token: manage Bearer tokens of users
user token add -> credentials:add_token: add a token; it is shown once
  name: what the token is for
  --user! USER: user of the token
  --days days: days until the token expires (never)
user token list -> credentials:list_credentials(what=token) @table: list tokens
user token revoke -> credentials:revoke(what=token): revoke a token
  id number: number in the list
user disable -> device:disable(what=member): disable a user
  named USER: name, number or e-mail address of the user
user enable -> device:enable(what=member): enable a user
  named USER: name, number or e-mail address of the user
user delete -> deletion:delete(what=user): delete a user for good, with --yes
  named USER: name, number or e-mail address of the user
  --yes: delete; without it, only list the consequences
user export -> export:write(what=user): export all data of a user into a new folder, as JSON lines
      and files
  named USER: name, number or e-mail address of the user
  folder FOLDER path: folder to create
user list -> directory:list_users @table: list users
group [People]: manage groups of users
group add -> people:add_group: add a group
  name: name of the group, by which people address messages
  users* USER: names, numbers or e-mail addresses of the users
  @over-satellite
group join -> people:join_group: add users to a group
  name: name of the group
  users+ USER: names, numbers or e-mail addresses of the users
group leave -> people:leave_group: remove users from a group
  name: name of the group
  users+ USER: names, numbers or e-mail addresses of the users
group satellite -> people:set_group_satellite: set whether items from kits reach a group over
      satellite, too
  name: name of the group
  rule (on|off): on: over satellite, too
group remove -> people:remove_group: remove a group
  name: name of the group
group list -> people:list_groups @table: list groups
device [Kits]: manage kits: settings, keys, dead letters
device add [Kit] -> device:add_device: add a device; its token is shown once
  name: name of the kit, for people
  --user! USER: user of the device
  --imei IMEI: IMEI of the satellite modem, 15 digits
  --operator NAME: satellite operator
  --thing ID: id of the modem at the operator, which the hub learns from the kit's first message
  --tagged: authenticate satellite messages
  --relay: the device may relay items of other kits
  --credits-per-day credits: maximum credits per UTC day for messages to the device
  --sos-reserve credits=0: number of these credits that only an SOS may use (0)
  --card FOLDER path: boot partition of a card; writes the kit's settings there, too
  --qr: show the kit's settings, with secrets, as a QR code
  --address URL: with --card and --qr: address of the hub for the kit
  == with --card: write kit.properties on a card of build/image, or cloud-init files on another
      card, such as Raspberry Pi OS
  --hostname HOSTNAME: host name of the kit (the device's name)
  --ssh-key* FILE path=[]: SSH public key for logins, such as ~/.ssh/id_ed25519.pub
  --login LOGIN =kit: user name for logins (kit); root on an image
  --wifi NAME: Wi-Fi to join; asks for its password, or reads a line
  --country CH =: country whose Wi-Fi rules apply
  --ca-file FILE path: certificate of the hub's own authority
  --update-key FILE path: minisign public key for updates of the kit
  --access-point NAME: Wi-Fi that the kit offers; asks for its password, or reads a line (images
      only)
  --kit-address ADDRESS =: address of its Ethernet port with the network, such as 192.168.1.5/24
      (images only)
  --gateway ADDRESS =: router of that network
  --dns ADDRESS =: name server of that network
  --time-zone ZONE =: time zone, such as Europe/Zurich (UTC; images only)
device token [Link] -> device:make_device_token: replace the link token of a device
  device: name, number or IMEI of the device
device rename [Kit] -> device:rename_device: rename a device
  device: name, number or IMEI of the device
  name: the new name
device imei [Satellite] -> device:set_device_imei: correct the IMEI of a device
  device: name, number or IMEI of the device
  imei: IMEI of the satellite modem, 15 digits
  --take: move the IMEI from the device that has it now
device contested [Satellite] -> device:list_contested @table: list IMEIs that two devices claim
device retry [Satellite] -> device:retry_device: retry messages that wait over satellite now
  device: name, number or IMEI of the device
device key [Satellite] -> device:set_device_key: replace the satellite-key of a device; it is shown
      once
  device: name, number or IMEI of the device
  | --given: ask for the key that the kit has, or read a line from standard input
  | --remove: remove the key; messages of the device are no longer authenticated
device relay [Link] -> device:set_device_relay: let a device relay items of other kits in their name
  device: name, number or IMEI of the device
  --off: stop relaying, except for an SOS
device checkin [Alarm] -> sos:set_device_check_in: raise an alarm if nothing arrives from a device
  device: name, number or IMEI of the device
  |! --every 12h duration: time after the last item of the device
  |! --by 18:00 minute: time of each day, in UTC
  |! --off: stop the check-in of the device
device set [Link] -> settings:offer_settings: send signed settings to a kit over its link
  device: name, number or IMEI of the device
  settings* NAME=VALUE: NAME= removes the setting
  --file path: file for the text to sign, or with the signed text (device-NUMBER.settings)
  --secret-key FILE path: sign the text here with this minisign key
device disable [Kit] -> device:disable(what=device): disable a device
  named DEVICE: name, number or IMEI of the device
device enable [Kit] -> device:enable(what=device): enable a device
  named DEVICE: name, number or IMEI of the device
device revoke [Alarm] -> device:revoke_device: revoke a stolen or lost kit: only its SOS still
      counts
  device: name, number or IMEI of the device
  --why TEXT =: reason, for administrators
  --new-radio-key: also change the radio-key of all other kits, as `hub device radio-key change`
      does
  @key-change
device restore [Alarm] -> device:restore_device: restore a revoked kit, and the items that it sent
      while revoked
  device: name, number or IMEI of the device
device radio-key [Link]: change the radio-key of all kits, in three steps
device radio-key change -> radio_key:change: begin the change; a step starts once all kits have
      completed the last one
  @key-change
device radio-key status -> radio_key:show_status: show the current step, and the kits that are
      behind
device radio-key leave-out -> radio_key:leave_out: continue without a kit; the kit gets the key once
      it is back
  device: name, number or IMEI of the device
device radio-key ask -> radio_key:ask: ask a kit again, such as one with a restored card, or over
      satellite
  device: name, number or IMEI of the device
  @agreement
device radio-key key -> radio_key:print_key: show the key, for kits that cannot reach the hub
device dead-letter [Satellite]: manage messages from the field that could not be used
device dead-letter list -> dead_letters:list_letters @whole-table: list dead letters by IMEI,
      with the reason
device dead-letter replay -> dead_letters:replay @whole: process dead letters that can
      be used now
device dead-letter assign -> dead_letters:assign: assign the dead letters of an IMEI to
      a device
  device: name, number or IMEI of the device
device dead-letter remove -> dead_letters:remove @whole: delete a dead letter for good
  id number: number in the list
device delete [Kit] -> deletion:delete(what=device): delete a device for good, with --yes
  named DEVICE: name, number or IMEI of the device
  --yes: delete; without it, only list the consequences
device list [Kit] -> device:list_devices @table: list devices
fleet [Kits] -> fleet:show_fleet @table: show the state of all kits, unusual ones first
command [Kits] -> command:send_command: send a command to a kit, and show its answer
  device KIT: name, number or IMEI of the device
  words* COMMAND: {_VERBS}; without a command, list the commands that were sent
  --by (ip|satellite): use only this bearer (the link, otherwise satellite)
  --secret-key FILE path: minisign key that signs the settings of `set`
  --yes: accept the satellite cost
  --wait SECONDS seconds=0: seconds to wait for the answer (0)
  --limit count=20: maximum number of commands (20)
usage [Kits]: compare satellite costs with the operator's bill
usage list -> usage:list_usage @table: list our count and the operator's for each kit and day
  --device DEVICE: only this device
  --since DAY day: first day, such as 2026-09-01 (31 days ago)
  --until DAY day: last day (today)
usage import -> usage:import_usage @whole: import an operator's count: a CSV file with whole days
  file FILE path: the operator's file
  --operator! NAME: operator of the file
  --columns WHAT=NAME,… pairs: names of the columns for imei, date, credits, bytes, reference
  --date-format FORMAT: format of dates, such as %d/%m/%Y
sos [Alarms]: answer, hand over and close SOS
  = sos, alarm: answer, hand over and close SOS; answer and close alarms
sos list -> sos:list_incidents @table: list SOS, newest first
  --state (open|seen|closed): only in this state
  --limit count=50: maximum number of SOS (50)
sos show -> sos:show @table: show an SOS with its timeline
  id number: number in the list
sos acknowledge -> sos:acknowledge: acknowledge an SOS: its kit is notified and stops repeating it
  id number: number in the list
  text? NOTE: text for the kit
  @dispatcher
sos take-over -> sos:take_over: take over an SOS from another dispatcher; its kit is notified
  id number: number in the list
  text? NOTE: text for the kit
  @dispatcher
sos close -> sos:close: close an SOS, with a reason
  id number: number in the list
  text REASON: how it ended
  @dispatcher
sos note -> sos:note: add a note to an SOS
  id number: number in the list
  text TEXT: the note, for dispatchers only
  @dispatcher
sos answer -> sos:answer: send an answer to the kit of an SOS
  id number: number in the list
  text TEXT: text for the kit
  @dispatcher
sos hand-over -> sos:hand_over: ask another dispatcher to take over
  @hand-over
alarm: answer and close alarms of the hub, such as an overdue kit
alarm list -> alarm:list_incidents @table: list alarms, newest first
  --state (open|seen|closed): only in this state
  --limit count=50: maximum number of alarms (50)
alarm show -> alarm:show @table: show an alarm with its timeline
  id number: number in the list
alarm acknowledge -> alarm:acknowledge: acknowledge an alarm
  id number: number in the list
  text? NOTE: note for the timeline
  @dispatcher
alarm take-over -> alarm:take_over: take over an alarm from another dispatcher
  id number: number in the list
  text? NOTE: note for the timeline
  @dispatcher
alarm close -> alarm:close: close an alarm, with a reason
  id number: number in the list
  text REASON: how it ended
  @dispatcher
alarm note -> alarm:note: add a note to an alarm
  id number: number in the list
  text TEXT: the note, for dispatchers only
  @dispatcher
alarm hand-over -> alarm:hand_over: ask another dispatcher to take over
  @hand-over
key [Programs]: manage keys of the push API
key add -> credentials:add_key: add a key; it is shown once
  name: what the key is for
  --kind* (message|location|waypoint|data): kinds that the key may push (all, unless it may read)
  --read: the key may read items, devices and positions
  --acknowledge: dispatchers may acknowledge an SOS with the key
  --administer: administrators may manage users and devices with the key
  --per-minute count=60: calls per minute (60)
  --burst count=60: maximum calls in a burst (60)
  --days days: days until the key expires (never)
key rate -> credentials:set_key_rate: change the rate limit of a key
  id number: number in the list
  --per-minute count: calls per minute
  --burst count: maximum calls in a burst
key list -> credentials:list_credentials(what=key) @table: list keys
key revoke -> credentials:revoke(what=key): revoke a key
  id number: number in the list
webhook [Programs]: manage webhooks, which get the items from agents
webhook add -> webhook:add: test a webhook and add it
  url: address that gets the items, https://…
  --secret* SECRET =[]: whsec_… (a new secret)
  --unsigned: post without a signature
  --username USERNAME: user for Basic; asks for the password, or reads a line
  --header* NAME:VALUE =[]: header of each post; can be repeated
  --after MINUTES 1..10080=0: post only an SOS that has had no answer for this time
  --batch ITEMS 1..100=0: post waiting items of one sender as an array of at most ITEMS
  --steps: also post the progress of each item and push
  --untried: add the webhook without a test post
webhook list -> webhook:list_webhooks @table: list webhooks
webhook test -> webhook:test: post a test message
  id number: number in the list
webhook enable -> webhook:enable: enable a disabled webhook
  id number: number in the list
webhook remove -> webhook:remove: remove a webhook and everything that waits for it
  id number: number in the list
webhook secret -> webhook:set_secret: replace the secret of a webhook, and print the new one
  id number: number in the list
  --secret* SECRET =[]: whsec_… (a new secret)
  --only: stop signing with the old secret at once
webhook dead -> webhook:list_dead @table: list dead letters
webhook replay -> webhook:replay: post dead letters again
  request_id? REQUEST_ID: numbers of dead letters (all)
@dispatcher
  --by USER =: dispatcher who does this (the only dispatcher)
@hand-over
  id number: number in the list
  to: dispatcher who should take over
  --note NOTE = >text: information for that dispatcher
  --by BY =: dispatcher who hands over (the only dispatcher)
@over-satellite
  --over-satellite: items from other kits reach this user over satellite, too
@key-change
  --but* KIT: do not wait for this kit; can be repeated
  --key-given: use this key, which is asked for or read from standard input, instead of a new one
  @agreement
@agreement
  --by (ip): do not use satellite: only links and neighbours' radio
  --yes: accept the satellite cost
""",
    "fieldagent.cli.hub",
)
