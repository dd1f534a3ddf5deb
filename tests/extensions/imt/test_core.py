"""The core names neither the modem nor the operator of this extension."""

from __future__ import annotations

import re
from pathlib import Path

import fieldagent

CORE = Path(fieldagent.__file__).parent
WORDS = re.compile(r"(?<![a-z])imt(?![a-z])|jspr|9704|cloudloop", re.IGNORECASE)
TEXTS = {".py", ".sql", ".js", ".json", ".html"}


def test_core_does_not_name_this_modem_or_operator() -> None:
    """Catalogues in `page/` may name products."""
    files = [
        path
        for path in CORE.rglob("*")
        if path.suffix in TEXTS and path.relative_to(CORE).parts[0] not in ("extensions", "page")
    ]
    assert len(files) > 500
    assert [str(path) for path in files if WORDS.search(path.read_text())] == []
