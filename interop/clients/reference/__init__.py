"""The reference client: asyncio and h2, without the library. It is correct, or has one known defect.

It is the documented example of a client that is judged, and it tests the judge: `python -m interop mutants` has each
of its defects judged. `habits.py` lists what can be right or wrong, `defects.py` lists the defects, `backoff.py` is
the schedule, `connection.py` speaks HTTP/2 and `channel.py` dials.
"""
