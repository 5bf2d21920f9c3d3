#!/usr/bin/env bash
# A subscription of KubeMQ's Node.js client never comes back after an outage, though it has an interval to reconnect.
#
# Versions: kubemq-js 1.2.3, @grpc/grpc-js 1.14.7 (npm) for a server with KubeMQ's protocol; Node.js 20 or newer, Linux.
# `reconnectInterval` is documented as the "Reconnect interval in milliseconds", 1 s by default, where 0 means no
# reconnections; a subscription tells its state through `onState`. `defaultRpcTimeout` is the "Duration in milliseconds
# to wait for RPC (Command and Query) response", and each command can have its own `timeout`. A server sends a
# subscriber an event every 0.2 s. It is shut down, and half a second later started again on its port; fifteen seconds
# pass. Then a client sends a command with a timeout of one second, which the server answers after five.
#
# Seen: the subscriber gets events, one error, and then nothing more, while a ping of the same client succeeds. The
# server gets no second subscription, and `onState` has not said a word: `subscribe` waits until its stream is closed,
# but nothing connects the stream's `onClose` to the variable that it looks at. The clients for stored events, commands
# and queries subscribe by the same code. So each restart of a server silences its subscribers for good. The command
# succeeds after five seconds: the timeout is a field of the request, and the call has no deadline, so that a server
# that hangs is waited for without a limit.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-audit --no-fund --prefix "$folder" kubemq-js@1.2.3 @grpc/grpc-js@1.14.7 >&2
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { promisify } from "node:util";
import { setTimeout as sleep } from "node:timers/promises";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import kubemq from "kubemq-js";
import protocol from "kubemq-js/lib/protos/index.js";

let subscriptions = 0;

/** Send an event each 0.2 s until the call ends. */
function subscribe(call) {
  subscriptions += 1;
  const timer = setInterval(() => call.write(new protocol.EventReceive()), 200);
  call.on("cancelled", () => clearInterval(timer));
}

/** Answer a command after five seconds. */
function answer(call, callback) {
  setTimeout(callback, 5000, null, new protocol.Response());
}

async function start(port) {
  const server = new Server();
  const ping = (call, callback) => callback(null, new protocol.PingResult());
  server.addService(protocol.kubemqService, { subscribeToEvents: subscribe, sendRequest: answer, ping });
  const bind = promisify(server.bindAsync.bind(server));
  return [server, await bind(`127.0.0.1:${port}`, ServerCredentials.createInsecure())];
}

let [server, port] = await start(0);
const events = new kubemq.EventsClient({ address: `127.0.0.1:${port}`, clientId: "a", reconnectInterval: 500 });
const errors = [];
const states = [];
let got = 0;
const subscription = await events.subscribe({ channel: "a" }, (error) => {
  if (error) errors.push(error.code);
  else got += 1;
});
subscription.onState.on((state) => states.push(state));
await sleep(3000);
const before = got;
server.forceShutdown();
await sleep(500);
[server, port] = await start(port);
got = 0;
await sleep(15000);
const ping = await events.ping().then(() => "OK", (error) => error.code);
console.log(`${before} events before, ${got} after the restart; ${subscriptions} subscription, ping: ${ping}`);
console.log(`errors: ${errors}; states: ${states.join() || "none"}`);
const commands = new kubemq.CommandsClient({ address: `127.0.0.1:${port}`, clientId: "a" });
const began = performance.now();
const sent = commands.send({ channel: "a", body: Buffer.from("a"), timeout: 1000 });
const end = await sent.then(() => "OK", (error) => error.code);
const seconds = (performance.now() - began) / 1000;
console.log(`command with a timeout of 1 s: ${end} after ${seconds.toFixed(1)} s`);
let right = before > 0 && got === 0 && subscriptions === 1 && ping === "OK" && errors.length === 1 && !states.length;
right &&= end === "OK" && seconds > 4.5;
process.exit(right ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY node "$folder/see.mjs"
