"""A kit with Debian packages is updated from a signed repository and rolled back: real apt, dpkg
and agents on each Debian. Only systemd is simulated.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fieldagent.agent.journal.schema import JOURNAL
from tests.shipping.conftest import built_version
from tests.shipping.debian import on_debian, repacked, signed_repository

pytestmark = pytest.mark.full

PROGRAM = "usr/lib/fieldagent/fieldagent"
WORKS, UNWELL, BROKEN = "9.1.0", "9.0.1", "9.0.2"
LATER = {
    f"{PROGRAM}/agent/journal/schema.py": (
        f"JOURNAL=Schema({JOURNAL.version},TABLES_SQL,STEPS)",
        f"JOURNAL = Schema({JOURNAL.version + 1}, TABLES_SQL,"
        f" {{**STEPS, {JOURNAL.version}: 'CREATE TABLE later (x);'}})",
    )
}
CHANGES = {
    WORKS: LATER,
    UNWELL: {
        f"{PROGRAM}/agent/api/routes.py": (
            'return make_json_response({"status":"UP"})',
            'raise RuntimeError("no")',
        ),
        **LATER,
    },
    BROKEN: {"DEBIAN/postinst": ("set -e\n", 'set -e\n[ "$1" != configure ] || exit 3\n')},
}


@pytest.fixture(scope="module")
def repository(packages: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with the packages of this tree and later versions."""
    folder = tmp_path_factory.mktemp("later")
    later = [
        repacked(package, folder, version, of_version(version) | changes)
        for version, changes in CHANGES.items()
        for package in packages
        if "hub" not in package.name
    ]
    return signed_repository(tmp_path_factory.mktemp("repository"), [*packages, *later])


def of_version(version: str) -> dict[str, tuple[str, str]]:
    return {f"{PROGRAM}/__init__.py": (built_version(), version)}


def now(repository: Path) -> str:
    """Return the version of this tree as dpkg writes it."""
    names = " ".join(each.name for each in repository.glob("fieldagent_*.deb"))
    versions: set[str] = set(re.findall(r"fieldagent_(\S+)_all", names))
    (version,) = versions - set(CHANGES)
    return version


@pytest.mark.parametrize("release", ["trixie", "bookworm"])
def test_package_update_applies_working_versions_and_rolls_back_others(
    repository: Path, release: str
) -> None:
    script = ["tests/shipping/package_update.sh", now(repository), WORKS, UNWELL, BROKEN]
    on_debian(release, repository, *script)


@pytest.mark.parametrize(("release", "every"), [("trixie", "1"), ("bookworm", "5")])
def test_power_cut_during_dpkg_is_recovered(repository: Path, release: str, every: str) -> None:
    script = ["tests/shipping/package_power.sh", now(repository), WORKS, UNWELL, every]
    on_debian(release, repository, *script)
