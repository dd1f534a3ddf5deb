"""Table of the hub's commands that this extension adds."""

from __future__ import annotations

from fieldagent.cli.hub.table import make_hub_table

COMMANDS = make_hub_table(
    """
user tak -> certificate_command:run_command: make a data package for a user's phone and the hub's
      TAK server; without a user, list the packages
  user?: name, number or e-mail address of the user
  --out FILE.zip path: file to write (tak-NUMBER.zip)
  --itak: in the format of iTAK, as a file or a code
  --qr: show a code for the phone's camera, valid once for 15 minutes, and write no file
  --trust FILE.zip path: without a user: write the trusted certificates for phones, if the hub has
      its own authority
  --revoke: revoke all packages of the user and close their connections
tak [Programs]: connect the hub to a team's TAK server
@json
  --json: print JSON
tak enroll -> enroll_command:enroll @json: fetch the hub's certificate from a team's TAK server
  host HOST: name or address of the server
  --user! USER: the hub's user at the server; the command asks for the password
  --port PORT port=8446: port for enrolment (8446)
  --ca-file FILE path: PEM file of the server's certificate authority (the system's authorities)
  --server-name NAME: name in the server's certificate, if it is not HOST
  --folder FOLDER path=.: existing folder for the three PEM files (this folder)
""",
    "fieldagent.extensions.tak",
)
