"""What tests need of the machine beside Python."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def lacking(why: str) -> NoReturn:
    """What a test needs is not here: its author may go on, CI may not."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


def tool(name: str, package: str) -> str:
    """The path of a program that a package of Debian's brings."""
    return shutil.which(name) or lacking(f"no {name}: apt-get install {package}")
