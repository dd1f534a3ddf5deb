"""Exit codes of commands. If sysexits.h has a suitable code, it is used."""

from __future__ import annotations

OK = 0
"""Delivered, or the command succeeded."""
ERROR = 1
"""The Package ended with the status Error."""
USAGE = 2
COLLAPSED = 3
CANCELED = 4
REFUSED = 65
"""EX_DATAERR: the agent refused the request. Nothing was queued."""
MISSING = 66
"""EX_NOINPUT: the named settings file is missing."""
NO_PERSON = 67
"""EX_NOUSER: there is no addressee with this name."""
UNAVAILABLE = 69
"""EX_UNAVAILABLE: no agent, hub or database answers."""
IO_FAILED = 74
"""EX_IOERR: the journal cannot be written."""
TAKEN = 75
"""EX_TEMPFAIL: another program uses the port, or another agent uses the state directory."""
NEWER = 76
"""A later version of the program has written the journal, or the hub's database belongs to another
version."""
SETTINGS = 78
"""EX_CONFIG: the settings file has faults."""

OF_STATUS = {"Delivered": OK, "Error": ERROR, "Collapsed": COLLAPSED, "Canceled": CANCELED}

MEANINGS = (
    "0 Delivered or done, 1 Error, 2 wrong usage, 3 Collapsed, 4 Canceled, 65 refused,"
    " 66 no such settings file, 67 no such addressee, 69 no agent or hub answers, 74 disk trouble,"
    " 75 the port or the state directory is taken, 76 another version's journal or database,"
    " 78 wrong settings"
)
