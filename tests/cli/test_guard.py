"""How the command line ends where it cannot go on: by Ctrl-C at any moment, or since nobody takes its output.

All of it in processes of their own, with real signals, pipes and a full disk.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from grpc_backoff.cli.guard import guarded

LIMIT = 60.0
"""Far more than any command here takes: nothing is measured by it."""
COMMANDS = [
    ["--help"],
    ["--version"],
    ["schedule", "standard"],
    ["schedule", "standard", "--json"],
    ["config", "check", "backoff.toml"],
    ["simulate", "--clients", "10"],
    ["connect", "127.0.0.1:1", "--attempts", "1"],
    ["connect", "127.0.0.1:1", "--attempts", "1", "--json"],
    ["connect", "127.0.0.1:1", "--probe"],
    ["connect", "127.0.0.1:1", "--probe", "--json"],
    ["demo"],
]


@pytest.fixture
def run(tmp_path):
    """Run the command in a folder with a good file, and return its process and what it wrote to standard error."""
    (tmp_path / "backoff.toml").write_text("[connection]\njitter = 0.1\n")

    def run(*arguments, before=(), **how):
        command = [*before, sys.executable, "-m", "grpc_backoff", *arguments]
        done = subprocess.run(
            command, check=False, cwd=tmp_path, stderr=subprocess.PIPE, text=True, timeout=LIMIT, **how
        )
        return done.returncode, done.stderr.splitlines()

    return run


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_full_disk(run, arguments):
    """One line says that nothing could be written, and the status is 1."""
    with Path("/dev/full").open("w") as full:
        assert run(*arguments, stdout=full) == (1, ["grpc-backoff: cannot write: No space left on device"])


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_closed_pipe(run, arguments):
    """Whoever reads knows that nobody does: not a word, and the status is 1."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert run(*arguments, stdout=writer) == (1, [])
    finally:
        os.close(writer)


@pytest.mark.parametrize("arguments", [["demo"], ["connect", "127.0.0.1:1"], ["connect", "127.0.0.1:1", "--json"]])
def test_pipe_that_is_closed_later(arguments):
    """The same where the reader goes after the first line, as `head -1` does: it is noticed with the next."""
    command = [sys.executable, "-m", "grpc_backoff", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(LIMIT) == 1


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_closed_output(run, arguments):
    """The same where there is no standard output at all."""
    assert run(*arguments, before=["sh", "-c", 'exec "$@" >&-', "sh"]) == (
        1,
        ["grpc-backoff: standard output is closed"],
    )


@pytest.mark.parametrize("arguments", [["schedule", "standard"], ["connect", "127.0.0.1:1", "--attempts", "1"]])
def test_nowhere_to_complain(run, arguments):
    """Without standard error, or with a full one, the status is what it is otherwise."""
    expected = 0 if arguments[0] == "schedule" else 1
    for redirect in ("2>&-", "2>/dev/full"):
        before = ["sh", "-c", f'exec "$@" {redirect}', "sh"]
        assert run(*arguments, before=before, stdout=subprocess.DEVNULL) == (expected, [])
        assert run("nonsense", before=before, stdout=subprocess.DEVNULL)[0] in (1, 2)
    assert run("schedule", "standard", before=["sh", "-c", 'exec "$@" >/dev/full 2>&-', "sh"])[0] == 1


INTERRUPTED = textwrap.dedent(
    """
    import os, signal, sys

    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == os.environ["INTERRUPT_AT"]:
                os.kill(os.getpid(), signal.SIGINT)

    sys.meta_path.insert(0, Finder())
    """
)


@pytest.fixture
def interrupted(run, tmp_path):
    """Run a command that is interrupted by a real signal in the midst of the import of a module."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(INTERRUPTED)
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])

    def interrupted(module, *arguments, **how):
        env = {**os.environ, "PYTHONPATH": path, "INTERRUPT_AT": module}
        return run(*arguments, env=env, stdout=subprocess.DEVNULL, **how)

    return interrupted


# From the first line of `main` on: what it imports first, and what only the commands import.
EARLY = ["grpc_backoff.cli.guard", "grpc_backoff.errors", "logging", "click", "grpc_backoff.policy.jitter", "asyncio"]
LATER = {
    "grpc": ["connect", "127.0.0.1:1"],
    "grpc_backoff.aio.calls": ["connect", "127.0.0.1:1"],
    "grpc._cython": ["demo"],
    "h2": ["connect", "127.0.0.1:1", "--probe"],
    "grpc_backoff.probe.looks": ["connect", "127.0.0.1:1", "--probe"],
    "numpy": ["simulate", "--clients", "10"],
    "rich.table": ["schedule", "standard"],
}


@pytest.mark.parametrize("module", EARLY)
def test_interrupted_while_it_starts(interrupted, module):
    """Ctrl-C in the first moments: a word, and the status 1."""
    assert interrupted(module, "connect", "127.0.0.1:1") == (1, ["", "Aborted!"])


@pytest.mark.parametrize("module", LATER)
def test_interrupted_while_a_command_starts(interrupted, module):
    """Ctrl-C while a command imports what it needs: the same."""
    assert interrupted(module, *LATER[module]) == (1, ["", "Aborted!"])


def test_an_interrupt_that_is_to_be_ignored(interrupted):
    """A program started with Ctrl-C ignored, as behind `nohup` or `&`, ignores it."""

    def ignore():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    assert interrupted("click", "schedule", "standard", preexec_fn=ignore) == (0, [])


def test_other_errors_of_the_system(capsys):
    """What fails for another reason of the system's is a line too; what is no such error is a bug, and shows."""

    def lacks():
        raise FileNotFoundError(2, "No such file or directory", "a.toml")

    def ends():
        sys.exit("no way")

    assert guarded(lacks) == 1
    assert guarded(ends) == 1
    assert guarded(sys.exit) == 0
    assert capsys.readouterr().err.splitlines() == [
        "grpc-backoff: a.toml: No such file or directory",
        "grpc-backoff: no way",
    ]
    with pytest.raises(ZeroDivisionError):
        guarded(lambda: 1 // 0)
