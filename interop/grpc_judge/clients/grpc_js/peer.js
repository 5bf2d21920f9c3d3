// Keeps one channel of grpc-js busy. clients/README.md documents its arguments and output.

import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

import * as grpc from "@grpc/grpc-js";

const METHOD = "/grpc.testing.TestService/EmptyCall";
const GRACE_MS = 1000;
const EMPTY = Buffer.alloc(0);

function readOrder() {
  const { values } = parseArgs({
    options: {
      target: { type: "string" },
      seconds: { type: "string" },
      workers: { type: "string", default: "1" },
      "pause-ms": { type: "string", default: "20" },
      ca: { type: "string" },
      "initial-ms": { type: "string" },
      "max-ms": { type: "string" },
    },
  });
  return {
    target: values.target,
    ms: 1000 * Number(values.seconds),
    workers: Number(values.workers),
    pauseMs: Number(values["pause-ms"]),
    credentials: values.ca
      ? grpc.credentials.createSsl(readFileSync(values.ca))
      : grpc.credentials.createInsecure(),
    options: {
      ...(values["initial-ms"] && {
        "grpc.initial_reconnect_backoff_ms": Number(values["initial-ms"]),
      }),
      ...(values["max-ms"] && {
        "grpc.max_reconnect_backoff_ms": Number(values["max-ms"]),
      }),
    },
  };
}

const asIs = (bytes) => bytes;

function call(client, id, waitForReady) {
  const metadata = new grpc.Metadata({ waitForReady });
  metadata.set("call-id", id);
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest(METHOD, asIs, asIs, EMPTY, metadata, (error) =>
      error ? reject(error) : resolve(),
    );
  });
}

async function keepBusy(order, client) {
  const tally = { made: 0, ok: 0, failed: {} };
  const over = performance.now() + order.ms;

  async function work(number) {
    for (let made = 0; performance.now() < over; made += 1) {
      tally.made += 1;
      try {
        await call(client, `${number}-${made}`, number % 2 === 1);
        tally.ok += 1;
      } catch (error) {
        const name = grpc.status[error.code] ?? error.name;
        tally.failed[name] = (tally.failed[name] ?? 0) + 1;
      }
      await sleep(order.pauseMs);
    }
  }

  const workers = Array.from({ length: order.workers }, (_, number) =>
    work(number),
  );
  await Promise.race([Promise.all(workers), sleep(order.ms + GRACE_MS)]);
  return tally;
}

function sayDone({ made, ok, failed }) {
  const failures = Object.values(failed).reduce((sum, each) => sum + each, 0);
  const { version } = createRequire(import.meta.url)(
    "@grpc/grpc-js/package.json",
  );
  const done = {
    event: "done",
    made,
    ok,
    failed,
    unfinished: made - ok - failures,
    versions: { "@grpc/grpc-js": version, node: process.versions.node },
  };
  process.stdout.write(`${JSON.stringify(done)}\n`, () => process.exit(0));
}

const order = readOrder();
console.log(JSON.stringify({ event: "ready" }));
process.stdin.once("end", () => process.exit(0));
await once(process.stdin, "data");
process.stdin.destroy();

const client = new grpc.Client(order.target, order.credentials, order.options);
const tally = await keepBusy(order, client);
client.close(); // cancels running calls
sayDone(tally);
