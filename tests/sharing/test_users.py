"""SH-7, CB-10: what is closed when a channel that shares a connection leaves, and when its calls have ended."""

from __future__ import annotations

import pytest

from grpc_backoff.sharing.users import Users

MANAGER, CONNECTION, OWN_CALLS = "manager", "connection", "own calls"


def played(steps):
    """Return what is closed at each step; a step is a channel and what it does: join, leave, begin to end, or end."""
    users, closed = Users(), []
    for channel, does in steps:
        if does == "joins":
            users.join(channel)
            closed.append(None)
        elif does == "leaves":
            closed.append(MANAGER if users.is_last(channel) else None)
            users.leave(channel)
        elif does == "ends":
            closed.append(OWN_CALLS if users.shares_with(channel) else None)
        else:
            closed.append(CONNECTION if users.end(channel) else None)
    return closed


@pytest.mark.parametrize(
    "script",
    [
        {
            "a joins": None,
            "a leaves": MANAGER,
            "a ends": None,
            "a has ended": CONNECTION,
            "a has ended again": CONNECTION,
        },
        {
            "a joins": None,
            "b joins": None,
            "a leaves": None,
            "a ends": OWN_CALLS,
            "a has ended": None,
            "b leaves": MANAGER,
            "b ends": None,
            "b has ended": CONNECTION,
        },
        # Calls of a channel that has left keep the connection open, and only they are ended.
        {
            "a joins": None,
            "b joins": None,
            "a leaves": None,
            "b leaves": MANAGER,
            "b ends": OWN_CALLS,
            "b has ended": None,
            "a ends": None,
            "a has ended": CONNECTION,
        },
        # Both end at the same time.
        {
            "a joins": None,
            "b joins": None,
            "a leaves": None,
            "a ends": OWN_CALLS,
            "b leaves": MANAGER,
            "b ends": OWN_CALLS,
            "a has ended": None,
            "b has ended": CONNECTION,
        },
        # A dropped channel leaves and ends at once, also after it has left.
        {"a joins": None, "b joins": None, "a leaves": None, "a has ended": None, "b ends": None},
        # A channel that joins in between keeps both alive.
        {
            "a joins": None,
            "b joins": None,
            "a leaves": None,
            "c joins": None,
            "b leaves": None,
            "a has ended": None,
            "b has ended": None,
            "c leaves": MANAGER,
            "c has ended": CONNECTION,
        },
    ],
)
def test_what_is_closed(script):
    """SH-7: the manager closes when nobody asks any more; the connection, when nobody's calls are left."""
    assert played(step.split(" ", 1) for step in script) == list(script.values())


def test_users_may_leave_while_others_are_notified():
    """SH-7: a channel's listener may close any of the channels; those that remain are notified in order."""
    users, seen = Users(), []
    for user in "abc":
        users.join(user)
    for user in users:
        seen.append(user)
        users.leave("a")
    assert (seen, list(users)) == (["a", "b", "c"], ["b", "c"])
