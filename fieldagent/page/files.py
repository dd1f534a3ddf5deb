"""Static files for a browser. All data on the pages comes from the API.

Pages of other sites cannot frame our pages, and the policy allows only content of the same origin.
The files of this folder are shared by both pages, the kit's and the hub's console.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from functools import cache, partial

from fieldagent.http.headers import choose_language
from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.page.language import ENGLISH, LANGUAGES, read_catalogue
from fieldagent.system.data_files import read_data

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self';"
    " manifest-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none';"
    " img-src 'self' blob:"
)
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "png": "image/png",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
}

Pairs = tuple[tuple[str, str], ...]
_INDEX = "index.html"
GZIP = 31
"""Value of zlib's window size that selects gzip (https://zlib.net/manual.html, deflateInit2)."""
CATALOGUES = tuple(f"{each}.json" for each in LANGUAGES if each != ENGLISH)
"""Files with a page's texts in other languages than English. A browser loads only the file of its
own language."""
_REASONS = "reasons-"
"""Prefix of the names of the files with reasons; the code of a language follows. All these files
are made from one file (`reasons`)."""
SHARED_FILES = {
    "choices.js": (__package__, "choices.js"),
    "coordinates.js": (__package__, "coordinates.js"),
    "grid.js": (__package__, "grid.js"),
    "language.js": (__package__, "language.js"),
    "map.css": (__package__, "map.css"),
    "map.js": (__package__, "map.js"),
    "picture.js": (__package__, "picture.js"),
    "reasons.js": (__package__, "reasons.js"),
    **{f"{_REASONS}{each}": (__package__, f"{_REASONS}{each}") for each in CATALOGUES},
    "stream.js": (__package__, "stream.js"),
    "text.js": (__package__, "text.js"),
    "world.js": (__package__, "world.js"),
    "leaflet.css": ("xstatic.pkg.leaflet", "data/leaflet.css"),
    "leaflet.js": ("xstatic.pkg.leaflet", "data/leaflet.js"),
    "protomaps-leaflet.js": ("fieldagent.page.protomaps_leaflet", "protomaps-leaflet.js"),
}
"""Places of the shared files by name: the package, and the path in the package."""
PARTS = "parts.js"
"""Script of a page that extensions add to. The script imports the modules of these extensions."""


def make_page_routes(
    pages: Collection[str],
    base_path: str,
    package: str,
    file_names: Collection[str],
    image_origin: str = "",
    path_keywords: Collection[str] = (),
    static_texts: Collection[str] = (),
    extension_packages: Mapping[str, str] | None = None,
) -> list[Route]:
    """Return the routes of a page. A `GET` of each path in `pages` returns the package's
    index.html. In a path, {id} is a number, and other parts in braces are one of `path_keywords`.
    `base_path` is the path of the page's files `file_names`, and of the shared files.
    `image_origin` is another origin whose pictures the page may show. `static_texts` contains texts
    that people read before a script runs, so the hub or agent translates them. `extension_packages`
    contains the packages that extensions add to the page, by name. Each part has a script NAME.js
    and catalogues. If `extension_packages` is None, the page has no parts.
    """
    places = SHARED_FILES | {name: (package, name) for name in file_names}
    if extension_packages is not None:
        places |= {f"{name}.js": (each, f"{name}.js") for name, each in extension_packages.items()}
        places[PARTS] = (package, PARTS)
    added = tuple((extension_packages or {}).items())
    policy = f"{CONTENT_SECURITY_POLICY} {image_origin}".rstrip()
    return [
        *(
            Route("GET", page, partial(_serve_index, policy, package, path_keywords, static_texts))
            for page in pages
        ),
        Route("GET", f"{base_path}/{{name}}", partial(_serve_file, policy, places, added)),
    ]


def make_folder_route(base_path: str, package: str, file_names: Collection[str]) -> Route:
    """Return the route for a `GET` of the package's files `file_names`, without shared files."""
    places = {name: (package, name) for name in file_names}
    return Route(
        "GET", f"{base_path}/{{name}}", partial(_serve_file, CONTENT_SECURITY_POLICY, places, ())
    )


def make_file_route(path: str, package: str, name: str) -> Route:
    """Return the route for a `GET` of one file at its own path. A service worker needs such a path,
    because it controls only the paths below its own.
    """
    return Route("GET", path, partial(_serve_one_file, package, name))


