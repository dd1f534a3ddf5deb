"""The calls to dpkg and apt and the use of their output, without a Debian system."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from fieldagent.extensions.fleet import debian_packages, update
from fieldagent.extensions.fleet.debian_packages import NotInstalled, PackageMissing
from tests.machine import tool

OURS = "fieldagent-common 2 installed\\nfieldagent 2 {}\\n"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with stand-ins for Debian's programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr(debian_packages, "LOCK", tmp_path / "lock-frontend")
    return folder


def put_tool(tools: Path, name: str, script: str) -> None:
    (tools / name).write_text(f"#!/bin/sh\n{script}\n")
    (tools / name).chmod(0o755)


@pytest.mark.parametrize("state", ["installed", "triggers-pending"])
def test_installed_version_is_read_from_dpkg(tools: Path, state: str) -> None:
    purged = "fieldagent-hub  not-installed\\n"
    put_tool(tools, "dpkg-query", f"printf '{OURS.format(state)}{purged}'; exit 1")
    assert debian_packages.read_installed_version() == "2"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (OURS.format("half-configured"), "not installed completely"),
        ("fieldagent-common 2 installed\\nfieldagent 1 installed\\n", "in one version"),
        ("", "apt --fix-broken install"),
        (OURS.format("installed") + "fieldagent-hub 2 installed\\n", "apt install. updates both"),
    ],
    ids=["interrupted", "two versions", "none", "a hub"],
)
def test_incomplete_or_mixed_installation_refuses_an_update(
    tools: Path, rows: str, message: str
) -> None:
    put_tool(tools, "dpkg-query", f"printf '{rows}'")
    with pytest.raises(PackageMissing, match=message):
        debian_packages.read_installed_version()


def test_update_that_changes_other_packages_is_left_to_apt(tools: Path, tmp_path: Path) -> None:
    """A rollback could not restore the earlier versions of other packages."""
    ours = "Inst fieldagent-common [1] (2)\\nInst fieldagent [1] (2)\\nConf fieldagent (2)\\n"
    put_tool(tools, "apt-get", f"printf '{ours}'")
    debian_packages.check_changes_nothing_else(tmp_path, "2")
    put_tool(tools, "apt-get", f"printf '{ours}Inst python3 (3.14)\\nRemv gpsd [3]\\n'")
    with pytest.raises(PackageMissing, match="2 also changes gpsd, python3"):
        debian_packages.check_changes_nothing_else(tmp_path, "2")


def build_packages(folder: Path, version: str, *more: str) -> None:
    """Make packages of that version in the folder, with a program that prints it."""
    tool("dpkg-deb", "dpkg")
    folder.mkdir(exist_ok=True)
    for each in debian_packages.list_files(folder, version):
        tree = folder.parent / each.stem
        name = each.name.partition("_")[0]
        control = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: x <x@y>\n"
        contents = {"DEBIAN/control": f"{control}Description: {name}\n"}
        if name == "fieldagent-common":
            contents["usr/lib/fieldagent/__main__.py"] = f"print('fieldagent {version}')"
        for path, text in (contents | dict.fromkeys(more, "")).items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)
        subprocess.run(["dpkg-deb", "--build", tree, each], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture
def packages_at_hand(tools: Path, tmp_path: Path) -> Path:
    """Version 1 is installed, 2 is apt's newest, and both are available."""
    put_tool(tools, "dpkg-query", f"printf '{OURS.replace('2', '1').format('installed')}'")
    put_tool(tools, "apt-cache", "echo '  Candidate: 2'")
    put_tool(
        tools, "apt-get", f"echo \"$*\" >>{tmp_path}/apt; echo 'E: unknown' >&2; [ $1 != download ]"
    )
    build_packages(tmp_path / "packages", "1", debian_packages.UNIT)
    build_packages(tmp_path / "packages", "2", debian_packages.UNIT)
    return tmp_path / "packages"


