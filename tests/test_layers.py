"""Imports point one way, and what is pure stays pure."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "fieldagent"

GROUND = ["__init__", "system", "package", "wire", "store", "http", "page", "webhook", "mqtt"]
"""What both programs use, lowest first: each may import those before it."""
WINGS = ["agent", "hub"]
"""The two programs. Each stands on the ground, and neither names the other."""
TOP = ["simulator", "drill", "kit", "cli", "__main__"]
"""May import whatever stands below, lowest first."""

PURE = {
    # It gives what stands beside the code and never changes, as an import does.
    "system.data_files",
    "system.lazy_dataclass",
    "system.lazy_named_tuple",
    "system.sentence",
    "package",
    "wire",
    "webhook.schedule",
    "hub.webhook.flow",
    "hub.bridge.mqtt.documents",
    "hub.bridge.mqtt.topics",
    "hub.places.shape",
    "hub.places.crossing",
    "hub.fleet.unlike",
    "hub.report.week",
    "agent.channels.air_pace",
    "agent.sms.arrivals",
    "agent.sms.parts_kept",
    "mqtt.discovery",
    "agent.mqtt.documents",
    "agent.mqtt.topics",
    "agent.tak_lan.outward",
    "agent.outbound.idle_time",
    "agent.outbound.collapse",
    "agent.outbound.queue",
    "agent.outbound.swept_heap",
    "agent.outbound.timers",
    "cli.kit.track_policy",
    "cli.kit.wifi_code",
    "page.pmtiles",
}
"""Decisions and protocols: the same bytes and moments in, the same out. They do no I/O, read no
clock, and import nothing of ours that does."""
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


@cache
def modules() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in sorted(ROOT.rglob("*.py"))
    }


@cache
def imports(path: Path) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


def ours(module: str) -> set[str]:
    """What of our own it imports."""
    known = modules()
    names = {
        name.removeprefix("fieldagent.")
        for name in imports(known[module])
        if name[:11] == "fieldagent."
    }
    return {name for name in names if name in known} | {
        f"{name}.__init__" for name in names if f"{name}.__init__" in known
    }


def allowed(room: str) -> set[str]:
    """The rooms that modules of this one may import from, beside itself."""
    if room in GROUND:
        return {*GROUND[: GROUND.index(room)]}
    if room in WINGS:
        return {*GROUND}
    return {*GROUND, *WINGS, *TOP[: TOP.index(room)]}


@pytest.mark.parametrize("module", modules())
def test_imports_point_down(module: str) -> None:
    room = module.partition(".")[0]
    rooms = {name.partition(".")[0] for name in ours(module)} - {room}
    assert rooms <= allowed(room), f"{module} reaches up, or across"


def children(package: str) -> dict[str, set[str]]:
    """Of each module or package right below this one, those beside it that it imports."""
    prefix = f"{package}." if package else ""

    def child(name: str) -> str:
        return name.removeprefix(prefix).partition(".")[0]

    arrows: dict[str, set[str]] = {}
    for module in modules():
        if module.startswith(prefix):
            beside = {child(name) for name in ours(module) if name.startswith(prefix)}
            arrows.setdefault(child(module), set()).update(beside - {child(module)})
    return arrows


INSIDE = {
    "hub": [
        *("refusals", "store", "contract", "not_now", "idle", "operator"),
        *(
            "records",
            "access",
            "places",
            "field",
            "api",
            "fleet",
            "report",
            "escalation",
            "bridge",
            "tracker",
            "settings",
            "console",
        ),
        *("service", "webhook", "administration", "hub"),
    ],
    "agent": [
        *("progress", "in_brief", "only_one", "outcomes", "gpsd", "page", "handbook"),
        *("entrance", "portal", "update_news", "tracking"),
        *(
            "channels",
            "radios",
            "satellites",
            "sms",
            "people_settings",
            "mqtt_settings",
            "tak_lan_settings",
            "air_settings",
            "relay_settings",
            "page_settings",
            "command_settings",
            "settings",
            "modem_healing",
            "from_afar",
            "network_page",
            "journal",
            "watchdog",
            "clock_offer",
        ),
        *("outbound", "refusals", "events", "inbound", "mesh", "people", "mqtt", "tak_lan"),
        *("condition", "assembly", "drivers", "commands", "api", "agent"),
    ],
    "cli": [
        *(
            "argument_types",
            "subcommand",
            "command_tree",
            "ask_password",
            "ask_key",
            "qr_code",
            "place",
            "item",
        ),
        *("kit", "hub", "simulate", "simulate_gsm", "simulate_node", "simulate_fleet", "drill"),
        *("demo_team", "demo"),
        *("simulated_arguments", "arguments", "completion", "manual"),
    ],
}
"""The rooms of a wing, lowest first: each may import those before it."""


@pytest.mark.parametrize("wing", INSIDE)
def test_rooms_of_a_wing_import_down(wing: str) -> None:
    order = ["__init__", *INSIDE[wing]]
    arrows = children(wing)
    assert {*arrows} == {*order}, "each room has its place in the order"
    for room, beside in arrows.items():
        assert beside <= {*order[: order.index(room)]}, f"{wing}.{room} reaches up"


PACKAGES = {name.removesuffix(".__init__") for name in modules() if name.endswith(".__init__")}


@pytest.mark.parametrize("package", ["", *sorted(PACKAGES - {"__init__"})])
def test_nothing_is_in_a_circle(package: str) -> None:
    """Neither modules nor packages, at any depth."""
    TopologicalSorter(children(package)).prepare()


def is_pure(module: str) -> bool:
    parts = module.split(".")
    return any(".".join(parts[:size]) in PURE for size in range(1, len(parts) + 1))


@pytest.mark.parametrize("module", [name for name in modules() if is_pure(name)])
def test_protocols_and_decisions_do_no_io(module: str) -> None:
    assert not {name.partition(".")[0] for name in imports(modules()[module])} & IMPURE
    source = modules()[module].read_text()
    assert not re.search(r"(?<!def )(?<![.\w])open\(|\bnow\(\)|\.today\(", source)
    beside = {name.removesuffix(".__init__") for name in ours(module) if not is_pure(name)}
    assert beside <= PACKAGES, "what is pure imports nothing that is not"


def test_every_pure_module_is_there() -> None:
    assert {*modules(), *PACKAGES} >= PURE


LENGTHS = {"sleep", "move_on_after", "fail_after"}
"""What of trio takes a length, and refuses one below zero."""


def is_constant(length: ast.expr) -> bool:
    """Numbers and module constants, which people chose; nothing is subtracted from them."""
    match length:
        case ast.Constant(value=int() | float()):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper()
        case ast.BinOp(left=left, op=ast.Add() | ast.Mult() | ast.Div(), right=right):
            return is_constant(left) and is_constant(right)
        case ast.IfExp(body=body, orelse=orelse):
            return is_constant(body) and is_constant(orelse)
    return False


def computed_lengths(source: str) -> list[str]:
    """The waits in it whose length is computed where they stand."""
    waits = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module="trio"):
                # By another name they would pass unseen.
                waits += [each.name for each in node.names if each.name in LENGTHS]
            case ast.Call(func=ast.Attribute(value=ast.Name(id="trio"), attr=name)):
                lengths = [*node.args, *(each.value for each in node.keywords)]
                relative = any(each.arg == "relative_deadline" for each in node.keywords)
                if relative or (name in LENGTHS and not all(map(is_constant, lengths))):
                    waits.append(ast.unparse(node))
    return waits


@pytest.mark.parametrize("module", [name for name in modules() if name != "system.waits"])
def test_no_wait_can_be_negative(module: str) -> None:
    assert not computed_lengths(modules()[module].read_text()), "this goes through `waits`"


@pytest.mark.parametrize(
    "source",
    [
        "trio.sleep(rest)",
        "trio.move_on_after(self.due - trio.current_time())",
        "trio.fail_after(seconds=LIMIT - 5)",
        "trio.sleep(-1)",
        "trio.move_on_after(PATIENCE + self.on_air)",
        "trio.CancelScope(relative_deadline=rest)",
        "from trio import move_on_after as limit",
    ],
)
def test_a_computed_wait_is_seen(source: str) -> None:
    assert computed_lengths(source)


def test_nothing_can_be_broken_off_between_two_waits() -> None:
    callers = [name for name, path in modules().items() if "trio.run(" in path.read_text()]
    assert callers == ["system.signals"], "the others go through it"


def test_a_command_that_only_talks_http_starts_without_trio() -> None:
    code = (
        "import sys, fieldagent.__main__ as m; sys.argv = ['fieldagent', 'status', '--port', '1'];"
        "code = m.main(); assert code == 69, code;"
        "bad = {'trio', 'h11', 'serial', 'cbor2', 'sqlite3'} & sys.modules.keys();"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
