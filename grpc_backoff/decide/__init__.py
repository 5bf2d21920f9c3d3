"""Every decision, pure: what happens comes in as inputs, and what to do goes out as effects.

A machine maps (state, input, now, randomness) to (state, effects). It holds no state, and uses no clock, thread, event
loop, socket or grpc; a shell executes the effects in their order. At the end of most machines' modules is the table of
their steps: a pair of phase and input that is not in it raises `IllegalTransition`.

Internal: programs import from `grpc_backoff`.
"""
