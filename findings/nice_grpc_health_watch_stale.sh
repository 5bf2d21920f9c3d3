#!/usr/bin/env bash
# nice-grpc's Health/Watch can go on saying NOT_SERVING after the server has recovered.
#
# Versions: nice-grpc 2.1.18 with nice-grpc-server-health 2.0.20 and @grpc/grpc-js 1.14.7 (npm); Node.js 20 or newer.
# The health protocol says that Watch sends a new message whenever the status changes (health.proto, "Watch"). A server
# sets its status to unhealthy and, after an `await` that has nothing to wait for, to healthy again. A client watches.
#
# Seen: the client gets SERVING, then NOT_SERVING, and no more, while Health/Check answers SERVING. If 10 ms lie between
# the two changes, the last message is SERVING. A change that comes while Watch sends the one before is lost until some
# status changes again; to set the same status once more does nothing. So clients and load balancers that watch can keep
# a healthy server out of use.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
packages=(nice-grpc@2.1.18 nice-grpc-server-health@2.0.20 nice-grpc-common@2.0.4 @grpc/grpc-js@1.14.7)
npm install --silent --no-audit --no-fund --prefix "$folder" "${packages[@]}" >&2
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { setTimeout as sleep } from "node:timers/promises";
import { createChannel, createClient, createServer } from "nice-grpc";
import { HealthDefinition, HealthServiceImpl, HealthState } from "nice-grpc-server-health";

const NAMES = { 1: "SERVING", 2: "NOT_SERVING" };
const state = HealthState();
const server = createServer();
server.add(HealthDefinition, HealthServiceImpl(state));
const channel = createChannel(`127.0.0.1:${await server.listen("127.0.0.1:0")}`);
const client = createClient(HealthDefinition, channel);

/** Return what a Watch call says while the status changes and changes back, and what a Check call says after that. */
async function watch(pause) {
  const got = [];
  const abort = new AbortController();
  const watching = (async () => {
    for await (const { status } of client.watch({ service: "" }, { signal: abort.signal })) {
      got.push(NAMES[status]);
    }
  })().catch(() => {});
  while (!got.length) await sleep(10);
  await sleep(200);
  state.setStatus("unhealthy");
  await pause();
  state.setStatus("healthy");
  await sleep(1500);
  const { status } = await client.check({ service: "" });
  abort.abort();
  await watching;
  return { watch: got, check: NAMES[status] };
}

const quick = await watch(async () => {});
const slow = await watch(() => sleep(10));
console.log(JSON.stringify({ quick, slow }));
channel.close();
await server.forceShutdown();
const expected = {
  quick: { watch: ["SERVING", "NOT_SERVING"], check: "SERVING" },
  slow: { watch: ["SERVING", "NOT_SERVING", "SERVING"], check: "SERVING" },
};
process.exit(JSON.stringify({ quick, slow }) === JSON.stringify(expected) ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY node "$folder/see.mjs"
