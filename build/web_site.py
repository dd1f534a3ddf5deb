"""Writes the documents as a web site: README's table of them is its contents.

    build/site [FOLDER]

Sphinx with MyST and furo does it: all three are kept up by many, read Markdown with GitHub's
anchors, and search from a folder on a stick as well as from a server. A link that leads nowhere,
and a page that README's table does not name, is an error. Pages of the two APIs are made from
their OpenAPI descriptions.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import api_page

ROOT = Path(__file__).resolve().parent.parent
DEFAULT = ROOT / "dist/site"
DOCUMENTS = ("*.md", "docs/**/*.md", "examples/*.md")
LINK = re.compile(r"\]\(([^)\s:#]+)[^)\s]*\)")
APIS = {"local": ("agent", "the API of the agent"), "hub": ("hub", "the API of the hub")}
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

Links people and assets in the field with systems elsewhere, over satellite, radio and cellular.
Begin with [what it is, and two commands](README.md).
"""


def documents() -> Iterator[Path]:
    """Yield each document of the tree, by its path there."""
    for pattern in DOCUMENTS:
        yield from (path.relative_to(ROOT) for path in sorted(ROOT.glob(pattern)))


def chapters() -> list[tuple[str, list[str]]]:
    """Return README's table: for whom, and the documents in their order.

    An API is behind the page that tells how it is used, other languages behind the first.
    """
    rows = []
    for who, links in re.findall(r"^\| (.+?) \| (.+?) \|$", _table(), re.MULTILINE)[1:]:
        pages = [page for page in LINK.findall(links) if page.endswith(".md")]
        for page in list(pages):
            at = pages.index(page) + 1
            if page == "docs/handbook/en.md":
                others = sorted((ROOT / "docs/handbook").glob("*.md"))
                pages[at:at] = [
                    f"docs/handbook/{each.name}" for each in others if each.stem != "en"
                ]
            if page in ("docs/local-api.md", "docs/hub.md"):
                pages.insert(at, f"api/{'local' if 'local' in page else 'hub'}.md")
        rows.append((who, pages))
    return rows


def _table() -> str:
    return (ROOT / "README.md").read_text().partition("\n## More\n")[2]


def index() -> str:
    parts = [HEAD, "```{toctree}\n:hidden:\n\nREADME.md\n```\n"]
    for who, pages in chapters():
        contents = "\n".join(pages)
        caption = f":maxdepth: 1\n:caption: {who[0].upper() + who[1:]}"
        parts.append(f"```{{toctree}}\n{caption}\n\n{contents}\n```\n")
    return "\n".join(parts)


def stage(folder: Path) -> None:
    """Lay the documents out as in the tree, with what they link to and the pages that are made."""
    for path in documents():
        wanted = {path}
        for link in LINK.findall((ROOT / path).read_text()):
            there = (ROOT / path.parent / link).resolve()
            if there.is_file():
                wanted.add(there.relative_to(ROOT))
        for each in wanted:
            (folder / each).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / each, folder / each)
    for name, (whose, title) in APIS.items():
        description = json.loads((ROOT / f"fieldagent/{whose}/api/openapi.json").read_bytes())
        page = folder / f"api/{name}.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text(api_page.page(title, description))
    for path in documents():
        # Whoever draws these fetches three megabytes for it; as text they are read, too.
        text = (folder / path).read_text()
        (folder / path).write_text(text.replace("```mermaid", "```text"))
    shutil.copy(ROOT / "fieldagent/agent/page/icon.svg", folder)
    (folder / "index.md").write_text(index())
    (folder / "conf.py").write_text(CONF)


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    with tempfile.TemporaryDirectory() as name:
        source, made = Path(name) / "source", Path(name) / "site"
        source.mkdir()
        stage(source)
        sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
        if subprocess.run([*sphinx, str(source), str(made)]).returncode:
            sys.exit("build/site: what stands above has to be mended first")
        shutil.rmtree(made / ".doctrees", ignore_errors=True)
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(made, target)
    print(f"{target}/index.html: {len(list(target.rglob('*.html')))} pages")


if __name__ == "__main__":
    main()
