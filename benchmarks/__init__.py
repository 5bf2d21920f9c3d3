"""Measurements side by side with plain grpcio and others, as one program: `python -m benchmarks`.

The harness: `benchmark.py` says what a benchmark is, `measure.py` holds the statistics, `apart.py` the processes,
`suite.py` the list of all. `cases/` has one module for each benchmark. Nothing here is a test, and no test asserts a
figure from here.
"""
