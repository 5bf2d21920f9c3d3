#!/usr/bin/env bash
# Any error ends a configuration subscription of Dapr's SDK for Node.js for good, unheard, and even at its start.
#
# Versions: @dapr/dapr 3.18.0 with @connectrpc/connect and connect-node 2.1.2 (npm), over gRPC; Node.js 20 or newer,
# Linux. `client.configuration.subscribe` is documented to call its callback at once "and then again whenever values
# change", and to reject "if store does not exist or subscription fails". It gives a handle, which has `stop` alone. A
# server with Dapr's protocol changes a value twice, 0.2 s apart. It does so wholly, or after the second value it ends
# the stream with UNAVAILABLE, as a sidecar that restarts, or with OK; or it refuses the subscription with
# INVALID_ARGUMENT, as Dapr does for a store that does not exist. Last, the program's own callback throws once.
#
# Seen: the callback gets all three values only if nothing fails. In the other cases it gets two, two, none and one, and
# no more in the seconds after: the server sees no second subscription. `subscribe` resolves each time, also if it is
# refused. No error reaches the program or the log: the SDK catches all of them ("swallow silently"). So after a restart
# of the sidecar, a misspelt store or one bad value that the callback trips over, a service runs on with its old
# configuration until it is started again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
packages=(@dapr/dapr@3.18.0 @connectrpc/connect@2.1.2 @connectrpc/connect-node@2.1.2)
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" "${packages[@]}" >&2
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { once } from "node:events";
import http2 from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";
import { Code, ConnectError } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { CommunicationProtocolEnum, DaprClient } from "@dapr/dapr";
import dapr from "@dapr/dapr/proto/dapr/proto/runtime/v1/dapr_pb.js";

let how;
let subscriptions;
let told = 0; // of errors that nothing catches, and of lines that the SDK logs as warnings or errors
process.on("unhandledRejection", () => (told += 1));
const tell = () => (told += 1);
const console_ = { error: tell, warn: tell, info() {}, verbose() {}, debug() {} };

async function* subscribeConfiguration() {
  subscriptions += 1;
  if (how === "refused") throw new ConnectError("no such store", Code.InvalidArgument);
  for (const value of ["1", "2", "3"]) {
    if (value === "3" && how === "cut") throw new ConnectError("no", Code.Unavailable);
    if (value === "3" && how === "ended") return;
    yield { id: "a", items: { key: { value, version: value } } };
    await sleep(200);
  }
  await sleep(3000);
}

const service = { getMetadata: () => ({}), subscribeConfiguration, unsubscribeConfiguration: () => ({ ok: true }) };
const routes = (router) => router.service(dapr.Dapr, service);
const server = http2.createServer(connectNodeAdapter({ routes })).listen(0, "127.0.0.1");
await once(server, "listening");
const client = new DaprClient({
  daprHost: "127.0.0.1",
  daprPort: String(server.address().port),
  communicationProtocol: CommunicationProtocolEnum.GRPC,
  logger: { service: console_ },
});

/** Return how `subscribe` ends, the values that the callback gets, and the number of subscriptions at the server. */
async function see(name) {
  [how, subscriptions] = [name, 0];
  const values = [];
  const callback = async ({ items }) => {
    values.push(items.key.value);
    if (how === "throws") throw new Error("the program's own");
  };
  let end = "resolves";
  const subscription = await client.configuration.subscribe("store", callback).catch((error) => {
    end = error.message;
  });
  await sleep(2500);
  console.log(`${name}: subscribe ${end}, the values [${values}], ${subscriptions} subscription(s)`);
  await subscription?.stop();
  return `${end} ${values} ${subscriptions}`;
}

const seen = [];
for (const name of ["whole", "cut", "ended", "refused", "throws"]) seen.push(await see(name));
console.log(`errors told: ${told}`);
const expected = ["resolves 1,2,3 1", "resolves 1,2 1", "resolves 1,2 1", "resolves  1", "resolves 1 1"];
process.exit(told === 0 && seen.join() === expected.join() ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 node "$folder/see.mjs"
