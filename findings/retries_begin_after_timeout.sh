#!/usr/bin/env bash
# With the timeout of @lifeomic/attempt or retry-as-promised the caller gets its error, and then the retries begin.
#
# Versions: @lifeomic/attempt 3.1.0, retry-as-promised 7.1.1, @grpc/grpc-js 1.14.7 (npm); Node.js 20 or newer, Linux.
# The README of attempt says that if an attempt takes longer than `timeout`, "the retries are aborted and error with
# `code` `ATTEMPT_TIMEOUT` is thrown"; retry-as-promised's says of `timeout` "throw if no response or error within
# millisecond timeout". A server fails each call with UNAVAILABLE: first after 0.1 s, then after 0.5 s. A client calls
# it with at most five attempts, a delay of 0.1 s and a timeout of 0.3 s.
#
# Seen: while the server is fast, the caller gets UNAVAILABLE after five calls. When it is slow, the caller gets the
# error of the timeout after 0.3 s and one call. The other four calls, for which no caller waits, come after that, until
# 3 s have passed: when the late failure of the first call arrives, both libraries go on as if nothing had happened. So
# a server that has become slow is called five times by each caller that has given up, and a call that writes can still
# take effect seconds after its caller has been told that it failed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
packages=(@lifeomic/attempt@3.1.0 retry-as-promised@7.1.1 @grpc/grpc-js@1.14.7)
npm install --silent --no-audit --no-fund --prefix "$folder" "${packages[@]}" >&2
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { promisify } from "node:util";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Server, ServerCredentials, credentials, status } from "@grpc/grpc-js";
import attempt from "@lifeomic/attempt";
import promised from "retry-as-promised";

const asIs = (bytes) => bytes;
const method = { path: "/a.B/C", requestStream: false, responseStream: false };
const codec = { requestDeserialize: asIs, requestSerialize: asIs, responseDeserialize: asIs, responseSerialize: asIs };
let delay;
let calls = 0;

function fail(call, callback) {
  calls += 1;
  setTimeout(() => callback({ code: status.UNAVAILABLE, details: "no" }), delay);
}

const server = new Server();
server.addService({ C: { ...method, ...codec } }, { C: fail });
const port = await promisify(server.bindAsync.bind(server))("127.0.0.1:0", ServerCredentials.createInsecure());
const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure());
const request = promisify(client.makeUnaryRequest.bind(client));
const once = () => request(method.path, asIs, asIs, Buffer.alloc(0));

/** Return the error of the retries, and the calls at the server until then and 5 s later. */
async function see(milliseconds, retries) {
  delay = milliseconds;
  calls = 0;
  const end = await retries().catch((error) => error.code ?? error.name);
  const before = calls;
  await sleep(5000);
  return [end, before, calls];
}

const libraries = {
  attempt: () => attempt.retry(once, { maxAttempts: 5, delay: 100, timeout: 300 }),
  promised: () => promised.retryAsPromised(once, { max: 5, backoffBase: 100, backoffExponent: 1, timeout: 300 }),
};
let right = true;
for (const [name, retries] of Object.entries(libraries)) {
  const fast = await see(100, retries);
  const slow = await see(500, retries);
  console.log(`${name}: fast ${JSON.stringify(fast)}, slow ${JSON.stringify(slow)}`);
  const timeout = name === "attempt" ? "ATTEMPT_TIMEOUT" : "TimeoutError";
  right &&= JSON.stringify([fast, slow]) === JSON.stringify([[status.UNAVAILABLE, 5, 5], [timeout, 1, 5]]);
}
process.exit(right ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY node "$folder/see.mjs"
