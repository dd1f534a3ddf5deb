"""Languages of pages and messages. A user's browser selects one (`http.languages`)."""

from __future__ import annotations

ENGLISH = "en"
LANGUAGES = (ENGLISH, "de", "es", "fr", "uk")
"""Languages. English is first, which is the default."""
