"""Every code block and command in the README and docs has a test that runs it, or a stated reason for having none."""

from __future__ import annotations

import importlib.util
import re
import shlex

import click
import pytest

from benchmarks.dispersal.command import dispersal
from grpc_backoff.cli.commands import cli
from grpc_judge.commands import cli as judge
from tests.docs.pages import DOCS
from tests.docs.test_pages import PAGES

ROOT = DOCS.parent
FENCE = re.compile(r"^( *)```([\w.-]*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]

WHOLE = {
    **{f"docs/{page}": "tests/docs/test_pages.py" for page in PAGES},
    "README.md": "tests/docs/test_readme.py",
    "docs/clients.md": "tests/clients/test_page.py",
    "docs/dispersal.md": "tests/docs/test_dispersal.py",
    "docs/howto/proxies.md": "tests/docs/test_proxies.py",
}
"""Pages whose tests run all of their code: a new block is run too, or makes the tests fail."""
ALONE = {
    "docs/contention.md": ("tests/docs/test_code.py", 1),
    "docs/howto/chaos.md": ("tests/docs/test_chaos.py", 4),
    "docs/get-started.md": ("tests/docs/test_get_started.py", 3),
    "docs/interop.md": ("tests/docs/test_code.py", 1),
    "docs/ledger.md": ("tests/docs/test_code.py", 6),  # the SQL: tests/ledger/stores/postgres/test_store.py
    "docs/policies.md": ("tests/docs/test_policies.py", 2),
    "docs/retries.md": ("tests/docs/test_retries.py", 10),  # the last three: tests/docs/test_recipes.py
    "docs/threads.md": ("tests/docs/test_code.py", 1),
}
"""Pages whose tests select blocks, and the number of blocks on each: a new block needs a test and a new number here."""
CONTENTS = {"text", "yaml", "promql", "nginx", "haproxy"}
"""Languages of output, and of blocks that tests/docs/test_monitoring.py, test_pages.py and test_proxies.py read."""
OUTPUTS = ("no; gave up", "shop:443: ")
"""The first words of blocks without a language that are output or log lines, and not commands."""
UNTRIED = {
    "pip": "`make wheel` installs the wheel in an environment of its own; from PyPI it can be once it is published",
    "app.py": "an example of a user's file: tests/cli/test_program.py runs such programs",
    "package.module": "the same",
    "uvicorn": "the same",
    "client.py": "tests/docs/test_get_started.py",
    "server.py": "tests/docs/test_get_started.py",
}


def fences():
    """Yield the page, the language and the text of each block."""
    for path in TEXTS:
        for _, language, text in FENCE.findall(path.read_text("utf-8")):
            yield path.relative_to(ROOT).as_posix(), language, text


def commands():
    """Yield the page and the words of each command, both in blocks and in inline code."""
    for page, language, text in fences():
        if not language and not text.startswith(OUTPUTS):
            yield from ((page, shlex.split(line, comments=True)) for line in text.splitlines())
    for path in TEXTS:
        prose = FENCE.sub("", path.read_text("utf-8"))
        for said in re.findall(r"`((?:make|grpc-backoff|python -m (?:grpc_backoff|interop|benchmarks)) [^`]+)`", prose):
            yield path.relative_to(ROOT).as_posix(), shlex.split(said.replace("\n", " "))


COMMANDS = list(commands())


def test_every_block_has_a_test():
    """CH-1: every code block that users copy is tested: a new block on a page fails here until a test runs it."""
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


def test_policies_that_users_copy_cause_no_warning():
    """BP-2: the policy strings on the pages, in code and in commands, are as their warning wants them: with jitter."""
    texts = [(path.name, path.read_text("utf-8")) for path in TEXTS]
    found = [(page, text) for page, said in texts for text in re.findall(r'"(retry: [^"]*\bdelay: [^"]*)"', said)]

    assert len(found) > 8
    assert [(page, text) for page, text in found if "jitter: " not in text] == []


def test_there_are_commands():
    """There are commands for the test below, and every exemption above is still needed."""
    words = {word for _, command in COMMANDS for word in command}

    assert len(COMMANDS) > 60
    assert set(UNTRIED) - words == set()


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[f"{page}-{' '.join(words)}" for page, words in COMMANDS])
def test_every_command_is_one(page, command):
    """CH-1: every command on the pages exists and accepts the options that it is given."""
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
    elif program == "grpc-judge":
        understood(judge, arguments)
    elif program == "benchmarks.dispersal":
        understood(dispersal, arguments)
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
    """Have click parse the arguments without running the command; words in capitals are placeholders."""
    context = click.Context(group, info_name="grpc-backoff")
    command = group
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        command = command.get_command(context, name)
        assert command is not None, name
    command.make_parser(context).parse_args(list(arguments))
