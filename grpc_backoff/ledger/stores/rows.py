"""The rows of a ledger's table, as far as they can be read: what other means wrote may be anything.

Metadata is stored as JSON (LG-1, LG-11). It is checked against gRPC's rules both when it is submitted and when it is
read, because a row written by other means must not break the claim that reads it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import get_args, get_type_hints

from grpc_backoff.base.base_errors import kind_of
from grpc_backoff.ledger.operation import IDEMPOTENCY_KEY, Metadata, Operation, OperationState
from grpc_backoff.ledger.stores.statements import Row
from grpc_backoff.ledger.transitions import LockedRow
from grpc_backoff.policy.checks import METADATA_KEY

_BINARY = "-bin"
COLUMNS = tuple(part.name for part in dataclasses.fields(Operation) if part.name != "problem")
ADDED = ("reason", "order_key", "not_after", "keep_response")
"""The columns that were added to the tables of 0.2.0 (LG-18)."""
STATES: Mapping[object, OperationState] = {state.value: state for state in OperationState}


def locked_rows(rows: Sequence[Row]) -> tuple[list[LockedRow], dict[str, str]]:
    """Return the rows that can be read, and for the others what is wrong, by id. These are left alone."""
    problems = {row[0]: problem for row in rows if (problem := _problem(row)) is not None}
    return [LockedRow(*row) for row in rows if row[0] not in problems], problems


def _problem(row: Row) -> str | None:
    """Return the first of a row's columns that cannot be read, and what was expected; None if all can."""
    for name, value in zip(LockedRow._fields, row, strict=True):
        if not is_readable(name, value):
            return unreadable(name, value)
        if name == "state" and value not in STATES:
            return f"state={value!r}: expected one of: {', '.join(OperationState)}"
    return None


def unreadable(name: str, value: object) -> str:
    """Return what was expected of a column's value; it shows only the value's type, or that it is not finite."""
    found = "a number that is not finite" if isinstance(value, float) else kind_of(value)
    return f"{name}: expected {_KINDS[name][0].__name__}, not {found}"


def _kind(hint: type) -> tuple[type, bool]:
    kind, *null = get_args(hint) or (hint,)
    return kind, bool(null)


_KINDS = {
    name: _kind(hint)
    for name, hint in (get_type_hints(Operation) | get_type_hints(LockedRow) | {"metadata": str}).items()
}
"""The kinds of the columns as they are stored, and whether they may be NULL."""


def is_readable(name: str, value: object) -> bool:
    """Return whether a column's value has its kind; a time may be an integer, but must be finite."""
    kind, null = _KINDS[name]
    fits = isinstance(value, kind) or (isinstance(value, int) and kind is float) or (null and value is None)
    return fits and (not isinstance(value, float) or math.isfinite(value))


def operation_of(row: Row) -> Operation:
    """Return the operation in a row with the columns `COLUMNS`.

    What cannot be read, because other means wrote it, is a `problem` of this operation alone, not an error for the
    whole query.
    """
    values = dict(zip(COLUMNS, row, strict=True))
    problem = None
    for name, value in values.items():
        if not is_readable(name, value):
            kind, null = _KINDS[name]
            problem = unreadable(name, value)
            values[name] = None if null else kind()
    try:
        values["state"] = OperationState(values["state"])
        values["metadata"] = decode_metadata(values["metadata"])
    except ValueError as error:
        problem = problem or str(error)
        values |= {"metadata": (), "state": STATES.get(values["state"], OperationState.FAILED)}
    if wanted := unsendable(IDEMPOTENCY_KEY, values["idempotency_key"] or ""):
        problem = problem or f"idempotency_key: expected {wanted}"
    return Operation(**values, problem=problem)


def unsendable(key: object, value: object) -> str | None:
    """Return what gRPC expects instead of a key or its value; None if gRPC can send them."""
    if not isinstance(key, str) or not re.fullmatch(METADATA_KEY, key):
        return "a key of lower-case letters, digits, '-', '_' and '.'"
    if key.endswith(_BINARY):
        return None if isinstance(value, bytes) else "a value of bytes, because the key ends with -bin"
    if isinstance(value, str) and value.isascii() and value.isprintable():
        return None
    return "a value of printable ASCII characters, or a key that ends with -bin"


def encode_metadata(metadata: Metadata) -> str:
    """Return metadata as JSON, with binary values as base64."""
    pairs = [[key, value if isinstance(value, str) else b64encode(value).decode()] for key, value in metadata]
    return json.dumps(pairs)


def decode_metadata(text: str) -> Metadata:
    """Parse metadata from JSON; ValueError, which does not show the content, if it is not valid."""
    try:
        pairs = tuple(
            (key, b64decode(value, validate=True) if key.endswith(_BINARY) else value)
            for key, value in json.loads(text)
        )
    except (ValueError, TypeError, AttributeError):
        raise ValueError("metadata: expected a JSON list of pairs") from None
    for key, value in pairs:
        wanted = unsendable(key, value)
        if wanted is not None:
            raise ValueError(f"metadata={key!r}: expected {wanted}")
    return pairs
