"""Runs every client against the flaky server in every scenario: `python -m interop run` and `verify`.

`scenarios.py` stages the scenarios, `schedule.py` decides which trials run side by side, `trial.py` runs one client in
one scenario, and `conformance/` judges it. `report.py` and `pictures.py` write the page; `comparison.py` compares runs.
"""
