"""Builds an OpenAPI 3.1 description from tables of calls and fields.

A field is a JSON schema, which `text`, `integer`, `record` and the other functions make. Further
keywords of JSON Schema are arguments, such as `maxLength=80`. In the fields of a record, `name?` is
a field that may be absent. `make_document` puts each `NamedPart` among the components of the
description.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from fieldagent.system.lazy_named_tuple import NamedTuple

JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
HTML = "text/html; charset=utf-8"


class NamedPart(NamedTuple):
    """A part of the description that is a component with a name. Other parts refer to it by this
    name.
    """

    kind: str
    name: str
    content: Mapping[str, Any]


Schema = Mapping[str, Any] | NamedPart
Fields = Mapping[str, Schema]
Answers = Mapping[Any, Any]
"""Responses by status, or `default`. Each is a result of `answer` or `problem`, a `NamedPart`, or a
text. A text for `default` or a status from 400 describes a problem. Any other text describes a
response without a body."""
NO_ANSWERS: Answers = {}
Security = Sequence[Mapping[str, Sequence[str]]]


class Access(NamedTuple):
    """Credentials that calls need, and the responses that these calls have in common."""

    security: Security = ()
    answers: Answers = NO_ANSWERS
    get: Answers = NO_ANSWERS
    """Responses to GET."""
    other: Answers = NO_ANSWERS
    """Responses to all other methods."""
    body: Answers = NO_ANSWERS
    """Responses to a call with a body. A call without a body does not have the response 411."""
    segment: Answers = NO_ANSWERS
    """Responses to a call whose path has a parameter."""


OPEN_ACCESS = Access()
"""Access for everyone."""


class Body(NamedTuple):
    """Body of a request: its schema by media type."""

    content: Mapping[str, Schema]
    required: bool = True


class Call(NamedTuple):
    """Description of one route."""

    route: str
    """Method and path, such as `GET /api/status`."""
    name: str
    summary: str
    answers: Answers
    access: Access
    parameters: Sequence[Schema]
    body: Schema | Body | None
    description: str


def call(
    route: str,
    summary: str,
    answers: Answers | NamedPart | str,
    access: Access = OPEN_ACCESS,
    *,
    parameters: Sequence[Schema] = (),
    body: Schema | Body | None = None,
    description: str = "",
) -> Call:
    """Return the description of a route.

    `summary` contains the id of the operation, a colon and its summary. `answers` contains the
    responses by status, which replace those of `access`. A single response is for status 200. If
    `body` is a schema, a JSON body with this schema is required.
    """
    if isinstance(answers, str | NamedPart) or "description" in answers:
        answers = {200: answers}
    name, _, summary = summary.partition(": ")
    return Call(route, name, summary, answers, access, parameters, body, description)


def optional(content: Schema) -> Body:
    """Return the description of a JSON body that may be missing."""
    return Body({JSON: content}, required=False)


def schema(name: str, content: Schema) -> NamedPart:
    """Return the schema `content` as a component, to which other parts refer by `name`."""
    assert not isinstance(content, NamedPart)
    return NamedPart("schemas", name, content)


def _typed(kind: str, description: str, keywords: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": kind, **_described(description), **keywords}


def _described(description: str) -> dict[str, Any]:
    return {"description": description} if description else {}


def named_record(name: str, fields: Fields, description: str = "", /) -> NamedPart:
    """Return a `record` as a component, to which other parts refer by `name`."""
    return schema(name, record(fields, description))


def text(description: str = "", /, **more: Any) -> dict[str, Any]:
    return _typed("string", description, more)


def integer(description: str = "", /, **more: Any) -> dict[str, Any]:
    return _typed("integer", description, more)


def number(description: str = "", /, **more: Any) -> dict[str, Any]:
    return _typed("number", description, more)


def boolean(description: str = "") -> dict[str, Any]:
    return _typed("boolean", description, {})


def enumeration(*values: Any, description: str = "") -> dict[str, Any]:
    """Return the schema of a field whose value is one of these."""
    return {**_described(description), "enum": list(values)}


def constant(value: Any, description: str = "") -> dict[str, Any]:
    if isinstance(value, bool):
        # openapi-python-client writes invalid code for a constant boolean that may be absent.
        return {**boolean(description), "enum": [value]}
    return {**_described(description), "const": value}


def list_of(items: Schema, description: str = "", /, **more: Any) -> dict[str, Any]:
    return _typed("array", description, {"items": items} | more)


def record(fields: Fields, description: str = "", /, **more: Any) -> dict[str, Any]:
    """Return the schema of an object that has these fields and no others."""
    return extensible_record(fields, description, additionalProperties=False, **more)


def extensible_record(fields: Fields, description: str = "", /, **more: Any) -> dict[str, Any]:
    """Return the schema of an object that has these fields, and may have others."""
    members = {
        "properties": {name.removesuffix("?"): field for name, field in fields.items()},
        "required": [name for name in fields if not name.endswith("?")],
    }
    return _typed("object", description, members | more)


def mapping(
    values: Schema, description: str = "", keys: Iterable[str] = (), **more: Any
) -> dict[str, Any]:
    """Return the schema of an object whose member names are data. If `keys` is not empty, only
    these names are allowed.
    """
    if keys := list(keys):
        more["propertyNames"] = {"enum": keys}
    return _typed("object", description, {"additionalProperties": values} | more)


def one_of(*options: Schema, description: str = "", **more: Any) -> dict[str, Any]:
    return {**_described(description), "oneOf": list(options), **more}


def any_of(*options: Schema, description: str = "") -> dict[str, Any]:
    return {**_described(description), "anyOf": list(options)}


NULL = {"type": "null"}


def nullable(content: Schema, description: str = "") -> dict[str, Any]:
    """Return a schema that allows `content` or null."""
    if isinstance(content, NamedPart) or "type" not in content:
        return one_of(NULL, content, description=description)
    kinds = content["type"]
    changed: dict[str, Any] = {
        **content,
        **_described(description),
        "type": [*([kinds] if isinstance(kinds, str) else kinds), "null"],
    }
    if "enum" in content:
        changed["enum"] = [*content["enum"], None]
    return changed


def with_description(text: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same schema with this description."""
    return {**content, **_described(text)}


