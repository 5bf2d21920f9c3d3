"""Servers of others, against which this project's channel is tested, and what happens to them.

`README.md` beside this file tells what a server's program has to do. `manifest.py` finds and reads the folders,
`happenings.py` has what is done to a server, `case.py` does it, and `demands.py` says what must hold.
"""
