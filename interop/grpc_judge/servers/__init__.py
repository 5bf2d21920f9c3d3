"""Tests this project's channel against other servers that are killed, drained, aged, frozen and reloaded.

`README.md` in this directory specifies what a server program must do. `server.py` finds the folders and reads their
manifests, `happenings.py` lists what can happen to a server, `case.py` makes it happen, and `demands.py` judges.
"""
