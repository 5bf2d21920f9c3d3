#!/usr/bin/env bash
# After ten seconds, `async with` of an aetcd lock runs its block without the lock, and `watch_once` returns its errors.
#
# Versions: aetcd 1.0.0, grpcio 1.85.3, etcd 3.4.23 (Debian 12's package); Python 3.11 or newer, Debian 12. aetcd's lock
# "can be used as a context manager, with the lock being acquired and released as you would expect"; `watch_once` is
# documented to return an Event, and to raise WatchTimeoutError. One task holds a lock for 14 s, well within its lease
# of 60 s; a second one wants the same lock. A third watches a key once, without a timeout, and etcd is stopped.
#
# Seen: the second task is in its block 10 s later, while the first one is in its own, and `is_acquired()` is False
# there: `acquire` gives up by returning False, which the context manager does not look at. When etcd stops,
# `watch_once` returns grpcio's AioRpcError, UNAVAILABLE, as if it were the event that came. So two workers do the work
# that the lock is for, but only when they contend for it for longer than ten seconds, and a program that waits for a
# key to change takes the restart of etcd for the change, until it looks for the event's fields.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
(cd "$folder" && apt-get download -qq 'etcd-server=3.4.23*' && dpkg -x etcd-server*.deb debian) >&2
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet aetcd==1.0.0 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import asyncio, pathlib, socket, subprocess, sys, time
import aetcd

folder = pathlib.Path(sys.argv[1])


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


port, peer = free_port(), f"http://127.0.0.1:{free_port()}"


def start():
    urls = {"listen-client-urls": f"http://127.0.0.1:{port}", "advertise-client-urls": f"http://127.0.0.1:{port}"}
    urls |= {"listen-peer-urls": peer, "initial-advertise-peer-urls": peer, "initial-cluster": f"default={peer}"}
    options = [f"--{name}={value}" for name, value in urls.items()]
    command = [folder / "debian/usr/bin/etcd", f"--data-dir={folder / 'data'}", "--unsafe-no-fsync", *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def ready():
    for _ in range(100):
        try:
            async with aetcd.Client(port=port, timeout=2) as client:
                return await client.status()
        except Exception:
            await asyncio.sleep(0.2)


async def hold(name, seconds, begun, seen):
    """Note when this task is in its block, and whether it has the lock there."""
    async with aetcd.Client(port=port) as client, client.lock(b"lock", ttl=60) as lock:
        seen[name] = round(time.monotonic() - begun), await lock.is_acquired()
        await asyncio.sleep(seconds)
    seen[f"{name} is out"] = round(time.monotonic() - begun)


async def main():
    etcd = start()
    try:
        await ready()
        begun, seen = time.monotonic(), {}
        first = asyncio.create_task(hold("first", 14, begun, seen))
        await asyncio.sleep(0.5)
        await asyncio.gather(first, hold("second", 1, begun, seen))
        print(f"in the block after how many seconds, and with the lock: {seen}")
        async with aetcd.Client(port=port) as client:
            watch = asyncio.create_task(client.watch_once(b"key"))
            await asyncio.sleep(1)
            etcd.terminate()
            event = await asyncio.wait_for(watch, 30)
    finally:
        etcd.kill()
        etcd.wait()
    print(f"watch_once returns {type(event).__name__} {event.code().name}")
    seconds, locked = seen["second"]
    right = seen["first"] == (0, True) and 10 <= seconds < seen["first is out"] and not locked
    return right and isinstance(event, Exception)


sys.exit(not asyncio.run(main()))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
