"""Selects programs by the names given on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from grpc_judge.runner.program import Program

AnyProgram = TypeVar("AnyProgram", bound=Program)


def choose(programs: Sequence[AnyProgram], flag: str, given: Iterable[str]) -> list[AnyProgram]:
    """Return the programs with these names; if none are given, all that are not marked `only_by_name`.

    A program is named by its name, its folder, or the first word of its name, which several may share.

    Args:
        programs: the available programs.
        flag: the command-line option, for the error message.
        given: the values of the option; each may contain several names, separated by commas.

    Raises:
        ValueError: a program does not exist.
    """
    wanted = split(given)
    for name in sorted(wanted):
        if not any(name in _names(program) for program in programs):
            raise ValueError(f"{flag}={name}: expected one of {', '.join(program.name for program in programs)}")
    if not wanted:
        return [program for program in programs if not program.only_by_name]
    return [program for program in programs if wanted & _names(program)]


def _names(program: Program) -> set[str]:
    return {program.name, program.folder.name, program.name.partition(" ")[0]}


def split(given: Iterable[str]) -> set[str]:
    """Return the names in the values of an option. Each value may contain several, separated by commas."""
    return {name.strip() for each in given for name in each.split(",") if name.strip()}
