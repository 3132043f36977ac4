"""What a schema says against a user's table, in the user's words: file, line, key, what was found and what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ValidationError
from pydantic_core import ErrorDetails

from breakeven.errors import BreakevenError
from breakeven.inputs.yaml_table import Lines, Location

__all__ = ["VariableName", "check_table", "shown"]


MAX_SHOWN_ERRORS = 5

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text (put numbers, yes and no in quotes)",
    "bool_type": "true or false",
    "dict_type": "a table of keys",
    "model_type": "a table of keys",
    "tuple_type": "a list",
}

Schema = TypeVar("Schema", bound=BaseModel)


def _variable_name(name: str) -> str:
    # what the system takes; whoever reads the variable may expect less
    if not name or "=" in name:
        raise ValueError(f"{name[:80]!r} cannot be the name of an environment variable; expected NAME: value")
    return name


VariableName = Annotated[str, AfterValidator(_variable_name)]


def check_table(
    schema: type[Schema], content: dict[Any, Any], lines: Lines, where: str, *, whole: str, error: type[BreakevenError]
) -> Schema:
    """`content` as `schema`. `whole` is what the file is called ("the plan").

    Raises:
        error: a key or value that makes no sense; one line each, the first few of them.
    """
    try:
        return schema.model_validate(content)
    except ValidationError as fault:
        details = _causes(fault.errors(include_url=False))
        messages = [_message(detail, schema, lines, where, whole) for detail in details[:MAX_SHOWN_ERRORS]]
        if len(details) > MAX_SHOWN_ERRORS:
            messages.append(f"and {len(details) - MAX_SHOWN_ERRORS} more")
        raise error("\n".join(messages)) from fault


def _causes(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Without complaints that a list is too short where it only is because its items were refused."""
    refused = {detail["loc"][:-1] for detail in details} | {detail["loc"][:-2] for detail in details}
    return [detail for detail in details if detail["type"] != "too_short" or detail["loc"] not in refused]


def shown(value: object) -> str:
    """A value for a message: tables and lists by their kind, anything else as Python writes it, cut at 80 characters."""
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        return "a table" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _message(detail: ErrorDetails, schema: type[BaseModel], lines: Lines, where: str, whole: str) -> str:
    location, kind = tuple(map(str, detail["loc"])), detail["type"]
    # pydantic adds the name of a union's member, which stands in no file
    while location and location not in lines and kind != "missing":
        location = location[:-1]
    line = next((lines[location[:end]] for end in range(len(location), 0, -1) if location[:end] in lines), None)
    prefix = f"{where}:{line}" if line is not None else where
    key = ".".join(location)
    inside = ".".join(location[:-1]) or whole
    if kind == "extra_forbidden":
        return f"{prefix}: unknown key {location[-1][:80]!r} in {inside}; {_nearest(schema, location, whole)}"
    if kind == "missing":
        description = _fields(_section(schema, location)).get(location[-1])
        return f"{prefix}: key {location[-1]!r} is missing in {inside}" + (f"; expected: {description}" if description else "")
    if kind == "value_error":
        return f"{prefix}: {key + ': ' if key else ''}{detail['ctx']['error']}"
    if detail["loc"] and detail["loc"][-1] == "[key]":
        what = "a key that is no text" if kind == "string_type" else "the key"
        problem = "put yes, no, on, off and numbers in quotes" if kind == "string_type" else _expected(detail)
        return f"{prefix}: {key} has {what} ({shown(detail['input'])}); {problem}"
    if kind == "invalid_key":
        return f"{prefix}: a key is {shown(detail['input'])}, which is no word; put yes, no, on, off, numbers and dates in quotes"
    if kind == "too_short":
        at_least, found = detail["ctx"]["min_length"], detail["ctx"]["actual_length"]
        has = f"has {found}" if found else "is empty"
        return f"{prefix}: {key} {has}; expected at least {'one entry' if at_least == 1 else f'{at_least} entries'}"
    return f"{prefix}: {key} is {shown(detail['input'])}; {_expected(detail)}"


def _expected(detail: ErrorDetails) -> str:
    if detail["type"] in _EXPECTED:
        return f"expected {_EXPECTED[detail['type']]}"
    return detail["msg"].replace("Input should be", "expected")


def _nearest(schema: type[BaseModel], location: Location, whole: str) -> str:
    elsewhere = [".".join(path) or whole for path in dict.fromkeys(_holders(schema, location[-1]))]
    if elsewhere:
        return f"it belongs in {' or '.join(elsewhere[:2])}"
    known = list(_fields(_section(schema, location)))
    nearest = difflib.get_close_matches(location[-1], known, n=1, cutoff=0.5)
    return f"did you mean {nearest[0]!r}?" if nearest else f"known keys: {', '.join(known)}"


def _section(schema: type[BaseModel], location: Location) -> type[BaseModel]:
    """The schema of the table that holds the key at `location`. Names that users give (of arms) and list items are passed over."""
    section = schema
    for part in location[:-1]:
        for name, field in section.model_fields.items():
            if part == (field.alias or name):
                inner = [kind for kind in _types(field.annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)]
                section = inner[0] if inner else section
                break
    return section


def _holders(section: type[BaseModel], key: str, path: Location = ()) -> Iterator[Location]:
    """Tables of the file that do have such a key, outermost first."""
    if key in _fields(section):
        yield path
    for name, field in section.model_fields.items():
        types = list(_types(field.annotation))
        # names that users give stand between a table of tables and the tables in it
        inside = (*path, field.alias or name, *(("NAME",) if any(get_origin(one) is dict for one in types) else ()))
        for inner in types:
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from _holders(inner, key, inside)


def _types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for argument in get_args(annotation):
        yield from _types(argument)


def _fields(section: type[BaseModel]) -> dict[str, str]:
    return {field.alias or name: field.description or "" for name, field in section.model_fields.items()}
