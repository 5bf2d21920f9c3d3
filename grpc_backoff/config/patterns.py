"""Finds the pattern that applies to a target, and checks the entries for methods."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.config.call_policies import ALL

_METHOD = r"(?a)[A-Za-z_][\w.]*(/[A-Za-z_]\w*)?"


def first_pattern(patterns: Iterable[str], target: str) -> str | None:
    """Return the first pattern that matches a target; None if none matches.

    A pattern is a target in which `*` matches any text, including none. It must match the whole target as given to the
    channel.
    """
    return next((pattern for pattern in patterns if _fits(pattern, target)), None)


def unreachable(patterns: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each pattern that never applies, with the earlier pattern that matches all of its targets."""
    earlier: list[str] = []
    for pattern in patterns:
        # Only a `*` matches a `*`, so a pattern that matches another one as a text matches all of its targets.
        if (covering := first_pattern(earlier, pattern)) is not None:
            yield pattern, covering
        earlier.append(pattern)


def check_methods(table: str, entries: Iterable[str]) -> None:
    """Reject entries that name neither a method nor a service.

    Raises:
        OptionError: there is such an entry; the error names it.
    """
    for entry in entries:
        if entry != ALL and not (isinstance(entry, str) and re.fullmatch(_METHOD, entry)):
            raise OptionError(f'{table}."{entry}"', entry, "'package.Service/Method', 'package.Service' or '*'")


def _fits(pattern: str, target: str) -> bool:
    first, *others = map(re.escape, pattern.split("*"))
    if others:  # the first match of each piece between two `*` is enough, so do not backtrack
        first += "".join(f"(?>.*?{piece})" for piece in others[:-1]) + f".*{others[-1]}"
    return re.fullmatch(first, target, re.DOTALL) is not None
