#!/usr/bin/env bash
# @ydbjs/retry deducts the time of a failed attempt from the pause after it: a slow server is called again at once.
#
# Versions: @ydbjs/retry 6.0.4, nice-grpc 2.1.18, @grpc/grpc-js 1.14.7 (npm); Node.js 20 or newer, Linux. The README
# documents `strategy` as the one "to calculate delay between retries"; gRPC's own retries (gRFC A6) wait from the
# failure on. With the default, RESOURCE_EXHAUSTED has an exponential backoff of 2, 4, 8 s and so on. `idempotent` says
# that an operation can be repeated; it is off by default. A server fails each call with one status, at once or after
# 4.5 s. A client calls it with the default settings and a budget of three attempts.
#
# Seen: if the server refuses at once, the retries begin 2 s and 4 s after the failures. If it takes 4.5 s, both come
# within milliseconds: `retry` subtracts the time since the attempt began from the pause. So the backoff ends where it
# is needed, with a server so loaded that it is slow to fail, and its clients keep it so. Without `idempotent`,
# UNAVAILABLE is not repeated, even if the server never saw the call, but INTERNAL is, until the budget ends, which is
# infinite by default: a write that failed halfway is sent again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
packages=(@ydbjs/retry@6.0.4 nice-grpc@2.1.18 @grpc/grpc-js@1.14.7)
npm install --silent --no-audit --no-fund --prefix "$folder" "${packages[@]}" >&2
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { promisify } from "node:util";
import { Server, ServerCredentials, status } from "@grpc/grpc-js";
import { createChannel, createClient } from "nice-grpc";
import { retry, defaultRetryConfig } from "@ydbjs/retry";

const asIs = (bytes) => bytes;
const method = { path: "/a.B/C", requestStream: false, responseStream: false, options: {} };
const codec = { requestDeserialize: asIs, requestSerialize: asIs, responseDeserialize: asIs, responseSerialize: asIs };
const definition = { C: { ...method, ...codec } };
let code, delay, attempts;

function fail(call, callback) {
  const attempt = { began: performance.now() };
  attempts.push(attempt);
  setTimeout(() => {
    attempt.failed = performance.now();
    callback({ code, details: "no" });
  }, delay);
}

const server = new Server();
server.addService(definition, { C: fail });
const port = await promisify(server.bindAsync.bind(server))("127.0.0.1:0", ServerCredentials.createInsecure());
const client = createClient(definition, createChannel(`127.0.0.1:${port}`));

/** Return the pauses, in ms, between the failure of each attempt and the next attempt. */
async function see(name, milliseconds) {
  [code, delay, attempts] = [status[name], milliseconds, []];
  const call = (signal) => client.C(Buffer.alloc(0), { signal });
  const error = await retry({ ...defaultRetryConfig, budget: 3 }, call).catch((error) => error);
  const pauses = attempts.slice(1).map(({ began }, index) => Math.round(began - attempts[index].failed));
  console.log(`${name} after ${milliseconds} ms: ${attempts.length} attempts, pauses of ${pauses} ms; ${error.code}`);
  return pauses;
}

const fast = await see("RESOURCE_EXHAUSTED", 0);
const slow = await see("RESOURCE_EXHAUSTED", 4500);
const unavailable = await see("UNAVAILABLE", 0);
const internal = await see("INTERNAL", 0);
let right = fast.length === 2 && fast[0] > 1500 && fast[1] > 3500 && slow.length === 2 && Math.max(...slow) < 1000;
right &&= unavailable.length === 0 && internal.length === 2;
process.exit(right ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY node "$folder/see.mjs"
