"""What each module exports, and what importing it loads."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import grpc_backoff
from grpc_backoff import aio, names
from grpc_backoff.config.channel_settings import ChannelSettings

MODULES = ["grpc_backoff"] + [
    module.name
    for module in pkgutil.walk_packages(grpc_backoff.__path__, "grpc_backoff.")
    if not module.name.endswith("__main__")
]
EMPTY = {
    # A package that only contains modules exports nothing itself.
    "grpc_backoff.base",
    "grpc_backoff.config",
    "grpc_backoff.connection",
    "grpc_backoff.decide",
    "grpc_backoff.decide.calls",
    "grpc_backoff.decide.connections",
    "grpc_backoff.engine",
    "grpc_backoff.grpcio",
    "grpc_backoff.policy",
    "grpc_backoff.probe",
    "grpc_backoff.telemetry",
}


@pytest.mark.parametrize("name", sorted(EMPTY))
def test_empty(name):
    """A package without `__all__` defines and imports nothing but its modules."""
    package = importlib.import_module(name)

    assert [key for key, value in vars(package).items() if not (key.startswith("__") or inspect.ismodule(value))] == []


@pytest.mark.parametrize("name", MODULES)
def test_docstring(name):
    """Every module has a docstring."""
    assert importlib.import_module(name).__doc__


INTERNAL = re.compile(r"^Internal(?P<but>, except for [^:]*)?: programs import from `(?P<api>[\w.]+)`\.$", re.MULTILINE)
PUBLIC = {
    "grpc_backoff",
    "grpc_backoff.aio",
    "grpc_backoff.config.service_config",
    "grpc_backoff.connection.clock",
    "grpc_backoff.connection.connector",
    "grpc_backoff.errors",
    "grpc_backoff.ledger",
    "grpc_backoff.ledger.inbox",
    "grpc_backoff.ledger.parameters",
    "grpc_backoff.ledger.sync",
    "grpc_backoff.policy.presets",
    "grpc_backoff.server",
    "grpc_backoff.telemetry.otel",
    "grpc_backoff.testing",
    "grpc_backoff.testing.front",
    "grpc_backoff.testing.port",
}
"""Every public module, which user code may import from."""


@pytest.mark.parametrize("name", MODULES)
def test_all(name):
    """The public modules, and those that only collect names, list their names in `__all__`; no other module does."""
    module = importlib.import_module(name)
    listed = getattr(module, "__all__", [])

    assert bool(listed) == (name in PUBLIC | {"grpc_backoff.sync"})
    assert len(listed) == len(set(listed))
    assert [missing for missing in listed if not hasattr(module, missing)] == []


def is_public(name):
    """Return whether a module is public, according to its docstring and that of its package."""
    module = importlib.import_module(name)
    said = INTERNAL.search(module.__doc__)
    if hasattr(module, "__path__"):
        return said is None or said["api"] == name
    package, _, last = name.rpartition(".")
    beside = INTERNAL.search(importlib.import_module(package).__doc__)
    return said is None and (beside is None or f"`{last}`" in (beside["but"] or ""))


def test_what_is_internal_says_so():
    """Every module that is not public says so in one fixed form, in its own docstring or its package's."""
    assert {name for name in MODULES if is_public(name)} == PUBLIC
    for name in MODULES:
        module = importlib.import_module(name)
        said = INTERNAL.findall(module.__doc__)
        assert len(said) == module.__doc__.count("\nInternal") <= 1, name
        assert {api for _, api in said} <= PUBLIC


def test_what_an_internal_package_spares_is_there():
    """An internal package's docstring names only existing, public modules as its exceptions."""
    for name in MODULES:
        for but, _ in INTERNAL.findall(importlib.import_module(name).__doc__):
            assert {f"{name}.{spared}" for spared in re.findall(r"`(\w+)`", but)} <= PUBLIC, name


def test_pages_import_what_is_public():
    """The README and the pages import only public modules."""
    root = Path(grpc_backoff.__file__).parents[1]
    text = "\n".join(page.read_text("utf-8") for page in [root / "README.md", *(root / "docs").glob("*.md")])
    imported = set(re.findall(r"(?:from|import) (grpc_backoff[\w.]*)", text))

    assert "grpc_backoff.telemetry.otel" in imported <= PUBLIC


def test_what_the_reference_documents_can_be_imported():
    """Each name in the API reference is in the module from which its page, or its section, says to import it."""
    missing, checked = [], 0
    for page in (Path(grpc_backoff.__file__).parents[1] / "docs/reference").glob("api*.md"):
        first, *sections = page.read_text("utf-8").split("\n## ")
        said = re.search(r"^Import these names from `([\w.]+)`", first, re.MULTILINE)
        for section in [first, *sections]:
            home = said and said[1]
            for paragraph in section.split("\n\n"):
                if found := re.search(r"\bImport \w+( \w+)?\sfrom\s`([\w.]+)`", paragraph):
                    home = found[2]
                elif paragraph.endswith(":"):  # it introduces what is not imported
                    home = None
                elif paragraph.startswith("::: ") and home and "heading:" not in paragraph:
                    name = paragraph.split()[1].rpartition(".")[2]
                    missing += [] if hasattr(importlib.import_module(home), name) else [f"{home}.{name}"]
                    checked += 1

    assert missing == []
    assert checked > 100


