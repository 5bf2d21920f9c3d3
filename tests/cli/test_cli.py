"""The entry point of the command line: its version, its help, and missing optional packages."""

from __future__ import annotations

import subprocess
import sys

import pytest

import grpc_backoff
from grpc_backoff.cli import main
from tests.cli.running import check_refused, invoke


def test_help_names_the_commands():
    """`--help` lists the commands."""
    result = invoke("--help")
    assert result.exit_code == 0
    assert {"connect", "schedule"} <= set(result.output.split())
    assert not {"demo", "simulate"} & set(result.output.split())


@pytest.mark.parametrize(
    ("command", "instead"), [("demo", "make demo"), ("simulate", "python -m benchmarks.dispersal")]
)
def test_what_left_the_program(command, instead):
    """A command that is no longer part of the program says where it is now, whatever its options."""
    said = f"Error: {command} is no longer installed: run '{instead}' in a source checkout\n"
    check_refused(invoke(command, "--threads"), said)


@pytest.mark.parametrize("module", ["grpc_backoff", "grpc_backoff.cli"])
def test_runs_as_a_module(module):
    """`python -m grpc_backoff` and `python -m grpc_backoff.cli` both run the command line."""
    done = subprocess.run([sys.executable, "-m", module, "--version"], check=False, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.strip() == f"grpc-backoff, version {grpc_backoff.__version__}"


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_missing_extra_is_one_line(monkeypatch, capsys, missing):
    """Without click or rich, the command line prints one line that says what to install, and exits with status 1."""
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SystemExit) as exited:
        main()
    assert exited.value.code == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == (
        "grpc-backoff: the command line needs the extra 'cli': "
        "pip install 'grpc-backoff[cli]', or '.[cli]' in a checkout\n"
    )


def test_only_commands_import_what_is_heavy():
    """Importing the command line does not import rich, grpc, numpy or h2."""
    check = "import sys, grpc_backoff.cli.commands; sys.exit(bool({'rich', 'grpc', 'numpy', 'h2'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
