#!/usr/bin/env bash
# A lock of etcd3aio is gone after its ttl, while its holder works on: another one enters, and nothing tells the first.
#
# Versions: etcd3aio 0.3.0, grpcio 1.85.3, etcd 3.4.23 (Debian 12's package); Python 3.11 or newer, Debian 12. etcd3aio
# says of its lock "exclusive section", and "If the holder crashes, etcd expires the underlying lease after ttl seconds
# and unblocks the next waiter"; elections are built alike. It has `keep_alive_context` for leases, whose `alive` is
# "True while the lease is valid". One task holds a lock with `ttl=4` for ten seconds, and a second one wants it two
# seconds after the first. Then a lease of three seconds is kept alive, etcd is stopped, and eight seconds pass.
#
# Seen: the second task is in its block after 4 s, six seconds before the first one leaves its own: the lock keeps no
# lease alive, so that it ends after `ttl` without a crash (30 s if not set). The first one hears of it when it leaves,
# by an AioRpcError NOT_FOUND, in which its own result is lost. And `alive` is True eight seconds after etcd has gone,
# five after the lease could have ended. So what must run once runs twice, and a leader is deposed every 30 s.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
(cd "$folder" && apt-get download -qq 'etcd-server=3.4.23*' && dpkg -x etcd-server*.deb debian) >&2
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet etcd3aio==0.3.0 grpcio==1.85.3
cat > "$folder/see.py" <<'PYTHON'
import asyncio, logging, pathlib, socket, subprocess, sys, time
import etcd3aio
import grpc

folder = pathlib.Path(sys.argv[1])
logging.getLogger("etcd3aio").setLevel(logging.ERROR)


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


async def hold(client, name, begin, seconds, begun, seen):
    """Want the lock at a time; note when this task enters its block and leaves it, and how."""
    await asyncio.sleep(begin)
    end = "well"
    try:
        async with client.lock("lock", ttl=4):
            seen[f"{name} in"] = round(time.monotonic() - begun)
            await asyncio.sleep(seconds)
    except grpc.aio.AioRpcError as error:
        end = error.code().name
    seen[f"{name} out"] = round(time.monotonic() - begun), end


async def main():
    etcd = start()
    try:
        async with etcd3aio.Etcd3Client([f"127.0.0.1:{port}"]) as client:
            for _ in range(100):
                try:
                    await client.kv.put("key", "value", timeout=2)
                    break
                except (etcd3aio.EtcdError, TimeoutError):
                    await asyncio.sleep(0.2)
            begun, seen = time.monotonic(), {}
            await asyncio.gather(hold(client, "first", 0, 10, begun, seen), hold(client, "second", 2, 1, begun, seen))
            lease = await client.lease.grant(ttl=3)
            async with client.lease.keep_alive_context(lease.ID, ttl=3) as keeper:
                etcd.terminate()
                etcd.wait()
                await asyncio.sleep(8)
                alive = keeper.alive
    finally:
        etcd.kill()
        etcd.wait()
    print(f"after seconds: {seen}; alive without etcd: {alive}")
    overlap = seen["first in"] == 0 and 3 <= seen["second in"] <= 6
    return overlap and seen["first out"] == (10, "NOT_FOUND") and alive


sys.exit(not asyncio.run(main()))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
