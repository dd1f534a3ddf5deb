"""Makes the contents of `build/zipapp` and `build/deb`: the program and its libraries, as sources
without native code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from version import write_into

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv/bin/python"
EARLIEST = 315532800
"""Unix time of 1980-01-01, the earliest date that a zip file can contain."""
NATIVE = (".so", ".pyd", ".dylib", ".a")
UNUSED = (
    "**/__pycache__",
    "**/*.pyi",
    "**/py.typed",
    "bin",
    "**/_tests",
    # Modules for systems other than Linux.
    "trio/_core/_io_kqueue.py",
    "trio/_core/_io_windows.py",
    "trio/_core/_generated_io_kqueue.py",
    "trio/_core/_generated_io_windows.py",
    "trio/_core/_generated_windows_ffi.py",
    "trio/_core/_windows_cffi.py",
    "trio/_subprocess_platform/kqueue.py",
    "trio/_subprocess_platform/windows.py",
    "trio/_windows_pipes.py",
    "trio/_wait_for_object.py",
    "trio/testing/_[a-z]*.py",
    "trio/_tools",
    # Modules of trio's interactive interpreter.
    "trio/__main__.py",
    "trio/_repl.py",
    "serial/urlhandler",
    "serial/tools",
    "serial/threaded",
    "serial/__main__.py",
    "serial/rfc2217.py",
    "serial/rs485.py",
    "serial/*win32*",
    "serial/*java*",
    "serial/*cli*",
    # The program uses only the sans-I/O protocol of websockets.
    "websockets/asyncio",
    "websockets/legacy",
    "websockets/sync",
    "websockets/trio",
    "websockets/auth.py",
    "websockets/cli.py",
    "websockets/connection.py",
    "websockets/extensions/permessage_deflate.py",
    "websockets/proxy.py",
    "websockets/speedups.c",
    "websockets/__main__.py",
    # Files of XStatic-Leaflet except the library file, which is all that the page uses.
    "XStatic_*.pth",
    "xstatic/pkg/leaflet/data/images",
    "xstatic/pkg/leaflet/data/*.map",
    "xstatic/pkg/leaflet/data/leaflet-src*",
    # Command of cbor2, which the program does not call.
    "cbor2/tool.py",
    # The license is Apache 2 or MIT. The MIT license stays.
    "**/LICENSE.APACHE2",
    # Libraries whose license is a separate file.
    *(
        f"{name}-*.dist-info/METADATA"
        for name in [
            "attrs",
            "cbor2",
            "h11",
            "outcome",
            "sniffio",
            "sortedcontainers",
            "trio",
            "websockets",
        ]
    ),
    "**/*.dist-info/RECORD",
    "**/*.dist-info/WHEEL",
    "**/*.dist-info/INSTALLER",
    "**/*.dist-info/REQUESTED",
    "**/*.dist-info/direct_url.json",
    "**/*.dist-info/entry_points.txt",
    "**/*.dist-info/top_level.txt",
    "**/*.dist-info/namespace_packages.txt",
)
_VALIDATORS = """\
def instance_of(kind):
    def check(instance, attribute, value):
        if not isinstance(value, kind):
            raise TypeError(f"{attribute.name} must be {kind}, not {value!r}")
    return check
"""
_IDNA = """\
def encode(name, **options):
    return name.encode("idna")
"""
STAND_INS = {
    "attr/converters.py": "",
    "attr/filters.py": "",
    "attr/validators.py": _VALIDATORS,
    "idna/__init__.py": _IDNA,
    "sortedcontainers/sortedset.py": "SortedSet = set\n",
    "trio/_dtls.py": "DTLSChannel = DTLSChannelStatistics = DTLSEndpoint = None\n",
    "trio/testing/__init__.py": "from trio._core import MockClock as MockClock\n",
}
"""Replacements: modules that libraries import for other users, and trio's clock for drills without
its other test tools. outcome uses `instance_of`, and nothing uses the sets. trio encodes a host
name as the settings do, with Python's codec. They save 90 kB of a zipapp, and more of an agent's
memory."""
MAIN = """\
import os
import sys
import zipimport

place = sys.path[0]
if os.path.isfile(place) and os.path.isdir("/proc/self/fd"):
    # Held open, and named by that: zipimport opens its file anew for all that is read later, and by
    # then another program may be in its place.
    sys.path[0] = f"/proc/self/fd/{os.open(place, os.O_RDONLY | os.O_CLOEXEC)}"
    # What Python has noted of it under its own name: a fifth of a megabyte that nobody asks again.
    zipimport._zip_directory_cache.pop(place, {}).clear()
    sys.path_importer_cache.pop(place, None)
# Compiled code for this version; where there is none, the sources behind it do.
sys.path.insert(0, f"{sys.path[0]}/{sys.implementation.cache_tag}")

from fieldagent.__main__ import main

sys.exit(main())
"""

"""Contents of `__main__.py`. It prefers the compiled code of `bytecode.py`."""


@contextmanager
def show_steps(target: Path, total: int) -> Iterator[Callable[[], None]]:
    """Yield a function that the caller must call before each of the `total` steps of a build. It
    prints the progress.
    """
    sys.path.append(str(ROOT))
    from fieldagent.system.progress import Progress

    done = count()
    with Progress(f"building {target.name}", "steps", at_once=True) as progress:
        yield lambda: progress.show(next(done), total)


def install_program(tree: Path) -> None:
    """Install the program and its libraries into an empty folder. Exits with a message if this
    fails.
    """
    if not PYTHON.exists():
        subprocess.run([ROOT / "build/venv"], check=True)
    install_dependencies(tree)
    shutil.copytree(ROOT / "fieldagent", tree / "fieldagent")
    write_into(tree)
    remove_unused(tree)
    for name, source in STAND_INS.items():
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text(source)
    for folder in ("xstatic", "xstatic/pkg"):
        # Python before 3.13 does not find a package without `__init__.py` in a zip file.
        (tree / folder / "__init__.py").touch()
    refuse_native(tree)


def prepare_descriptions(tree: Path) -> None:
    """Replace the tables of the APIs by JSON files. Call it after extensions were removed."""
    run(PYTHON, "-I", ROOT / "build/description.py", tree)


def get_build_time() -> int:
    """Return the Unix time that all files of a build get: `SOURCE_DATE_EPOCH`, or 1980-01-01 if it
    is not set or earlier.
    """
    return max(EARLIEST, int(os.environ.get("SOURCE_DATE_EPOCH", EARLIEST)))


def install_dependencies(tree: Path) -> None:
    arguments = "install -qq --disable-pip-version-check --no-compile --no-deps"
    locked = "--require-hashes --only-binary :all: --platform any --implementation py --abi none"
    requirements = ROOT / "build/requirements.txt"
    run(PYTHON, "-m", "pip", *arguments.split(), *locked.split(), "-t", tree, "-r", requirements)


def remove_unused(tree: Path) -> None:
    for pattern in UNUSED:
        for path in list(tree.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def refuse_native(tree: Path) -> None:
    native = [path.name for path in tree.rglob("*") if path.suffix in NATIVE]
    if native:
        sys.exit(f"build: {', '.join(native)} runs on one architecture only")


def run(python: str | Path, *arguments: str | Path) -> None:
    # Fix the hash seed, because the order of sets in compiled code depends on it.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run([python, *arguments], env=environment, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"build: {python} {arguments[0]} failed; its message is above")
