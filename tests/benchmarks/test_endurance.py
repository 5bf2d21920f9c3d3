"""TH-6, FK-1, FK-3: short versions of `make endurance`, each in separate processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpc_backoff.sync.pump import needs_pump
from tests.programs import records

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts what Linux shows of a process")
NOTHING = {"threads": 0, "tasks": 0, "descriptors": 0, "futures": 0}


def verdict(*arguments):
    return records("benchmarks.endurance", *arguments)[-1]


def test_channels():
    """TH-6: opening and closing threaded channels leaks no threads and no file descriptors."""
    assert verdict("channels", "--count", "60")["left"] == NOTHING


def test_loops():
    """FK-3: event loops, run one after another and concurrently, log nothing at ERROR and leak nothing."""
    seen = verdict("loops", "--count", "16")
    assert (seen["texts"], seen["left"]) == ([], NOTHING)


@pytest.mark.skipif(needs_pump(), reason="with grpcio 1.63 a forked child can hang, whatever is set; not found out why")
@pytest.mark.parametrize("options", [[], ["--dialling"]], ids=["calling", "dialling"])
def test_forks(options):
    """FK-1: forked children do not hang or crash, both channels raise `ForkError`, and the parent's calls succeed."""
    seen = verdict("forks", "--count", "10", *options)
    assert (seen["hung"], seen["crashed"], seen["failed"]) == (0, 0, 0)
    assert seen["outcomes"] == {"ForkError, ForkError": 10}
