"""The identifiers of calls, which are random so that they are unique across all processes that log them."""

from __future__ import annotations

import os


def new_call_id() -> str:
    """Return 128 random bits as 32 hexadecimal digits, like a trace id."""
    return os.urandom(16).hex()  # programs cannot seed this source, and forks do not share it


class CallId:
    """The identifier of one call, which `str` returns. It is created on first use, because most calls never need it."""

    _text = ""

    def __str__(self) -> str:
        """Return the identifier, creating it the first time."""
        self._text = self._text or new_call_id()
        return self._text