def query(
    name: str, content: Schema, description: str = "", is_required: bool = False
) -> dict[str, Any]:
    return _describe_parameter("query", name, content, description, is_required)


def header(
    name: str, content: Schema, description: str = "", is_required: bool = False
) -> dict[str, Any]:
    return _describe_parameter("header", name, content, description, is_required)


def segment(name: str, content: Schema, description: str = "") -> dict[str, Any]:
    """Return the description of the path parameter `name`, which is one segment of the path."""
    return _describe_parameter("path", name, content, description, True)


def answer(
    description: str,
    content: Schema | None = None,
    media: str = JSON,
    headers: Mapping[str, Any] | None = None,
    **others: Any,
) -> dict[str, Any]:
    response = answer_in_formats(description, {} if content is None else {media: content}, headers)
    if content is None:
        del response["content"]
    return response | others


def answer_in_formats(
    description: str, formats: Mapping[str, Schema], headers: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the description of a response with a schema for each media type."""
    content = {media: {"schema": schema} if schema else {} for media, schema in formats.items()}
    return {
        "description": description,
        "content": content,
        **({"headers": headers} if headers else {}),
    }


def problem(description: str, headers: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the description of a response that reports a problem (RFC 9457)."""
    return answer(description, {"$ref": "#/components/schemas/Problem"}, PROBLEM_JSON, headers)


def named_problem(
    name: str, description: str, headers: Mapping[str, Any] | None = None
) -> NamedPart:
    """Return a `problem` as a component, to which other parts refer by `name`."""
    return NamedPart("responses", name, problem(description, headers))


def answer_header(
    content: Schema, description: str = "", is_required: bool = False
) -> dict[str, Any]:
    """Return the description of a header of a response. `content` is the schema of the header's
    value.
    """
    needed = {"required": True} if is_required else {}
    return {**_described(description), "schema": content, **needed}


RETRY_AFTER = {
    "Retry-After": answer_header(text(pattern="^[1-9][0-9]*$"), "Whole seconds, 1 or more", True)
}


def make_document(
    title: str,
    description: str,
    server: str,
    calls: Iterable[Call],
    *,
    problem: NamedPart,
    common_access: Access,
    segments: Mapping[str, Schema] | None = None,
    schemes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the description of an API.

    All calls have the responses of `common_access`, unless they have their own response for the
    same status. `segments` contains the path parameters that calls do not describe themselves.
    """
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": "1", "description": description},
        "servers": [{"url": server}],
        "paths": {},
        "components": {"securitySchemes": dict(schemes)} if schemes else {},
    }
    _resolve(problem, document["components"])
    add_calls(document, calls, common_access, segments or {})
    return document


def add_calls(
    description: dict[str, Any],
    calls: Iterable[Call],
    common_access: Access,
    segments: Mapping[str, Schema],
) -> None:
    """Add calls, with their path parameters in `segments` and the responses of `common_access`, to
    the description of an API.
    """
    for each in calls:
        method, _, path = each.route.partition(" ")
        method = method.lower()
        item = description["paths"].setdefault(path, {})
        assert method not in item, f"{each.route} is described twice"
        parameters = [*_list_segments(path, each.parameters, segments), *each.parameters]
        operation = _describe_operation(method, each, common_access, parameters)
        item[method] = _resolve(operation, description["components"])


def add_further(description: dict[str, Any], tables: Iterable[Iterable[Call]]) -> None:
    """Add further tables of calls, such as those of extensions, to the description of an API. All
    of these calls have the component OfHttp as their `default` response.
    """
    of_http = {"default": {"$ref": "#/components/responses/OfHttp"}}
    add_calls(description, chain.from_iterable(tables), Access(answers=of_http), {})


def _list_segments(
    path: str, schemas: Sequence[Schema], segments: Mapping[str, Schema]
) -> Iterator[Schema]:
    described = [each["name"] for each in schemas if isinstance(each, Mapping)]
    for name in re.findall(r"\{(\w+)\}", path):
        if name not in described:
            yield segments[name]


def _describe_operation(
    method: str, each: Call, common_access: Access, parameters: Sequence[Schema]
) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": each.name, "summary": each.summary}
    operation |= _described(each.description)
    if each.access.security:
        operation["security"] = each.access.security
    if parameters:
        operation["parameters"] = parameters
    body = each.body
    if body is not None and not isinstance(body, Body):
        body = Body({JSON: body})
    if body is not None:
        content = {media: {"schema": content} for media, content in body.content.items()}
        operation["requestBody"] = {"required": body.required, "content": content}
    answers: dict[Any, Any] = {}
    for access in (common_access, each.access):
        answers |= {**access.answers, **(access.get if method == "get" else access.other)}
        answers |= access.segment if "{" in each.route else NO_ANSWERS
        if body is not None:
            answers |= {
                status: body_schema
                for status, body_schema in access.body.items()
                if body.required or status != 411
            }
    answers |= each.answers
    operation["responses"] = {
        str(status): _describe_answer(status, body_schema)
        for status, body_schema in answers.items()
    }
    return operation


def _describe_answer(status: int | str, given: Any) -> Any:
    if not isinstance(given, str):
        return given
    return problem(given) if status == "default" or int(status) >= 400 else answer(given)


def _resolve(part: Any, components: dict[str, dict[str, Any]]) -> Any:
    """Return the part with references to named parts, which are added to the components."""
    if isinstance(part, NamedPart):
        kind = components.setdefault(part.kind, {})
        if part.name not in kind:
            # Add the part before it is resolved, so that it precedes the parts to which it refers.
            kind[part.name] = None
            kind[part.name] = _resolve(part.content, components)
        return {"$ref": f"#/components/{part.kind}/{part.name}"}
    if isinstance(part, Mapping):
        return {name: _resolve(each, components) for name, each in part.items()}
    if isinstance(part, list | tuple):
        return [_resolve(each, components) for each in part]
    return part


def _describe_parameter(
    place: str, name: str, content: Schema, description: str, is_required: bool
) -> dict[str, Any]:
    needed = {"required": True} if is_required else {}
    return {"name": name, "in": place, **needed, **_described(description), "schema": content}
