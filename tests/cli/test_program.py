"""`grpc-backoff run`: how it finds a program, and runs it as `python` would, on this library's channels."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from grpc_backoff.cli.commands import cli
from grpc_backoff.cli.program import Program, ProgramError, find

MADE = """
import asyncio, os, sys
import grpc.aio

async def main():
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        print(type(channel).__module__, __name__, sys.argv[1:], os.environ.get("GRPC_VERBOSITY"))

asyncio.run(main())
"""
OURS = "grpc_backoff.aio.channel __main__"
SEEN = """
import sys
main = sys.modules["__main__"]
print(vars(main) is globals(), __name__, __file__, __package__, __spec__ and __spec__.name, sys.argv, sys.path[0])
"""


def run(*words, cwd, command=("-m", "grpc_backoff", "run", "--"), **environ):
    """Run Python with these arguments; return its output, its errors and its exit status."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environ = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": path, **environ}
    words = [sys.executable, *command, *words]
    done = subprocess.run(words, cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    return done.stdout, done.stderr, done.returncode


@pytest.fixture
def package(tmp_path):
    """A directory with a script, a package, an archive and a runnable folder; each prints how it was started."""
    for name in ("script.py", "package/__init__.py", "package/__main__.py", "package/other.py", "folder/__main__.py"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("" if name.endswith("__init__.py") else SEEN)
    with zipfile.ZipFile(tmp_path / "archive.pyz", "w") as archive:
        archive.writestr("__main__.py", SEEN)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link.py").symlink_to(tmp_path / "script.py")
    return tmp_path


@pytest.mark.parametrize("words", ["script.py a b", "elsewhere/link.py", "-m package x", "-m package.other"])
def test_as_python_runs_it(package, words):
    """A program sees the same `__main__`, `__file__`, `__spec__`, `sys.argv` and `sys.path[0]` as under `python`."""
    expected = run(*words.split(), cwd=package, command=())
    assert expected[2] == 0
    assert run(*words.split(), cwd=package) == expected


@pytest.mark.parametrize("name", ["folder", "archive.pyz"])
def test_what_is_a_folder_to_python(package, name):
    """A folder or archive runs as with `runpy`: its own path is the first entry of `sys.path`, exactly as given."""
    out, _, status = run(name, "a", cwd=package)
    assert status == 0
    assert out.startswith("True __main__ ")
    assert out.endswith(f"['{name}', 'a'] {name}\n")


def test_the_main_module_stays(tmp_path):
    """Functions registered with `atexit` still find the program's own `__main__`."""
    (tmp_path / "script.py").write_text(
        "import atexit, sys\nmine = 1\natexit.register(lambda: print(sys.modules['__main__'].mine))"
    )
    assert run("script.py", cwd=tmp_path) == ("1\n", "", 0)


def test_without_a_folder_on_the_path(package):
    """With `python -P`, the program's folder is not put on `sys.path`."""
    out, err, _ = run("script.py", cwd=package, command=("-P", "-m", "grpc_backoff", "run", "--"))
    assert not out.rstrip().endswith(str(package)), err


@pytest.mark.parametrize(
    ("ends", "status"), [("sys.exit(3)", 3), ("raise ZeroDivisionError", 1), ("os.kill(os.getpid(), 2)", -2)]
)
def test_how_it_ends(tmp_path, ends, status):
    """The exit status and the last line of a traceback are those of the program."""
    (tmp_path / "script.py").write_text(f"import os, sys, time\n{ends}\ntime.sleep(5)")
    expected = run("script.py", cwd=tmp_path, command=())
    found = run("script.py", cwd=tmp_path)
    assert expected[2] == found[2] == status
    assert expected[1].splitlines()[-1:] == found[1].splitlines()[-1:]
    assert signal.SIGINT == 2


STARTS = {
    "by its path": f"#!{sys.executable}",
    "by env": "#!/usr/bin/env python3",
    "by a shell": f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''",
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_a_command(tmp_path, start):
    """A command on the PATH runs if it is a script for this Python."""
    command = tmp_path / "bin" / "serve"
    command.parent.mkdir()
    command.write_text(f"{start}\n{MADE}")
    command.chmod(0o755)
    path = os.pathsep.join([str(command.parent), str(Path(sys.executable).parent)])
    assert run("serve", "a", cwd=tmp_path, PATH=path) == (f"{OURS} ['a'] None\n", "", 0)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("#!/bin/sh", "{command} is not a Python program\n"),
        ("\x7fELF", "{command} is not a Python program\n"),
        ("", "{command} is not a Python program\n"),
        ("#!/nowhere/bin/python3", "serve runs with "),
        ("#!{other}", "serve runs with "),
    ],
)
def test_a_command_of_another_kind(tmp_path, start, said):
    """A command that is not a Python program, or belongs to another environment, is refused, and the error says why."""
    other = tmp_path / "python3"
    command = tmp_path / "serve"
    for file, text in ((other, "#!/bin/sh"), (command, start.format(other=other))):
        file.write_text(text)
        file.chmod(0o755)
    out, err, status = run("serve", cwd="/", PATH=str(tmp_path))
    assert (out, status) == ("", 2)
    assert err.startswith(f"grpc-backoff run: {said.format(command=command)}")
    assert err.count("\n") == 1


def test_a_module_that_lacks_another(tmp_path):
    """An import that fails inside the program is reported as the program's own error."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "__init__.py").write_text("import nowhere_at_all")
    _, err, status = run("-m", "broken.part", cwd=tmp_path)
    assert status == 1
    assert err.endswith("ModuleNotFoundError: No module named 'nowhere_at_all'\n")


def test_a_file_that_cannot_be_read(tmp_path, monkeypatch):
    """A file that cannot be read is refused."""
    (tmp_path / "script.py").write_text("")
    monkeypatch.setattr(os, "access", lambda *_: False)  # file modes do not restrict root
    with pytest.raises(ProgramError, match="cannot read "):
        find([str(tmp_path / "script.py")])


def test_found(tmp_path, monkeypatch):
    """A file in the working directory takes precedence over a command of the same name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest").write_text("")
    assert find(["--", "pytest", "-q"]) == Program("pytest", ("-q",))
    assert find(["-m", "pytest", "-m", "x"]) == Program("pytest", ("-m", "x"), module=True)


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
