"""Recovers the content of a damaged journal.

`pages.py` reads the rows from the pages of the file. `salvage.py` stores the intact rows.
"""

from fieldagent.system.extension import Extension

EXTENSION = Extension(
    "rescue of a damaged journal",
    salvage={"pages": "fieldagent.extensions.rescue.salvage:salvage"},
)
