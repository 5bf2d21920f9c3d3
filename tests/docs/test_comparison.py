"""The page that compares this library with others: its figures are measured, and its program counts connections."""

from __future__ import annotations

import re

import pytest

from examples.compare import SUBJECTS, count
from tests.docs.pages import read

PAGE = read("comparison.md")
COLUMNS = ("grpc.aio, retryPolicy", "google-api-core", "tenacity", "stamina", "grpc_backoff.aio, retry")


def test_ratios_are_measured():
    """The last row of the table, and the ratio below it, are those of benchmarks.md."""
    (row,) = re.findall(r"^\| time of a call that succeeds at once.*$", PAGE, re.MULTILINE)
    rows = [line.split("|") for line in read("benchmarks.md").splitlines() if line.startswith("| the first attempt")]
    ratios = {cells[2].strip(): cells[5].strip() for cells in rows}

    assert [cell.strip() for cell in row.split("|")[2:-1]] == [ratios[name] for name in COLUMNS]
    assert f"is {ratios['grpc_backoff.aio']} in the same run" in PAGE.replace("\n", " ")


@pytest.mark.parametrize("subject", SUBJECTS)
async def test_the_program_counts(subject):
    """Each subject connects; ours connects once in a time shorter than INITIAL_BACKOFF. Takes 0.6 s of real time."""
    connections = await count(subject, workers=2, seconds=0.6)

    assert connections >= 1
    if subject.startswith("grpc-backoff"):
        assert connections <= 2, "once, or twice if a busy machine takes longer"


def test_the_table_has_every_subject():
    """The table lists exactly the subjects of the program."""
    table = PAGE.partition("| | connections in 10 s |")[2].partition("\n\n")[0]
    listed = [
        row.replace("`", "").replace("this library", "grpc-backoff")
        for row in re.findall(r"^\| (.+?) \| [\d,]", table, re.MULTILINE)
    ]

    assert listed == list(SUBJECTS)
