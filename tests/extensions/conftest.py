"""Fixtures of the two programs for the tests of extensions."""

from tests.agent.conftest import chromium
from tests.hub.conftest import (
    database,
    postgres,
    pytest_collection_modifyitems,
    store,
    template,
)

__all__ = [
    "chromium",
    "database",
    "postgres",
    "pytest_collection_modifyitems",
    "store",
    "template",
]
