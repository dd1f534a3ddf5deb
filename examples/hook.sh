#!/bin/sh
# An inbound hook: appends each message's sender and text to a file. `inbound-hook=/path/to/hook.sh /path/to/messages`
# The payload is JSON on standard input; exit 0 says that it is handed over, 75 asks to try again later.
set -eu
file=${1:-/var/lib/fieldagent/messages}
python3 -c '
import json, sys

for payload in json.load(sys.stdin)["payloads"]:
    for event in payload["events"]:
        if event["type"] == "Message":
            print(payload["identity"]["name"], event["content"], sep=": ")
' >>"$file" || exit 75
# What is printed goes to the log of the agent.
echo "written to $file"
