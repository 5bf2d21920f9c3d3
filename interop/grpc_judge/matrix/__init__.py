"""Runs every client against the flaky server in every scenario: `python -m interop run` and `verify`.

`scenarios.py` stages the scenarios, `schedule.py` decides which trials run concurrently, and `trial.py` runs one client
in one scenario, which `conformance/` then judges. `report.py` writes the page. `comparison.py` compares runs.
"""
