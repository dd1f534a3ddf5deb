"""The kit's program as Debian packages. For an update, apt downloads the packages and dpkg installs
them.

apt trusts the contents of a signed repository (apt-secure(8)). The packages of both versions are
downloaded before any change, so that neither the update nor a rollback needs the network. After a
power failure, dpkg unpacks and configures the packages again from the beginning.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from fieldagent.system.folder import replace_file
from fieldagent.system.program_delta import make_zip

PACKAGE_NAMES = ("fieldagent-common", "fieldagent")
HUB_PACKAGE = "fieldagent-hub"
"""Package of the hub, which requires the program's package in the same version."""
PROGRAM = "./usr/lib/fieldagent/"
UNIT = "./usr/lib/systemd/system/fieldagent-update.service"
CONFIGURED_STATES = ("installed", "triggers-awaited", "triggers-pending")
"""dpkg's names for the states of a configured package (dpkg-query(1))."""
QUIET_ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
LOCK = Path("/var/lib/dpkg/lock-frontend")
LOCK_TIMEOUT_S = 600.0
"""Seconds to wait until another apt process has ended."""
LOCK_CHECK_S = 1.0
OUTPUT_CHARACTERS_MAX = 300
"""Largest number of characters from the end of dpkg's output that are shown, if the output contains
no error."""


class PackageMissing(Exception):
    """Error: packages for an update or for its rollback are missing. The text contains the fix."""


class NotInstalled(OSError):
    """Error: dpkg failed. The text contains its output."""


def list_files(folder: Path, version: str) -> list[Path]:
    """Return the paths that the packages of `version` have in `folder`: the common package first.
    The files may not exist.
    """
    return [folder / f"{name}_{version}_all.deb" for name in PACKAGE_NAMES]


def read_installed_version() -> str:
    """Return the version of the installed packages, in dpkg's form. Raises PackageMissing if a
    package is not installed completely, or if the hub's package is installed too.
    """
    form = "--showformat=${Package} ${Version} ${db:Status-Status}\n"
    output = _run("dpkg-query", "--show", form, *PACKAGE_NAMES, HUB_PACKAGE).stdout
    # The version is missing if the package was removed and purged.
    rows = [line.split() for line in output.splitlines()]
    packages = {name: version for name, *version, state in rows if state in CONFIGURED_STATES}
    if HUB_PACKAGE in packages:
        raise PackageMissing(
            f"{HUB_PACKAGE} is installed here too, and its database cannot be rolled back:"
            " `sudo apt install` updates both"
        )
    versions = {version for name in PACKAGE_NAMES for version in packages.get(name, [""])}
    if len(versions) != 1 or "" in versions:
        raise PackageMissing(
            f"{' and '.join(PACKAGE_NAMES)} are not installed completely, in one version:"
            " `sudo apt --fix-broken install` first"
        )
    return versions.pop()


def find_newest_version() -> str:
    """Return the newest version in apt's lists, according to apt's preferences. Raises
    PackageMissing if apt does not know the package.
    """
    policy = _run("apt-cache", "policy", PACKAGE_NAMES[-1]).stdout
    match = re.search(r"^  Candidate: ([^(\s]\S*)$", policy, re.MULTILINE)
    if match is None:
        raise PackageMissing(f"apt knows no package {PACKAGE_NAMES[-1]}: run `sudo apt update`")
    return match[1]


def fetch(folder: Path, version: str) -> None:
    """Download the packages into the folder if they are not there already. Raises PackageMissing if
    apt cannot download them, and OSError for errors of the disk.
    """
    if all(each.exists() for each in list_files(folder, version)):
        return
    folder.mkdir(mode=0o700, exist_ok=True)
    with TemporaryDirectory() as place:
        # apt downloads as an unprivileged user, so use a folder in which this user can write.
        with suppress(LookupError):
            shutil.chown(place, "_apt")
        package_versions = [f"{name}={version}" for name in PACKAGE_NAMES]
        download = _run("apt-get", "download", *package_versions, folder=Path(place))
        for each in list_files(folder, version):
            try:
                replace_file(each, (Path(place) / each.name).read_bytes())
            except FileNotFoundError:
                raise PackageMissing(
                    f"apt cannot fetch {version}: {_find_apt_errors(download)}"
                ) from None


