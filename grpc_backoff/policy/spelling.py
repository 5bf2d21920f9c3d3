"""Suggests corrections for misspelt names."""

from __future__ import annotations

from collections.abc import Mapping

from grpc_backoff.base_errors import OptionError, shown


def near_miss(word: str, keys: Mapping[str, str]) -> str | None:
    """Return the key that a misspelt word probably means; None if none is similar. `keys` is as in `unknown`."""
    import difflib  # noqa: PLC0415 - only an error needs it

    near = difflib.get_close_matches(word.lower(), keys, n=1)
    return keys[near[0]] if near else None


def unknown(kind: str, key: str, value: object, word: str, keys: Mapping[str, str], prefix: str = "") -> OptionError:
    """Return the error for an unknown key, which suggests the nearest key or lists all of them.

    Args:
        kind: what such a key is called, such as "option".
        key: the unknown key, as the user knows it.
        value: its value.
        word: the key without the prefix that all such keys share.
        keys: the correct key for each word that might be meant.
        prefix: what the list of keys leaves out at the start of each.
    """
    meant = near_miss(word, keys)
    allowed = f"one of: {', '.join(dict.fromkeys(name.removeprefix(prefix) for name in keys.values()))}"
    problem = f"unknown {kind} {shown(key)}"
    return OptionError(key, value, allowed, meant, problem if meant else f"{problem}: expected {allowed}")
