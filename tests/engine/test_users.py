"""SH-7, CB-10: what is closed when a channel that shares a connection leaves, and when its calls have ended."""

from __future__ import annotations

import pytest

from grpc_backoff.engine.users import Users


def played(script):
    """Play a script, whose steps are separated by semicolons; return it, with what each step closes.

    A step is a channel and what it does: join, leave, begin to end, or end. It closes the manager, the connection, or
    its own calls.
    """
    users, steps = Users(), []
    for step in (each.strip().partition(":")[0] for each in script.split(";")):
        channel, _, does = step.partition(" ")
        closes = ""
        if does == "joins":
            users.join(channel)
        elif does == "leaves":
            closes = ": manager" if users.is_last(channel) else ""
            users.leave(channel)
        elif does == "ends":
            closes = ": own" if users.shares_with(channel) else ""
        else:
            closes = ": connection" if users.end(channel) else ""
        steps.append(step + closes)
    return "; ".join(steps)


@pytest.mark.parametrize(
    "script",
    [
        "a joins; a leaves: manager; a ends; a ended: connection; a ended again: connection",
        "a joins; b joins; a leaves; a ends: own; a ended; b leaves: manager; b ends; b ended: connection",
        # Calls of a channel that has left keep the connection open, and only they are ended.
        "a joins; b joins; a leaves; b leaves: manager; b ends: own; b ended; a ends; a ended: connection",
        # Both end at the same time.
        "a joins; b joins; a leaves; a ends: own; b leaves: manager; b ends: own; a ended; b ended: connection",
        # A dropped channel leaves and ends at once, also after it has left.
        "a joins; b joins; a leaves; a ended; b ends",
        # A channel that joins in between keeps both alive.
        "a joins; b joins; a leaves; c joins; b leaves; a ended; b ended; c leaves: manager; c ended: connection",
    ],
)
def test_what_is_closed(script):
    """SH-7: the manager closes when nobody asks any more; the connection, when nobody's calls are left."""
    assert played(script) == script


def test_users_may_leave_while_others_are_notified():
    """SH-7: a channel's listener may close any of the channels; those that remain are notified in order."""
    users, seen = Users(), []
    for user in "abc":
        users.join(user)
    for user in users:
        seen.append(user)
        users.leave("a")
    assert (seen, list(users)) == (["a", "b", "c"], ["b", "c"])
