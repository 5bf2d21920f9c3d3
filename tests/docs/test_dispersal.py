"""The page about dispersal: its tables are what its commands print, and its pictures exist."""

from __future__ import annotations

import re
import shlex

import pytest
from click.testing import CliRunner

from benchmarks.dispersal.command import dispersal
from tests.docs.pages import DOCS, read

PAGE = read("dispersal.md")
SHOWN = re.findall(r"```\npython -m benchmarks\.dispersal ([^\n]*)\n```\n\n```text\n(.*?)\n```", PAGE, re.DOTALL)


def test_the_page_shows_commands():
    """BP: the page has a table for each of its commands."""
    assert len(SHOWN) == PAGE.count("```\npython -m benchmarks.dispersal ") >= 7


@pytest.mark.parametrize(("command", "table"), SHOWN, ids=[command[:51] for command, _ in SHOWN])
def test_tables(command, table):
    """BP: every figure on the page is what its command prints now."""
    done = CliRunner().invoke(dispersal, shlex.split(command))

    assert done.exit_code == 0, done.output
    assert [line.rstrip() for line in done.output.strip().splitlines()] == table.splitlines()


def test_pictures():
    """BP: the committed pictures are exactly those on the page."""
    named = set(re.findall(r"\]\((images/[^)]*)\)", PAGE))

    assert named == {f"images/{path.name}" for path in (DOCS / "images").glob("dispersal*")}
