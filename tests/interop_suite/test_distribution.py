"""The distribution `grpc-backoff-interop`: its version, what is in it, and what it uses of the library."""

from __future__ import annotations

import ast
import fnmatch
import tomllib
from pathlib import Path

import grpc_backoff

INTEROP = Path(__file__).parents[2] / "interop"
PROJECT = tomllib.loads((INTEROP / "pyproject.toml").read_text("utf-8"))
EXCLUDED = [each.lstrip("/") for each in PROJECT["tool"]["hatch"]["build"]["exclude"]]
PUBLIC = {
    "grpc_backoff",
    "grpc_backoff.aio",
    "grpc_backoff.testing",
    "grpc_backoff.testing.front",
    "grpc_backoff.testing.port",
}


def left_out(path):
    return any(fnmatch.fnmatch(path, each) or path.startswith(f"{each}/") for each in EXCLUDED)


def imports(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node
            yield from ((f"{node.module}.{alias.name}", node) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)


def modules():
    return [path for path in (INTEROP / "grpc_judge").rglob("*.py") if "node_modules" not in path.parts]


def test_version_in_step():
    """IO-4: the distribution has the library's version and needs exactly that."""
    assert PROJECT["project"]["version"] == grpc_backoff.__version__
    assert f"grpc-backoff[testing]=={grpc_backoff.__version__}" in PROJECT["project"]["dependencies"]


def test_what_is_left_out_exists():
    """IO-4: every excluded path is one."""
    assert [each for each in EXCLUDED if not (INTEROP / each).exists()] == []


def test_nothing_in_it_needs_what_is_left_out():
    """IO-4: except for the writer of reports, no distributed module imports one that stays in the repository."""
    found = set()
    for path in modules():
        where = path.relative_to(INTEROP).as_posix()
        for name, _ in () if left_out(where) else imports(path):
            place = name.replace(".", "/")
            if left_out(place) or left_out(f"{place}.py"):
                found.add((where, name))
    assert found == {("grpc_judge/matrix/run.py", "grpc_judge.matrix.report")}


def test_only_public_names_of_the_library():
    """IO-4: the suite uses the library as any other program would."""
    used = {
        node.module
        for path in modules()
        for _, node in imports(path)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("grpc_backoff")
    }
    assert used <= PUBLIC


def test_the_library_needs_nothing_of_it():
    """IO-4: the library does not import the suite."""
    library = (INTEROP.parent / "grpc_backoff").rglob("*.py")
    assert not [
        path for path in library for name, _ in imports(path) if name.split(".")[0] in {"grpc_judge", "interop"}
    ]
