"""`grpc-backoff demo`: how it finds the demo, and its errors. The demo itself is tested elsewhere."""

from __future__ import annotations

import sys

import pytest

import grpc_backoff
from examples import demo
from tests.cli.running import check_refused, invoke


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.parametrize("arguments", [[], ["--threads"]], ids=["asyncio", "threads"])
@pytest.mark.parametrize(("holds", "status"), [(True, 0), (False, 1)])
def test_status(monkeypatch, holds, status, arguments):
    """In a checkout the demo runs on the requested API and exits with status 0 only if every check passes."""
    monkeypatch.setattr(demo, "play", lambda threads: holds and threads == bool(arguments))
    result = invoke("demo", *arguments)

    assert (result.exit_code, result.output) == (status, "")


def test_in_a_wheel(monkeypatch, tmp_path):
    """Without a checkout, the command prints one line that says where the demo is, and exits with status 1."""
    monkeypatch.setattr(grpc_backoff, "__file__", str(tmp_path / "grpc_backoff" / "__init__.py"))
    said = "Error: the demo is not installed: run 'make demo' in a checkout of grpc-backoff\n"
    check_refused(invoke("demo"), said, status=1)


def test_missing_extra_is_one_line(monkeypatch):
    """Without h2, the command prints one line that says what to install, and exits with status 1."""
    monkeypatch.setitem(sys.modules, "h2", None)
    packages = "pip install 'grpc-backoff[cli]', or '.[cli]' in a checkout"
    check_refused(invoke("demo"), f"Error: the demo needs the extra 'cli': {packages}\n", status=1)
