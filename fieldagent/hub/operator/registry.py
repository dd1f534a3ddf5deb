"""Available satellite operators.

A new operator of the core is a module or folder in this package, and an entry in `OPERATORS`. An
extension adds its operator with `Extension.operators`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fieldagent.extensions import list_places
from fieldagent.hub.operator.contract import OperatorKind
from fieldagent.system.extension import import_named_object
from fieldagent.system.properties import WrongProperty

OPERATORS = {
    "directip": "fieldagent.hub.operator.directip:KIND",
    "rockblock": "fieldagent.hub.operator.rockblock:KIND",
}
"""Operators of the core by their name in a device's `operator`. The first operator is the
default."""
DEFAULT = next(iter(OPERATORS))


def get_operator_places() -> dict[str, str]:
    """Return the location of each operator of the core and of all extensions, by name."""
    return OPERATORS | list_places("operators")


def get_operators(places: Iterable[str] = ()) -> Mapping[str, OperatorKind]:
    """Return all operators by name. `places` are third-party operators in the form
    `package.module:NAME`.

    Raises WrongProperty with a text that follows the word `operators`.
    """
    kinds = [
        import_named_object(operator_place, OperatorKind)
        for operator_place in (*get_operator_places().values(), *places)
    ]
    by_name = {kind.name: kind for kind in kinds}
    if len(by_name) < len(kinds):
        raise WrongProperty("names one that already exists")
    return by_name
