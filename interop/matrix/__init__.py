"""Every client before the flaky server, in every scenario: `python -m interop run` and `verify`.

`scenarios.py` stages, `schedule.py` says who performs beside whom, `trial.py` performs one client in one scenario, and
`conformance/` judges. `report.py` and `pictures.py` write the page; `comparison.py` holds two runs beside each other.
"""
