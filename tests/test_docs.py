"""The documents agree with the code wherever a machine can check it: the things that they name
exist.
"""

from __future__ import annotations

import ast
import fnmatch
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from fieldagent.agent.journal.schema import JOURNAL
from fieldagent.agent.kit_part import get_kit_parts
from fieldagent.cli.arguments import build_parser
from fieldagent.cli.command_tree import Command, list_commands
from fieldagent.hub.store.schema import VERSION
from tests.bench import page as performance
from tests.bench.__main__ import NAMES as BENCHMARKS
from tests.conftest import ALL_FULL

ROOT = Path(__file__).parents[1]
GUARANTEES = ROOT / "tests/GUARANTEES.md"
PAGES = sorted(
    [
        *(*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")),
        GUARANTEES,
    ]
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED = re.compile(r"(?<![\w./~-])((?:fieldagent|tests|docs|build|systemd|examples)/[\w./-]*\w/?)")


def ids(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def headings(page: Path) -> set[str]:
    """Return the anchors that GitHub makes from headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in titles}


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_link_has_a_target(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        there = (page.parent / target) if target else page
        assert there.exists(), link
        assert not anchor or anchor in headings(there), link


SORTED = [page for page in PAGES if page.parent.parent == ROOT / "docs"]
"""The pages by kind: start, how-to, reference, explain and the handbook."""


@pytest.mark.parametrize("page", SORTED, ids=ids)
def test_every_page_is_listed_and_names_its_reader(page: Path) -> None:
    """Only the first handbook is listed; the kit shows the others."""
    if page.parent.name != "handbook":
        assert f"({page.relative_to(ROOT / 'docs')})" in (ROOT / "docs/README.md").read_text()
        assert page.read_text().partition("\n\n")[2].startswith("For ")


def test_every_moved_path_redirects_to_a_page() -> None:
    """The site has a redirect page for each."""
    source = (ROOT / "build/web_site.py").read_text()
    (moved,) = re.findall(r"^MOVED = (\{.*?^\})", source, re.MULTILINE | re.DOTALL)
    for old, new in ast.literal_eval(moved).items():
        assert not (ROOT / f"docs/{old}.md").exists()
        assert (ROOT / f"docs/{new}.md").is_file(), old


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_named_path_exists(page: Path) -> None:
    """Paths that begin with a slash are those of an installed kit and are left out."""
    missing = [path for path in NAMED.findall(page.read_text()) if not (ROOT / path).exists()]
    assert not missing


COMMAND_SPAN = re.compile(
    r"`(fieldagent [^`]+)`|^ {4,}(?:\$ |sudo )?(fieldagent .+)$", re.MULTILINE
)
FORMATS = ("reference/on-air", "explain/end-to-end")
"""Pages where `fieldagent …` in code is an input of a key derivation."""


@cache
def command_tree() -> dict[tuple[str, ...], Command]:
    return {each.words: each for each in list_commands(build_parser())}


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_and_option_exists(page: Path) -> None:
    if page.relative_to(ROOT).as_posix().removeprefix("docs/").startswith(FORMATS):
        return
    unknown = []
    for match in COMMAND_SPAN.finditer(page.read_text()):
        line = " ".join((match[1] or match[2]).split(" # ")[0].split())
        words = line.split()[1:]
        path: tuple[str, ...] = ()
        while words and (*path, words[0]) in command_tree():
            path = (*path, words.pop(0))
        below = (each for place, each in command_tree().items() if place[: len(path)] == path)
        names = {name for each in below for option in each.options for name in option.names}
        options = re.findall(r"(?<![\w-])(--[a-z][a-z-]*)", " ".join(words))
        if (not path and not words[0].startswith(("-", "C", "…"))) or {*options} - names:
            unknown.append(line)
    assert not unknown


@pytest.mark.parametrize(
    ("table", "above"), [("command", ()), ("group of `fieldagent hub`", ("hub",))]
)
def test_cli_page_lists_every_command(table: str, above: tuple[str, ...]) -> None:
    page = (ROOT / "docs/reference/cli.md").read_text()
    rows = page.partition(f"| {table} | ")[2].partition("\n|---|---|\n")[2].partition("\n\n")[0]
    column = 2 if above else 1
    cells = [row.split("|")[column] for row in rows.splitlines()]
    below = [each for each in command_tree() if each[:-1] == above and each]
    assert sorted(re.findall("`([^`]+)`", " ".join(cells))) == sorted(each[-1] for each in below)


def test_settings_page_matches_the_code() -> None:
    subprocess.run([sys.executable, ROOT / "build/settings_doc.py", "--check"], check=True)


@cache
def texts() -> tuple[str, ...]:
    """Return all string constants of the code but docstrings, including the parts of f-strings."""
    trees = (ast.parse(path.read_text()) for path in (ROOT / "fieldagent").rglob("*.py"))
    nodes = [node for tree in trees for node in ast.walk(tree)]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return tuple(
        node.value
        for node in nodes
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
    )


def test_compatibility_page_has_the_schema_versions() -> None:
    page = (ROOT / "docs/reference/compatibility.md").read_text()
    assert re.findall(r"\| tables (\d+) \|", page) == [str(JOURNAL.version), str(VERSION)]


NO_SIMULATORS = (
    *("__init__", "base_camp", "commands", "fleet*", "imt_commands", "imt_port", "pty_port"),
    # Parts of other peers, and people with third-party programs.
    *("lora_boards", "lxmf_person", "meshcore_person", "meshtastic_person"),
)


def test_performance_page_lists_only_existing_benchmarks_in_order() -> None:
    sections = performance.read_sections(performance.PAGE.read_text())
    assert sections
    assert [*sections] == [name for name in BENCHMARKS if name in sections]


def test_every_simulator_and_peer_is_listed_with_source_and_judge() -> None:
    page = (ROOT / "docs/reference/simulators.md").read_text()
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| ")][1:]
    named = re.findall(r"`(?:[\w/]+/)?([\w*]+)\.(?:py|c)`", page)
    folders = (ROOT / "fieldagent/extensions/lab/simulator", ROOT / "tests/peers")
    modules = {path.stem for folder in folders for path in folder.glob("*.[pc]*") if path.is_file()}
    known = {
        module
        for module in modules
        for name in (*named, *NO_SIMULATORS)
        if fnmatch.fnmatch(module, name)
    }
    assert modules - known == set()
    assert all(cell.strip() for row in rows for cell in row[1:])
    files = [path.name for path in (ROOT / "tests").rglob("*.*")]
    files += [path.name for path in (ROOT / "fieldagent").rglob("*.py")]
    listed = re.findall(r"`(?:[\w/]+/)?([\w*]+\.(?:py|c))`", page)
    assert len(listed) > 40
    assert [name for name in listed if not fnmatch.filter(files, name)] == []


def test_every_agent_metric_is_described() -> None:
    """And no other. Those of the hub are compared in `tests/hub/test_access_log.py`."""
    page = (ROOT / "docs/reference/agent-metrics.md").read_text()
    rows = re.findall(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \|", page, re.MULTILINE)
    described = {name for row in rows for name in re.findall("`([a-z_]+)`", row)}
    named = set()
    of_parts = [part.metrics.partition(":")[0] for part in get_kit_parts().values() if part.metrics]
    for module in ("fieldagent.agent.api.state", *of_parts):
        for node in ast.walk(ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())):
            first = node.elts[0] if isinstance(node, ast.Tuple) and len(node.elts) > 3 else None
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Family":
                first = node.args[0]
            if isinstance(first, ast.Constant):
                named.add(first.value)
    assert described == named


def to_be_watched() -> list[str]:
    """Return the figures of which docs/how-to/monitor.md says when to alert."""
    text = (ROOT / "docs/how-to/monitor.md").read_text()
    _, _, rows = text.partition("| ask | alert when |\n|---|---|\n")
    return re.findall(r"`(fieldagent_\w+)", rows.partition("\n\n")[0])


@pytest.mark.parametrize("figure", to_be_watched())
def test_every_monitored_metric_has_an_alert_rule(figure: str) -> None:
    """`tests/hub/test_access_log.py` gives the reason why the hub's other metrics need no alert."""
    rules = "".join(
        (ROOT / "examples" / name).read_text() for name in ("alerts.yml", "hub-alerts.yml")
    )
    assert re.search(rf"expr: .*\b{figure}\b", rules), figure


def symptoms() -> list[str]:
    text = (ROOT / "docs/how-to/troubleshooting.md").read_text()
    rows = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
    spans = (span for row in rows for span in re.findall(r"`([^`]+)`", row))
    return [span for span in spans if " " in span and not span.startswith("fieldagent check")]


@pytest.mark.parametrize("symptom", symptoms())
def test_troubleshooting_symptoms_are_texts_of_the_program(symptom: str) -> None:
    for part in symptom.split("…"):
        assert any(part.strip() in text for text in texts()), part


@cache
def in_each_run(file: Path) -> dict[str, bool]:
    """Map each test of a file to True if `tests/run` runs it, at least with some parameters."""
    source = file.read_text()
    return {
        node.name: not ALL_FULL.search(source)
        and not any(
            ast.unparse(each) in ("pytest.mark.full", "pytest.mark.soak")
            for each in node.decorator_list
        )
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


def promises() -> dict[str, list[str]]:
    """Map each guarantee to the arguments of pytest that its row names."""
    rows = re.findall(r"^\| (.+?) \| .+ \| (.+) \|$", GUARANTEES.read_text(), re.MULTILINE)
    return {row[0]: re.findall("`pytest ([^`]+)`", row[1]) for row in rows if "`pytest" in row[1]}


ONLY_FULL = (
    "A kit at rest writes less",
    "The same under a real ext4",
    "A webhook and a hook get each",
)
"""First words of promises whose tests need an emulated board or ten minutes."""


@pytest.mark.parametrize("promise", promises(), ids=lambda promise: promise[:50])
def test_each_promise_has_tests_in_an_ordinary_run(promise: str) -> None:
    runs = []
    for arguments in promises()[promise]:
        where, _, word = arguments.partition(" -k ")
        for path in where.split():
            files = [ROOT / path] if path.endswith(".py") else (ROOT / path).glob("test_*.py")
            named = [
                run for file in files for name, run in in_each_run(file).items() if word in name
            ]
            assert named, path
            runs += named
    assert any(runs) or promise.startswith(ONLY_FULL)


def test_each_row_of_the_threat_model_has_tests() -> None:
    """All but that of root, who can do everything."""
    text = (ROOT / "docs/explain/security.md").read_text().partition("## Threat model")[2]
    attackers = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)[1:]
    assert len(attackers) > 20
    rows = GUARANTEES.read_text().partition("## Security")[2]
    tested = dict(re.findall(r"^\| (.+?) \| (`tests/.+) \|$", rows, re.MULTILINE))
    assert {*attackers} - {*tested} == {"root on gateway or hub"}
    assert {*tested} <= {*attackers}
    for attacker, tests in tested.items():
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
        assert named, attacker
        runs = [in_each_run(ROOT / path).get(name) for path, name in named]
        assert None not in runs, attacker
        assert any(runs), f"`tests/run` runs no test of this row: {attacker}"
