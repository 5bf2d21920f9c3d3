#!/usr/bin/env bash
# Two circuit breakers that promise one trial call after an outage let all waiting callers through at the same moment.
#
# Versions: circuitbreaker 2.1.3, aiobreaker 1.2.0; Python 3.11 or newer, Linux. circuitbreaker "switches to half-open
# and allows one test-execution", says its README; in aiobreaker's half-open state "the next call to the circuit breaker
# is allowed to execute", say its documents, and if this trial call fails, the breaker opens again. A call that takes
# 0.2 s and fails opens each breaker after three failures, for 1 s. Then twenty asyncio tasks make it at once.
#
# Seen: while they are open, both breakers reject further calls. After that second 20 of 20 calls are made, all before
# the first of them has failed. So a server that has just come back gets all its callers at the same moment, which is
# what a breaker is to prevent.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet circuitbreaker==2.1.3 aiobreaker==1.2.0
cat > "$folder/see.py" <<'PYTHON'
import asyncio, datetime, sys
import aiobreaker, circuitbreaker

BREAKERS = {
    "circuitbreaker": circuitbreaker.CircuitBreaker(failure_threshold=3, recovery_timeout=1, name="a"),
    "aiobreaker": aiobreaker.CircuitBreaker(fail_max=3, timeout_duration=datetime.timedelta(seconds=1)),
}


async def count(breaker):
    """Return how many of five calls in a row are made, and then how many of twenty at once."""
    made = 0

    @breaker
    async def call():
        nonlocal made
        made += 1
        await asyncio.sleep(0.2)
        raise ConnectionError("no")

    for _ in range(5):
        await asyncio.gather(call(), return_exceptions=True)
    before = made
    await asyncio.sleep(1.5)
    await asyncio.gather(*(call() for _ in range(20)), return_exceptions=True)
    return before, made - before


seen = {name: asyncio.run(count(breaker)) for name, breaker in BREAKERS.items()}
print(seen)
sys.exit(seen != dict.fromkeys(BREAKERS, (3, 20)))
PYTHON
"$folder/venv/bin/python" "$folder/see.py"
