#!/usr/bin/env bash
# go-grpc-middleware's maximum of retries counts the first attempt, and nice-grpc's total of attempts does not.
#
# Versions: go-grpc-middleware 2.3.4 with grpc-go 1.74.2 (Go modules), nice-grpc 2.1.18 with
# nice-grpc-client-middleware-retry 3.1.16 and @grpc/grpc-js 1.14.7 (npm), grpcio 1.85.3 as the server; Go 1.26, Node.js
# 20 or newer, Python 3.11 or newer, Linux. The Go library documents `WithMax` as "the maximum number of retries on this
# call"; nice-grpc documents `retryMaxAttempts` as "Maximum for the total number of attempts". A server fails each call
# with UNAVAILABLE and counts. Both clients call it with the limits 1 and 3.
#
# Seen: `WithMax(1)` executes the call once and so never retries it, and `WithMax(3)` three times. `retryMaxAttempts: 1`
# executes it twice, and 3 four times. gRFC A6's `maxAttempts` counts the first attempt, so the same number in a service
# config, or for a team with clients in both languages, is another load on a server in trouble.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
packages=(nice-grpc@2.1.18 nice-grpc-client-middleware-retry@3.1.16 nice-grpc-common@2.0.4 @grpc/grpc-js@1.14.7)
npm install --silent --no-audit --no-fund --prefix "$folder" "${packages[@]}" >&2
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3
mkdir "$folder/go"
cat > "$folder/go/go.mod" <<'MOD'
module see

go 1.24

require (
	github.com/grpc-ecosystem/go-grpc-middleware/v2 v2.3.4
	google.golang.org/grpc v1.74.2
)
MOD
cat > "$folder/go/main.go" <<'GO'
package main

import (
	"context"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/retry"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
)

func main() {
	max, err := strconv.ParseUint(os.Args[2], 10, 32)
	if err != nil {
		log.Fatal(err)
	}
	retries := retry.UnaryClientInterceptor(retry.WithMax(uint(max)))
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(retries),
	}
	client, err := grpc.NewClient("127.0.0.1:"+os.Args[1], options...)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if client.Invoke(ctx, "/a.B/C", &emptypb.Empty{}, &emptypb.Empty{}) == nil {
		log.Fatal("the call has succeeded")
	}
}
GO
(cd "$folder/go" && GOFLAGS=-mod=mod go build -o see . >&2)
cat > "$folder/see.mjs" <<'JAVASCRIPT'
import { createChannel, createClientFactory } from "nice-grpc";
import { retryMiddleware } from "nice-grpc-client-middleware-retry";

const asIs = (bytes) => bytes;
const method = { path: "/a.B/C", requestStream: false, responseStream: false, options: {} };
const codec = { requestSerialize: asIs, requestDeserialize: asIs, responseSerialize: asIs, responseDeserialize: asIs };
const channel = createChannel(`127.0.0.1:${process.argv[2]}`);
const client = createClientFactory().use(retryMiddleware).create({ C: { ...method, ...codec } }, channel);
const options = { retry: true, retryMaxAttempts: Number(process.argv[3]), retryBaseDelayMs: 50 };
const failed = await client.C(Buffer.alloc(0), options).then(() => false, () => true);
channel.close();
process.exit(failed ? 0 : 1);
JAVASCRIPT
cat > "$folder/see.py" <<'PYTHON'
import concurrent.futures, logging, pathlib, subprocess, sys
import grpc

logging.disable()  # of aborts
folder = pathlib.Path(sys.argv[1])
CLIENTS = {"WithMax": [folder / "go/see"], "retryMaxAttempts": ["node", folder / "see.mjs"]}
executions = 0


def fail(request, context):
    global executions
    executions += 1
    context.abort(grpc.StatusCode.UNAVAILABLE, "no")


server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
handler = grpc.unary_unary_rpc_method_handler(fail)
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", {"C": handler})])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
seen = {}
for name, command in CLIENTS.items():
    for limit in (1, 3):
        executions = 0
        subprocess.run([*command, str(port), str(limit)], check=True, timeout=60)
        seen[name, limit] = executions
server.stop(None).wait()
print("executions:", {f"{name} {limit}": count for (name, limit), count in seen.items()})
sys.exit(list(seen.values()) != [1, 3, 2, 4])
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder"
