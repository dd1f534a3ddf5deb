"""Writes a software bill of materials of a build, as CycloneDX 1.5 (https://cyclonedx.org).

    build/sbom.py FILE [ROOT]      FILE.cdx.json; ROOT is the system that an image was made of

The same input gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from version import built_version

HERE = Path(__file__).resolve().parent
SCRIPT = HERE.parent / "fieldagent/page/protomaps_leaflet/protomaps-leaflet.js"
REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)==(\S+) --hash=sha256:([0-9a-f]{64})")


def write(made: Path, root: Path | None = None) -> Path:
    """Write the file `MADE.cdx.json`. `made` is a program, a package, or an image of the system in
    the folder `root`.
    """
    itself = {
        "type": "application",
        "name": made.name,
        "version": built_version(),
        "hashes": [{"alg": "SHA-256", "content": _sha256(made)}],
    }
    installed = [*root.glob("opt/*/lib/python*/site-packages")] if root else []
    components = [
        *(_list_distributions(installed) if installed else _list_libraries()),
        *(_list_packages(root) if root else ()),
    ]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": itself},
        "components": components,
    }
    target = made.with_name(f"{made.name}.cdx.json")
    target.write_text(json.dumps(document, indent=1) + "\n")
    return target


def _sha256(made: Path) -> str:
    with made.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _list_libraries() -> Iterator[dict[str, Any]]:
    """Yield the components for the libraries in the program, with the SHA-256 of each downloaded
    file.
    """
    for name, version, digest in REQUIREMENT.findall((HERE / "requirements.txt").read_text()):
        yield {
            **_component("library", name, version, f"pkg:pypi/{name.lower()}@{version}"),
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }
    name, version = SCRIPT.stem, "5.1.0"
    yield {
        **_component("library", name, version, f"pkg:npm/{name}@{version}"),
        "hashes": [{"alg": "SHA-256", "content": _sha256(SCRIPT)}],
    }


def _list_distributions(folders: list[Path]) -> Iterator[dict[str, Any]]:
    """Yield the components for the Python packages that are installed in these folders."""
    found = distributions(path=[str(folder) for folder in folders])
    for name, version in sorted((each.name, each.version) for each in found):
        yield _component("library", name, version, f"pkg:pypi/{name.lower()}@{version}")


def _list_packages(root: Path) -> Iterator[dict[str, Any]]:
    """Yield the components for the Debian packages of the system in `root`."""
    form = "--showformat=${Package} ${Version} ${Architecture}\n"
    query = ["dpkg-query", f"--admindir={root}/var/lib/dpkg", "--show", form]
    for line in sorted(subprocess.check_output(query, text=True).splitlines()):
        name, version, architecture = line.split()
        purl = f"pkg:deb/debian/{name}@{version}?arch={architecture}"
        yield _component("library", name, version, purl)


def _component(kind: str, name: str, version: str, purl: str) -> dict[str, Any]:
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2:] else None))
