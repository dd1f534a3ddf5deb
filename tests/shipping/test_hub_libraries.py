"""A packaged hub with the optional libraries of Debian 12 and 13."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shipping.debian import on_debian


@pytest.mark.full
@pytest.mark.parametrize("release", ["bookworm", "trixie"])
def test_hub_works_without_and_with_the_libraries_of_debian(
    packages: list[Path], release: str
) -> None:
    on_debian(release, packages[0].parent, "tests/shipping/hub_libraries.sh")
