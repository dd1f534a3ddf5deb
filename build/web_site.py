"""Writes the documents as a web site: the lists in docs/README.md are its contents.

    build/site [FOLDER]

Sphinx with MyST and furo makes the site. They support Markdown with GitHub's anchors, and a search
that needs no server. A broken link, or a page that is missing in docs/README.md, is an error. The
pages of the two APIs are made from their OpenAPI descriptions. Each page that was moved has a
redirect page at its old path.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import api_page

from fieldagent.system.extension import import_own

ROOT = Path(__file__).resolve().parent.parent
DEFAULT = ROOT / "dist/site"
DOCUMENTS = ("*.md", "docs/**/*.md", "examples/*.md")
LINK = re.compile(r"\]\(([^)\s:#]+)[^)\s]*\)")
APIS = {"local": ("agent", "the API of the agent"), "hub": ("hub", "the API of the hub")}
MOVED = {
    "adding-a-radio": "how-to/add-a-radio",
    "adding-an-operator": "how-to/add-an-operator",
    "architecture": "explain/architecture",
    "bridges": "how-to/tak",
    "drill": "how-to/simulate",
    "drills": "reference/sample-drills",
    "end-to-end": "explain/end-to-end",
    "energy": "explain/energy",
    "field-kit": "start/first-kit",
    "glossary": "reference/glossary",
    "hub": "start/first-hub",
    "ip-link": "reference/ip-link",
    "local-api": "reference/local-api",
    "maps": "how-to/maps",
    "node-link": "reference/node-link",
    "on-air": "reference/on-air",
    "operating": "how-to/install",
    "people-radios": "how-to/handhelds",
    "places": "how-to/fences-and-routes",
    "postgresql": "how-to/postgresql",
    "proofs": "explain/proofs",
    "radio": "how-to/radio",
    "reliability": "explain/reliability",
    "remote-hands": "how-to/remote-commands",
    "satellite": "how-to/satellite",
    "scale": "explain/scale",
    "security": "explain/security",
    "settings": "reference/settings",
    "sms": "how-to/sms",
    "tak-server": "how-to/tak-server",
    "team": "explain/team-radio",
    "trackers": "how-to/trackers",
    "troubleshooting": "how-to/troubleshooting",
    "versions": "reference/compatibility",
}
"""New paths of the pages that were directly in docs/ until November 2026, by their old names."""
REDIRECT = """\
<!DOCTYPE html>
<meta charset="utf-8">
<title>This page has moved</title>
<meta http-equiv="refresh" content="0; url=NEW">
<p>This page has moved to <a href="NEW">NEW</a>.</p>
"""
CONF = """\
project = "fieldagent"
html_title = "fieldagent"
extensions = ["myst_parser"]
myst_heading_anchors = 6
html_theme = "furo"
html_static_path = []
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_use_index = False
html_favicon = "icon.svg"
highlight_language = "none"
pygments_style = "default"
root_doc = "index"
"""
HEAD = """\
# fieldagent

fieldagent sends messages, positions and SOS calls from places without a network, by satellite,
radio or cellular. Start with the [overview](README.md), or find your task in the [list of all
pages](docs/README.md).
"""


def list_documents() -> Iterator[Path]:
    """Yield the path of each document, relative to the root of the tree."""
    for pattern in DOCUMENTS:
        yield from (path.relative_to(ROOT) for path in sorted(ROOT.glob(pattern)))


def list_chapters() -> list[tuple[str, list[str]]]:
    """Return the headings of docs/README.md, each with its documents in their order.

    The reference of an API follows the page that shows its use. The handbook in other languages
    follows the English handbook.
    """
    contents = ROOT / "docs/README.md"
    sections = []
    for text in contents.read_text().split("\n## ")[1:]:
        heading, _, links = text.partition("\n")
        pages = []
        for link in LINK.findall(links):
            page = (contents.parent / link).resolve().relative_to(ROOT).as_posix()
            pages.append(page)
            if page == "docs/handbook/en.md":
                others = sorted((ROOT / "docs/handbook").glob("*.md"))
                pages += [f"docs/handbook/{each.name}" for each in others if each.stem != "en"]
            if page.endswith("-api.md"):
                pages.append(f"api/{'local' if 'local' in page else 'hub'}.md")
        sections.append((heading, pages))
    return sections


def make_index() -> str:
    parts = [HEAD, "```{toctree}\n:hidden:\n\nREADME.md\ndocs/README.md\n```\n"]
    for heading, pages in list_chapters():
        contents = "\n".join(pages)
        caption = f":maxdepth: 1\n:caption: {heading}"
        parts.append(f"```{{toctree}}\n{caption}\n\n{contents}\n```\n")
    return "\n".join(parts)


def write_sources(folder: Path) -> None:
    """Write the input of Sphinx to `folder`: the documents, the files that they link to, and the
    generated pages.
    """
    for path in list_documents():
        wanted = {path}
        for link in LINK.findall((ROOT / path).read_text()):
            linked_file = (ROOT / path.parent / link).resolve()
            if linked_file.is_file():
                wanted.add(linked_file.relative_to(ROOT))
        for each in wanted:
            (folder / each).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / each, folder / each)
    for name, (program, title) in APIS.items():
        document = import_own(f"fieldagent.{program}.description:describe")()
        page = folder / f"api/{name}.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text(api_page.make_page(title, document))
    for path in list_documents():
        # Show diagrams as text, because the script that draws them has three megabytes.
        text = (folder / path).read_text()
        (folder / path).write_text(text.replace("```mermaid", "```text"))
    shutil.copy(ROOT / "fieldagent/agent/page/icon.svg", folder)
    (folder / "index.md").write_text(make_index())
    (folder / "conf.py").write_text(CONF)


def write_redirects(folder: Path) -> None:
    """Write a page at each old path that redirects to the new path, without JavaScript."""
    for old, new in MOVED.items():
        (folder / f"docs/{old}.html").write_text(REDIRECT.replace("NEW", f"{new}.html"))


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    with tempfile.TemporaryDirectory() as name:
        source, site = Path(name) / "source", Path(name) / "site"
        source.mkdir()
        write_sources(source)
        sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
        if subprocess.run([*sphinx, str(source), str(site)]).returncode:
            sys.exit("build/site: fix the errors above first")
        write_redirects(site)
        shutil.rmtree(site / ".doctrees", ignore_errors=True)
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(site, target)
    print(f"{target}/index.html: {len(list(target.rglob('*.html')))} pages")


if __name__ == "__main__":
    main()
