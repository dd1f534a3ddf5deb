"""Reasons in the languages of the pages, for `reasons.js`.

The key of each reason is its English template, with {1}, {2} for values. All languages are in one
file, because a template is as long as its translation. A browser gets only the texts of its own
language. Reasons that only a hub returns are in a separate file, which a kit's program does not
contain (`build/zipapp`).
"""

from __future__ import annotations

import json
from contextlib import suppress

from fieldagent.system.data_files import read_data


def translate_templates(language: str) -> bytes:
    """Return the translations of all templates into a language, as JSON."""
    texts_by_form: dict[str, dict[str, str]] = {}
    for name in ("words.json", "hub_words.json"):
        with suppress(OSError):
            texts_by_form |= json.loads(read_data(__name__, name))
    form_texts = {form: each[language] for form, each in texts_by_form.items()}
    return json.dumps(form_texts, ensure_ascii=False, separators=(",", ":")).encode()
