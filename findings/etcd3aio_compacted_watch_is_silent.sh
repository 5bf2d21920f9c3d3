#!/usr/bin/env bash
# A watch of etcd3aio that asks for a compacted revision brings no event and no end until its connection breaks.
#
# Versions: etcd3aio 0.3.0, grpcio 1.85.3, etcd 3.4.23 (Debian 12's package); Python 3.11 or newer, Debian 12. A program
# that keeps a copy of keys watches from the revision after its last one. If etcd has compacted that away, it answers
# with one response that has `canceled` and the compacted revision, after which nothing comes for this watch, though the
# gRPC stream stays open for others. etcd3aio has "Watch streams with automatic reconnection", and its code notes the
# revision after the compacted one as the next to watch from. Five values are put under a key, and etcd compacts them.
# One task watches from revision 1, one from the current revision; then a value is put each second, four times. Last,
# etcd is restarted, and one more is put.
#
# Seen: the second task gets each value as it is put, the last one after it has reconnected. The first one gets the
# cancellation and then nothing: no error, no end, and no value, until etcd restarts, when all five come at once. The
# loop waits on in the open stream instead of watching anew. So to a program that reads the events alone, a watch that
# etcd has ended looks like a quiet key, for hours or days, until its connection happens to break.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
(cd "$folder" && apt-get download -qq 'etcd-server=3.4.23*' && dpkg -x etcd-server*.deb debian) >&2
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet etcd3aio==0.3.0 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import asyncio, pathlib, socket, subprocess, sys
import etcd3aio

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


async def put(client, value):
    """Put a value under the key, once etcd is there; return the revision."""
    for _ in range(100):
        try:
            return (await client.kv.put("key", value, timeout=2)).header.revision
        except (etcd3aio.EtcdError, TimeoutError):
            await asyncio.sleep(0.2)


async def watch(client, revision, seen):
    async for response in client.watch.watch("key", start_revision=revision):
        seen += ["canceled"] * response.canceled
        seen += [event.kv.value.decode() for event in response.events]
    seen.append("end")


async def main():
    etcd = start()
    try:
        async with etcd3aio.Etcd3Client([f"127.0.0.1:{port}"]) as client:
            for value in ("a", "b", "c", "d", "e"):
                revision = await put(client, value)
            await client.kv.compact(revision)
            old, current = [], []
            watches = [watch(client, 1, old), watch(client, revision + 1, current)]
            tasks = [asyncio.create_task(task) for task in watches]
            for value in ("1", "2", "3", "4"):
                await asyncio.sleep(1)
                await put(client, value)
            await asyncio.sleep(1)
            before = list(old)
            etcd.terminate()
            etcd.wait()
            etcd = start()
            await put(client, "5")
            for _ in range(100):
                if old[-1] == current[-1] == "5":
                    break
                await asyncio.sleep(0.2)
            for task in tasks:
                task.cancel()
    finally:
        etcd.kill()
        etcd.wait()
    print(f"from the current revision: {', '.join(current)}")
    print(f"from revision 1: {', '.join(before)}; with the restart: {', '.join(old)}")
    values = ["1", "2", "3", "4", "5"]
    return before == ["canceled"] and old == ["canceled", *values] and current == values


sys.exit(not asyncio.run(main()))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
