#!/usr/bin/env bash
# If calls from before an outage fail late, Mollitia's circuit breaker stays half open, and refuses all calls for good.
#
# Versions: mollitia 0.1.1, @grpc/grpc-js 1.14.7 (npm); Node.js 20 or newer, Linux. The breaker opens once enough calls
# fail, is half open after `openStateDelay`, then lets `permittedNumberOfCallsInHalfOpenState` calls through, "the
# number of permitted calls when the circuit is half open", and closes or opens by their results. A server fails each
# call at once with UNAVAILABLE, and is then well again. Before that, it has left none, one or two calls without an
# answer, whose deadline is 3 s. A breaker opens after four failures and is half open a second later, with two permitted
# calls, the default. From 3.5 s after the failures on, a client makes a call every half second, 24 in all.
#
# Seen: with no call under way, the breaker is half open, takes the first two calls, and closes; all calls succeed. With
# one, it opens again though both calls succeed, and one call is refused. With two, the first two calls succeed, and
# each later one is refused, "Max allowed requests reached", for as long as the client lives: `executeInClosed` adds the
# late failures to the results of the half-open state, so there are three and four of them after the two calls, and
# `executeInHalfOpened` decides only if there are exactly two. An outage where some calls hang and others fail thus
# becomes an outage of the client, which no success ends; by default, `halfOpenStateMaxDelay` is off.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-audit --no-fund --prefix "$folder" mollitia@0.1.1 @grpc/grpc-js@1.14.7 >&2
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { promisify } from "node:util";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Server, ServerCredentials, credentials, status } from "@grpc/grpc-js";
import { Circuit, SlidingCountBreaker } from "mollitia";

const asIs = (bytes) => bytes;
const method = { path: "/a.B/C", requestStream: false, responseStream: false };
const codec = { requestDeserialize: asIs, requestSerialize: asIs, responseDeserialize: asIs, responseSerialize: asIs };
let well;

function answer(call, callback) {
  if (call.request.toString() === "hang") return;
  if (well) callback(null, Buffer.alloc(0));
  else callback({ code: status.UNAVAILABLE, details: "no" });
}

const server = new Server();
server.addService({ C: { ...method, ...codec } }, { C: answer });
const port = await promisify(server.bindAsync.bind(server))("127.0.0.1:0", ServerCredentials.createInsecure());
const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure());
const makeRequest = promisify(client.makeUnaryRequest.bind(client));
const request = (body) => makeRequest(method.path, asIs, asIs, Buffer.from(body), { deadline: Date.now() + 3000 });

/** Return the states of a breaker and the results of the 24 calls, with this number of calls under way. */
async function see(underWay) {
  const breaker = new SlidingCountBreaker({ slidingWindowSize: 4, minimumNumberOfCalls: 4, openStateDelay: 1000 });
  const circuit = new Circuit({ options: { modules: [breaker] } });
  const call = (body) => circuit.fn(request).execute(body).then(() => "OK", (error) => error.code ?? error.message);
  const states = [];
  const results = [];
  breaker.on("state-changed", (state) => states.push(state));
  well = false;
  const hanging = Array.from({ length: underWay }, () => call("hang"));
  for (let number = 0; number < 4; number += 1) await call("fail");
  well = true;
  await sleep(3500);
  for (let number = 0; number < 24; number += 1) {
    results.push(await call("succeed"));
    await sleep(500);
  }
  const refused = results.filter((result) => result !== "OK");
  const late = (await Promise.all(hanging)).join() || "none";
  console.log(`${underWay} under way (status ${late}): ${states}; of 24 calls ${refused.length} are refused`);
  console.log(`  the first five: ${results.slice(0, 5).join(", ")}; the last: ${results.at(-1)}`);
  return [states.at(-1), refused.length, results.at(-1)];
}

const [none, one, two] = [await see(0), await see(1), await see(2)];
let right = none[0] === "closed" && none[1] === 0 && one[0] === "closed" && one[1] >= 1;
right &&= two[0] === "half-opened" && two[1] === 22 && two[2] === "Max allowed requests reached";
process.exit(right ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY node "$folder/see.mjs"
