"""The reference: every public name is on a page, and its docstring states units, errors and existing rules."""

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
"""Words in a docstring that mark a float as a time or name its clock."""
NUMBERS = {"multiplier", "fraction", "low", "high", "max_tokens", "token_ratio", "refill", "start", "peak", "bin"}
"""Names of floats that are not times."""


def objects():
    """Yield each public name and its value, with the module that users import it from."""
    for api in sorted(PUBLIC):
        module = importlib.import_module(api)
        for name in module.__all__:
            yield api, name, getattr(module, name)


def functions():
    """Yield each public function and method once, together with its class's docstring."""
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
    """Return the module and the full name under which a value is defined."""
    if value is RETRY_PRESETS:
        return ["grpc_backoff.policy.presets.RETRY_PRESETS"]
    module = getattr(value, "__module__", "")
    return [module, f"{module}.{getattr(value, '__qualname__', '')}"]


def test_every_public_name_is_on_a_page():
    """Every public name is in the reference, either by itself or with its module."""
    missing = [f"{api}.{name}" for api, name, value in objects() if not SHOWN & {api, *places(value)}]

    assert missing == []


def test_every_class_and_function_has_a_docstring():
    """Every public class and function has a docstring."""
    values = [
        (api, name, value) for api, name, value in objects() if inspect.isclass(value) or inspect.isfunction(value)
    ]

    assert [f"{api}.{name}" for api, name, value in values if not value.__doc__] == []


@pytest.mark.parametrize(("function", "about"), list(functions()))
def test_units_and_errors(function, about):
    """Each function's docstring, or its class's, states the unit of times and names the errors that are raised."""
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
    """Every rule that a public docstring names exists, because the reference turns the name into a link."""
    rules = set(re.findall(r"^\*\*((?:BP|CB|CH|RT|SH)(?:-\d+)?)\.\*\*", BEHAVIOUR, re.MULTILINE))
    named = {
        rule for _, _, value in objects() for rule in re.findall(r"\b(?:BP|CB|CH|RT|SH)-\d+\b", value.__doc__ or "")
    }

    assert named <= rules


def test_no_docstring_needs_what_readers_do_not_have():
    """Public docstrings refer by number only to rules and gRFCs, which the glossary explains."""
    assert [f"{api}.{name}" for api, name, value in objects() if re.search(r"\bRFC-\d{3}\b", value.__doc__ or "")] == []


def test_the_page_of_the_command_line_has_every_command():
    """The table on the command-line page lists exactly the commands that exist."""
    page = (REFERENCE / "cli.md").read_text("utf-8")

    assert {row.split()[0] for row in re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)} == set(cli.commands)


def test_the_glossary_is_in_order():
    """The glossary's entries are in alphabetical order."""
    words = re.findall(r"^\*\*(.+)\*\*\n: ", (REFERENCE / "glossary.md").read_text("utf-8"), re.MULTILINE)

    assert len(words) > 30
    assert words == sorted(words, key=str.lower)