def test_available_packages_are_not_downloaded_and_their_programs_run(
    packages_at_hand: Path, tmp_path: Path
) -> None:
    build_packages(packages_at_hand, "0")
    programs = update._read_packaged_programs("", packages_at_hand)
    assert (programs.package, programs.previous_package) == ("2", "1")
    assert "download" not in (tmp_path / "apt").read_text()
    for program, version in ((programs.new, "2"), (programs.now, "1")):
        (tmp_path / "it.pyz").write_bytes(program)
        output = subprocess.check_output([sys.executable, tmp_path / "it.pyz"], text=True)
        assert output == f"fieldagent {version}\n"
    left = {
        *debian_packages.list_files(packages_at_hand, "1"),
        *debian_packages.list_files(packages_at_hand, "2"),
    }
    assert set(packages_at_hand.iterdir()) == left


def test_update_is_refused_without_the_packages_for_a_rollback(packages_at_hand: Path) -> None:
    debian_packages.list_files(packages_at_hand, "1")[0].unlink()
    with pytest.raises(
        PackageMissing, match=r"apt cannot fetch 1: unknown\. The rollback needs them"
    ):
        update._read_packaged_programs("", packages_at_hand)


def test_package_without_rollback_support_is_refused(packages_at_hand: Path) -> None:
    build_packages(packages_at_hand, "3")
    with pytest.raises(PackageMissing, match=r"3 has no fieldagent-update\.service"):
        update._read_packaged_programs("3", packages_at_hand)


def test_damaged_package_is_reported(packages_at_hand: Path) -> None:
    common, _ = debian_packages.list_files(packages_at_hand, "1")
    common.write_bytes(common.read_bytes()[:300])
    with pytest.raises(
        PackageMissing, match=r"fieldagent-common_1_all\.deb cannot be read: .*remove it"
    ):
        update._read_packaged_programs("", packages_at_hand)


@pytest.mark.parametrize("what", ["new.pyz", "fieldagent_2_all.deb", "https://example.org/2"])
def test_file_or_url_is_refused_as_a_version(packages_at_hand: Path, what: str) -> None:
    with pytest.raises(PackageMissing, match="name a version, or nothing"):
        update._read_packaged_programs(what, packages_at_hand)


def test_missing_newer_version_is_reported(packages_at_hand: Path, tools: Path) -> None:
    put_tool(tools, "apt-cache", "echo '  Candidate: 1'")
    with pytest.raises(PackageMissing, match="nothing newer than 1: `sudo apt update`"):
        update._read_packaged_programs("", packages_at_hand)
    put_tool(tools, "apt-cache", "echo '  Candidate: (none)'")
    with pytest.raises(PackageMissing, match="apt knows no package fieldagent"):
        update._read_packaged_programs("", packages_at_hand)


HOLD = """
import fcntl, sys
lock = open(sys.argv[1], "wb")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_install_waits_until_another_apt_releases_the_lock(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_tool(tools, "dpkg", f'echo "$DPKG_FRONTEND_LOCKED $*" >>{tmp_path}/asked')
    hold = [sys.executable, "-c", HOLD, str(debian_packages.LOCK)]
    with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"

        def sleep(_: float) -> None:
            assert not (tmp_path / "asked").exists()
            other.communicate()

        monkeypatch.setattr(time, "sleep", sleep)
        debian_packages.install(tmp_path, "2")
        assert other.poll() == 0
    common, agent = debian_packages.list_files(tmp_path, "2")
    asked = (tmp_path / "asked").read_text()
    assert asked == f"true --install {common} {agent}\ntrue --configure --pending\n"


def test_first_dpkg_error_is_reported(tools: Path, tmp_path: Path) -> None:
    said = "dpkg: warning: x\ndpkg: error processing package a:\n script\n failed\ndpkg: more"
    put_tool(tools, "dpkg", f"echo '{said}' >&2; exit 1")
    with pytest.raises(NotInstalled, match=r"it: dpkg: error processing package a: script failed$"):
        debian_packages.install(tmp_path, "2")


def test_install_gives_up_after_waiting_for_the_lock_and_changes_nothing(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_tool(tools, "dpkg", f"touch {tmp_path}/asked")
    monkeypatch.setattr(debian_packages, "LOCK_TIMEOUT_S", -1.0)
    hold = [sys.executable, "-c", HOLD, str(debian_packages.LOCK)]
    with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(OSError, match="another apt has held"):
            debian_packages.install(tmp_path, "2")
        other.communicate()
    assert not (tmp_path / "asked").exists()
