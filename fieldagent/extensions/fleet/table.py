"""Table of the kit's commands that this extension adds."""

from __future__ import annotations

from fieldagent.cli.table import read_table

COMMANDS = read_table(
    """
update [Hub] -> update_command:update: install a signed update, and roll back if it fails
  = update, settings: install an update; show the hub's last settings
  what? FILE|URL|VERSION: the program, with its signature beside it; with Debian packages, a version
      that apt has (the newest)
  --older: install an older or the same version, too
  --last: show the result of the last update
  --json: print the result as JSON
  --offered: hidden
  --program PATH path=/usr/lib/fieldagent/fieldagent.pyz: program to replace
      (/usr/lib/fieldagent/fieldagent.pyz)
  @trial
settings -> settings_command:show_last_result: show the result of the last settings that the hub
      sent
  --json: print JSON
  @trial
reboot [hidden] -> reboot_command:reboot: reboot the machine if the hub sent that command (for the
      systemd unit)
  --config PATH path=/etc/fieldagent/agent.properties: settings file of the agent
      (/etc/fieldagent/agent.properties)
  --json: print nothing
@trial
  --key PATH path=/etc/fieldagent/update.pub: file with trusted minisign public keys
      (/etc/fieldagent/update.pub)
  --config PATH path=/etc/fieldagent/agent.properties: settings file of the agent
      (/etc/fieldagent/agent.properties)
  --state PATH path=/var/lib/fieldagent-update: folder for the trial (/var/lib/fieldagent-update)
  --within MINUTES positive=15: minutes until everything must work again (15)
  --steady SECONDS seconds=30: seconds that the program must run without a restart (30)
  --go-on: hidden
""",
    "fieldagent.extensions.fleet",
)
