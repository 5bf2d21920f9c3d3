"""What is said of PostgreSQL's errors and of URLs, and of the libraries that PostgreSQL needs."""

from __future__ import annotations

import os
import subprocess
import sys

import psycopg
import pytest

from grpc_backoff import OptionError
from grpc_backoff.ledger import Ledger, LedgerUnavailableError
from grpc_backoff.ledger.stores.postgres.failures import is_in_doubt, name_of


@pytest.mark.parametrize(
    ("error", "broken", "doubt"),
    [
        (psycopg.OperationalError("server closed the connection unexpectedly"), True, True),
        (psycopg.OperationalError("cannot exit pipeline mode while busy"), False, True),
        (psycopg.InterfaceError("the library's own"), False, True),
        (psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes"), False, False),
        (psycopg.errors.PipelineAborted("pipeline aborted"), False, False),
        (psycopg.errors.lookup("08P01")(), False, True),
        (psycopg.errors.lookup("08006")(), False, True),
        (psycopg.errors.lookup("57P01")(), False, True),
        (psycopg.errors.lookup("57P02")(), False, True),
        (psycopg.errors.lookup("57014")(), False, False),
        (psycopg.errors.lookup("40001")(), False, False),
        (psycopg.errors.lookup("23505")(), False, False),
        (psycopg.errors.lookup("53100")(), False, False),
        (psycopg.errors.lookup("53100")(), True, True),
    ],
)
def test_what_is_in_doubt(error, broken, doubt):
    """LG-9: only a server that goes on after its error has certainly not executed a COMMIT."""
    assert is_in_doubt(error, broken=broken) is doubt


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter%zz2@h/db",
        "postgresql://u:hun/ter2@h/db",
        "postgresql://u:hun@ter2@h/db",
        "postgresql://u:hun?ter2@h/db",
        "postgresql://h:hun,ter2/db",
        "host=h user=u password=hunter2",
        "password = hunter2",
        "mysql://u:hunter2@h/db",
    ],
)
async def test_a_password_in_an_invalid_url(url, monkeypatch, tmp_path):
    """LG-11: an error for an invalid URL shows no part of its password, and no file is created."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises((LedgerUnavailableError, OptionError)) as caught:
        await Ledger.open(url)

    assert not [part for part in ("hun", "ter2") if part in str(caught.value)], str(caught.value)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://u:secret@db/shop", "db/shop"),
        ("postgresql://db:5433/shop", "db:5433/shop"),
        ("postgresql://db/shop?port=5433", "db:5433/shop"),
        ("postgresql://[::1]/shop", "[::1]/shop"),
        ("postgresql://[2001:db8::1]:5433/shop", "[2001:db8::1]:5433/shop"),
        ("postgresql:///shop?hostaddr=::1&port=5433", "[::1]:5433/shop"),
        ("postgresql://one:5433,[::1]:5434/shop", "one:5433,[::1]:5434/shop"),
        ("postgresql://one,two:5434/shop", "one,two:5434/shop"),
        ("postgresql:///shop?host=one,two&port=5433", "one:5433,two:5433/shop"),
        ("postgresql:///shop?host=/run/postgresql&port=5433", "/run/postgresql:5433/shop"),
        ("postgresql:///shop", "/shop"),
    ],
)
def test_the_name_of_a_database(url, name):
    """LG-9: errors name a database by its hosts, with their ports if the URL has any, and its name."""
    assert name_of(url) == f"postgresql://{name}"


def test_without_libpq():
    """LG-13: if psycopg is installed but libpq is not, the error names libpq, not the extra that is there already."""
    program = (
        "import ctypes.util\nctypes.util.find_library = lambda name: None\nimport grpc_backoff.ledger.stores.postgres\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        env=os.environ | {"PSYCOPG_IMPL": "python"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: psycopg needs the library libpq: install libpq5, or pip install 'psycopg[binary]'"
    )
