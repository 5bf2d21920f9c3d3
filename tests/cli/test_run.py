"""`grpc-backoff run`: running a program on this library's channels."""

from __future__ import annotations

import os
import sys

import pytest
from click.testing import CliRunner

from grpc_backoff.cli.commands import cli
from tests.cli.test_program import MADE, OURS, run


@pytest.mark.parametrize("words", ["script.py", "-m made", "python script.py"])
@pytest.mark.parametrize("module", ["grpc_backoff", "grpc_backoff.cli"])
def test_its_channels_are_ours(tmp_path, module, words):
    """CH-1: the program's channels are ours, and all arguments after its name are passed to it."""
    for name in ("script.py", "made.py"):
        (tmp_path / name).write_text(MADE)
    command = ("-m", module, "run", "--")
    out, err, status = run(*words.split(), "--help", "-m", "run", cwd=tmp_path, command=command)
    assert (out, err, status) == (f"{OURS} ['--help', '-m', 'run'] None\n", "", 0)


@pytest.fixture
def script(tmp_path):
    (tmp_path / "script.py").write_text(MADE)
    return tmp_path


def test_without_dashes(script):
    """The `--` before the program may be omitted."""
    assert run("script.py", "a", cwd=script, command=("-m", "grpc_backoff", "run")) == run("script.py", "a", cwd=script)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--"], "no program given: expected a Python file"),
        (["-m"], "no program given: expected a Python file"),
        (["-u", "script.py"], "-u is not supported: -m is the only Python option that is"),
        (["nowhere.py"], "there is no file nowhere.py, and no command nowhere.py on the PATH"),
        (["empty"], "the directory empty has no __main__.py"),
        (["-m", "nowhere"], "no module named 'nowhere'"),
        (["-m", "nowhere.at.all"], "no module named 'nowhere.at.all'"),
        (["-m", "email"], "the package email has no module __main__"),
    ],
)
def test_refused(tmp_path, words, said):
    """If the arguments do not name a program, a one-line error says why, and the exit status is 2."""
    (tmp_path / "empty").mkdir()
    out, err, status = run(*words, cwd=tmp_path, command=("-m", "grpc_backoff", "run"))
    assert (out, status) == ("", 2)
    assert err.startswith(f"grpc-backoff run: {said}")
    assert err.count("\n") == 1


def test_without_the_extra(tmp_path):
    """`run` works without any of the optional packages."""
    (tmp_path / "click.py").write_text("raise ImportError")
    (tmp_path / "script.py").write_text(MADE)
    environ = os.pathsep.join([str(tmp_path), *sys.path])
    out, err, status = run("script.py", cwd=tmp_path, PYTHONPATH=environ)
    assert (out, err, status) == (f"{OURS} [] None\n", "", 0)


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"]])
def test_help(words, tmp_path):
    """`run` is in the list of commands and has its own `--help`."""
    out, _, status = run(*words, cwd=tmp_path, command=("-m", "grpc_backoff"))
    assert status == 0
    assert "Run a Python program with this library's channels" in out


def test_within_click():
    """When click parses the arguments, a usage error is raised as a click exception."""
    outcome = CliRunner().invoke(cli, ["run", "--", "-u"])
    assert outcome.exit_code == 2
    assert "-u is not supported" in outcome.output
