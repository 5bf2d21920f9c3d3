"""Suggests corrections for misspelt names."""

from __future__ import annotations

from collections.abc import Mapping


def near_miss(word: str, keys: Mapping[str, str]) -> str | None:
    """Return the key that a misspelt word probably means; None if none is similar. `keys` is as in `suggestion`."""
    import difflib  # noqa: PLC0415 - only an error needs it

    near = difflib.get_close_matches(word.lower(), keys, n=1)
    return keys[near[0]] if near else None


def suggestion(word: str, keys: Mapping[str, str], kind: str) -> tuple[str, str | None]:
    """Describe what was expected in place of an unknown key; also return the key that was probably meant, if any.

    Args:
        word: the unknown key, without the prefix that all such keys share.
        keys: the correct key for each word that might be meant.
        kind: what such a key is called, such as "option".
    """
    meant = near_miss(word, keys)
    if meant is not None:
        return f"a valid {kind} name", meant
    return f"one of: {', '.join(dict.fromkeys(keys.values()))}", None
