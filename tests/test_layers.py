"""The structure of code and tests: each module has a test module, and each test has a docstring."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import grpc_backoff

PACKAGE = Path(grpc_backoff.__file__).parent
TESTS = Path(__file__).parent

WITHOUT = {
    "_pyinstaller/hook-grpc_backoff.ledger.schema.py": "test_frozen.py builds a program that needs it",
    "aio/environment.py": "the modules test_drop_in_* hold every way of calling to what grpc's own channel does",
    "grpcio/shapes.py": "types alone, which nothing imports at run time; mypy checks them",
    "cli/attempt_log.py": "what it counts is what test_connect.py and test_view.py read in the output",
    "cli/commands.py": "the group alone; test_cli.py calls it",
    "cli/interrupt.py": "test_guard.py sends real signals, at every moment",
    "cli/live.py": "the view for a terminal; test_view.py and test_stage_report.py read what it prints",
    "cli/refusal.py": "every command refuses in its own tests",
    "cli/ledger_arguments.py": "test_ledger.py chooses operations in every way, and opens what cannot be opened",
    "cli/ledger_changes.py": "test_ledger.py makes every change",
    "cli/channel_report.py": "test_view.py shows every kind of attempt on every view",
    "cli/trust.py": "test_connect.py and test_probe.py give files of every kind, good and bad",
    "aio/peer_calls.py": "both_apis/test_liveness.py and test_health.py run every test on both APIs",
    "aio/constructors.py": "test_channel.py and test_interceptor_channel.py; test_installation.py installs the class",
    "aio/call_errors.py": "both_apis/test_errors.py runs every test on both APIs",
    "sync/call_errors.py": "both_apis/test_errors.py runs every test on both APIs",
    "sync/hooks.py": "both_apis/test_hooks.py runs every test on both APIs",
    "sync/peer_calls.py": "both_apis/test_liveness.py and test_health.py run every test on both APIs",
    "sync/pool.py": "both_apis/test_pool.py runs every test on both APIs",
    "aio/subscription.py": "tests/both_apis/test_subscriptions.py runs every test on both APIs",
    "engine/subscription.py": "what the APIs share, in each test of tests/both_apis/test_subscriptions.py",
    "sync/subscription.py": "tests/both_apis/test_subscriptions.py runs every test on both APIs",
    "sync/environment.py": "what calls share; test_future_call.py and test_drop_in.py make calls of every kind",
    "connection/clock.py": "a protocol; aio/test_loops.py and testing/test_clock.py hold two implementations to it",
    "connection/connector.py": "a protocol and records; tests/connectors.py holds every implementation to it",
    "ledger/inbox/aio.py": "test_behaviour.py, beside where its test would be, runs every test on both APIs",
    "ledger/inbox/handling.py": "what the APIs share, in each test of test_behaviour.py",
    "aio/request_streams.py": "both_apis/test_replay.py runs every test on both APIs",
    "aio/hedging.py": "both_apis/test_hedging.py runs every test on both APIs",
    "sync/hedged_call.py": "both_apis/test_hedging.py and test_hedging.py make hedged calls of every kind",
    "ledger/inbox/sync.py": "test_behaviour.py runs every test on both APIs",
    "ledger/delivery/claims.py": "a part of each delivery; test_delivery.py claims whatever can be due",
    "ledger/delivery/upkeep.py": "a part of each delivery; test_delivery.py and test_kills.py await all that it does",
    "ledger/delivery/waking.py": "test_delivery.py, test_ledger.py and test_waiting.py wake deliveries and waiters",
    "ledger/stores/dialect.py": "a record of SQL; the tests of the stores and of all transactions execute it",
    "ledger/operation.py": "records without behaviour; test_queries.py and test_rows.py read every field",
    "ledger/stores/urls.py": "test_ledger.py opens every kind of URL, and postgres/test_failures.py wrong ones",
    "ledger/records.py": "records without behaviour; test_submitting.py and test_recording.py read every field",
    "ledger/stores/postgres/session.py": "what runs plans; the tests of the store and of transactions run all kinds",
    "ledger/stores/statements.py": "what the two stores share; their tests execute statements of every kind",
    "testing/relay.py": "test_front.py and test_scripted.py make calls through it, and cut it",
    "base/status.py": "records without behaviour; the tests of events and errors make and read them all",
    "base/version.py": "test_package.py compares the version with the changelog",
    "engine/single_flight.py": "test_resolver.py and test_credentials.py ask it, the first also in the child of a fork",
    "engine/hooks.py": "both_apis/test_hooks.py runs every test on both APIs",
    "engine/pool.py": "both_apis/test_pool.py runs every test on both APIs",
    "engine/home.py": "a protocol; the tests of the event loop's clock and of the conductor hold both to it",
    "engine/several_slots.py": "aio/test_pool.py and both_apis/test_pool.py make pools with several slots",
    "engine/core_dial.py": "both_apis/test_core.py runs every test on the dials of both APIs",
    "sync/constructors.py": "test_channel.py creates channels; test_installation.py installs the class",
    "sync/attempts.py": "both_apis/test_waiting.py and test_replay.py make attempts of every kind",
    "sync/call.py": "both_apis/test_waiting.py, test_interrupts.py and test_future_call.py test what its classes do",
    "engine/watches.py": "both_apis/test_health.py runs every test on both APIs",
    "decide/connections/pool_records.py": "what the machine decides on; test_pool_machine.py makes and reads them all",
    "decide/connections/slot_events.py": "records without behaviour; the machine's tests make and read them all",
    "names.py": "what test_exports.py looks at",
    "config/call_policies.py": "test_methods.py, test_service_config.py and test_channel_settings.py read it",
    "policy/exponential.py": "test_strategy.py tests all strategies",
    "policy/proportional.py": "test_jitter.py tests all jitters",
    "policy/setting.py": "rows of tables; config/test_settings.py and docs/test_readme.py read every row",
    "decide/connections/events.py": "records without behaviour; tests of machine and listeners read them all",
    "probe/stages.py": "records without behaviour; test_http2.py reads what a connector puts into them",
}
"""The modules without a test module of their own, each with the reason."""


def modules():
    return {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")  # test_exports.py tests `__init__`
    }


def counterpart(module):
    path = Path(module)
    return TESTS / path.parent / f"test_{path.name}"


@pytest.mark.parametrize("module", sorted(modules() - set(WITHOUT)))
def test_module_has_tests(module):
    """Every module has tests: `grpc_backoff/x/y.py` is tested by `tests/x/test_y.py`."""
    assert counterpart(module).is_file()


def test_exceptions_are_needed():
    """Every exemption above is for an existing module without a test module."""
    assert set(WITHOUT) <= modules()
    assert [module for module in WITHOUT if counterpart(module).exists()] == []


def test_no_two_classes_share_a_name():
    """Class names are unique, except that `aio`, `sync` and what they share may each have a class of the same name.

    So may the two APIs of a ledger.
    """
    rooms = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        twin = re.sub(r"^(aio|sync|engine|grpcio)/", "", module.replace("ledger/sync.py", "ledger/ledger.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                rooms.setdefault(node.name, []).append((twin, module))

    shared = {
        name: [module for _, module in places]
        for name, places in rooms.items()
        if len({module for _, module in places}) < len(places) or len({twin for twin, _ in places}) > 1
    }

    assert shared == {}


NOT_THE_FIELDS = re.compile(
    r"\b(?:im)?patient\b|\b(?:a|the|each|every|first|last|next|one|no|another) try\b|\b(?:no|many|all|five|two) tries\b"
)
"""Former words for wait-for-ready, fail-fast and attempt."""


def test_the_fields_words():
    """Code and docs use the field's terms: wait-for-ready, fail-fast and attempt."""
    root = PACKAGE.parent
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    code = [
        path for room in ("grpc_backoff", "interop", "examples", "benchmarks") for path in (root / room).rglob("*.py")
    ]
    found = [
        f"{path.relative_to(root)}: {match[0]}"
        for path in pages + code
        if path.name != "CHANGELOG.md"  # quotes older versions
        for match in NOT_THE_FIELDS.finditer(path.read_text("utf-8"))
    ]

    assert found == []


def test_every_test_says_what_it_holds_to():
    """Every test has a docstring, which is its specification."""
    silent = [
        f"{path.relative_to(TESTS).as_posix()}:{node.lineno} {node.name}"
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        if not ast.get_docstring(node)
    ]

    assert silent == []


def test_types_say_what_connectors_and_connections_have():
    """No code asks a connector or a connection of a channel for an attribute that its type may lack."""
    asks = re.compile(r"\b(?:has|get)attr\((?:\w+\.)*_?connect(?:or|ion)\b, ")
    rooms = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "stores"]  # of databases
    assert [path.name for path in rooms if asks.search(path.read_text("utf-8"))] == []
