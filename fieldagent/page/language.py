"""The languages that pages and messages are in. Which of them somebody reads, their browser says
(`http.languages`)."""

from __future__ import annotations

ENGLISH = "en"
LANGUAGES = (ENGLISH, "de", "es", "fr", "uk")
"""English first: who reads none of the others gets that."""
