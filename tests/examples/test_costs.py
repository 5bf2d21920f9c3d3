"""The chart of costs and the table below it have the figures of the benchmarks' tables."""

from __future__ import annotations

import re

from examples.costs import COSTS, DOCS, PICTURE, TABLES, draw, ratio

MEASURED = TABLES.read_text("utf-8")


def test_the_chart_is_up_to_date():
    """`python -m examples.costs` draws the committed chart from the committed tables."""
    assert draw(MEASURED) == PICTURE.read_text("utf-8")


def test_the_table_has_the_charts_figures():
    """The page's table has the rows of the chart, with the same figures."""
    page = (DOCS / "performance.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([\d.]+) \|", page, re.MULTILINE)

    assert rows == [(cost.label, f"{ratio(cost, MEASURED):.3g}") for cost in COSTS]