async def _serve_one_file(package: str, name: str, request: Request) -> Response:
    return _make_response(request, CONTENT_SECURITY_POLICY, package, name)


async def _serve_index(
    policy: str,
    package: str,
    path_keywords: Collection[str],
    early_texts: Collection[str],
    request: Request,
    **parts: str,
) -> Response:
    """Return the page, whose script reads the values in the path. Raises Problem 404 if a value is
    not allowed.
    """
    for name, each in parts.items():
        is_allowed = each.isascii() and each.isdigit() if name == "id" else each in path_keywords
        if not is_allowed:
            raise Problem(404, f"the page has no {each[:40]!r}")
    language = choose_language(request.headers.get("accept-language", ""), LANGUAGES)
    texts = read_catalogue(package, language).get("texts", {}) if early_texts else {}
    pairs = tuple((text, texts[text]) for text in early_texts if text in texts)
    return _make_response(request, policy, package, _INDEX, pairs)


async def _serve_file(
    policy: str, places: dict[str, tuple[str, str]], parts: Pairs, request: Request, name: str
) -> Response:
    if name not in places:
        raise Problem(404, f"the page has no file {name[:40]!r}")
    added = parts if name in (PARTS, *CATALOGUES) else ()
    return _make_response(request, policy, *places[name], parts=added)


def _make_response(
    request: Request,
    policy: str,
    package: str,
    name: str,
    early_texts: Pairs = (),
    parts: Pairs = (),
) -> Response:
    """Return a file. `early_texts` are texts in the file and their translations. `parts` are the
    names and packages of the page's parts, if the file depends on them.
    """
    packed = "gzip" in request.headers.get("accept-encoding", "")
    tag = _tag(package, name, packed, early_texts, parts)
    headers = (
        ("Vary", "Accept-Encoding, Accept-Language" if name == _INDEX else "Accept-Encoding"),
        ("Content-Security-Policy", policy),
        ("ETag", tag),
        ("Cache-Control", "no-cache"),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
    )
    known_tag = request.headers.get("if-none-match", "").replace("W/", "")
    if tag in (each.strip() for each in known_tag.split(",")):
        return Response(304, headers=headers)
    read_file = _compress if packed else _read_content
    content = read_file(package, name, early_texts, parts)
    encoded = (("Content-Encoding", "gzip"),) if packed else ()
    return Response(200, content, _TYPES[name.rpartition(".")[2]], (*encoded, *headers))


def _read_content(package: str, name: str, early_texts: Pairs, parts: Pairs) -> bytes:
    if name == PARTS:
        return _import_parts([part for part, _ in parts])
    if name.startswith(_REASONS):
        # Import this module here, because browsers that are set to English never request these
        # files.
        from fieldagent.page import reasons

        return reasons.translate_templates(name.removeprefix(_REASONS).removesuffix(".json"))
    content = read_data(package, name)
    if early_texts:
        # The tables of this module take 0.3 MB, and only a read page needs them.
        from html import escape
    for text, replacement in early_texts:
        content = content.replace(text.encode(), escape(replacement).encode())
    return _add_texts(content, name, [each for _, each in parts]) if parts else content


def _import_parts(names: Sequence[str]) -> bytes:
    lines = [f'import * as {name} from "./{name}.js";' for name in names]
    return "\n".join((*lines, f"export const parts = [{', '.join(names)}];\n")).encode()


def _add_texts(content: bytes, name: str, packages: Sequence[str]) -> bytes:
    """Return a catalogue with the texts of other packages' catalogues."""
    catalogue = json.loads(content)
    for package in packages:
        catalogue["texts"] |= read_catalogue(package, name.removesuffix(".json")).get("texts", {})
    return json.dumps(catalogue, ensure_ascii=False).encode()


@cache
def _compress(package: str, name: str, early_texts: Pairs, parts: Pairs) -> bytes:
    """Compress a file once. Compression takes 100 times as long as reading, and the file never
    changes.
    """
    return zlib.compress(_read_content(package, name, early_texts, parts), 9, GZIP)


@cache
def _tag(package: str, name: str, is_packed: bool, early_texts: Pairs, parts: Pairs) -> str:
    digest = hashlib.sha256(_read_content(package, name, early_texts, parts)).hexdigest()[:16]
    return f'"{digest}{"-gzip" if is_packed else ""}"'
