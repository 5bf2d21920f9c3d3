#!/usr/bin/env bash
# OpenTelemetry's exporters for Node.js repeat a failed export over HTTP, and drop the batch if it went over gRPC.
#
# Versions: @opentelemetry/exporter-trace-otlp-grpc and exporter-trace-otlp-http 0.223.1, the newest for Node.js 20,
# with @grpc/grpc-js 1.14.7 (npm); Node.js 20 or newer, Linux. OpenTelemetry's specification says that transient errors
# "MUST be handled with a retry strategy", and names UNAVAILABLE for gRPC and 503 for HTTP ("Protocol Exporter",
# "Retry"). Two collectors, one of each protocol, fail the first two exports so, as while one restarts, and take the
# rest. Both exporters export a batch with a timeout of ten seconds; then the gRPC exporter dials a port where nothing
# listens yet.
#
# Seen: the HTTP exporter repeats the export twice and succeeds after about 2.5 s. The gRPC exporter makes one call and
# reports a failure, upon which the SDK drops the batch. It does so within a tenth of a second as well if the collector
# is not there yet. Both share the code that repeats, but the gRPC side calls no failure retryable. So with the same SDK
# and settings, each restart of a collector costs spans if the protocol is gRPC.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
packages=(@opentelemetry/exporter-trace-otlp-{grpc,http}@0.223.1 @opentelemetry/api@1.9.1 @grpc/grpc-js@1.14.7)
npm install --silent --no-audit --no-fund --prefix "$folder" "${packages[@]}" >&2
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { createServer } from "node:http";
import { promisify } from "node:util";
import grpc from "@grpc/grpc-js";
import { OTLPTraceExporter as GrpcExporter } from "@opentelemetry/exporter-trace-otlp-grpc";
import { OTLPTraceExporter as HttpExporter } from "@opentelemetry/exporter-trace-otlp-http";

const asIs = (bytes) => bytes;
const method = {
  path: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
  requestStream: false,
  responseStream: false,
  requestSerialize: asIs,
  requestDeserialize: asIs,
  responseSerialize: asIs,
  responseDeserialize: asIs,
};
let exports = 0;
const native = new grpc.Server();
native.addService({ Export: method }, {
  Export: (call, callback) => {
    exports += 1;
    callback(exports < 3 ? { code: grpc.status.UNAVAILABLE } : null, Buffer.alloc(0));
  },
});
const bind = promisify(native.bindAsync.bind(native));
const port = await bind("127.0.0.1:0", grpc.ServerCredentials.createInsecure());
const web = createServer((request, response) => {
  request.resume();
  request.on("end", () => {
    exports += 1;
    response.writeHead(exports < 3 ? 503 : 200, { "content-type": "application/json" }).end("{}");
  });
});
await new Promise((resolve) => web.listen(0, "127.0.0.1", resolve));
const free = createServer();
await new Promise((resolve) => free.listen(0, "127.0.0.1", resolve));
const unused = free.address().port;
await new Promise((resolve) => free.close(resolve));

const exporters = {
  HTTP: new HttpExporter({ url: `http://127.0.0.1:${web.address().port}/v1/traces`, timeoutMillis: 10_000 }),
  gRPC: new GrpcExporter({ url: `http://127.0.0.1:${port}`, timeoutMillis: 10_000 }),
  "gRPC, no listener": new GrpcExporter({ url: `http://127.0.0.1:${unused}`, timeoutMillis: 10_000 }),
};
const expected = {
  HTTP: "success after 3 exports",
  gRPC: "UNAVAILABLE after 1 exports",
  "gRPC, no listener": "UNAVAILABLE after 0 exports",
};
let same = true;
for (const [name, exporter] of Object.entries(exporters)) {
  exports = 0;
  const began = performance.now();
  const result = await new Promise((resolve) => exporter.export([], resolve));
  const seconds = (performance.now() - began) / 1000;
  const end = result.code === 0 ? "success" : (grpc.status[result.error?.code] ?? result.error);
  const seen = `${end} after ${exports} exports`;
  console.log(`${name}: ${seen} and ${seconds.toFixed(2)} s`);
  same &&= seen === expected[name] && (name === "HTTP" || seconds < 1);
}
process.exit(same ? 0 : 1);
JAVASCRIPT
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 node "$folder/see.mjs"
