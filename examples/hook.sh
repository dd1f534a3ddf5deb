#!/bin/sh
# An inbound hook: appends each message's sender and text to a file. `inbound-hook=/path/to/hook.sh /path/to/messages`
# The payload is JSON on standard input. Exit code 0 accepts it, and 75 requests another try later.
set -eu
file=${1:-/var/lib/fieldagent/messages}
python3 -c '
import json, sys

for payload in json.load(sys.stdin)["payloads"]:
    for event in payload["events"]:
        if event["type"] == "Message":
            print(payload["identity"]["name"], event["content"], sep=": ")
' >>"$file" || exit 75
# The agent logs the output of a hook.
echo "written to $file"
