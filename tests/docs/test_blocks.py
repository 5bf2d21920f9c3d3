"""Each block of code and each command of README and docs has a test that runs it, or a reason why none does."""

from __future__ import annotations

import importlib.util
import re
import shlex

import click
import pytest

from grpc_backoff.cli.commands import cli
from tests.docs.pages import DOCS
from tests.docs.test_pages import PAGES

ROOT = DOCS.parent
FENCE = re.compile(r"^( *)```([\w.-]*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]

WHOLE = {
    **{f"docs/{page}": "tests/docs/test_pages.py" for page in PAGES},
    "README.md": "tests/test_readme.py",
    "docs/clients.md": "tests/clients/test_page.py",
    "docs/dispersal.md": "tests/test_dispersal.py",
}
"""Pages whose code runs whole: their tests fail, or run it, where a block is added."""
ALONE = {
    "docs/contention.md": ("tests/docs/test_code.py", 1),
    "docs/get-started.md": ("tests/docs/test_get_started.py", 3),
    "docs/interop.md": ("tests/docs/test_code.py", 1),
    "docs/ledger.md": ("tests/docs/test_code.py", 2),
    "docs/policies.md": ("tests/test_policies_page.py", 2),
    "docs/retries.md": ("tests/test_retries_page.py", 5),
    "docs/telemetry.md": ("tests/telemetry/test_otel.py", 1),
    "docs/threads.md": ("tests/docs/test_code.py", 1),
}
"""Pages whose tests name their blocks, and how many each has: a new one needs a test, and is counted here then."""
CONTENTS = {"text", "yaml", "promql"}
"""Output, and what tests/docs/test_monitoring.py and test_pages.py read."""
OUTPUTS = ("no; gave up", "shop:443: ")
"""How blocks without a language begin that are no commands: what a command or the log says."""
UNTRIED = {
    "pip": "`make wheel` installs the wheel in an environment of its own; from PyPI it can be once it is published",
    "app.py": "an example of a user's file: tests/cli/test_program.py runs such programs",
    "package.module": "the same",
    "uvicorn": "the same",
    "client.py": "tests/docs/test_get_started.py",
    "server.py": "tests/docs/test_get_started.py",
}


def fences():
    """Return the page, the language and the text of each block."""
    for path in TEXTS:
        for _, language, text in FENCE.findall(path.read_text("utf-8")):
            yield path.relative_to(ROOT).as_posix(), language, text


def commands():
    """Return the page and the words of each command: those of blocks, and those that stand in a line as code."""
    for page, language, text in fences():
        if not language and not text.startswith(OUTPUTS):
            yield from ((page, shlex.split(line, comments=True)) for line in text.splitlines())
    for path in TEXTS:
        prose = FENCE.sub("", path.read_text("utf-8"))
        for said in re.findall(r"`((?:make|grpc-backoff|python -m (?:grpc_backoff|interop|benchmarks)) [^`]+)`", prose):
            yield path.relative_to(ROOT).as_posix(), shlex.split(said.replace("\n", " "))


COMMANDS = list(commands())


def test_every_block_has_a_test():
    """CH-1: what a user copies was run: a block that is added to a page fails here until a test runs it."""
    found = {}
    for page, language, _ in fences():
        if language and language not in CONTENTS:
            found[page] = found.get(page, 0) + 1

    assert {page: number for page, number in found.items() if page not in WHOLE} == {
        page: number for page, (_, number) in ALONE.items()
    }
    assert [
        file for file in {*WHOLE.values(), *(file for file, _ in ALONE.values())} if not (ROOT / file).is_file()
    ] == []


def test_there_are_commands():
    """The checks below have something to check, and no reason above is left over."""
    words = {word for _, command in COMMANDS for word in command}

    assert len(COMMANDS) > 60
    assert set(UNTRIED) - words == set()


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[f"{page}-{' '.join(words)}" for page, words in COMMANDS])
def test_every_command_is_one(page, command):
    """CH-1: the program, the target or the command exists, and takes the options that it is given."""
    program, *arguments = command
    if UNTRIED.keys() & set(command):
        return
    if program.endswith("python") and arguments[0] == "-m":
        assert importlib.util.find_spec(arguments[1])
        program, arguments = arguments[1].replace("grpc_backoff", "grpc-backoff"), arguments[2:]
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        assert [word for word in arguments if "=" not in word and word not in targets] == []
    elif program == "grpc-backoff":
        understood(cli, arguments)
    elif program == "python":
        assert (ROOT / arguments[0]).is_file()
    else:
        assert program in {
            "interop",
            "benchmarks",
            "grpc_tools.protoc",
            "examples.ledger",
            "examples.timeline",
            "pytest",
        }


def understood(group, arguments):
    """Have click read the arguments without running the command; words in capitals are for the user to fill in."""
    context = click.Context(group, info_name="grpc-backoff")
    command = group
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        command = command.get_command(context, name)
        assert command is not None, name
    command.make_parser(context).parse_args(list(arguments))
