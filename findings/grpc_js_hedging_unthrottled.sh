#!/usr/bin/env bash
# grpc-js hedges on when `retryThrottling` forbids retries, and before the time that the server asks it to wait for.
#
# Versions: @grpc/grpc-js 1.14.7 (npm); Node.js 20 or newer, Linux. gRFC A6 lets one token bucket throttle both retries
# and hedging, and says that `grpc-retry-pushback-ms` delays the next hedged attempt. A server fails each call with
# UNAVAILABLE, first without a pushback, then with one of 1000 ms. A client calls it four times in a row, first with a
# `retryPolicy`, then with a `hedgingPolicy` of the same four attempts, both with a bucket of four tokens; then once
# with each policy and without a bucket. The attempts of the hedging policy are 0.2 s apart, a failure starts the next.
#
# Seen: with the retry policy the bucket is half empty after the first call, and the other calls are made once. With the
# hedging policy each call is made four times within a tenth of a second. The retries obey the pushback and are a second
# apart. The hedged attempts come 0.2 s apart, all four within 0.7 s, and then the caller waits for the rest of the
# second, after which no attempt follows. So a server in trouble gets four times its calls, and cannot say "later".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-audit --no-fund --prefix "$folder" @grpc/grpc-js@1.14.7 >&2
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { promisify } from "node:util";
import { Client, Metadata, Server, ServerCredentials, credentials, status } from "@grpc/grpc-js";

const asIs = (bytes) => bytes;
const method = { path: "/a.B/C", requestStream: false, responseStream: false };
const codec = { requestDeserialize: asIs, requestSerialize: asIs, responseDeserialize: asIs, responseSerialize: asIs };
const codes = ["UNAVAILABLE"];
const pauses = { initialBackoff: "0.05s", maxBackoff: "0.05s", backoffMultiplier: 1 };
const policies = {
  retry: { retryPolicy: { maxAttempts: 4, ...pauses, retryableStatusCodes: codes } },
  hedging: { hedgingPolicy: { maxAttempts: 4, hedgingDelay: "0.2s", nonFatalStatusCodes: codes } },
};
let pushback;
let times = [];

function fail(call, callback) {
  times.push(performance.now());
  const metadata = new Metadata();
  if (pushback) {
    metadata.set("grpc-retry-pushback-ms", pushback);
  }
  callback({ code: status.UNAVAILABLE, details: "no", metadata });
}

const server = new Server();
server.addService({ C: { ...method, ...codec } }, { C: fail });
const port = await promisify(server.bindAsync.bind(server))("127.0.0.1:0", ServerCredentials.createInsecure());

/** Return, for each call in a row, when its attempts came and when it ended, in seconds. */
async function see(policy, calls, more) {
  const config = { loadBalancingConfig: [], methodConfig: [{ name: [{}], ...policies[policy] }], ...more };
  const options = { "grpc.service_config": JSON.stringify(config) };
  const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure(), options);
  const request = promisify(client.makeUnaryRequest.bind(client));
  await promisify(client.waitForReady.bind(client))(Date.now() + 10_000);
  const seen = [];
  for (let i = 0; i < calls; i += 1) {
    times = [];
    const began = performance.now();
    const code = await request(method.path, asIs, asIs, Buffer.alloc(0)).then(() => status.OK, (error) => error.code);
    const since = (time) => (time - began) / 1000;
    seen.push({ code, attempts: times.map(since), end: since(performance.now()) });
  }
  client.close();
  return seen;
}

let right = true;
for (const [policy, expected] of Object.entries({ retry: "2,1,1,1", hedging: "4,4,4,4" })) {
  const counts = (await see(policy, 4, { retryThrottling: { maxTokens: 4, tokenRatio: 0.1 } })).map(
    ({ attempts }) => attempts.length,
  );
  console.log(`${policy}, throttled: attempts of four calls ${counts}`);
  right &&= String(counts) === expected;
}
pushback = "1000";
for (const policy of Object.keys(policies)) {
  const [{ code, attempts, end }] = await see(policy, 1, {});
  const rounded = attempts.map((time) => time.toFixed(2));
  console.log(`${policy}, pushback of 1 s: attempts at ${rounded} s, ${status[code]} after ${end.toFixed(2)} s`);
  const gaps = attempts.slice(1).map((time, i) => time - attempts[i]);
  right &&= attempts.length === 4 && code === status.UNAVAILABLE;
  right &&= policy === "retry" ? Math.min(...gaps) > 0.9 : attempts[3] < 0.95 && end > 0.95;
}
process.exit(right ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY node "$folder/see.mjs"
