"""What each module offers, and what importing it brings along."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import grpc_backoff

MODULES = ["grpc_backoff"] + [
    module.name
    for module in pkgutil.walk_packages(grpc_backoff.__path__, "grpc_backoff.")
    if not module.name.endswith("__main__")
]
EMPTY = {
    # A package that only holds its modules offers nothing itself.
    "grpc_backoff.calls",
    "grpc_backoff.channel",
    "grpc_backoff.config",
    "grpc_backoff.connection",
    "grpc_backoff.policy",
    "grpc_backoff.probe",
    "grpc_backoff.sharing",
    "grpc_backoff.telemetry",
}


@pytest.mark.parametrize("name", sorted(set(MODULES) - EMPTY))
def test_all(name):
    """Every module says what it offers, each name once, and has it."""
    module = importlib.import_module(name)

    assert len(module.__all__) == len(set(module.__all__)) > 0
    assert [missing for missing in module.__all__ if not hasattr(module, missing)] == []


@pytest.mark.parametrize("name", sorted(EMPTY))
def test_empty(name):
    """A package without `__all__` defines and imports nothing but its modules."""
    package = importlib.import_module(name)

    assert [key for key, value in vars(package).items() if not (key.startswith("__") or inspect.ismodule(value))] == []


@pytest.mark.parametrize("name", MODULES)
def test_docstring(name):
    """Every module says in a docstring what lives there."""
    assert importlib.import_module(name).__doc__


INTERNAL = re.compile(r"^Internal(?P<but>, but for [^:]*)?: programs import from `(?P<face>[\w.]+)`\.$", re.MULTILINE)
PUBLIC = {
    "grpc_backoff",
    "grpc_backoff.aio",
    "grpc_backoff.config.service_config",
    "grpc_backoff.connection.clock",
    "grpc_backoff.connection.connector",
    "grpc_backoff.errors",
    "grpc_backoff.ledger",
    "grpc_backoff.policy.presets",
    "grpc_backoff.simulation",
    "grpc_backoff.telemetry.otel",
    "grpc_backoff.testing",
    "grpc_backoff.testing.checks",
    "grpc_backoff.testing.front",
    "grpc_backoff.testing.port",
}
"""Every module that programs import from."""


def is_public(name):
    """Return whether a module is public, by its own docstring and those of the packages that it is in."""
    module = importlib.import_module(name)
    said = INTERNAL.search(module.__doc__)
    if hasattr(module, "__path__"):
        return said is None or said["face"] == name
    package, _, last = name.rpartition(".")
    beside = INTERNAL.search(importlib.import_module(package).__doc__)
    return said is None and (beside is None or f"`{last}`" in (beside["but"] or ""))


def test_what_is_internal_says_so():
    """Each module says whether programs may import it, in one form, or its package does; no other word is used."""
    assert {name for name in MODULES if is_public(name)} == PUBLIC
    for name in MODULES:
        module = importlib.import_module(name)
        said = INTERNAL.findall(module.__doc__)
        assert len(said) == module.__doc__.count("\nInternal") <= 1, name
        assert {face for _, face in said} <= PUBLIC


def test_what_an_internal_package_spares_is_there():
    """A module that a package names as public is one of its own."""
    for name in MODULES:
        for but, _ in INTERNAL.findall(importlib.import_module(name).__doc__):
            assert {f"{name}.{spared}" for spared in re.findall(r"`(\w+)`", but)} <= PUBLIC, name


def test_pages_import_what_is_public():
    """README and the pages show no import of an internal module; what a page says that a program imports is public."""
    root = Path(grpc_backoff.__file__).parents[1]
    text = "\n".join(page.read_text("utf-8") for page in [root / "README.md", *(root / "docs").glob("*.md")])
    imported = set(re.findall(r"(?:from|import) (grpc_backoff[\w.]*)", text))

    assert "grpc_backoff.telemetry.otel" in imported <= PUBLIC


def test_top_is_sorted():
    """The names at the top are in order, constants first, without the private ones."""
    assert grpc_backoff.__all__ == sorted(grpc_backoff.__all__, key=lambda name: (not name.isupper(), name))
    assert not [name for name in grpc_backoff.__all__ if name.startswith("_")]


RETRYING = [
    *("RetryPolicy", "RetryBudget", "RetryHooks", "FailedCall", "WaitSource", "Reason"),
    *("CallEvent", "CallRetried", "CallSucceeded", "CallExhausted"),
]


@pytest.mark.parametrize("name", RETRYING)
def test_retrying_is_at_the_top(name):
    """RT-1: what a program writes down to have its calls retried, and to hear of it, is had at the top."""
    assert name in grpc_backoff.__all__


def test_retrying_calls_is_in_the_face():
    """RT-6: what needs grpc stands beside the channel: the function for one call, and the error at the end."""
    from grpc_backoff import aio

    assert {"retrying", "RetriesExhaustedError"} <= set(aio.__all__)
    assert {"retrying", "RetriesExhaustedError"} <= set(grpc_backoff.__all__)  # of the threaded face; of both
    assert issubclass(aio.RetriesExhaustedError, grpc_backoff.RetriesExhaustedError)
    assert aio.retrying is grpc_backoff.retrying  # for stubs of both faces


def test_star_import():
    """All of the names at the top can be had."""
    names = {}
    exec("from grpc_backoff import *", names)

    assert set(grpc_backoff.__all__) <= set(names)


def test_public_objects_have_docstrings():
    """Every name at the top carries its own docstring, or is a union of such."""
    objects = [name for name in grpc_backoff.__all__ if not name.isupper()]

    assert [name for name in objects if not inspect.getdoc(getattr(grpc_backoff, name))] == []


@pytest.mark.parametrize("name", ["grpc_backoff", "grpc_backoff.aio"])
def test_light_import(name):
    """The library needs grpcio alone; importing it loads no extra, no protobuf, and nothing that reads HTTP's dates."""
    foreign = ("click", "rich", "h2", "google.protobuf", "google.rpc", "opentelemetry", "email.utils")
    code = f"import {name}, sys; print(*[name for name in {foreign} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []
    assert done.stderr == ""


def test_the_top_is_light():
    """Policies, events and hooks are had without grpc: a program that only configures does not load it."""
    code = "import sys, grpc_backoff; grpc_backoff.RetryPolicy; print('grpc' in sys.modules, 'asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False"]


def test_the_decision_is_light():
    """RT-3: what follows from a failed call is decided without grpc, an event loop, or a clock of its own."""
    modules = ["account", "budget", "core_words", "decision", "events", "machine", "replay", "server_hint"]
    imports = ", ".join(f"grpc_backoff.calls.{module}" for module in modules)
    code = f"import {imports}, sys; print('grpc' in sys.modules, 'asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False"]


def test_policy_is_light():
    """Policies are numbers: they load neither grpc nor an event loop."""
    code = "import grpc_backoff.config.options, sys; print('grpc' in sys.modules, 'asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False"]


def test_the_probing_connector_is_light():
    """It dials with asyncio and h2 alone: it loads neither grpc nor what the command line needs."""
    code = "import grpc_backoff.probe.http2, sys; print(*[n for n in ('grpc', 'click', 'rich') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []
