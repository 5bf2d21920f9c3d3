// Serves EmptyCall with grpc-js. servers/README.md documents its arguments and output.

import { createRequire } from "node:module";
import { parseArgs } from "node:util";

import * as grpc from "@grpc/grpc-js";

const DRAIN_MS = 30_000;

const asIs = (bytes) => bytes;

const SERVICE = {
  emptyCall: {
    path: "/grpc.testing.TestService/EmptyCall",
    requestStream: false,
    responseStream: false,
    requestSerialize: asIs,
    requestDeserialize: asIs,
    responseSerialize: asIs,
    responseDeserialize: asIs,
  },
};

function emptyCall(call, answer) {
  const [after = "0"] = call.metadata.get("answer-after-ms");
  setTimeout(() => answer(null, call.request), Number(after));
}

function listen({ port, options }) {
  const server = new grpc.Server(options);
  server.addService(SERVICE, { emptyCall });
  return new Promise((resolve, reject) => {
    server.bindAsync(
      `127.0.0.1:${port}`,
      grpc.ServerCredentials.createInsecure(),
      (error, bound) => (error ? reject(error) : resolve({ server, bound })),
    );
  });
}

function readOrder() {
  const { values } = parseArgs({
    options: {
      port: { type: "string", default: "0" },
      "max-age-ms": { type: "string" },
      "grace-ms": { type: "string", default: "1000" },
    },
  });
  return {
    port: Number(values.port),
    options: values["max-age-ms"]
      ? {
          "grpc.max_connection_age_ms": Number(values["max-age-ms"]),
          "grpc.max_connection_age_grace_ms": Number(values["grace-ms"]),
        }
      : {},
  };
}

const { server, bound } = await listen(readOrder());

process.once("SIGTERM", () => {
  server.tryShutdown(() => process.exit(0));
  setTimeout(() => process.exit(0), DRAIN_MS);
});
process.stdin.once("end", () => process.exit(0)).resume();

const { version } = createRequire(import.meta.url)(
  "@grpc/grpc-js/package.json",
);
const versions = { "@grpc/grpc-js": version, node: process.versions.node };
console.log(JSON.stringify({ event: "listening", port: bound, versions }));
