"""Table of a kit's commands. `fieldagent/cli/table.py` describes its form."""

from __future__ import annotations

from fieldagent.cli.items_table import ITEMS
from fieldagent.cli.table import read_table

CHANNEL = "(Satellite|Radio|Cellular) channel"
"""Pattern of a channel, in upper or lower case. The local API itself requires the exact names."""
COMMANDS = read_table(
    f"""
setup [Start] -> setup:run_setup: find connected devices and write settings
  places* PORT: a serial port, or tcp://host (all serial ports)
  --config FILE path: settings file (/etc/agent.properties for root)
  --set* NAME=VALUE setting=[]: a setting that the device cannot report, such as radio-station=7
  --yes: write without asking first
  --dry-run: show the settings without writing them
  --json: print JSON
check [Start] -> check:check: check settings and ports, and show what to fix
  --config FILE path: settings file
  --json: print JSON
run [Start] -> run:run: run the agent
  --config FILE path: settings file
  -v,--verbose: log every step
send [Start]: send a Package and wait for its status
  --dry-run: show the cost; send nothing
send message -> send:send(kind=message) @sending: send a text message
  @message
send location -> send:send(kind=location) @sending: send a position report
  @location
send waypoint -> send:send(kind=waypoint) @sending: send a point of interest
  @waypoint
send data -> send:send(kind=data) @sending: send raw bytes
  @data
send picture -> send:send(kind=picture) @sending: send a picture, as data
  @picture
sos [Alarm] -> sos:run_sos @waiting: send an SOS, repeated until someone answers
  content?: the text (SOS)
  --position+ PLACE: position: 47.3769 8.5417, or 32T MT 65000 47000 (the last posted position)
  | --cancel: cancel the SOS and notify the others
  | --take KIT NUMBER: take another kit's SOS (`fieldagent status` lists them)
  | --until-seen: wait until a person has seen the SOS
  | --answer: add the text to the open SOS; do not raise a new one
  | --words: list the canned messages that take one or two bytes by radio or satellite
  --by NAME: with --take: name of the person who takes over
  --yes: do not ask before sending
checkin [Alarm] -> watch:check_in @waiting: raise an alarm if nothing arrives from this kit
  |! --in 4h duration >within: longest time between two messages at the hub
  |! --done: stop the check-in
track [Packages] -> track:track @local: post positions from gpsd until stopped
  --gpsd HOST:PORT =127.0.0.1:2947: address of gpsd (127.0.0.1:2947)
  --interval positive=1800: seconds between two positions at rest (1800)
  --moving-interval positive=300: seconds between two positions in motion (300)
  --distance positive=500: metres after which the next position is due (500)
  --satellite-factor positive=4: factor for these intervals while only satellite is available (4)
  --collapse-key int=2947: key with which a newer position replaces an older one (2947)
  --batch SECONDS count: keep every position, to 1.1 m; over satellite positions wait up to this
      time to share a message, and --collapse-key and --satellite-factor have no effect
  --channel* {CHANNEL} >channels: only on this channel; can be repeated (all)
  --time-to-live SECONDS int: seconds until the agent gives up
cancel -> watch:cancel @local: cancel a waiting Package
  id int: number of the Package
  --channel {CHANNEL}: on this channel only
show -> watch:show_package @local: show the history of a Package
  id int: number of the Package
sent [Packages] -> listing:print_sent @local: list sent Packages, newest first
  = sent, show: list sent Packages; show the history of one
  --state (waiting|Delivered|Error|Collapsed|Canceled): only Packages with this status
  --kind (message|location|waypoint|data): only Packages of this kind
  --limit count=100: maximum number of Packages (100)
queue [Packages] -> watch:queue @local: show or clear waiting Packages
  = queue, cancel: show, clear or cancel waiting Packages
  --channel {CHANNEL}: only Packages that wait for this channel
  --clear: cancel all waiting Packages except an open SOS
status [Start] -> watch:print_status @local: show the state of the agent and its channels
people [Packages] -> listing:print_people @local: list addressees: users, groups and kits
neighbours -> listing:print_neighbours @local: list stations heard by radio: time, signal, and
      routes to the hub
commands [Hub] -> listing:print_commands @local: list commands from the hub, and the answers
inbound [Packages]: show inbound payloads and their results
inbound list -> watch:print_inbound @local: list inbound payloads
  --state (waiting|handed|dead): only payloads in this state; dead: refused by a hook
inbound read -> watch:mark_inbound_read @local: send a read receipt to the sender
  request_id REQUEST_ID: requestId of the payload
  --by NAME =: name of the reader
inbound replay -> watch:replay_inbound @local: pass payloads to the hooks again
  request_id* REQUEST_ID: requestId of each payload
  --dead: all payloads that hooks refused
satellite [Devices]: control the satellite modem
satellite retry -> satellite:retry @local: send waiting messages now; first place the antenna under
      the open sky
satellite trace -> satellite:print_trace @local: print the last traffic on the serial line, to find
      a fault
  --payloads: include the content of messages
  --channel {CHANNEL}=Satellite: channel (Satellite)
radio [Devices] -> setup:query_radio: show the radio at a port, its configuration and its faults
  = radio, neighbours: show a radio; list the stations it has heard
  place PORT: a serial port, or tcp://host
  --json: print JSON
page [Devices] -> page:print_page: show the page's address, or set its passphrase
  --config FILE path: settings file
  --set: set the passphrase: asks for it, or reads a line from standard input
  --qr: show the address as a QR code, too
  --wifi? FILE path const=/etc/hostapd/hostapd.conf: show a QR code with which phones join the kit's
      own network (/etc/hostapd/hostapd.conf)
  --json: print JSON
provision [hidden] -> provision:provision: read the settings from the card's boot partition
  --card FOLDER path: folder with the new settings (/boot/firmware, /boot)
  --config FILE path: settings file to write (/etc/agent.properties)
  --json: print JSON
clock [hidden] -> clock:set_system_clock: set the system clock to the agent's time, if no other
      service does (for the systemd unit)
  --config PATH path=/etc/fieldagent/agent.properties: settings file of the agent
      (/etc/fieldagent/agent.properties)
  --json: print the result as JSON
hub [Hub]: run and manage the hub (server)
  = hub, push: run and manage a hub; push an item through one
push: push an item to the field through a hub
@local
  --port port=9091: port of the agent (9091)
  --json: print JSON
@waiting
  --no-wait: return once the item is queued
  @local
@sending
  --id int: Package id (a free one)
  --channel* {CHANNEL} >channels: only on this channel; can be repeated (all)
  --priority int: higher values are sent first; 100 or more makes a message or position an SOS
  --collapse-key int: replace a waiting Package with the same key
  --time-to-live SECONDS int: seconds until the agent gives up
  --by SECONDS int: longest wait for a cheaper channel
  --to WHO: a user, a group, a kit, an e-mail address or a telephone number (everyone)
  --receipt =read: request a read receipt; `show` prints it
  --dry-run: show the cost; send nothing
  @waiting
{ITEMS}
""",
    "fieldagent.cli.kit",
)
HELP = read_table(
    """
help [Help]: show the help of a command
  command* COMMAND: such as send message
completion -> completion:print_completion: print the shell completion of this command
  shell (bash|zsh|fish): in bash and zsh: source <(fieldagent completion bash); in fish: fieldagent
      completion fish | source
manual [Help] -> manual:print_manual: print the manual page, for man -l - or a file
  = manual, completion: print the manual page, or a shell's completion
""",
    "fieldagent.cli",
)
"""Last commands of the list. `dispatch` treats `help` as the --help of the named command."""
