"""Converts an OpenAPI description into a Markdown page for the web site."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

METHODS = ("get", "post", "put", "patch", "delete")


def make_page(title: str, description: Mapping[str, Any]) -> str:
    """Return an OpenAPI 3.1 `description` as Markdown: each call, then each schema."""
    parts = [f"# {title[0].upper() + title[1:]}", description["info"].get("description", "")]
    parts.append("Made from what `GET /openapi.json` answers, which programs read.")
    for path, item in sorted(description["paths"].items()):
        for method in METHODS:
            if method in item:
                parts += _describe_call(method, path, item[method], item, description)
    parts.append("## Schemas")
    for name, schema in sorted(description["components"]["schemas"].items()):
        parts += [
            f"### {name}",
            _escape_markdown(schema.get("description", "")),
            *_describe_members(schema),
        ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _describe_call(
    method: str,
    path: str,
    call: Mapping[str, Any],
    item: Mapping[str, Any],
    description: Mapping[str, Any],
) -> Iterator[str]:
    yield f"## {method.upper()} {path}"
    yield _escape_markdown(call.get("summary", "")) + "."
    yield _escape_markdown(call.get("description", ""))
    parameters = [
        _resolved(each, description)
        for each in [*item.get("parameters", ()), *call.get("parameters", ())]
    ]
    if parameters:
        yield _table(
            ("parameter", "in", "value", ""),
            [
                (_code(each["name"]), each["in"], _describe_type(each["schema"]), _described(each))
                for each in parameters
            ],
        )
    body = call.get("requestBody")
    if body:
        yield f"Takes {_describe_content(_resolved(body, description))}."
    answers = [
        (_code(status), _escape_markdown(answer.get("description", "")), _describe_content(answer))
        for status, response in call["responses"].items()
        for answer in [_resolved(response, description)]
    ]
    yield _table(("status", "means", "body"), answers)


def _describe_members(schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    members = schema.get("properties", {})
    if not members:
        yield _describe_type(schema)
        return
    yield _table(
        ("member", "value", ""),
        [
            (
                _code(name) + ("" if name in required else " (may be absent)"),
                _describe_type(each),
                _described(each),
            )
            for name, each in members.items()
        ],
    )


def _describe_content(message: Mapping[str, Any]) -> str:
    """Return the media types of a body and their schemas as text for a table cell."""
    return ", ".join(
        f"{_code(media.partition(';')[0])} {_describe_type(each.get('schema', {}))}".strip()
        for media, each in message.get("content", {}).items()
    )


def _describe_type(schema: Any) -> str:
    """Return a short text about a schema for a table cell. A named schema becomes a link."""
    if not isinstance(schema, Mapping):
        return ""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for word in ("oneOf", "anyOf", "allOf"):
        if word in schema:
            return " or ".join(filter(None, map(_describe_type, schema[word])))
    if "enum" in schema:
        return ", ".join(_code(json.dumps(each)) for each in schema["enum"])
    if "const" in schema:
        return _code(json.dumps(schema["const"]))
    kinds = schema.get("type", "")
    kind = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    if "items" in schema:
        of = _describe_type(schema["items"])
        kind += f" of {of}" if of else ""
    elif isinstance(schema.get("additionalProperties"), Mapping):
        of = _describe_type(schema["additionalProperties"])
        kind += f" of {of}" if of else ""
    return kind + _bounds(schema)


def _bounds(schema: Mapping[str, Any]) -> str:
    least = schema.get("minimum", schema.get("minLength"))
    most = schema.get("maximum", schema.get("maxLength"))
    bounds = [f"from {least}"] if least is not None else []
    bounds += [f"to {most}"] if most is not None else []
    return f", {' '.join(bounds)}" if bounds else ""


def _described(part: Mapping[str, Any]) -> str:
    return _escape_markdown(
        part.get("description") or part.get("schema", {}).get("description", "")
    )


def _resolved(node: Mapping[str, Any], description: Mapping[str, Any]) -> Mapping[str, Any]:
    there: Any = node
    while "$ref" in there:
        at: Any = description
        for word in there["$ref"].removeprefix("#/").split("/"):
            at = at[word]
        there = at
    return there  # type: ignore[no-any-return]


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
        for line in lines
    )


def _code(text: str) -> str:
    return f"`{text}`"


def _escape_markdown(text: str) -> str:
    """Return `text` with all Markdown characters escaped."""
    return "".join(f"\\{mark}" if mark in "\\`*_[]<>{}#|" else mark for mark in text)
