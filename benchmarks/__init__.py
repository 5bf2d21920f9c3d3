"""Benchmarks that compare this library with plain grpcio and other libraries. Run `python -m benchmarks`.

`benchmark.py` defines what a benchmark is, `measure.py` contains the statistics, `apart.py` runs each subject in its
own process, and `suite.py` lists all benchmarks. Each benchmark is a module in `cases/`. These are not tests, and no
test asserts a figure that they produce.
"""
