"""How the command line ends after Ctrl-C at any moment, or if it cannot write its output.

The tests run separate processes, with real signals, pipes and a full disk.
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
"""Seconds to wait for a command; much longer than any command takes."""
DEMO = ("examples.demo",)
"""The demo, which ends in the same way."""
COMMANDS = [
    ["--help"],
    ["--version"],
    ["schedule", "standard"],
    ["schedule", "standard", "--json"],
    ["config", "check", "backoff.toml"],
    ["connect", "127.0.0.1:1", "--attempts", "1"],
    ["connect", "127.0.0.1:1", "--attempts", "1", "--json"],
    ["connect", "127.0.0.1:1", "--probe"],
    ["connect", "127.0.0.1:1", "--probe", "--json"],
    [*DEMO],
]


@pytest.fixture
def run(tmp_path):
    """Return a function that runs the command next to a valid `backoff.toml` and returns its status and errors."""
    (tmp_path / "backoff.toml").write_text("[connection]\njitter = 0.1\n")

    def run(*arguments, before=(), **how):
        command = [*before, sys.executable, "-m", *(arguments if arguments == DEMO else ("grpc_backoff", *arguments))]
        done = subprocess.run(
            command, check=False, cwd=tmp_path, stderr=subprocess.PIPE, text=True, timeout=LIMIT, **how
        )
        return done.returncode, done.stderr.splitlines()

    return run


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_full_disk(run, arguments):
    """If the disk is full, the command prints one line that says so, and exits with status 1."""
    with Path("/dev/full").open("w") as full:
        assert run(*arguments, stdout=full) == (1, ["grpc-backoff: cannot write: No space left on device"])


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_closed_pipe(run, arguments):
    """If the output is a closed pipe, the command exits with status 1 and without a message."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert run(*arguments, stdout=writer) == (1, [])
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    "arguments", [DEMO, *(("grpc_backoff", "connect", "127.0.0.1:1", *more) for more in ((), ("--json",)))]
)
def test_pipe_that_is_closed_later(arguments):
    """If the reader closes the pipe after the first line, as `head -1` does, the next write ends the command."""
    command = [sys.executable, "-m", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(LIMIT) == 1


@pytest.mark.parametrize("arguments", [["--help"], ["connect", "127.0.0.1:1", "--probe"]], ids=" ".join)
def test_closed_output(run, arguments):
    """If standard output is closed, the command prints one line that says so, and exits with status 1."""
    assert run(*arguments, before=["sh", "-c", 'exec "$@" >&-', "sh"]) == (
        1,
        ["grpc-backoff: standard output is closed"],
    )


@pytest.mark.parametrize(
    ("arguments", "statuses"),
    [(["schedule", "standard"], {0}), (["connect", "127.0.0.1:1", "--attempts", "1"], {1}), (["nonsense"], {1, 2})],
)
@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full"])
def test_nowhere_to_complain(run, arguments, statuses, redirect):
    """The exit status is the same even if standard error cannot be written."""
    before = ["sh", "-c", f'exec "$@" {redirect}', "sh"]
    assert run(*arguments, before=before, stdout=subprocess.DEVNULL)[0] in statuses


def test_nowhere_to_write(run):
    """If neither output can be written, the exit status is 1."""
    assert run("schedule", "standard", before=["sh", "-c", 'exec "$@" >/dev/full 2>&-', "sh"]) == (1, [])


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
    """Return a function that runs a command and interrupts it while it imports a module."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(INTERRUPTED)
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])

    def interrupted(module, *arguments, **how):
        env = {**os.environ, "PYTHONPATH": path, "INTERRUPT_AT": module}
        return run(*arguments, env=env, stdout=subprocess.DEVNULL, **how)

    return interrupted


# The modules that `main` imports first, and those that only some commands import.
EARLY = [
    "grpc_backoff.cli.guard",
    "grpc_backoff.base.base_errors",
    "logging",
    "click",
    "grpc_backoff.policy.jitter",
    "asyncio",
]
LATER = {
    "grpc": ["connect", "127.0.0.1:1"],
    "grpc_backoff.aio.environment": ["connect", "127.0.0.1:1"],
    "grpc._cython": [*DEMO],
    "h2": ["connect", "127.0.0.1:1", "--probe"],
    "grpc_backoff.probe.looks": ["connect", "127.0.0.1:1", "--probe"],
    "rich.table": ["schedule", "standard"],
}


@pytest.mark.parametrize("module", EARLY)
def test_interrupted_while_it_starts(interrupted, module):
    """Ctrl-C while the program starts prints "Aborted!" and exits with status 1."""
    assert interrupted(module, "connect", "127.0.0.1:1") == (1, ["", "Aborted!"])


@pytest.mark.parametrize("module", LATER)
def test_interrupted_while_a_command_starts(interrupted, module):
    """Ctrl-C while a command imports its modules prints "Aborted!" and exits with status 1."""
    assert interrupted(module, *LATER[module]) == (1, ["", "Aborted!"])


def heed_interrupts():
    """Let a program hear Ctrl-C even if the tests are run with Ctrl-C ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_watch_that_is_ended(run, tmp_path, form):
    """LG-7: Ctrl-C ends `ledger watch` without a word, and the process by the signal: to a shell, status 130."""
    ledger = ("ledger", "--db", str(tmp_path / "ledger.db"))
    assert run(*ledger, "migrate", stdout=subprocess.DEVNULL) == (0, [])
    command = [sys.executable, "-m", "grpc_backoff", *ledger, "watch", "--every", "10ms", *form]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "preexec_fn": heed_interrupts}
    with subprocess.Popen(command, **how) as process:
        try:
            assert process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=LIMIT)[1] == ""
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("ledger.db-")] == []  # it was closed


def test_an_interrupt_that_is_to_be_ignored(interrupted):
    """A program that was started with SIGINT ignored, as with `nohup` or `&`, ignores Ctrl-C."""

    def ignore():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    assert interrupted("click", "schedule", "standard", preexec_fn=ignore) == (0, [])


def test_a_pipe_that_is_closed_before_the_last_write(monkeypatch):
    """If only the last, buffered output meets a closed pipe, the status is 1 although the command succeeded."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert guarded(lambda: output.write("buffered")) == 1


def test_other_errors_of_the_system(capsys):
    """An OSError, or an exit with a message, is printed as one line; any other exception is propagated."""

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
