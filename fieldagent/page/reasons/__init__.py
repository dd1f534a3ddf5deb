"""Reasons in the languages of the pages, which `reasons.js` says them by.

The English form of each is its name, with {1}, {2} where something is filled in. All languages are
in one file, as a form is as long as what is said of it; a browser is sent its own alone.
"""

from __future__ import annotations

import json

from fieldagent.system.data_files import read_data


def in_language(language: str) -> bytes:
    """Return what each form is in that language, as JSON."""
    words: dict[str, dict[str, str]] = json.loads(read_data(__name__, "words.json"))
    said = {form: each[language] for form, each in words.items()}
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()
