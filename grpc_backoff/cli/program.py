"""Finds the program that `grpc-backoff run` runs and executes it in this process as `python` would.

This module needs none of the optional packages, because the command is meant for environments that belong to other
programs. The command and its help are in `commands.py`.
"""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import pkgutil
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType

from grpc_backoff.installation import install

_PYTHON = re.compile(r"python[0-9.]*(\.exe)?", re.IGNORECASE)
_FIRST_LINES = 1024  # bytes; kernels read at most 256 of the first line


class ProgramError(ValueError):
    """The command line names no program that this Python can run; the text says what was expected."""


@dataclass(frozen=True, slots=True)
class Program:
    """A Python program: a file, or a module if `module` is set, with its arguments."""

    name: str
    arguments: tuple[str, ...] = ()
    module: bool = False


def find(words: Sequence[str]) -> Program:
    """Return the program named by a command line: `FILE ...`, `-m MODULE ...`, or a command on the PATH.

    A leading `--` is skipped, and so is `python` if it is the running interpreter.

    Raises:
        ProgramError: there is no such program, or it is not run by Python.
    """
    words = list(words)
    if words[:1] == ["--"]:
        words = words[1:]
    if words and _PYTHON.fullmatch(Path(words[0]).name):
        _refuse_another_python(words[0], words[0])
        words = words[1:]
    match words:
        case ["-m", module, *arguments]:
            return Program(module, tuple(arguments), module=True)
        case [] | ["-m"]:
            raise ProgramError("no program given: expected a Python file, a command on the PATH, or -m and a module")
        case [name, *_] if name.startswith("-"):
            raise ProgramError(f"{name} is not supported: -m is the only Python option that is")
        case _:
            name = words[0]
            return Program(_file(name) if Path(name).exists() else _command(name), tuple(words[1:]))


def run(program: Program) -> None:
    """Install this library's channels and run the program as the main program of this process.

    The program's exceptions and its exit status are passed on.

    Raises:
        ProgramError: there is no such module.
    """
    sys.argv[:] = [program.name, *program.arguments]
    is_script = not program.module and pkgutil.get_importer(program.name) is None
    if not sys.flags.safe_path:
        del sys.path[0]  # the directory of this command
        if program.module:
            sys.path.insert(0, str(Path.cwd()))
        elif is_script:  # for a directory or an archive, `runpy` inserts the path itself
            sys.path.insert(0, str(Path(program.name).resolve().parent))
    install()
    if program.module:
        _refuse_no_module(program.name)
        runpy.run_module(program.name, run_name="__main__", alter_sys=True)
    elif is_script:
        _run_script(str(Path(program.name).absolute()))
    else:
        runpy.run_path(program.name, run_name="__main__")


def _run_script(path: str) -> None:
    # Do not use `runpy`, which discards `__main__` after the last line: threads and exit handlers may still need it.
    main = ModuleType("__main__")
    loader = SourceFileLoader("__main__", path)
    vars(main).update(__file__=path, __loader__=loader, __builtins__=builtins, __cached__=None)
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    sys.modules["__main__"] = main
    exec(code, vars(main))  # noqa: S102 - the user asked to run it


def _file(name: str) -> str:
    if Path(name).is_dir() and not (Path(name) / "__main__.py").exists():
        raise ProgramError(f"the directory {name} has no __main__.py")
    if not os.access(name, os.R_OK):
        raise ProgramError(f"cannot read {name}")
    return name


def _command(name: str) -> str:
    """Return the path of a command, which has to be a script for this Python."""
    found = shutil.which(name)
    if found is None:
        raise ProgramError(f"there is no file {name}, and no command {name} on the PATH")
    interpreter = _interpreter(Path(_file(found)))
    if interpreter is None:
        raise ProgramError(f"{found} is not a Python program")
    _refuse_another_python(name, interpreter)
    return found


def _interpreter(script: Path) -> str | None:
    """Return the Python interpreter that a script names, or None if it is not a Python script.

    The script may name it as `#!/usr/bin/python3`, as `#!/usr/bin/env python3`, or, as installers do for long paths, as
    `#!/bin/sh` followed by `'''exec' "/usr/bin/python3" "$0" "$@"`.
    """
    with script.open("rb") as file:
        lines = file.read(_FIRST_LINES).decode(errors="replace").splitlines()
    if not lines or not lines[0].startswith("#!"):
        return None
    by_shell = lines[0] == "#!/bin/sh" and len(lines) > 1 and lines[1].startswith("'''exec' ")
    words = shlex.split(lines[1].removeprefix("'''exec' ")) if by_shell else lines[0].removeprefix("#!").split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    return words[0] if words and _PYTHON.fullmatch(Path(words[0]).name) else None


def _refuse_another_python(name: str, interpreter: str) -> None:
    """Reject a script for another environment's interpreter, whose modules are not available in this one."""
    found = shutil.which(interpreter)
    if found is None or not Path(found).parent.samefile(Path(sys.executable).parent):
        raise ProgramError(
            f"{name} runs with {found or interpreter}, not with this Python ({sys.executable}). "
            "Install grpc-backoff in that environment and use its `python -m grpc_backoff run`"
        )


def _refuse_no_module(name: str) -> None:
    if (found := _module(name)) and (found.submodule_search_locations is None or _module(f"{name}.__main__")):
        return
    raise ProgramError(f"the package {name} has no module __main__" if found else f"no module named {name!r}")


def _module(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(f"{error.name}."):
            return None  # its parent package is missing
        raise