def remove_others(folder: Path, *versions: str) -> None:
    """Remove all files in the folder except the packages of `versions`. Raises OSError."""
    kept_files = {each for version in versions for each in list_files(folder, version)}
    for each in set(folder.iterdir()) - kept_files:
        each.unlink()


def check_changes_nothing_else(folder: Path, version: str) -> None:
    """Check that the update changes no package except the program's packages, because a rollback
    could not undo such a change. Raises PackageMissing otherwise.
    """
    allowed = ["--allow-downgrades", "--allow-change-held-packages", "--no-install-recommends"]
    paths = map(str, list_files(folder, version))
    simulated = _run("apt-get", "--simulate", "--reinstall", *allowed, "install", *paths)
    if simulated.returncode:
        raise PackageMissing(f"apt cannot install {version}: {_find_apt_errors(simulated)}")
    changed_packages = re.findall(r"^(?:Inst|Remv) (\S+)", simulated.stdout, re.MULTILINE)
    if others := sorted(set(changed_packages) - set(PACKAGE_NAMES)):
        raise PackageMissing(
            f"{version} also changes {', '.join(others)}, which cannot be rolled back: install"
            f" without rollback with `sudo apt install {PACKAGE_NAMES[-1]}={version}`"
        )


def read_content(folder: Path, version: str) -> dict[str, bytes]:
    """Return the files in the packages by name. Each name begins with `./`. Raises PackageMissing
    if a package cannot be read.
    """
    contents = {}
    for each in list_files(folder, version):
        unpacking = subprocess.run(["dpkg-deb", "--fsys-tarfile", each], capture_output=True)
        if unpacking.returncode:
            reason = unpacking.stderr.decode(errors="replace").strip()
            raise PackageMissing(f"{each} cannot be read: {reason}; remove it, and try again")
        with tarfile.open(fileobj=io.BytesIO(unpacking.stdout)) as archive:
            for member in archive:
                if (file := archive.extractfile(member)) is not None:
                    contents[member.name] = file.read()
    return contents


def pack_zipapp(contents: dict[str, bytes]) -> bytes:
    """Pack the program's files into one file that Python can run."""
    return make_zip(
        {
            name.removeprefix(PROGRAM): file
            for name, file in contents.items()
            if name.startswith(PROGRAM)
        }
    )


def install(folder: Path, version: str) -> None:
    """Install a version over any other version, even over an incomplete installation. Raises
    NotInstalled if dpkg fails.
    """
    with _acquire_apt_lock():
        # A process that holds apt's lock must tell dpkg that the lock is held (dpkg(1)).
        dpkg = ["env", "DPKG_FRONTEND_LOCKED=true", "dpkg"]
        installation = _run(*dpkg, "--install", *map(str, list_files(folder, version)))
        # After a power failure, also complete other packages, for example man-db, which the
        # program's manual pages trigger.
        _run(*dpkg, "--configure", "--pending")
    print(installation.stdout, end="", flush=True)
    print(installation.stderr, end="", file=sys.stderr, flush=True)
    if installation.returncode:
        # Find the first error. Indented lines continue it.
        first = re.search(r"^dpkg: error.*(?:\n .*)*", installation.stderr, re.MULTILINE)
        reason = first[0] if first else installation.stderr[-OUTPUT_CHARACTERS_MAX:]
        raise NotInstalled(f"dpkg cannot install it: {' '.join(reason.split())}")
    # dpkg syncs its own files, but files that the packages' scripts create may not be on disk yet.
    os.sync()


@contextmanager
def _acquire_apt_lock() -> Iterator[None]:
    """Hold apt's lock within the context, because dpkg would fail immediately if another apt
    process were running. Raises OSError.
    """
    until = time.monotonic() + LOCK_TIMEOUT_S
    with LOCK.open("wb") as lock:
        while True:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise OSError(f"another apt has held {LOCK} for {LOCK_TIMEOUT_S:g} s") from None
            time.sleep(LOCK_CHECK_S)
        yield


def _run(*command: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, **QUIET_ENVIRONMENT},
        cwd=folder,
    )


def _find_apt_errors(process: subprocess.CompletedProcess[str]) -> str:
    """Return the error messages of apt, or, if there are none, the exit code of the command."""
    error_lines = re.findall(r"^E: (.+)$", process.stderr, re.MULTILINE)
    return "; ".join(error_lines) or f"`{' '.join(process.args)}` ended with {process.returncode}"
