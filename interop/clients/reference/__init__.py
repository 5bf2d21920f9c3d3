"""The reference client: asyncio and h2, without the library. It is correct, or has one known defect.

It is the documented example of a client that is judged, and the proof that the judge is right: `python -m interop
mutants` has each of its defects judged. `habits.py` says what there is to do right or wrong, `defects.py` lists the
defects, `backoff.py` is the schedule, `connection.py` speaks HTTP/2 and `channel.py` dials.
"""
