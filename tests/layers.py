"""Checks imports, I/O in pure code, computed waits and calls of `trio.run`.

`tests/run` runs it as the step `layers`. It prints every fault and exits with 1 if there is one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "fieldagent"

GROUND = ["__init__", "system", "package", "wire", "store", "http", "page", "webhook"]
"""Packages that both programs use, lowest first. Each may import the packages before it."""
WINGS = ["agent", "hub"]
"""The packages of the two programs. Both may import `GROUND`. Neither may import the other."""
TOP = ["kit", "cli", "extensions", "__main__"]
"""Packages that may import `GROUND`, both programs and the packages before them."""

PURE = {
    "system.clock_bounds",
    "system.data_files",
    "system.lazy_dataclass",
    "system.lazy_named_tuple",
    "system.wording",
    "package",
    "wire",
    "webhook.schedule",
    "hub.webhook.flow",
    "extensions.imt.agent.trace",
    "extensions.imt.hub.lingo",
    "extensions.imt.jspr",
    "extensions.imt.messages",
    "extensions.mqtt.hub.documents",
    "extensions.mqtt.hub.topics",
    "hub.fleet.outliers",
    "agent.channels.air_pace",
    "extensions.people.aprs_wire",
    "extensions.places.hub.crossing",
    "extensions.places.hub.shape",
    "extensions.places.hub.week",
    "extensions.sms.agent.arrivals",
    "extensions.sms.agent.parts_kept",
    "extensions.sms.modem_manager",
    "extensions.sms.sms_modem",
    "extensions.mqtt.discovery",
    "extensions.mqtt.agent.documents",
    "extensions.mqtt.agent.topics",
    "extensions.tak.cot",
    "extensions.tak.events",
    "extensions.tak.map_events",
    "extensions.tak.lan.outward",
    "extensions.mqtt.packets",
    "agent.outbound.idle_time",
    "agent.outbound.queue",
    "cli.kit.track_policy",
    "cli.kit.wifi_code",
    "page.pmtiles",
}
"""Decisions and protocols. Of our modules they import only pure ones. They read no clock and do no
I/O, except that `system.data_files` reads files of the package."""
IMPURE = {
    "trio",
    "time",
    "socket",
    "select",
    "threading",
    "random",
    "sqlite3",
    "serial",
    "subprocess",
    "os",
    "pathlib",
}


IMPURE_CALL = re.compile(r"(?<!def )(?<![.\w])open\(|\bnow\(\)|\.today\(")

INSIDE = {
    "hub": [
        *("refusals", "store", "contract", "unavailable", "idle", "operator"),
        *(
            "records",
            "access",
            "contact",
            "part",
            "field",
            "api",
            "fleet",
            "bridge",
            "settings",
            "console",
        ),
        *("service", "webhook", "administration", "description", "hub"),
    ],
    "agent": [
        *("only_one", "outcomes", "page", "handbook"),
        *("entrance", "portal", "update_news"),
        *(
            "channels",
            "radios",
            "satellites",
            "kit_part",
            "satellite_settings",
            "settings",
            "from_afar",
            "network_page",
            "journal",
            "watchdog",
            "clock_offer",
            "bearer",
            "modem_healing",
        ),
        *("outbound", "gpsd", "refusals", "events", "inbound", "part_service", "station"),
        *("condition", "assembly", "drivers", "commands", "api", "description", "agent"),
    ],
    "cli": [
        *(
            "argument_types",
            "command_parser",
            "table",
            "items_table",
            "command_tree",
            "ask_password",
            "ask_key",
            "qr_code",
            "place",
            "item",
            "findings",
        ),
        *("kit", "hub"),
        *("arguments", "completion", "manual"),
    ],
}
"""The packages inside agent, hub and cli, lowest first. Each may import the packages before it."""

LIST = "extensions.__init__"
"""The list of extensions. Each package may import it, because it names extensions only in
strings."""

WAITS_TAKE_S = {"sleep", "move_on_after", "fail_after"}
"""Functions of trio that take seconds and refuse a negative number."""


class Tree:
    """The modules below a package's folder, by dotted name, with what each one imports."""

    def __init__(self, root: Path = PACKAGE) -> None:
        self.sources = {
            ".".join(path.relative_to(root).with_suffix("").parts): path.read_text()
            for path in sorted(root.rglob("*.py"))
        }
        self.imports = {name: imported(source) for name, source in self.sources.items()}
        self.packages = {
            name.removesuffix(".__init__") for name in self.sources if name.endswith(".__init__")
        }

    def ours(self, module: str) -> set[str]:
        """Return the modules of this tree that `module` imports, without `LIST`."""
        names = {
            name.removeprefix("fieldagent.")
            for name in self.imports[module]
            if name.startswith("fieldagent.")
        }
        inits = {f"{name}.__init__" for name in names}
        return (names | inits) & self.sources.keys() - {LIST}

    def children(self, package: str) -> dict[str, set[str]]:
        """Map each child of `package` to the siblings that it imports."""
        prefix = f"{package}." if package else ""

        def child(name: str) -> str:
            return name.removeprefix(prefix).partition(".")[0]

        arrows: dict[str, set[str]] = {}
        for module in self.sources:
            if module.startswith(prefix):
                beside = {child(name) for name in self.ours(module) if name.startswith(prefix)}
                arrows.setdefault(child(module), set()).update(beside - {child(module)})
        return arrows


