"""Tests this project's channel against other servers while these are killed, drained, aged, frozen and reloaded.

`README.md` beside this file documents what a server's program has to do. `server.py` finds the folders and reads their
manifests, `happenings.py` lists what can happen to a server, `case.py` makes it happen, and `demands.py` judges.
"""
