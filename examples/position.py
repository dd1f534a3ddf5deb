#!/usr/bin/env python3
"""Posts a position and prints its terminal status: position.py LATITUDE LONGITUDE [PORT]"""

import json
import sys
import urllib.request

if len(sys.argv) < 3:
    sys.exit(__doc__)
latitude, longitude = sys.argv[1:3]
port = sys.argv[3] if sys.argv[3:] else "9091"
package = {"location": {"latitude": latitude, "longitude": longitude}, "collapseKey": 1}
request = urllib.request.Request(
    f"http://127.0.0.1:{port}/api/package",
    json.dumps(package).encode(),
    {"Content-Type": "application/json"},
)
print(json.load(urllib.request.urlopen(request))["status"])
