#!/usr/bin/env bash
# An async NestJS handler of a gRPC stream gets the messages of its first moments twice.
#
# Versions: @nestjs/microservices, core and common 12.1.1 with rxjs 7.8.2 and @grpc/grpc-js 1.14.7 (npm); Node.js 20 or
# newer, Linux. A method with `@GrpcStreamMethod` gets the stream of requests as an RxJS Observable and returns its
# answer; NestJS takes a promise of the answer as well. It keeps messages that come before the handler has subscribed,
# to pass them on later. Two handlers add up the amounts of a stream. The first one, which is not async, returns the sum
# as an Observable. The second one subscribes, awaits a look-up of 0.3 s, and returns an Observable of the sum. A client
# sends 1 and 2 at once and 4 after half a second.
#
# Seen: the first sum is 7. The second one is 10: 1 and 2 come once when they arrive and again when the look-up is done,
# since NestJS passes on what it has kept when the handler's promise is settled, also to one that has subscribed. So a
# payment or a record at the head of a stream is taken twice, as often as a look-up is slower than the client.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
packages=(@nestjs/microservices@12.1.1 @nestjs/core@12.1.1 @nestjs/common@12.1.1 reflect-metadata@0.2.2 rxjs@7.8.2)
packages+=(@grpc/grpc-js@1.14.7 @grpc/proto-loader@0.8.1)
npm install --silent --no-audit --no-fund --prefix "$folder" "${packages[@]}" >&2
cat > "$folder/a.proto" <<'PROTO'
syntax = "proto3";
package a;
message Part { int32 amount = 1; }
message Total { int32 sum = 1; }
service Store {
  rpc Plain(stream Part) returns (Total);
  rpc LooksUp(stream Part) returns (Total);
}
PROTO
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import "reflect-metadata";
import { createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
import { Controller, Module } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { GrpcStreamMethod, Transport } from "@nestjs/microservices";
import { ReplaySubject, map, reduce, tap } from "rxjs";

let amounts = [];
const add = (parts) =>
  parts.pipe(
    tap((part) => amounts.push(part.amount)),
    reduce((sum, part) => sum + part.amount, 0),
    map((sum) => ({ sum })),
  );

class Store {
  plain(parts) {
    return add(parts);
  }

  async looksUp(parts) {
    const total = new ReplaySubject();
    add(parts).subscribe(total);
    await sleep(300);
    return total;
  }
}

// What TypeScript makes of @GrpcStreamMethod("Store", ...), @Controller() and @Module().
for (const [name, method] of Object.entries({ plain: "Plain", looksUp: "LooksUp" })) {
  const descriptor = Object.getOwnPropertyDescriptor(Store.prototype, name);
  GrpcStreamMethod("Store", method)(Store.prototype, name, descriptor);
  Object.defineProperty(Store.prototype, name, descriptor);
}
Controller()(Store);
class App {}
Module({ controllers: [Store] })(App);

const free = createServer();
await new Promise((resolve) => free.listen(0, "127.0.0.1", resolve));
const url = `127.0.0.1:${free.address().port}`;
await new Promise((resolve) => free.close(resolve));
const protoPath = fileURLToPath(new URL("a.proto", import.meta.url));
const options = { package: "a", protoPath, url };
const app = await NestFactory.createMicroservice(App, { logger: ["error"], transport: Transport.GRPC, options });
await app.listen();

const services = grpc.loadPackageDefinition(loader.loadSync(protoPath)).a;
const client = new services.Store(url, grpc.credentials.createInsecure());
let right = true;
for (const [method, expected] of Object.entries({ Plain: "7", LooksUp: "10" })) {
  amounts = [];
  let call;
  const end = new Promise((resolve) => {
    const done = (error, total) => resolve(error ? grpc.status[error.code] : String(total.sum));
    call = client[method]({ deadline: Date.now() + 3000 }, done);
  });
  call.write({ amount: 1 });
  call.write({ amount: 2 });
  await sleep(500);
  call.write({ amount: 4 });
  call.end();
  const told = await end;
  console.log(`${method}: the handler gets ${amounts.join(", ")}; the caller gets ${told}`);
  right &&= told === expected && String(amounts) === (method === "LooksUp" ? "1,2,1,2,4" : "1,2,4");
}
process.exit(right ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 node "$folder/see.mjs"
