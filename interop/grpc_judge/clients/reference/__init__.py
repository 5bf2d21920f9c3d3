"""The reference client, built on asyncio and h2 without the library. It is correct unless given a defect.

It serves as an example of a client under test, and it tests the judge: `python -m interop mutants` judges it with each
of its defects. `habits.py` lists the client's connection habits, `defects.py` lists the defects, `backoff.py` computes
the schedule, `connection.py` speaks HTTP/2, and `channel.py` dials.
"""
