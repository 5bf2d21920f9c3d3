"""The rows of a ledger's table, as far as they can be read: what other means wrote may be anything.

Metadata is stored as JSON (LG-1, LG-11). It is checked against gRPC's rules both when it is submitted and when it is
read, because a row written by other means must not break the claim that reads it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import get_args, get_type_hints

from grpc_backoff.base.base_errors import kind_of
from grpc_backoff.ledger.records import CLAIMABLE, Metadata, Operation, OperationState, Readiness
from grpc_backoff.ledger.statements import Row
from grpc_backoff.ledger.transitions import LockedRow, fallback, ledger_policy
from grpc_backoff.policy.retry import RetryPolicy

_BINARY = "-bin"
PolicyOf = Callable[[str], RetryPolicy]
"""A function that returns the policy described by an operation's text."""
COLUMNS = tuple(part.name for part in dataclasses.fields(Operation) if part.name != "problem")
LATER = ("reason", "order_key", "not_after", "keep_response")
"""The columns that the tables of 0.2.0 lack (LG-18)."""
READY = (
    "id",
    "state",
    "policy",
    "step",
    "backoff_request_seconds",
    "last_attempted_at",
    "next_attempt_at",
    "lease_until",
)
"""What determines whether an operation is ready."""
STATES: Mapping[object, OperationState] = {state.value: state for state in OperationState}


def locked_rows(rows: Sequence[Row]) -> tuple[list[LockedRow], dict[str, str]]:
    """Return the rows that can be read, and for the others what is wrong, by id. These are left alone."""
    problems = {row[0]: _problem(LockedRow._fields, row) for row in rows}
    return [LockedRow(*row) for row in rows if problems[row[0]] is None], {
        id_: problem for id_, problem in problems.items() if problem is not None
    }


def _problem(names: Sequence[str], row: Row) -> str | None:
    """Return the first of a row's columns that cannot be read, and what was expected; None if all can."""
    for name, value in zip(names, row, strict=True):
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
    return Operation(**values, problem=problem)


def readiness(row: Row, policy_of: PolicyOf) -> Readiness:
    """Return whether a row's operation is ready (LG-5).

    The row contains the columns `READY`, what is in its way, and the time now. After a failure, the operation is
    ready at `last_attempted_at + backoff_request_seconds`. If the owner died before it could record these, the
    operation is ready min(growth, cap) after the end of the lease.
    """
    operation, name, policy, step, backoff, last, due, lease_until, obstacle, now = row
    if not all(map(is_readable, READY, row)) or name not in STATES:
        return Readiness(operation, ready=False, at=None, why="unreadable")
    state = OperationState(name)
    if state is OperationState.IN_PROGRESS and lease_until is not None:
        if lease_until > now:
            return Readiness(operation, ready=False, at=lease_until, why="in progress")
        at = lease_until + fallback(ledger_policy(policy_of(policy)), step + 1)
        return Readiness(operation, at <= now, at, "its owner is gone")
    if state not in CLAIMABLE or obstacle is not None or due is None:  # without a time it is set aside
        return Readiness(operation, ready=False, at=None, why=obstacle or name)
    if state is OperationState.WAITING and backoff is not None and last is not None:
        due = last + backoff
    return Readiness(operation, due <= now, due, "due" if due <= now else "backoff")


def unsendable(key: object, value: object) -> str | None:
    """Return what gRPC expects instead of a key or its value; None if gRPC can send them."""
    if not isinstance(key, str):
        return "keys that are strings"
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
