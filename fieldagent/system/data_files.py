"""Data files that are installed together with the code, and read on demand."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from importlib.abc import ResourceLoader


def read_data(package: str, name: str) -> bytes:
    """Return the content of the file `name`, which is beside the sources of the package."""
    module = import_module(package)
    assert module.__file__ is not None
    assert module.__spec__ is not None
    # In a zipapp and in the Debian package, compiled code is in a separate folder, without the data
    # files.
    folder = module.__file__.rpartition("/")[0].replace(f"/{sys.implementation.cache_tag}/", "/", 1)
    return cast("ResourceLoader", module.__spec__.loader).get_data(f"{folder}/{name}")
