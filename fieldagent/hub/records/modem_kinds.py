"""The kinds of satellite modem that operators report."""

from __future__ import annotations

from fieldagent.extensions import list_places
from fieldagent.system.extension import import_named_object
from fieldagent.wire.modem_kind import SBD, ModemKind


def find_modem_kind(name: str) -> ModemKind:
    """Return the kind of modem with this name. An unknown kind is treated as SBD, because SBD has
    the smallest limits.
    """
    kind_place = list_places("modem_kinds").get(name)
    return SBD if kind_place is None else import_named_object(kind_place, ModemKind)
