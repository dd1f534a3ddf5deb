"""The Debian packages, checked by lintian and used on each Debian."""

from __future__ import annotations

import configparser
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.machine import tool
from tests.shipping.conftest import ROOT
from tests.shipping.debian import on_debian, signed_repository

pytestmark = pytest.mark.full

NAMES = {"fieldagent", "fieldagent-common", "fieldagent-hub"}


def test_build_makes_three_architecture_independent_packages(packages: list[Path]) -> None:
    assert {each.name.partition("_")[0] for each in packages} == NAMES
    assert all(each.name.endswith("_all.deb") for each in packages)


def test_each_package_has_an_sbom_with_its_hash(packages: list[Path]) -> None:
    for each in packages:
        bill = json.loads(each.with_name(f"{each.name}.cdx.json").read_text())
        (whole,) = bill["metadata"]["component"]["hashes"]
        assert whole["content"] == hashlib.sha256(each.read_bytes()).hexdigest()
        assert {"trio", "h11"} <= {component["name"] for component in bill["components"]}


def test_hub_package_names_optional_libraries_with_minimum_versions(packages: list[Path]) -> None:
    (hub,) = (each for each in packages if each.name.startswith("fieldagent-hub_"))
    dpkg = tool("dpkg-deb", "dpkg")
    named = "".join(
        subprocess.check_output([dpkg, "--field", hub, field], text=True)
        for field in ("Recommends", "Suggests")
    )
    extras = configparser.ConfigParser()
    extras.read(ROOT / "setup.cfg")
    for extra, package in (
        ("postgres", "python3-psycopg"),
        ("push", "python3-cryptography"),
        ("apprise", "apprise"),
    ):
        (lowest,) = re.findall(r">=\s?([\d.]+)", extras["options.extras_require"][extra])
        assert f"{package} (>= {lowest})" in named


def test_documented_package_update_size_is_correct(packages: list[Path]) -> None:
    of_a_kit = [each for each in packages if "hub" not in each.name]
    page = " ".join((ROOT / "docs/how-to/update.md").read_text().split())
    (megabytes,) = re.findall(r"\(([\d.]+) MB, as the new ones\)", page)
    size = sum(each.stat().st_size for each in of_a_kit) / 1e6
    assert size == pytest.approx(float(megabytes), rel=0.1)


def test_lintian_finds_no_error(packages: list[Path]) -> None:
    lintian = tool("lintian", "lintian")
    done = subprocess.run(
        [lintian, "--fail-on", "error", *packages], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


READ_ALL = """
import sys
sys.path.insert(0, f"{sys.path[0]}/{sys.implementation.cache_tag}")
from fieldagent.system.data_files import read_data
for name in sys.argv[1:]:
    folder, _, file = name.rpartition("/")
    assert read_data(folder.replace("/", "."), file)
print(sys.modules["fieldagent"].__file__)
"""


def test_compiled_package_finds_its_data_files(packages: list[Path], tmp_path: Path) -> None:
    """The package is compiled as `postinst` compiles it at the installation."""
    (common,) = (each for each in packages if each.name.startswith("fieldagent-common"))
    subprocess.run(["dpkg-deb", "--extract", common, tmp_path], check=True)
    program = tmp_path / "usr/lib/fieldagent"
    bytecode = tmp_path / "usr/share/fieldagent/bytecode.py"
    subprocess.run([sys.executable, "-X", "no_debug_ranges", bytecode, program], check=True)
    (program / "read_all.py").write_text(READ_ALL)
    paths = (path for path in (program / "fieldagent").rglob("*.*") if path.is_file())
    data = [
        path.relative_to(program).as_posix()
        for path in paths
        if path.suffix not in (".py", ".pyc") and path.name != "py.typed"
    ]
    assert any(name.endswith("text_table_latin.bin") for name in data)
    done = subprocess.run(
        [sys.executable, program / "read_all.py", *data], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"/{sys.implementation.cache_tag}/" in done.stdout


@pytest.fixture(scope="module")
def repository(packages: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return signed_repository(tmp_path_factory.mktemp("repository"), packages)


@pytest.mark.parametrize(
    "release",
    # A Raspberry Pi OS of 32 bits with an emulated processor: minutes.
    ["bookworm", "trixie", "bookworm:armhf"],
)
def test_packages_are_installed_updated_and_purged_on_each_debian(
    repository: Path, release: str
) -> None:
    on_debian(release, repository, "tests/shipping/packages.sh")
