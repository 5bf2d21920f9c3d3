"""Benchmarks against plain grpcio and other libraries, in one program: `python -m benchmarks`.

The harness: `benchmark.py` defines what a benchmark is, `measure.py` holds the statistics, `apart.py` runs the
processes, and `suite.py` lists all benchmarks. `cases/` has one module for each. Nothing here is a test, and no test
asserts a figure from here.
"""
