"""The reference: every public name is on a page, and its docstring says units, errors and where a rule comes from."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from pathlib import Path

import pytest

from grpc_backoff import RETRY_PRESETS
from grpc_backoff.cli.commands import cli
from tests.test_exports import PUBLIC

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
BEHAVIOUR = (REFERENCE.parent / "behaviour.md").read_text("utf-8")
SHOWN = set(
    re.findall(r"^::: (\S+)$", "\n".join(page.read_text("utf-8") for page in REFERENCE.glob("*.md")), re.MULTILINE)
)

TIME = re.compile(r"\b(?:seconds?|milliseconds|s|ms|times?|when|moment|clock)\b", re.IGNORECASE)
"""What a docstring says that speaks of a float as a time, or of the clock that it is on."""
NUMBERS = {"multiplier", "fraction", "low", "high", "max_tokens", "token_ratio", "refill", "start", "peak", "bin"}
"""Floats that are no times."""


def objects():
    """Yield each public name, with the face that it is imported from."""
    for face in sorted(PUBLIC):
        module = importlib.import_module(face)
        for name in module.__all__:
            yield face, name, getattr(module, name)


def functions():
    """Yield each public function and method once, with the docstring of its class."""
    seen = set()
    for _, _, value in objects():
        if inspect.isfunction(value):
            found = [(value, "")]
        elif inspect.isclass(value) and value.__module__.startswith("grpc_backoff"):
            found = [
                (inspect.unwrap(getattr(each, "__func__", getattr(each, "fget", each))), value.__doc__ or "")
                for name, each in vars(value).items()
                if not name.startswith("_")
            ]
        else:
            continue
        for function, about in found:
            if inspect.isfunction(function) and function not in seen:
                seen.add(function)
                yield pytest.param(function, about, id=f"{function.__module__}.{function.__qualname__}")


def places(value):
    """Return where a value is defined, by module and by name."""
    if value is RETRY_PRESETS:
        return ["grpc_backoff.policy.presets.RETRY"]
    module = getattr(value, "__module__", "")
    return [module, f"{module}.{getattr(value, '__qualname__', '')}"]


def test_every_public_name_is_on_a_page():
    """What programs import is in the reference: by itself, or with the module that it is in."""
    missing = [f"{face}.{name}" for face, name, value in objects() if not SHOWN & {face, *places(value)}]

    assert missing == []


def test_every_class_and_function_has_a_docstring():
    """Each public class and function says what it is."""
    values = [
        (face, name, value) for face, name, value in objects() if inspect.isclass(value) or inspect.isfunction(value)
    ]

    assert [f"{face}.{name}" for face, name, value in values if not value.__doc__] == []


@pytest.mark.parametrize(("function", "about"), list(functions()))
def test_units_and_errors(function, about):
    """A time has its unit, in the function's docstring or its class's, and what is raised is named."""
    said = (function.__doc__ or "") + about
    assert function.__doc__, "no docstring"
    hints = function.__annotations__
    times = [
        name for name, hint in hints.items() if re.fullmatch(r"float( \| None)?", str(hint)) and name not in NUMBERS
    ]
    assert not times or TIME.search(said), f"{times}: no unit"
    body = ast.parse(textwrap.dedent(inspect.getsource(function)))
    raised = {
        node.exc.func.id
        for node in ast.walk(body)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name)
    }
    assert {name for name in raised if name not in said} == set()


def test_rules_that_docstrings_name_are_there():
    """A rule's number in a docstring is a link in the reference; so the rule has to exist."""
    rules = set(re.findall(r"^\*\*((?:BP|CB|CH|RT|SH)(?:-\d+)?)\.\*\*", BEHAVIOUR, re.MULTILINE))
    named = {
        rule for _, _, value in objects() for rule in re.findall(r"\b(?:BP|CB|CH|RT|SH)-\d+\b", value.__doc__ or "")
    }

    assert named <= rules


def test_no_docstring_needs_what_readers_do_not_have():
    """A docstring names rules and gRFCs, which the glossary explains, and no other paper by a number."""
    assert [
        f"{face}.{name}" for face, name, value in objects() if re.search(r"\bRFC-\d{3}\b", value.__doc__ or "")
    ] == []


def test_the_page_of_the_command_line_has_every_command():
    """The table names the commands that there are, and no other."""
    page = (REFERENCE / "cli.md").read_text("utf-8")

    assert {row.split()[0] for row in re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)} == set(cli.commands)


def test_the_glossary_is_in_order():
    """A reader finds a word by the alphabet; each has one entry."""
    words = re.findall(r"^\*\*(.+)\*\*\n: ", (REFERENCE / "glossary.md").read_text("utf-8"), re.MULTILINE)

    assert len(words) > 30
    assert words == sorted(words, key=str.lower)
