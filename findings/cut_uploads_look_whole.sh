#!/usr/bin/env bash
# Servers of grpc-js and of grpcio's asyncio API see an upload that its caller cancels come to a normal end.
#
# Versions: @grpc/grpc-js 1.14.7 with @grpc/proto-loader 0.8.1 (npm), grpcio 1.85.3; Node.js 20 or newer, Python 3.11 or
# newer, Linux. A server reads a stream of requests until it ends: at the event "end", as gRPC's tutorial for Node.js
# does, with `for await`, or with asyncio's `async for`. gRPC's guide to cancellation says that the server is told, so
# that it can stop its work, and in grpc-go, `Recv` then returns an error instead of io.EOF. Three servers add up a
# stream of amounts in these three ways and keep the sum when it is over. Three clients of each send 1 and 2. Then one
# sends 4 and ends its stream, one cancels its call, and one is killed, each five times.
#
# Seen: each server keeps 7 of the first client. Of the other two, those of grpc-js keep 3 each time, and the one of
# asyncio nearly each time: "end" comes and both loops end without an error. After a cancellation, `call.cancelled` and
# `context.cancelled()` are still false at that point; the event "cancelled" comes after it, and the asyncio handler is
# cancelled if it awaits something before it returns. So a client that gives up, or a connection that breaks, leaves a
# short file, half an import or a wrong total that looks whole; and the caller, who has an error, sends it all again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-audit --no-fund --prefix "$folder" @grpc/grpc-js@1.14.7 @grpc/proto-loader@0.8.1 >&2
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3
cat > "$folder/a.proto" <<'PROTO'
syntax = "proto3";
package a;
message Part { int32 amount = 1; }
message Total { int32 sum = 1; }
service Store {
  rpc Events(stream Part) returns (Total);
  rpc Loop(stream Part) returns (Total);
  rpc Async(stream Part) returns (Total);
}
PROTO
cat > "$folder/serve.py" <<'PYTHON'
import asyncio
import grpc


async def add(parts, context):
    total = 0
    async for part in parts:
        total += part[-1]  # each part is its tag and one byte
    print(total, context.cancelled(), flush=True)
    return bytes([8, total])


async def main():
    server = grpc.aio.server()
    handlers = {"Async": grpc.stream_unary_rpc_method_handler(add)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.Store", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


asyncio.run(main())
PYTHON
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const [python, ...client] = process.argv.slice(2);
const file = (name) => fileURLToPath(new URL(name, import.meta.url));
const { Store } = grpc.loadPackageDefinition(loader.loadSync(file("a.proto"))).a;
let kept = [];

/** Send 1 and 2, and then do what `how` says. */
async function upload(port, method, how) {
  const stub = new Store(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
  let call;
  const end = new Promise((resolve) => {
    call = stub[method]((error, total) => resolve(error ? grpc.status[error.code] : `OK ${total.sum}`));
  });
  call.write({ amount: 1 });
  call.write({ amount: 2 });
  await sleep(300);
  if (how === "end") {
    call.write({ amount: 4 });
    call.end();
  } else if (how === "cancel") {
    call.cancel();
  } else if (how === "kill") {
    process.kill(process.pid, "SIGKILL");
  }
  const told = await end;
  stub.close();
  return told;
}

if (client.length) {
  await upload(...client);
}

const server = new grpc.Server();
server.addService(Store.service, {
  Events(call, callback) {
    let sum = 0;
    call.on("data", (part) => (sum += part.amount));
    call.on("end", () => {
      kept.push([sum, call.cancelled]);
      callback(null, { sum });
    });
  },
  async Loop(call, callback) {
    let sum = 0;
    for await (const part of call) {
      sum += part.amount;
    }
    kept.push([sum, call.cancelled]);
    callback(null, { sum });
  },
});
const port = await new Promise((resolve) => {
  server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, port) => resolve(port));
});
const other = spawn(python, [file("serve.py")], { stdio: ["ignore", "pipe", "ignore"] });
process.on("exit", () => other.kill());
const lines = createInterface({ input: other.stdout });
const [otherPort] = await once(lines, "line");
lines.on("line", (line) => kept.push([Number(line.split(" ")[0]), line.endsWith("True")]));

let right = true;
for (const [method, to] of Object.entries({ Events: port, Loop: port, Async: otherPort })) {
  for (const how of ["end", "cancel", "kill"]) {
    kept = [];
    const told = new Set();
    for (let count = 0; count < 5; count += 1) {
      if (how === "kill") {
        await once(spawn(process.execPath, [file("see.mjs"), python, to, method, how]), "close");
      } else {
        told.add(await upload(to, method, how));
      }
      await sleep(300);
    }
    const sums = kept.map(([sum]) => sum);
    const early = kept.filter(([, cancelled]) => !cancelled).length;
    const seen = [...told].join() || "nothing";
    console.log(`${method}, ${how}: the caller sees ${seen}, the server keeps ${sums}; ${early} not cancelled yet`);
    right &&= seen === { end: "OK 7", cancel: "CANCELLED", kill: "nothing" }[how];
    right &&= sums.every((sum) => sum === (how === "end" ? 7 : 3)) && (how === "kill" || early === sums.length);
    right &&= sums.length === 5 || (method === "Async" && how !== "end" && sums.length > (how === "kill" ? 0 : 2));
  }
}
process.exit(right ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY \
  timeout 60 node "$folder/see.mjs" "$folder/venv/bin/python"