def imported(source: str) -> set[str]:
    """Return the dotted names that a module's source imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def is_pure(module: str) -> bool:
    """Return True if `PURE` names the module or a package around it."""
    parts = module.split(".")
    return any(".".join(parts[:size]) in PURE for size in range(1, len(parts) + 1))


def upward_imports(tree: Tree) -> Iterator[str]:
    """Yield forbidden imports: of a package later in the order, or of the other program."""
    for module in tree.sources:
        room = module.partition(".")[0]
        rooms = {name.partition(".")[0] for name in tree.ours(module)} - {room}
        for other in sorted(rooms - _rooms_below(room)):
            yield f"{module} imports {other}, which is above or across"
    for wing, rooms_upward in INSIDE.items():
        order = ["__init__", *rooms_upward]
        arrows = tree.children(wing)
        for room in sorted(arrows.keys() ^ {*order}):
            yield f"{wing}.{room} has no module or no place in INSIDE"
        for room in order:
            for other in sorted(arrows.get(room, set()) - {*order[: order.index(room)]}):
                yield f"{wing}.{room} imports {wing}.{other}, which is above"


def imports_between_extensions(tree: Tree) -> Iterator[str]:
    """Yield imports of one extension by another: both could not be deleted separately."""
    for extension, others in sorted(tree.children("extensions").items()):
        for other in sorted(others):
            yield f"extensions.{extension} imports extensions.{other}"


def _rooms_below(room: str) -> set[str]:
    if room in GROUND:
        return {*GROUND[: GROUND.index(room)]}
    if room in WINGS:
        return {*GROUND}
    return {*GROUND, *WINGS, *TOP[: TOP.index(room)]}


def circles(tree: Tree) -> Iterator[str]:
    """Yield import cycles of modules or of packages, at any depth."""
    for package in ["", *sorted(tree.packages - {"__init__"})]:
        try:
            TopologicalSorter(tree.children(package)).prepare()
        except CycleError as error:
            yield f"{package or 'the top'}: imports form a circle: {error.args[1]}"


def impure_code(tree: Tree) -> Iterator[str]:
    """Yield I/O, clocks and impure imports in modules that `PURE` names."""
    for name in sorted(PURE - tree.sources.keys() - tree.packages):
        if name.startswith("extensions.") and ".".join(name.split(".")[:2]) not in tree.packages:
            continue  # This extension is deleted.
        yield f"PURE names {name}, which does not exist"
    for module in filter(is_pure, tree.sources):
        for name in sorted({each.partition(".")[0] for each in tree.imports[module]} & IMPURE):
            yield f"{module} is pure and imports {name}"
        for call in IMPURE_CALL.findall(tree.sources[module]):
            yield f"{module} is pure and calls {call}"
        ours = {name.removesuffix(".__init__") for name in tree.ours(module) if not is_pure(name)}
        for name in sorted(ours - tree.packages):
            yield f"{module} is pure and imports {name}, which is not"


def computed_waits(tree: Tree) -> Iterator[str]:
    """Yield waits whose length is computed outside `system.waits`: it could be negative."""
    for module, source in tree.sources.items():
        if module != "system.waits":
            for wait in waits_of_computed_length(source):
                yield f"{module}: {wait} belongs in system.waits"


def waits_of_computed_length(source: str) -> list[str]:
    """Return the waits in a module's source whose length is no constant."""
    waits = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module="trio"):
                # A wait under another name would be missed.
                waits += [each.name for each in node.names if each.name in WAITS_TAKE_S]
            case ast.Call(func=ast.Attribute(value=ast.Name(id="trio"), attr=name)):
                lengths = [*node.args, *(each.value for each in node.keywords)]
                relative = any(each.arg == "relative_deadline" for each in node.keywords)
                if relative or (name in WAITS_TAKE_S and not all(map(_is_constant, lengths))):
                    waits.append(ast.unparse(node))
    return waits


def _is_constant(length: ast.expr) -> bool:
    match length:
        case ast.Constant(value=int() | float()):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper()
        case ast.BinOp(left=left, op=ast.Add() | ast.Mult() | ast.Div(), right=right):
            return _is_constant(left) and _is_constant(right)
        case ast.IfExp(body=body, orelse=orelse):
            return _is_constant(body) and _is_constant(orelse)
    return False


def runs_outside_signals(tree: Tree) -> Iterator[str]:
    """Yield calls of `trio.run` outside `system.signals`, which handles Ctrl-C."""
    for module, source in tree.sources.items():
        if "trio.run(" in source and module != "system.signals":
            yield f"{module} calls trio.run, and not system.signals"


CHECKS = (
    upward_imports,
    imports_between_extensions,
    circles,
    impure_code,
    computed_waits,
    runs_outside_signals,
)


def faults(tree: Tree) -> list[str]:
    """Return every fault of the tree, one line each."""
    return [fault for check in CHECKS for fault in check(tree)]


if __name__ == "__main__":
    lines = faults(Tree())
    print(*lines, sep="\n", end="\n" if lines else "")
    sys.exit(1 if lines else 0)
