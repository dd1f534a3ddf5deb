"""A signed repository of Debian packages, and another Debian that installs from it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.machine import tool, unavailable
from tests.shipping.conftest import CANNOT, ROOT


def signed_repository(folder: Path, packages: Sequence[Path]) -> Path:
    """Make a signed apt repository of these packages in `folder`, with a temporary key, and return
    its path.
    """
    tool("apt-ftparchive", "apt-utils")
    gpg = tool("gpg", "gpg")
    with TemporaryDirectory() as home:
        environment = {**os.environ, "GNUPGHOME": home}
        key = ["--quick-gen-key", "ops@example.org", "ed25519", "sign", "never"]
        quiet = ["--batch", "--quiet", "--passphrase", ""]
        made = [str(each) for each in (ROOT / "build/repository", folder)]
        try:
            subprocess.run([gpg, *quiet, *key], env=environment, check=True)
            subprocess.run([*made, "ops@example.org", *packages], env=environment, check=True)
        finally:
            subprocess.run(["gpgconf", "--kill", "all"], env=environment)
    return folder


def on_debian(release: str, repository: Path, *script: str) -> None:
    """Run a script on that Debian with `repository` as /srv/with. The script's last line is `==
    done`.
    """
    done = subprocess.run(
        [ROOT / "build/debian", "--with", repository, release, *script],
        capture_output=True,
        text=True,
    )
    if done.returncode == CANNOT:
        unavailable(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("== done\n"), done.stdout


def repacked(
    package: Path,
    folder: Path,
    version: str,
    changes: Mapping[str, tuple[str, str]],
) -> Path:
    """Repack the package with another version and changed lines in some of its files: (old text,
    new text).
    """
    name, before, rest = package.name.split("_")
    with TemporaryDirectory() as directory:
        tree = Path(directory) / name
        subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
        for path, change in {"DEBIAN/control": (before, version), **changes}.items():
            if (file := tree / path).exists():
                text = file.read_text()
                assert change[0] in text, (path, change[0])
                file.write_text(text.replace(*change))
        target = folder / f"{name}_{version}_{rest}"
        pack = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build"]
        subprocess.run([*pack, tree, target], check=True, stdout=subprocess.DEVNULL)
    return target
