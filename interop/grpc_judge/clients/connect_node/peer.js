// Keeps one gRPC transport of connect-node busy. clients/README.md documents its arguments and output.

import { once } from "node:events";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

import { create, createFileRegistry } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import {
  createGrpcTransport,
  Http2SessionManager,
} from "@connectrpc/connect-node";

const GRACE_MS = 1000;

const PACKAGE = "grpc.testing";

// As if generated from a .proto file: service TestService { rpc EmptyCall(Empty) returns (Empty); }
const TestService = createFileRegistry(
  create(FileDescriptorSetSchema, {
    file: [
      {
        name: "test.proto",
        syntax: "proto3",
        package: PACKAGE,
        messageType: [{ name: "Empty" }],
        service: [
          {
            name: "TestService",
            method: [
              {
                name: "EmptyCall",
                inputType: `.${PACKAGE}.Empty`,
                outputType: `.${PACKAGE}.Empty`,
              },
            ],
          },
        ],
      },
    ],
  }),
).getService(`${PACKAGE}.TestService`);

function readOrder() {
  const { values } = parseArgs({
    options: {
      target: { type: "string" },
      seconds: { type: "string" },
      workers: { type: "string", default: "1" },
      "pause-ms": { type: "string", default: "20" },
      ca: { type: "string" },
    },
  });
  return {
    baseUrl: `${values.ca ? "https" : "http"}://${values.target}`,
    ms: 1000 * Number(values.seconds),
    workers: Number(values.workers),
    pauseMs: Number(values["pause-ms"]),
    session: values.ca ? { ca: readFileSync(values.ca) } : {},
  };
}

// The name of a status code in gRPC's spelling: Code has "DeadlineExceeded" and "Canceled".
function statusName(error) {
  const { code } = ConnectError.from(error);
  if (code === Code.Canceled) {
    return "CANCELLED";
  }
  return Code[code].replaceAll(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase();
}

// connect-node has no wait-for-ready calls, so all workers make the same kind.
async function keepBusy(order, client, signal, stopped) {
  const tally = { made: 0, ok: 0, failed: {} };
  let over = false;

  async function work(_, number) {
    for (let made = 0; !over; made += 1) {
      tally.made += 1;
      try {
        const headers = { "call-id": `${number}-${made}` };
        await client.emptyCall({}, { headers, signal });
        tally.ok += 1;
      } catch (error) {
        const name = statusName(error);
        tally.failed[name] = (tally.failed[name] ?? 0) + 1;
      }
      await sleep(order.pauseMs);
    }
  }

  const workers = Array.from({ length: order.workers }, work);
  await Promise.race([sleep(order.ms), stopped]);
  over = true;
  await Promise.race([Promise.all(workers), sleep(GRACE_MS)]);
  return tally;
}

function versionOf(name) {
  const file = new URL(`node_modules/${name}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(file, "utf8")).version;
}

function sayDone({ made, ok, failed }) {
  const failures = Object.values(failed).reduce((sum, each) => sum + each, 0);
  const library = "@connectrpc/connect-node";
  const done = {
    event: "done",
    made,
    ok,
    failed,
    unfinished: made - ok - failures,
    versions: { [library]: versionOf(library), node: process.versions.node },
  };
  process.stdout.write(`${JSON.stringify(done)}\n`, () => process.exit(0));
}

const order = readOrder();
console.log(JSON.stringify({ event: "ready" }));
const leave = () => process.exit(0);
process.stdin.once("end", leave);
await once(process.stdin, "data");
process.stdin.off("end", leave);
const stopped = once(process.stdin, "data"); // another line ends the calls early

const sessionManager = new Http2SessionManager(
  order.baseUrl,
  undefined,
  order.session,
);
const client = createClient(
  TestService,
  createGrpcTransport({ baseUrl: order.baseUrl, sessionManager }),
);
const end = new AbortController();
const tally = await keepBusy(order, client, end.signal, stopped);
end.abort();
sessionManager.abort();
sayDone(tally);
