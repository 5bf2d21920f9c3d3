"""The times that coordinate this library with grpcio's core, in seconds. Their relative order matters."""

from __future__ import annotations

# Looking at a dial.

FIRST_LOOK = 0.001
"""How long after its start a dial is first looked at. A nearby peer has answered by then."""
EARLY_LOOK = 0.00025
"""The pause between looks in that time, if an answer or credit pays for the dial and the core cannot notify. A peer in
the same place has answered by then, and each call may need a dial of its own (CB-7)."""
LAST_LOOK = 0.003
"""The age of a dial from which the core is asked for a notification, where it can notify. Before that, a look is
cheaper, because a notification also wakes the core's thread and the event loop."""
LOOK_SHARE = 0.125
"""The pause before the next look, as a fraction of the dial's age, where the core cannot notify."""
RAREST_LOOK = 0.02
"""The longest such pause. Looks are aligned, so that one wake-up serves many dials."""
BEGINS_WITHIN = 0.25
"""How long a core that was told to dial may stay IDLE. If it is still IDLE then, it has connected and disconnected."""

# Observing a new connection (CB-15).

SETTLE = 0.001
"""How long a new connection is observed before calls may use it. A peer that hangs up right after its SETTINGS has done
so by then."""
SETTLE_UNNOTIFIED = 0.005
"""The same where the core cannot notify: a late conductor must still see a peer hang up before a call does. With 1 ms,
some redials went unnoticed on a busy machine (CB-16). A dial that an answer or credit pays for has the shorter time,
because a proxy may end the connection after each call."""
SHORT_LIFE = 0.1
"""The lifetime below which a connection counts as short-lived. The connection that follows a short-lived one is
observed for this long, so that it is seen to break even on a busy machine."""

# Connections that follow each other (SH-8).

SPARE_UNTIL = 0.2
"""The age up to which a connection may serve the next channel after its own, if the connection before it had just been
closed on this side. So a program that creates a channel for each request dials five times a second, and still reaches
every server behind a balancer of connections."""
SPARE_FOR = 0.1
"""How long such a connection then waits for that channel."""

# The end of a connection.

CALLS_BREAK_WITHIN = 0.02
"""How soon the calls of a broken connection have ended. Calls that run longer have survived a GOAWAY (CB-8)."""
CALLS_ARE_REFUSED_WITHIN = 0.1
"""How long a GOAWAY can still end calls after the end of the connection was noticed."""
YOUNG = 1.0
"""The lifetime in seconds below which a connection without an answer has accepted no calls, if the core redials for
them again (CB-16)."""
REDIALS_FOR = 1.0
"""For how many seconds after its end the core may redial once for each of its calls, unless a GOAWAY has ended one
(CB-16)."""
UNPROVEN_LOOK = 0.005
"""How often such a connection is looked at while calls run on it, where the core cannot notify. For calls that the peer
refuses, the core redials within milliseconds, and is READY again soon after (CB-16)."""
STRAYS_FOR = 5.0
"""For how long after the end of a connection the calls that are left are looked at often, where the core cannot notify,
in seconds: such a call may make the core redial every few milliseconds (CB-16)."""
IDLE_SHARE = 0.9
"""The fraction of the idle timeout that counts as all of it, because the end of a call is noticed later than by the
core."""

EXPLAIN_TIMEOUT = 0.25
"""How long the question why a dial failed may take. The core answers it in less than a millisecond."""

# The core's own schedule, which it follows when this process does not end a dial in time.

CORE_LIMIT_SLACK = 0.15
"""How long after the connection machine's limit the core abandons a dial, and dials again by itself. Unless this
process is later than that, the machine acts first."""
CORE_MULTIPLIER, CORE_JITTER = 1.6, 0.2
"""By how much the gaps between the core's own dials grow, and how much they vary."""


def core_backoff(limit: float) -> float:
    """Return the core's first backoff for a dial of `limit` seconds: with its jitter, it never exceeds its limit."""
    return (limit + CORE_LIMIT_SLACK) / (1 + CORE_JITTER)
