#!/usr/bin/env bash
# With google-gax's default backoff no retry can succeed: the deadline of each has passed when it begins.
#
# Versions: google-gax 5.0.8 with @grpc/grpc-js 1.14.7 (npm); Node.js 20 or newer, Linux. Google's clients for Node.js
# make their calls with google-gax, whose calls take `retry` with the codes to retry and `backoffSettings`, of which the
# three RPC timeouts may be left out or null; those of `createDefaultBackoffSettings` are null. A server fails the first
# two calls of each kind with UNAVAILABLE and notes their deadlines. A client retries UNAVAILABLE with full settings
# (RPC timeouts of 5 s), with the default ones, and with its own delays, `maxRetries: 5` and no timeouts.
#
# Seen: with RPC timeouts the call succeeds at its third attempt, and each attempt has 5 s. In the other two cases the
# caller gets DEADLINE_EXCEEDED within a second, not the UNAVAILABLE that the server answered. The server sees one call
# with google-gax's own deadline of 30 s, and mostly one retry, which has no time left. For a retry google-gax
# multiplies the timeout of the attempt before; without one, it takes 0 as the timeout, not none. So a program that
# leaves the timeouts to google-gax gets no retry that counts, and an error that hides what went wrong.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-audit --no-fund --prefix "$folder" google-gax@5.0.8 @grpc/grpc-js@1.14.7 >&2
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import grpc from "@grpc/grpc-js";
import gax from "google-gax";

const asIs = (bytes) => bytes;
const method = {
  path: "/a.B/C",
  requestStream: false,
  responseStream: false,
  requestSerialize: asIs,
  requestDeserialize: asIs,
  responseSerialize: asIs,
  responseDeserialize: asIs,
};
let deadlines;
const server = new grpc.Server();
server.addService({ C: method }, {
  C: (call, callback) => {
    deadlines.push(Math.round((call.getDeadline() - Date.now()) / 1000));
    callback(deadlines.length < 3 ? { code: grpc.status.UNAVAILABLE } : null, Buffer.from("a"));
  },
});
const bind = promisify(server.bindAsync.bind(server));
const port = await bind("127.0.0.1:0", grpc.ServerCredentials.createInsecure());
const Client = grpc.makeGenericClientConstructor({ C: method }, "B");
const client = new Client(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
await promisify(client.waitForReady.bind(client))(Date.now() + 10_000);

const config = { interfaces: { "a.B": { retry_codes: {}, retry_params: {}, methods: { C: {} } } } };
const settings = new gax.GrpcClient({}).constructSettings("a.B", config, {}, {}).c;
const call = gax.createApiCall(Promise.resolve((...parts) => client.C(...parts)), settings);
const delays = { initialRetryDelayMillis: 50, retryDelayMultiplier: 1.3, maxRetryDelayMillis: 200 };
const timeouts = { initialRpcTimeoutMillis: 5000, rpcTimeoutMultiplier: 1, maxRpcTimeoutMillis: 5000 };
const late = /^DEADLINE_EXCEEDED soon, deadlines at the server: 30(, -?0)?$/;
const kinds = {
  full: [{ ...delays, ...timeouts, totalTimeoutMillis: 20_000 }, /^OK soon, deadlines at the server: 5, 5, 5$/],
  "the default": [gax.createDefaultBackoffSettings(), late],
  "maxRetries: 5": [{ ...delays, maxRetries: 5 }, late],
};
let same = true;
for (const [name, [backoffSettings, expected]] of Object.entries(kinds)) {
  deadlines = [];
  const began = performance.now();
  const retry = { retryCodes: [grpc.status.UNAVAILABLE], backoffSettings };
  const end = await call(Buffer.from("a"), { retry }).then(
    () => "OK",
    (error) => grpc.status[error.code] ?? error,
  );
  const soon = performance.now() - began < 2000 ? "soon" : "late";
  await sleep(300);
  const seen = `${end} ${soon}, deadlines at the server: ${deadlines.join(", ")}`;
  console.log(`backoff settings ${name}: ${seen}`);
  same &&= expected.test(seen);
}
process.exit(same ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 node "$folder/see.mjs"
