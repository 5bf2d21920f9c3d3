"""What a command line asks for: which programs, by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from interop.runner.program import Program

__all__ = ["choose", "split"]

AnyProgram = TypeVar("AnyProgram", bound=Program)


def choose(programs: Sequence[AnyProgram], flag: str, given: Iterable[str]) -> list[AnyProgram]:
    """Return the programs of these names, or of these folders; without any, all that do not wait to be named.

    Args:
        programs: those that there are.
        flag: the option of the command line that was given, for the error.
        given: what the option was given; commas separate names too.

    Raises:
        ValueError: there is no such program.
    """
    wanted = split(given)
    for name in sorted(wanted):
        if not any(name in (program.name, program.folder.name) for program in programs):
            raise ValueError(f"{flag}={name}: expected one of {', '.join(program.name for program in programs)}")
    if not wanted:
        return [program for program in programs if not program.only_by_name]
    return [program for program in programs if wanted & {program.name, program.folder.name}]


def split(given: Iterable[str]) -> set[str]:
    """Return the names in what an option was given, which may hold several between commas."""
    return {name.strip() for each in given for name in each.split(",") if name.strip()}
