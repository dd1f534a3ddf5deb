"""The promises of the single file with each interpreter."""

from __future__ import annotations

import ast
import hashlib
import json
import marshal
import os
import pkgutil
import pty
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.request import urlopen

import pytest

import fieldagent
from fieldagent.agent import description as agent_description
from fieldagent.extensions import NAMES
from fieldagent.hub import description as hub_description
from fieldagent.hub.console.passkeys import INSTALL_COMMAND
from tests.machine import unavailable
from tests.processes import PATIENCE, agent, hub, sky
from tests.shipping.conftest import NO_DEBIAN, ROOT, build, built_version

MOST_BYTES = {"all": 4_800_000, "kit": 3_000_000}
ELF = b"\x7fELF"
MODULES = [
    module.name
    for module in pkgutil.walk_packages(fieldagent.__path__, "fieldagent.")
    # psycopg, webauthn and cryptography need native code, so the zipapp does not contain them. The
    # system has them, or works without PostgreSQL, passkeys, web push and TAK phones.
    if module.name != "fieldagent.__main__"
    and not module.name.startswith(
        (
            # A build turns these into files (`build/description.py`).
            *("fieldagent.agent.description", "fieldagent.hub.description"),
            *("fieldagent.http.openapi_parts", "fieldagent.page.map_description"),
            *("fieldagent.extensions.sms.hub.desc", "fieldagent.extensions.imt.hub.desc"),
            *("fieldagent.extensions.desk.hub.desc", "fieldagent.extensions.places.hub.desc"),
            *("fieldagent.hub.store.postgres", "fieldagent.hub.access.passkeys"),
            "fieldagent.extensions.desk.hub.web_push",
            *(
                f"fieldagent.extensions.{name}"
                for name in (
                    "tak.certificate_request",
                    "tak.server.authority",
                    "tak.server.enrolment",
                    "tak.server.server",
                )
            ),
        )
    )
]
IMPORT_ALL = """
import importlib, sys
sys.path[:0] = [f"{sys.argv[1]}/{sys.implementation.cache_tag}", sys.argv[1]]
for name in sys.argv[2:]:
    importlib.import_module(name)
import fieldagent, trio, h11, serial, cbor2
for module in (fieldagent, trio, h11, serial, cbor2):
    assert module.__file__.startswith(sys.argv[1]), module.__file__
import idna
assert idna.encode("H\N{LATIN SMALL LETTER U WITH DIAERESIS}b", uts46=True) == b"xn--hb-xka"
"""


