#!/usr/bin/env bash
# All calls of a function that hyx retries share one backoff, which any failing call raises and any new call resets.
#
# Versions: hyx 0.0.2; Python 3.11 or newer, Linux. hyx documents `expo` as "delay = min_delay_secs * base ** attempt"
# and `backoff` as the strategy that defines the delays on each retry. First, a function that fails once for each caller
# is called with one retry after 0.02 s: by one asyncio task, then by eight at once. Second, a function that always
# fails for one caller is called with six retries from 0.05 s, doubled each time: by this caller alone, then while
# others call it every 10 ms and succeed.
#
# Seen: alone, the retry comes after 0.02 s. Of eight calls at once, the first waits 0.02 s and the eighth 2.56 s. The
# six retries of the failing caller come 0.05 to 1.6 s apart while it is alone; among calls that succeed, each comes
# after 0.05 s. The decorator has one iterator for all calls, and each call that begins sets it back. So the delays say
# nothing about how often a call has failed: a short outage stops a busy client for as long as `max_delay_secs` allows,
# which has no value by default, and calls that fail among others that succeed are repeated without any backoff.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet hyx==0.0.2
cat > "$folder/see.py" <<'PYTHON'
import asyncio, itertools, sys, time
from hyx.retry import retry
from hyx.retry.backoffs import expo


async def at_once(callers):
    """Return after how many seconds each of the callers, whose first call fails, makes its second one."""
    begun, waited = {}, {}

    @retry(on=ConnectionError, attempts=1, backoff=expo(min_delay_secs=0.02, base=2))
    async def call(caller):
        if caller not in begun:
            await asyncio.sleep(0.05)
            begun[caller] = time.monotonic()
            raise ConnectionError("no")
        waited[caller] = round(time.monotonic() - begun[caller], 2)

    await asyncio.gather(*map(call, range(callers)))
    return list(waited.values())


async def among_others(others):
    """Return the seconds between the calls of a caller that always fails."""
    times = []

    @retry(on=ConnectionError, attempts=6, backoff=expo(min_delay_secs=0.05, base=2))
    async def call(fails):
        if fails:
            times.append(time.monotonic())
            raise ConnectionError("no")

    failing = asyncio.create_task(call(True))
    while not failing.done():
        await asyncio.sleep(0.01)
        if others:
            await call(False)
    failing.exception()
    return [round(after - before, 2) for before, after in itertools.pairwise(times)]


alone, busy = asyncio.run(at_once(1)), asyncio.run(at_once(8))
print(f"delays before one retry: {alone} alone, {busy} of eight at once")
steady, mixed = asyncio.run(among_others(False)), asyncio.run(among_others(True))
print(f"delays before six retries: {steady} alone, {mixed} while other calls succeed")
grows = alone[0] < 0.5 < 2.5 < max(busy) and all(wait >= 0.02 * 2**number for number, wait in enumerate(busy))
falls = sum(steady) > 3.1 and sum(mixed) < 1.5
sys.exit(not (grows and falls))
PYTHON
"$folder/venv/bin/python" "$folder/see.py"
