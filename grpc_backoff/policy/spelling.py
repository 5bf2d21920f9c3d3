"""Suggests the name that was probably meant by a misspelt one."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["near_miss", "suggestion"]


def near_miss(word: str, keys: Mapping[str, str]) -> str | None:
    """Return the key probably meant by a misspelt word, as in `suggestion`; None if no key is similar."""
    import difflib  # noqa: PLC0415 - for an error only

    near = difflib.get_close_matches(word.lower(), keys, n=1)
    return keys[near[0]] if near else None


def suggestion(word: str, keys: Mapping[str, str], kind: str) -> tuple[str, str | None]:
    """Return a description of what was expected in place of an unknown key, and the key probably meant, if any.

    Args:
        word: what was written, without the prefix that all such keys share.
        keys: the correct key for each word that might be meant.
        kind: what such a key is called, such as "option".
    """
    meant = near_miss(word, keys)
    if meant is not None:
        return f"a known {kind}", meant
    return f"a known {kind}, one of: {', '.join(dict.fromkeys(keys.values()))}", None
