"""What importing the asyncio face brings in beside grpc.aio: every program pays for that."""

import subprocess
import sys

import pytest

import grpc_backoff.aio

NEW = """
import sys
import grpc.aio
before = set(sys.modules)
import grpc_backoff.aio
print(*(set(sys.modules) - before))
"""


@pytest.fixture(scope="module")
def new():
    return set(
        subprocess.run([sys.executable, "-c", NEW], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    )


@pytest.mark.parametrize("module", ["json", "urllib.parse", "ipaddress", "tomllib", "difflib", "email.utils", "h2"])
def test_comes_late(new, module):
    """A module that only some channels need is imported when one of them does."""
    assert grpc_backoff.aio.__name__ in new
    assert module not in new
