"""Writes the pages of the kit's handbook from docs/handbook, one page per language.

    .venv/bin/python build/handbook.py [--check]

With --check it writes nothing, and fails if a page is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path
from string import Template

from markdown_it import MarkdownIt

from fieldagent.page.language import LANGUAGES

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "docs/handbook"
PAGES = ROOT / "fieldagent/agent/handbook"
NAMES = {
    "en": "English",
    "de": "Deutsch",
    "es": "Español",
    "fr": "Français",
    "uk": "Українська",
}
"""Names of the languages, each in its own language, by language code."""
PAGE = Template("""\
<!doctype html>
<html lang="$language">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title · fieldagent</title>
<link rel="icon" href="/page/icon.svg">
<link rel="stylesheet" href="/help/handbook.css">
</head>
<body>
<nav aria-label="fieldagent"><a href="/">fieldagent</a>
$others</nav>
<main>
$text</main>
</body>
</html>
""")


def make_page(language: str) -> str:
    """Return the HTML page of the handbook in one language."""
    source = (SOURCES / f"{language}.md").read_text()
    others = (
        f"<strong>{NAMES[each]}</strong>\n"
        if each == language
        else f'<a href="/help/{each}.html" lang="{each}" hreflang="{each}">{NAMES[each]}</a>\n'
        for each in LANGUAGES
    )
    return PAGE.substitute(
        language=language,
        title=source.partition("\n")[0].removeprefix("# "),
        others="".join(others),
        text=MarkdownIt("commonmark").enable("table").render(source),
    )


def main() -> None:
    stale = []
    for language in LANGUAGES:
        path, made = PAGES / f"{language}.html", make_page(language)
        if "--check" not in sys.argv:
            path.write_text(made)
        elif not path.exists() or path.read_text() != made:
            stale.append(path.name)
    if stale:
        sys.exit(f"build/handbook.py: {', '.join(stale)}: not as written; run it")


if __name__ == "__main__":
    main()
