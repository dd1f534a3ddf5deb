"""Which satellite operators there are. A new one is a module or folder beside this one, and a line
here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fieldagent.hub.operator.contract import OperatorKind
from fieldagent.system.named_object import named_object
from fieldagent.system.properties import WrongProperty

OPERATORS = {
    "directip": "fieldagent.hub.operator.directip:KIND",
    "rockblock": "fieldagent.hub.operator.rockblock:KIND",
    "cloudloop": "fieldagent.hub.operator.cloudloop:KIND",
}
"""By what a device's `operator` calls them; the first is that of a device which names none."""
DEFAULT = next(iter(OPERATORS))


def operators(own: Iterable[str] = ()) -> Mapping[str, OperatorKind]:
    """Return all there are by name, and those of third parties, each `package.module:NAME`.

    Raises WrongProperty, in words that follow `operators`.
    """
    kinds = [named_object(place, OperatorKind) for place in (*OPERATORS.values(), *own)]
    by_name = {kind.name: kind for kind in kinds}
    if len(by_name) < len(kinds):
        raise WrongProperty("names one that is there already")
    return by_name
