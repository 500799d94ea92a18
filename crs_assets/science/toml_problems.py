"""What is wrong with a TOML document, in plain words: which key, what was seen, what is expected."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from crs_assets.science.suggestion import did_you_mean

PATTERNS: Mapping[str, str] = {
    r"^[a-z0-9][a-z0-9._-]*$": "lower-case letters, digits, '.', '_' and '-', the first a letter or a digit",
    r"^[a-z0-9][a-z0-9_-]*$": "lower-case letters, digits, '_' and '-', the first a letter or a digit",
    r"^[0-9a-f]{64}$": "64 hexadecimal digits, in lower case",
    r"^([0-9a-f]{32})?$": "32 hexadecimal digits, in lower case",
    r"^[A-Za-z_]\w*$": "the import name of a Python package",
    r"^[\w.-]+/[\w.-]+$": "owner/name",
}
"""Pattern of a text -> what it asks for."""

_TEXT, _WHOLE, _NUMBER, _FLAG = "text in quotes", "a whole number", "a number", "true or false"
_LIST, _TABLE = "a list in [ ]", "a table of keys"
_KINDS: Mapping[Any, str] = {
    str: _TEXT, int: _WHOLE, float: _NUMBER, bool: _FLAG, tuple: _LIST, list: _LIST, dict: _TABLE
}  # fmt: skip
_BY_TYPE: Mapping[str, str] = {
    "string_type": _TEXT,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "a finite number",
    "bool_type": _FLAG,
    "bool_parsing": _FLAG,
    "tuple_type": _LIST,
    "list_type": _LIST,
    "dict_type": _TABLE,
    "model_type": _TABLE,
    "model_attributes_type": _TABLE,
    "literal_error": "one of {expected}",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "a number of at most {le:g}",
    "string_too_short": "text of at least {min_length} character(s)",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
}
_SHOWN = 80


class PartError(ValueError):
    """A part of a document that is wrong by the rules of another model.

    Attributes:
        problems: One line per key, from the document's top.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def problems(error: ValidationError, model: type[BaseModel], document: Any, within: Sequence[str] = ()) -> list[str]:
    """One line per key of a document that a model refuses.

    Args:
        error: What the model raised.
        model: The model.
        document: The document.
        within: Keys that lead to the document, where it is a part of a larger one.
    """
    lines: list[str] = []
    wrong: dict[tuple[str | int, ...], list[ErrorDetails]] = {}
    for item in error.errors(include_url=False):
        part = item.get("ctx", {}).get("error")
        if isinstance(part, PartError):
            lines += part.problems
        else:
            wrong.setdefault(_keys(item, document), []).append(item)
    for keys, items in wrong.items():
        # A value may be of several kinds; what is wrong inside it says more than that it is not of another kind.
        if not any(len(other) > len(keys) > 0 and other[: len(keys)] == keys for other in wrong):
            lines.append(f"{_named((*within, *keys))}: {_told(items, model)}")
    return lines


def _keys(item: ErrorDetails, document: Any) -> tuple[str | int, ...]:
    """The keys of the document that lead to an error, without the steps that are the model's own."""
    keys: list[str | int] = []
    for at, step in enumerate(item["loc"]):
        if _holds(document, step):
            document = document[step]
        elif item["type"] != "missing" or at < len(item["loc"]) - 1:
            continue
        keys.append(step)
    return tuple(keys)


def _holds(document: Any, step: str | int) -> bool:
    if isinstance(document, dict):
        return step in document
    return isinstance(document, list | tuple) and isinstance(step, int) and step < len(document)


def _named(keys: Sequence[str | int]) -> str:
    """``axes.anchors``, ``perturbations[entry 2].id``; ``(file)`` for a document as a whole."""
    name = "".join(f".{key}" if isinstance(key, str) else f"[entry {key + 1}]" for key in keys)
    return name.removeprefix(".") or "(file)"


def _told(items: Sequence[ErrorDetails], model: type[BaseModel]) -> str:
    item = items[0]
    at = _model_at(model, item["loc"][:-1])
    name = str(item["loc"][-1]) if item["loc"] else ""
    if item["type"] == "missing":
        field = at.model_fields.get(name)
        kind = kind_of(field.annotation) if field else ""
        return f"is missing; expected {kind}" if kind else "is missing"
    if item["type"] == "extra_forbidden":
        return _unknown(name, list(at.model_fields))
    seen = _seen(item["input"])
    if item["type"] == "value_error":
        shown = f" (seen: {seen})" if item["loc"] and isinstance(item["input"], str | int | float) else ""
        return f"{item['ctx']['error']}{shown}"
    return f"expected {' or '.join(dict.fromkeys(map(_expected, items)))}, seen {seen}"


def _unknown(name: str, known: Sequence[str]) -> str:
    expected = f"one of {', '.join(known)}" if known else "no key at all"
    return f"unknown key.{did_you_mean(name, known)} Expected {expected}."


def _expected(item: ErrorDetails) -> str:
    if item["type"] == "string_pattern_mismatch":
        pattern = str(item["ctx"]["pattern"])
        return PATTERNS.get(pattern, f"text of the form {pattern}")
    words = _BY_TYPE.get(item["type"])
    return words.format(**item.get("ctx", {})) if words else f"something else ({item['msg']})"


def _seen(value: Any) -> str:
    """A value much as TOML writes it, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _model_at(model: type[BaseModel], steps: Sequence[str | int]) -> type[BaseModel]:
    """The model of the table that the steps lead to."""
    for step in steps:
        if field := model.model_fields.get(str(step)):
            model = next(_models(field.annotation), model)
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and get_origin(annotation) is None and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def kind_of(annotation: Any) -> str:
    """What a field of this type takes, in words; empty where a few do not tell."""
    origin = get_origin(annotation)
    if origin is Literal:
        return f"one of {', '.join(map(repr, get_args(annotation)))}"
    if origin is None and next(_models(annotation), None):
        return _TABLE
    return _KINDS.get(origin or annotation, "")
