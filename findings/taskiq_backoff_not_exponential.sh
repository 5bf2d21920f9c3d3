#!/usr/bin/env bash
# taskiq's exponential backoff grows like factorials, or, with a schedule source, in a straight line.
#
# Versions: taskiq 0.13.0; Python 3.11 or newer, Linux. `SmartRetryMiddleware` documents `use_delay_exponent` as
# "Apply exponential backoff to delay". A task that always fails is tried with `default_delay=1`,
# `use_delay_exponent=True` and a high maximum, once without a `schedule_source` and once with one.
#
# Seen: without a source, the delays of its five retries are 1, 2, 6, 24 and 120 s: each is the one before times the
# number of the retry, since the delay that the middleware leaves on the message as a label is the next one's base. With
# a source they are 1, 2, 3, 4 and 5 s. An exponential backoff from 1 s with any constant factor (1, 2, 4, 8, 16) is
# neither: the same settings wait 2.5 minutes in all in one case and 15 s in the other.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet taskiq==0.13.0
cat > "$folder/see.py" <<'PYTHON'
import asyncio, datetime, logging, sys
from taskiq import InMemoryBroker, ScheduleSource, SmartRetryMiddleware, TaskiqMiddleware
from taskiq.kicker import AsyncKicker

logging.disable()
OPTIONS = {
    "default_retry_label": True,
    "default_retry_count": 6,
    "default_delay": 1,
    "use_delay_exponent": True,
    "max_delay_exponent": 1000,
}


class Notes(TaskiqMiddleware):
    """Keeps the delay that each message is sent with."""

    delays = ()

    def pre_send(self, message):
        self.delays += (message.labels.get("delay"),)
        return message


class Source(ScheduleSource):
    """Keeps what is scheduled, and runs it at once."""

    delays, due = (), None

    async def get_schedules(self):
        return []

    async def add_schedule(self, schedule):
        self.delays += (round((schedule.time - datetime.datetime.now(datetime.timezone.utc)).total_seconds()),)
        self.due = schedule


async def run(source):
    """Run a task until its retries are used up; return their delays."""
    notes = Notes()
    broker = InMemoryBroker(await_inplace=True)
    broker = broker.with_middlewares(SmartRetryMiddleware(schedule_source=source, **OPTIONS), notes)

    @broker.task
    async def fail():
        raise ConnectionError("no")

    await broker.startup()
    await fail.kiq()
    while source and (due := source.due):
        source.due = None
        await AsyncKicker(task_name=due.task_name, broker=broker, labels=due.labels).kiq(*due.args, **due.kwargs)
    await broker.shutdown()
    return list(source.delays) if source else [round(float(delay)) for delay in notes.delays[1:]]


alone, scheduled = asyncio.run(run(None)), asyncio.run(run(Source()))
print(f"delays in seconds: without a source {alone}, with one {scheduled}")
sys.exit(not (alone == [1, 2, 6, 24, 120] and scheduled == [1, 2, 3, 4, 5]))
PYTHON
"$folder/venv/bin/python" "$folder/see.py"
