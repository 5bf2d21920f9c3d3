#!/usr/bin/env bash
# A leader by etcd3 for Node.js that loses its connection hears of it one ttl after the next leader began; a lock never.
#
# Versions: etcd3 1.1.2 with @grpc/grpc-js 1.14.7 (npm), etcd 3.4.23 (Debian 12's package); Node.js 20 or newer, Debian
# 12. etcd3 documents of an election that "only one can be the leader at a time", and that a leader "will not lose its
# leadership unless `resign()` is called, or `error` is emitted"; `lock.do` "acquires the lock before running the
# function, and releases the lock after". Both stand on a lease, which etcd ends if it is not renewed for its ttl, here
# of 5 s. A client that reaches etcd through a proxy is the leader and runs a function of 14 s under a lock; a second
# client, which reaches etcd directly, waits for both. Then the proxy is away for 12 s.
#
# Seen: the second client is the leader after about 4 s and has the lock, as it should. The first one hears that it is
# not the leader any more after about 9 s: the lease calls itself lost only when two ttls have passed since it was last
# renewed. In between there are two leaders, for 5 s here, and for a minute with the default ttl of 60 s. The function
# under the lock runs to its end and `do` resolves with its result: nothing tells it that the lock was another's for ten
# seconds, since a lock does not listen to its lease, and its release ignores that the lease is unknown.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
(cd "$folder" && apt-get download -qq 'etcd-server=3.4.23*' && dpkg -x etcd-server*.deb debian) >&2
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" etcd3@1.1.2 @grpc/grpc-js@1.14.7 >&2
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { spawn } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Etcd3 } from "etcd3";

const folder = process.argv[2];

async function listen(accept) {
  const server = net.createServer(accept).listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

async function freePort() {
  const server = await listen();
  const { port } = server.address();
  server.close();
  return port;
}

const [port, peer] = [await freePort(), `http://127.0.0.1:${await freePort()}`];
const urls = [`--listen-client-urls=http://127.0.0.1:${port}`, `--advertise-client-urls=http://127.0.0.1:${port}`];
urls.push(`--listen-peer-urls=${peer}`, `--initial-advertise-peer-urls=${peer}`, `--initial-cluster=default=${peer}`);
const etcd = spawn(`${folder}/debian/usr/bin/etcd`, [`--data-dir=${folder}/data`, "--unsafe-no-fsync", ...urls], {
  stdio: "ignore",
});
process.on("exit", () => etcd.kill());
const sockets = new Set();
let away = false;
const proxy = await listen((near) => {
  if (away) return near.destroy();
  const far = net.connect(port, "127.0.0.1");
  for (const [from, to] of [[near, far], [far, near]]) {
    sockets.add(from);
    from.pipe(to);
    from.on("error", () => to.destroy()).on("close", () => to.destroy());
  }
});
const near = new Etcd3({ hosts: `127.0.0.1:${proxy.address().port}` });
const other = new Etcd3({ hosts: `127.0.0.1:${port}` });
for (let up = false; !up; ) up = await other.get("a").then(() => true, () => sleep(200));

const first = near.election("job", 5).campaign("first");
await once(first, "elected");
const second = other.election("job", 5).campaign("second");
const work = near.lock("job").ttl(5).do(() => sleep(14_000, "result"));
await sleep(1000);
const start = performance.now();
const seconds = () => Math.round((performance.now() - start) / 100) / 10;
away = true;
for (const socket of sockets) socket.destroy();
setTimeout(() => (away = false), 12_000);
const told = once(first, "no event").catch((error) => [seconds(), error.constructor.name]);
const elected = once(second, "elected").then(seconds);
for (let locked = false; !locked; ) locked = await other.lock("job").acquire().then(() => true, () => sleep(200));
const lock = seconds();
const [begins, [ends, error]] = [await elected, await told];
console.log(`leader: the second one begins after ${begins} s, the first one hears of it after ${ends} s (${error})`);
const result = await work.catch(String);
const last = seconds();
console.log(`lock: the second one has it after ${lock} s, the first one's function ends after ${last} s: ${result}`);
const two = begins < 7.5 && ends - begins > 2 && ends < 12 && error === "EtcdLeaseInvalidError";
process.exit(two && lock < 7.5 && result === "result" ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 90 node "$folder/see.mjs" "$folder"