def isolated(
    interpreter: str, *arguments: str | Path, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run with only the file: no environment, no site-packages, and no user folder."""
    done = subprocess.run(
        [interpreter, "-I", "-S", *arguments], env={}, cwd="/", capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    return done


def test_zipapp_stays_below_its_size_limit(zipapp: Path) -> None:
    assert zipapp.stat().st_size < MOST_BYTES["all"]


@pytest.mark.full
@pytest.mark.parametrize(("name", "steps"), [("zipapp", 4), ("deb", 5)])
def test_build_shows_its_steps_as_a_bar_on_a_terminal(
    tmp_path: Path, name: str, steps: int
) -> None:
    ours, theirs = pty.openpty()
    try:
        command = [ROOT / "build" / name, tmp_path / "made"]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=theirs, check=True)
        shown = os.read(ours, 4096).decode()
    finally:
        os.close(theirs)
        os.close(ours)
    bars = re.findall(rf"\[(#*)\.*\] building made: (\d) of {steps} steps", shown)
    # A short step may end before the next drawing.
    assert bars[0] == ("", "0") and len(bars) > 2
    assert all(bar == "#" * (30 * int(done) // steps) for bar, done in bars)
    assert shown.endswith("\r\x1b[K")


@pytest.mark.full
def test_kit_zipapp_is_smaller_and_delivers(tmp_path: Path) -> None:
    """The kit's zipapp contains no hub and no simulator, and says so when they are requested."""
    kit = build(tmp_path / "kit.pyz", "--kit")
    assert kit.stat().st_size < MOST_BYTES["kit"]
    page = (ROOT / "docs/how-to/install.md").read_text()
    (size,) = re.findall(r"without the hub \(([\d.]+) MB\)", page)
    assert kit.stat().st_size / 1e6 == pytest.approx(float(size), rel=0.05)
    with sky(tmp_path), agent(tmp_path, command=[sys.executable, "-I", "-S", str(kit)]) as running:
        assert running.post("Camp reached").body["status"] == "Delivered"
        assert running.call("GET", "/openapi.json").body == agent_description.describe()
        isolated(sys.executable, kit, "check", "--config", tmp_path / "agent.properties")
    with zipfile.ZipFile(kit) as archive:
        sources = {name.removesuffix(".py") for name in archive.namelist() if name.endswith(".py")}
    there = [name for name in MODULES if {f := name.replace(".", "/"), f"{f}/__init__"} & sources]
    isolated(sys.executable, "-c", IMPORT_ALL, kit, *there)
    for words in (["hub", "run"], ["demo"], ["simulate", "satellite"], ["hub", "user", "list"]):
        done = isolated(sys.executable, kit, *words, status=2)
        assert "this program does not have that command; fieldagent.pyz has it" in done.stderr


@pytest.mark.full
def test_zipapp_without_extensions_delivers_and_names_the_missing_ones(tmp_path: Path) -> None:
    without = [word for name in NAMES for word in ("--without", name)]
    kit = build(tmp_path / "kit.pyz", "--kit", *without)
    page = (ROOT / "docs/how-to/install.md").read_text()
    (size,) = re.findall(r"without all of them, a kit's program has ([\d.]+) MB", page)
    assert kit.stat().st_size / 1e6 == pytest.approx(float(size), rel=0.05)
    with sky(tmp_path), agent(tmp_path, command=[sys.executable, "-I", "-S", str(kit)]) as running:
        assert running.post("Camp reached").body["status"] == "Delivered"
    settings = tmp_path / "more.properties"
    settings.write_text("mqtt-address=mqtt://127.0.0.1\n")
    done = isolated(sys.executable, kit, "check", "--config", settings, status=78)
    assert "mqtt-address belongs to the extension mqtt" in done.stderr


def code(source: str) -> list[tuple[str, object]]:
    """Return the code of a program with its lines, without docstrings and comments."""
    return [
        (ast.dump(node), node.lineno)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        and not hasattr(node, "body")
    ]


@pytest.mark.full
def test_zipapp_sources_match_the_repository_except_comments(zipapp: Path) -> None:
    with zipfile.ZipFile(zipapp) as archive:
        names = [each for each in archive.namelist() if each.startswith("fieldagent/")]
        sources = [each for each in names if each.endswith(".py")]
        assert len(sources) >= 200
        version = built_version()
        for name in sources:
            ours = (ROOT / name).read_text().replace(fieldagent.__version__, version)
            assert code(archive.read(name).decode()) == code(ours), name


@pytest.mark.full
def test_documented_zipapp_size_is_correct(zipapp: Path) -> None:
    page = (ROOT / "docs/how-to/update-many-kits.md").read_text()
    (megabytes,) = re.findall(r"kits fetch the program, ([\d.]+)\s+MB,", page)
    assert zipapp.stat().st_size / 1e6 == pytest.approx(float(megabytes), rel=0.1)


def test_zipapp_contains_no_native_code(zipapp: Path) -> None:
    with zipfile.ZipFile(zipapp) as archive:
        native = [name for name in archive.namelist() if archive.read(name).startswith(ELF)]
    assert native == []


def test_every_source_has_its_compiled_form(zipapp: Path) -> None:
    with zipfile.ZipFile(zipapp) as archive:
        names = set(archive.namelist())
    sources = {name for name in names if name.endswith(".py")} - {"__main__.py"}
    assert {f"fieldagent/{name}.py" for name in ("agent/agent", "hub/settings")} <= sources
    compiled = {f"{sys.implementation.cache_tag}/{name}c" for name in sources}
    assert {name for name in names if name.endswith(".pyc")} == compiled


def test_zipapp_contains_the_licence_of_every_library(zipapp: Path) -> None:
    with zipfile.ZipFile(zipapp) as archive:
        names = archive.namelist()
    packages = {name.split("/")[0] for name in names if ".dist-info/" in name}
    locked = (ROOT / "build/requirements.txt").read_text().splitlines()
    assert len(packages) == len([line for line in locked if "==" in line and line[0] != "#"])
    for package in packages:
        files = [name for name in names if name.startswith(package)]
        assert any("LICENSE" in name or name.endswith("METADATA") for name in files), package


def test_zipapp_has_an_sbom_with_hashes(zipapp: Path) -> None:
    """The SBOM is a CycloneDX file: it contains each library with its version and the hash of its
    archive.
    """
    bill = json.loads(zipapp.with_name(f"{zipapp.name}.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    (whole,) = bill["metadata"]["component"]["hashes"]
    assert whole["content"] == hashlib.sha256(zipapp.read_bytes()).hexdigest()
    with zipfile.ZipFile(zipapp) as archive:
        there = {
            name.split("/")[0].removesuffix(".dist-info").lower()
            for name in archive.namelist()
            if ".dist-info/" in name
        }
    # It is in the tree, but not a Python package.
    there.add("protomaps-leaflet-5.1.0")
    listed = {f"{each['name']}-{each['version']}".lower() for each in bill["components"]}
    assert {each.replace("-", "_") for each in listed} == {each.replace("-", "_") for each in there}
    assert all(each["hashes"][0]["content"] for each in bill["components"])


def test_build_requirements_are_locked_with_hashes() -> None:
    """Packing tools are locked, like the packed libraries."""
    for name in ("requirements.txt", "packer.txt"):
        lines = (ROOT / "build" / name).read_text().splitlines()
        locked = [line for line in lines if line and not line.startswith("#")]
        assert locked
        assert all("==" in line and "--hash=sha256:" in line for line in locked)


def test_compiled_code_does_not_contain_the_build_folder(zipapp: Path) -> None:
    with zipfile.ZipFile(zipapp) as archive:
        compiled = [name for name in archive.namelist() if name.endswith(".pyc")]
        sources = {name: marshal.loads(archive.read(name)[16:]).co_filename for name in compiled}
    assert sources == {name: name.partition("/")[2].removesuffix("c") for name in compiled}


@pytest.mark.full
@pytest.mark.parametrize("libraries", [ROOT / ".venv/packer", Path("/nonexistent")])
def test_zipapp_is_unpacked_by_third_party_programs(
    zipapp: Path, tmp_path: Path, libraries: Path
) -> None:
    """The test packs with libdeflate, and with zlib if libdeflate is missing."""
    folder = tmp_path / "tree"
    with zipfile.ZipFile(zipapp) as archive:
        archive.extractall(folder)
    target = tmp_path / "packed.pyz"
    command: list[str | Path] = [sys.executable, ROOT / "build/archive.py", folder, target]
    command += ["1700000000", libraries]
    subprocess.run(command, check=True)
    with zipfile.ZipFile(target) as packed, zipfile.ZipFile(zipapp) as archive:
        assert packed.testzip() is None
        assert packed.namelist() == archive.namelist()
        assert all(packed.read(name) == archive.read(name) for name in packed.namelist())
        assert packed.infolist()[0].date_time == (2023, 11, 14, 22, 13, 20)
    if shutil.which("unzip"):
        subprocess.run(["unzip", "-qt", target], check=True, stdout=subprocess.DEVNULL)


def test_hub_without_the_passkey_library_logs_the_install_command(
    zipapp: Path, tmp_path: Path
) -> None:
    """A zipapp and Debian's packages cannot contain the library."""
    settings = {
        "database": str(tmp_path / "hub.sqlite3"),
        "console-address": "https://hub.example.org",
        "trusted-proxies": "127.0.0.1",
    }
    with hub(tmp_path, settings, [sys.executable, "-S", str(zipapp)]) as running:
        log = "\n".join(running.output())
    assert "sign-in with a passkey is off: No module named 'webauthn'" in log
    assert INSTALL_COMMAND in log
    assert INSTALL_COMMAND in (ROOT / "docs/how-to/passkeys.md").read_text()


@pytest.mark.full
@pytest.mark.parametrize("version", ["as built", "3.13"])
def test_zipapp_imports_compiled_code(
    version: str, zipapp: Path, python_313: str | None, tmp_path: Path
) -> None:
    interpreter = sys.executable if version == "as built" else python_313
    if interpreter is None:
        unavailable(NO_DEBIAN)
    if version != "as built":
        zipapp = build(tmp_path / "fieldagent.pyz", "--for", interpreter)
    tag = isolated(interpreter, "-c", "import sys; print(sys.implementation.cache_tag)").stdout
    lines = isolated(interpreter, "-v", zipapp, "--version").stderr.splitlines()
    ours = [line for line in lines if line.startswith("import 'fieldagent")]
    assert ours
    # Through the open file, whatever replaces this one.
    held = re.compile(rf"/proc/self/fd/\d+/{tag.strip()}/")
    assert [line for line in ours if not held.search(line)] == []


def test_long_running_modules_are_completely_compiled(zipapp: Path) -> None:
    """No compiled module loads an uncompiled one. Otherwise a start on a kit takes longer."""
    with zipfile.ZipFile(zipapp) as archive:
        modules = {
            name.partition("/")[2].removesuffix(".pyc").replace("/", "."): archive.read(name)
            for name in archive.namelist()
            if name.endswith(".pyc") and "/fieldagent/" in name
        }
    from_source = {name for name, code in modules.items() if b"__loader__" in code}
    assert {
        "fieldagent.cli.kit.check",
        "fieldagent.extensions.lab.simulator.sbd_modem",
    } <= from_source
    compiled = [name for name in MODULES if name in modules.keys() - from_source]
    assert {"fieldagent.cli.kit.run", "fieldagent.agent.agent", "fieldagent.hub.hub"} <= set(
        compiled
    )
    done = isolated(sys.executable, "-c", IMPORT_ALL + "print(*sys.modules)", zipapp, *compiled)
    assert from_source & set(done.stdout.split()) == set()


def test_zipapp_runs_from_sources_on_other_python_versions(zipapp: Path, tmp_path: Path) -> None:
    """3.12 and 3.14 run it in this way. Here the compiled code is removed."""
    bare = tmp_path / "bare.pyz"
    with zipfile.ZipFile(zipapp) as original, zipfile.ZipFile(bare, "w") as made:
        for name in original.namelist():
            if not name.endswith(".pyc"):
                made.writestr(name, original.read(name))
    assert isolated(sys.executable, bare, "--version").stdout.startswith("fieldagent ")


@pytest.mark.full
def test_custom_radio_is_packed_and_entry_dates_can_be_set(
    tmp_path: Path,
) -> None:
    own = tmp_path / "fieldradio.py"
    own.write_text((ROOT / "fieldagent/extensions/radio/radios/udp.py").read_text())
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    whole = build(tmp_path / "whole.pyz", "--with", str(own), env=environment)
    with zipfile.ZipFile(whole) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}
    settings = tmp_path / "agent.properties"
    settings.write_text(
        "radio-protocol=fieldradio:RADIO\nradio-port=udp://127.255.255.255:9753\n"
        f"radio-station=1\nstate-directory={tmp_path}/state\napi-port=0\n"
    )
    done = isolated(sys.executable, whole, "check", "--config", settings)
    assert "kits at 127.255.255.255, port 9753, hear each other" in done.stdout


@pytest.mark.full
@pytest.mark.parametrize("name", ["trio.py", "fieldagent", "notes.txt"])
def test_unsuitable_module_is_not_packed(name: str, tmp_path: Path) -> None:
    own = tmp_path / name
    if own.suffix:
        own.touch()
    else:
        own.mkdir()
        (own / "__init__.py").touch()
    done = subprocess.run(
        [ROOT / "build/zipapp", tmp_path / "whole.pyz", "--with", own],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    # Before that, in a tree without git, the version shows an unknown commit.
    *_, why = done.stderr.splitlines()
    assert why.startswith(f"build/zipapp: {own if name == 'notes.txt' else name} is ")


def test_zipapp_prints_its_version(interpreter: str, zipapp: Path) -> None:
    done = isolated(interpreter, zipapp, "--version")
    assert done.stdout == f"fieldagent {built_version()}\n"


def test_zipapp_checks_settings(interpreter: str, zipapp: Path, tmp_path: Path) -> None:
    settings = tmp_path / "agent.properties"
    settings.write_text(f"state-directory={tmp_path}/state\napi-port=0\nsatelite-baud=9600\n")
    done = isolated(interpreter, zipapp, "check", "--config", settings, status=78)
    assert "'satelite-baud' is not a setting; the nearest is satellite-baud" in done.stderr


@pytest.mark.full
def test_every_module_of_the_zipapp_can_be_imported(interpreter: str, zipapp: Path) -> None:
    isolated(interpreter, "-W", "error", "-c", IMPORT_ALL, zipapp, *MODULES)


def test_zipapp_delivers_a_package(interpreter: str, zipapp: Path, tmp_path: Path) -> None:
    command = [interpreter, "-I", "-S", str(zipapp)]
    with sky(tmp_path), agent(tmp_path, command=command) as running:
        assert running.post("Camp reached").body["status"] == "Delivered"
        assert running.call("GET", "/openapi.json").body == agent_description.describe()


@pytest.mark.parametrize("native", ["x.so", "x.cpython-311-x86_64-linux-gnu.so"])
def test_native_code_is_refused_by_the_build(native: str, tmp_path: Path) -> None:
    (tmp_path / native).touch()
    code = (
        "import runpy, sys, pathlib; "
        "sys.path.insert(0, sys.argv[1].rpartition('/')[0]); "
        "runpy.run_path(sys.argv[1])['refuse_native'](pathlib.Path(sys.argv[2]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, ROOT / "build/program.py", tmp_path],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert f"{native} runs on one architecture only" in done.stderr


def test_zipapp_runs_a_hub(interpreter: str, zipapp: Path, tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    done = isolated(interpreter, zipapp, "hub", "init", "Alps", "--database", database, "--json")
    assert json.loads(done.stdout)["workspaceId"] == 1
    command = [interpreter, "-I", "-S", str(zipapp)]
    with hub(tmp_path, {"database": database}, command) as running:
        with urlopen(f"{running.address}/healthz", timeout=PATIENCE) as answer:
            assert json.load(answer) == {"status": "UP"}
        with urlopen(f"{running.address}/openapi.json", timeout=PATIENCE) as answer:
            assert json.load(answer) == hub_description.describe()
