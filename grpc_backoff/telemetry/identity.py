"""Identifiers of calls: random, because they must be unique across all processes that log them."""

from __future__ import annotations

import os

__all__ = ["CallId", "new_call_id"]


def new_call_id() -> str:
    """Return 128 random bits as 32 hexadecimal digits, like a trace id."""
    return os.urandom(16).hex()  # the operating system's: no program seeds it, and no fork copies it


class CallId:
    """The identifier of one call, as its text. It is created when first read, which for most calls is never."""

    _text = ""

    def __str__(self) -> str:
        """Return the identifier, the same each time."""
        self._text = self._text or new_call_id()
        return self._text
