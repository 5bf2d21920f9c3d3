"""The notation of behaviours in scripts: a name, and in parentheses the fields that differ from their defaults."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import Field, fields
from typing import Any

from grpc_judge.flaky.behaviour import Entry
from grpc_judge.flaky.behaviours import BY_NAME
from grpc_judge.flaky.values import kind_of

__all__ = ["ScriptError", "read_entry", "write_entry"]


class ScriptError(ValueError):
    """A script is not valid. The message names the faulty part and what is allowed."""


def write_entry(entry: Entry) -> str:
    """Return a behaviour as text, such as `slow_settings(delay=0.5)`."""
    values = [
        f"{field.name}={kind_of(field.default).write(value)}"
        for field in fields(entry)
        if (value := getattr(entry, field.name)) != field.default
    ]
    return f"{entry.name}({', '.join(values)})" if values else entry.name


def read_entry(name: str, values: str) -> Entry:
    """Return the behaviour with this name; `values` is the text between the parentheses.

    Raises:
        ScriptError: the behaviour does not exist, or a value is not allowed.
    """
    if name not in BY_NAME:
        raise ScriptError(f"behaviour={name!r}: expected one of {', '.join(BY_NAME)}{_hint(name, BY_NAME)}")
    kind = BY_NAME[name]
    known = {field.name: field for field in fields(kind)}
    given: dict[str, object] = {}
    for key, text in _pairs(name, list(known), values):
        if key not in known:
            raise ScriptError(f"{name}: field={key!r}: expected {_one_of(known)}{_hint(key, known)}")
        if key in given:
            raise ScriptError(f"{name}: expected {key} once")
        given[key] = _value(name, known[key], text)
    try:
        return kind(**given)
    except ValueError as error:
        raise ScriptError(str(error)) from None


def _pairs(name: str, order: list[str], values: str) -> Iterator[tuple[str, str]]:
    """Yield pairs of field name and text. A value without a field name belongs to the next field in order."""
    for place, part in enumerate(values.split(",") if values.strip() else ()):
        key, named, text = part.partition("=")
        if named:
            yield key.strip(), text.strip()
        elif place < len(order):
            yield order[place], part.strip()
        else:
            most = f"{len(order)} values ({', '.join(order) or 'no fields'})"
            raise ScriptError(f"{name}: value={part.strip()!r}: expected at most {most}")


def _value(name: str, field: Field[Any], text: str) -> object:
    kind = kind_of(field.default)
    try:
        return kind.read(text)
    except (KeyError, ValueError):
        raise ScriptError(f"{name}: {field.name}={text!r}: expected {kind.allowed}") from None


def _hint(word: str, known: dict[str, Any]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _one_of(known: dict[str, Any]) -> str:
    return f"one of {', '.join(known)}" if known else "no field"
