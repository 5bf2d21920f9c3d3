"""Parses policies written as one line of text: `retry: 5, delay: 500ms, backoff: exponential, timeout: 5s` (BP-2).

The settings are those of `RETRYING`, or of `HEDGING` for a policy that hedges; both are also keys of the file's tables
for calls. A value is a number, a time such as `500ms`, a name, or a jitter such as `scaled(0.5, 1.5)`. The items of a
list are separated by spaces; status codes also by commas.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from grpc_backoff.base.base_errors import OptionError, shown
from grpc_backoff.config.remarks import missing_jitter, warn_of
from grpc_backoff.config.resolving import resolve_retry
from grpc_backoff.config.settings import read_source
from grpc_backoff.config.sources import Source, begin_with
from grpc_backoff.policy.checks import STATUS_CODES, Unit
from grpc_backoff.policy.retry import RETRYING, RetryPolicy
from grpc_backoff.policy.setting import Setting

_COMMA = r",(?![^()]*\))"
_EQUALS = r"\s*=\s*"
_SIGNS = r"^\s*$|[:=,]"
"""Matches a text that is not a name: either a policy string, or an empty text, which is an error."""
_CODES = ("codes", "non_fatal_codes")
_WHOLE = r"(?a)[+-]?\d+"


def parse_policy(text: str) -> RetryPolicy:
    """Parse a retry policy: the name of a preset, or a policy string (BP-2).

    For example, `"retry: 5, delay: 500ms, backoff: exponential, timeout: 5s"` means five retries after the first
    attempt, a wait of half a second after the first failure, twice the previous wait after each further failure, and a
    limit of five seconds for each attempt. The settings are those of a table `[policies.NAME]` in the file.

    Raises:
        OptionError: the text is neither a policy string nor a name, a setting is unknown, or its value is invalid.

    Warns:
        PolicyWarning: a setting has no effect, such as `backoff` without `delay`, or the waits have no jitter.
    """
    if not isinstance(text, str):
        raise OptionError("policy", text, "a policy name, or a policy string such as 'retry: 5, delay: 1s'")
    source = read_text(text)
    resolved = resolve_retry([source], {})
    warn_of((*resolved.remarks, *missing_jitter(source, resolved.policy)))
    return resolved.policy


def read_text(text: str, key: str = "policy") -> Source:
    """Return what a policy string says, or else a text that names a policy; `key` is the text's name in errors."""
    return read_string(text, RETRYING, key) if re.search(_SIGNS, text) else begin_with(text.strip(), key)


def read_string(text: str, table: Sequence[Setting] | None, key: str = "policy") -> Source:
    """Parse a policy string with the settings of a table, as in `read_source`; `key` is its name in errors."""
    values: dict[str, tuple[str, object]] = {}
    for part in re.split(_COMMA, text):
        name, colon, value = (piece.strip() for piece in part.partition(":"))
        before = next(reversed(values), None)
        # A word in capitals is meant as a code, even if there is none of this name: the check of the codes says so.
        is_word = not colon and "=" not in part
        if before in _CODES and is_word and (name.upper() in STATUS_CODES or name.isupper()):
            values[before] = (before, f"{values[before][1]} {name}")
            continue
        if not colon and "=" in part and "(" not in part:
            meant = re.sub(_EQUALS, ": ", text)
            raise OptionError(key, text, "a policy string with a colon after each setting", meant)
        if not colon or not name or not value:
            example = "a policy string such as 'retry: 5, delay: 1s, backoff: linear'"
            allowed = f"'setting: value' in place of {shown(part.strip())}" if part.strip() else example
            raise OptionError(key, text, allowed)
        if name in values:
            problem = f"{name!r} is set twice in {key}={shown(text)}"
            raise OptionError(name, value, "each setting at most once", problem=problem)
        values[name] = (name, scalar(value))
    return read_source(table, values, "policy string", Unit.WRITTEN)


def scalar(text: str) -> bool | float | str:
    """Return the boolean or number that the text represents, in any case; otherwise the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text) if re.fullmatch(_WHOLE, text) else float(text)
    except ValueError:
        return text
