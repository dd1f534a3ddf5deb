#!/usr/bin/env python3
"""An inbound hook that answers the message "where?" with the position of the kit.

inbound-hook=/path/to/hook.py [--port 9091]

It posts a message to the agent and does not wait for its status.
"""

import json
import sys
import urllib.request

port = sys.argv[2] if sys.argv[1:2] == ["--port"] else "9091"
URL = f"http://127.0.0.1:{port}/api/package/async"


def post(package: object) -> None:
    body, headers = json.dumps(package).encode(), {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(URL, body, headers), timeout=30) as answer:
        print(f"Package {json.load(answer)['id']} answers")


def main() -> int:
    for payload in json.load(sys.stdin)["payloads"]:
        for event in payload["events"]:
            if event["type"] == "Message" and event["content"].strip().lower() == "where?":
                try:
                    post({"message": {"content": "At the hut, 46.5 N 7.25 E"}})
                except OSError as error:
                    print(f"the agent cannot be reached: {error}")
                    return 75
    return 0


if __name__ == "__main__":
    sys.exit(main())