def test_no_name_is_private():
    """No name at the top level is private."""
    assert not [name for name in grpc_backoff.__all__ if name.startswith("_")]


RETRYING = [
    *("RetryPolicy", "RetryBudget", "RetryHooks", "FailedCall", "WaitSource", "Reason"),
    *("CallEvent", "CallRetried", "CallSucceeded", "CallExhausted"),
]


def test_retrying_calls_is_public():
    """RT-1, RT-6: the names with which applications configure and observe retries are at the top level.

    Both APIs export `retrying`, for single calls, and `RetriesExhaustedError`.
    """
    from grpc_backoff import aio

    assert {*RETRYING, "retrying", "RetriesExhaustedError"} <= set(grpc_backoff.__all__)
    assert {"retrying", "RetriesExhaustedError"} <= set(aio.__all__)
    assert issubclass(aio.RetriesExhaustedError, grpc_backoff.RetriesExhaustedError)
    assert aio.retrying is grpc_backoff.retrying  # takes stubs of both APIs


def test_star_import():
    """`from grpc_backoff import *` imports every name at the top level."""
    names = {}
    exec("from grpc_backoff import *", names)

    assert set(grpc_backoff.__all__) <= set(names)


OPTIONAL = ("click", "rich", "h2", "google.protobuf", "google.rpc", "opentelemetry", "email.utils")
DECISION = ("budget", "decision", "events", "call_machine", "replay", "retry_machine", "server_hint")


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        # No optional packages, no protobuf and no parser for HTTP dates.
        ("grpc_backoff", OPTIONAL),
        ("grpc_backoff.aio", OPTIONAL),
        # Policies, events, options and decisions need no grpc.
        ("grpc_backoff; grpc_backoff.RetryPolicy", ("grpc", "asyncio")),
        ("grpc_backoff.config.options", ("grpc", "asyncio")),
        (", ".join(f"grpc_backoff.decide.calls.{module}" for module in DECISION), ("grpc", "asyncio")),
        # The probing connector uses only asyncio and h2.
        ("grpc_backoff.probe.http2", ("grpc", "click", "rich")),
    ],
    ids=["top", "asyncio", "policies", "options", "decision", "probe"],
)
def test_light_import(modules, absent):
    """RT-3: importing a part of the library loads only what this part needs, and prints nothing."""
    code = f"import {modules}; import sys; print(*[name for name in {absent} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert (done.stdout.split(), done.stderr) == ([], "")


def test_type_checkers_see_what_programs_get():
    """What type checkers read in `names.py` are the public names, each from the module that programs get it from."""
    imports = [node for node in ast.walk(ast.parse(inspect.getsource(names))) if isinstance(node, ast.ImportFrom)]
    read = {alias.name: node.module for node in imports for alias in node.names if alias.asname}

    assert read == names.HOMES
    assert sorted(names.HOMES) == grpc_backoff.__all__ == [name for name in dir(grpc_backoff) if name in names.HOMES]
    assert all(hasattr(grpc_backoff, name) for name in grpc_backoff.__all__)


def test_aio_is_an_attribute():
    """CH-1: `import grpc_backoff` is enough for `grpc_backoff.aio`, as `import grpc` is for `grpc.aio`."""
    code = "import grpc_backoff, sys; assert 'grpc' not in sys.modules; grpc_backoff.aio.insecure_channel"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_type_checkers_see_no_other_names():
    """A module's `__getattr__` is hidden from type checkers, to which the module would have every name."""
    sources = {name: inspect.getsource(importlib.import_module(name)) for name in MODULES}
    lazy = [name for name, source in sources.items() if re.search(r"^ *def __getattr__\(name", source, re.MULTILINE)]

    assert "grpc_backoff.ledger" in lazy
    assert [name for name in lazy if "\ndef __getattr__" in sources[name]] == []


@pytest.mark.parametrize("api", [grpc_backoff, aio])
@pytest.mark.parametrize("name", ["insecure_channel", "secure_channel"])
def test_annotations_of_constructors(api, name):
    """CH-1: a program may evaluate the annotations of what stands for grpc's functions, as those of grpc.aio's.

    Frameworks that inject dependencies do.
    """
    assert typing.get_type_hints(getattr(api, name))["return"] is api.Channel


def functions_of(found):
    """Return the public functions of a class, among them those of its bases, and those with special names."""
    for ours in (kind for kind in found.__mro__ if kind.__module__.startswith("grpc_backoff")):
        for value in vars(ours).values():
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if inspect.isfunction(function) and re.match(r"(?!_[^_])", function.__name__):
                yield function


@pytest.mark.parametrize("api", [grpc_backoff, aio])
def test_the_messages_of_a_subscription(api):
    """A program can annotate what a subscription yields."""
    assert typing.get_args(api.Subscription[int]) == (int,)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_annotations(name):
    """A program may evaluate the annotations of what is public, as serializers and injectors of dependencies do."""
    module = importlib.import_module(name)
    public = [getattr(module, name) for name in module.__all__]
    stubs = [kind for found in public for kind in getattr(found, "_multicallables", {}).values()]
    settings = [ChannelSettings] if name == "grpc_backoff.aio" else []
    for found in filter(callable, [*public, *stubs, *settings]):
        for annotated in [found, *(functions_of(found) if inspect.isclass(found) else ())]:
            typing.get_type_hints(annotated)
