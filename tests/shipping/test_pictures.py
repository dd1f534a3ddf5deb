"""The pictures of the README can be made from the current demo."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from tests.shipping.conftest import ROOT

pytestmark = pytest.mark.full


def test_readme_pictures_can_be_made_from_the_demo(tmp_path: Path) -> None:
    """If the page or the console has changed, run `build/pictures` to make the published pictures
    again.
    """
    subprocess.run(["build/pictures", tmp_path], cwd=ROOT, check=True)
    for name in ("page.png", "console.png"):
        made, published = (
            struct.unpack(">II", (folder / name).read_bytes()[16:24])
            for folder in (tmp_path, ROOT / "docs")
        )
        assert made == published == (1280, 800)
