"""Which name was probably meant by a misspelt one."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["near_miss", "suggestion"]


def near_miss(word: str, keys: Mapping[str, str]) -> str | None:
    """Return the key that was probably meant by a misspelt word, as for `suggestion`; None if no word is near."""
    import difflib  # noqa: PLC0415 - for an error only

    near = difflib.get_close_matches(word.lower(), keys, n=1)
    return keys[near[0]] if near else None


def suggestion(word: str, keys: Mapping[str, str], kind: str) -> tuple[str, str | None]:
    """Return what was expected in place of an unknown key, and the key that was probably meant, if any.

    Args:
        word: what was written, without what all such keys begin with.
        keys: the right key by each word that may have been meant for it.
        kind: what such a key is called: "option", say.
    """
    meant = near_miss(word, keys)
    if meant is not None:
        return f"a known {kind}", meant
    return f"a known {kind}, one of: {', '.join(dict.fromkeys(keys.values()))}", None
