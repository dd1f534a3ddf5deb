"""Index of the newest Package of each collapseKey. Pure.

An SOS replaces an SOS and an ordinary Package; it is replaced only by another SOS.
"""

from __future__ import annotations

from collections.abc import Collection

Kind = tuple[int, bool]
"""The collapseKey, and True if its Package is an SOS."""


def yields(older: Kind | None, newer: Kind) -> bool:
    """Return True if the newer Package replaces the older."""
    return older is not None and older[0] == newer[0] and newer[1] >= older[1]


class CollapseIndex:
    def __init__(self) -> None:
        self._newest: dict[Kind, int] = {}

    def note(self, kind: Kind | None, key: int) -> None:
        if kind is not None:
            self._newest[kind] = key

    def drop(self, kind: Kind | None, key: int) -> None:
        """Forget a removed Package, if it was the newest of its kind."""
        if kind is not None and self._newest.get(kind) == key:
            del self._newest[kind]

    def replaceable(self, kind: Kind | None, taken: Collection[int]) -> list[int]:
        """Return the Packages that a new one of that kind replaces, except those that are taken."""
        if kind is None:
            return []
        collapse_key, sos = kind
        keys = [self._newest.get((collapse_key, each)) for each in [False, True][: 1 + sos]]
        return [key for key in keys if key is not None and key not in taken]

    def newer(self, kind: Kind | None, key: int) -> int | None:
        """Return the newest Package that has replaced it meanwhile; None if there is none."""
        if kind is None:
            return None
        collapse_key, sos = kind
        rivals = [self._newest.get((collapse_key, each)) for each in [True, False][: 2 - sos]]
        return max((rival for rival in rivals if rival is not None and rival > key), default=None)
