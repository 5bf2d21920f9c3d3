#!/usr/bin/env bash
# Behind vanguard, a first call with a deadline of a day often fails with HTTP 400, and the calls after it succeed.
#
# Versions: connectrpc.com/vanguard 0.4.0 and connect 1.21.1 with grpc-go 1.85.0 for the types (Go modules), grpcio
# 1.85.3 as the client; Go 1.26, Python 3.11 or newer, Linux. grpc-timeout has at most 8 digits and one of six units, of
# which "H", hours, is the largest (PROTOCOL-HTTP2.md, "Timeout"). grpcio rounds the time that is left up to about three
# digits, and takes the unit that fits. A connect-go handler is served as it is, and through a vanguard transcoder. To
# each, grpcio makes a call on each of twenty new channels and forty on one that has been used, with deadlines of a day
# and of a year, such as a Watch has, or a program that wants no limit.
#
# Seen: connect-go answers all. Behind vanguard, 7 to 17 of 20 first calls with a deadline of a day end with INTERNAL
# "Received http2 header with status: 400", and the further ones with OK: a call that has waited for its connection has
# a little less than a day left, which grpcio writes as "24H"; the others are sent in seconds. With a year, all fail. A
# comment in vanguard says that more than 8 hours in the unit "H" are ignored, as connect-go does, but the value that
# stands for this is returned as an error. So a deadline that works in tests fails after each reconnect, with a status
# that no usual policy retries.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3
mkdir "$folder/go"
cat > "$folder/go/go.mod" <<'MOD'
module see

go 1.26

require (
	connectrpc.com/connect v1.21.1
	connectrpc.com/vanguard v0.4.0
	google.golang.org/grpc v1.85.0
)
MOD
cat > "$folder/go/main.go" <<'GO'
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"connectrpc.com/connect"
	"connectrpc.com/vanguard"
	"google.golang.org/grpc/health/grpc_health_v1"
)

const service = "/grpc.health.v1.Health/"

type (
	request  = connect.Request[grpc_health_v1.HealthCheckRequest]
	response = connect.Response[grpc_health_v1.HealthCheckResponse]
)

func check(context.Context, *request) (*response, error) {
	return connect.NewResponse(&grpc_health_v1.HealthCheckResponse{}), nil
}

// main serves the handler alone and behind vanguard, and prints the two ports.
func main() {
	alone := connect.NewUnaryHandler(service+"Check", check)
	transcoder, err := vanguard.NewTranscoder([]*vanguard.Service{vanguard.NewService(service, alone)})
	if err != nil {
		panic(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	for _, handler := range []http.Handler{alone, transcoder} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		fmt.Println(listener.Addr().(*net.TCPAddr).Port)
		server := &http.Server{Handler: handler, Protocols: protocols}
		go func() { panic(server.Serve(listener)) }()
	}
	select {}
}
GO
(cd "$folder/go" && GOFLAGS=-mod=mod go build -o "$folder/see" . >&2)
cat > "$folder/see.py" <<'PYTHON'
import collections, subprocess, sys
import grpc

DAY = 86400
REJECTED = "INTERNAL Received http2 header with status: 400"


def call(channel, timeout):
    try:
        channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=timeout)
    except grpc.RpcError as error:
        return f"{error.code().name} {error.details()}"
    return "OK"


def first(target, timeout):
    # Channels of one target share their connection otherwise.
    with grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        return call(channel, timeout)


def count(target, timeout):
    """Return how often first calls and further calls end with this deadline in which way."""
    firsts = collections.Counter(first(target, timeout) for _ in range(20))
    with grpc.insecure_channel(target) as channel:
        call(channel, 60)
        return firsts, collections.Counter(call(channel, timeout) for _ in range(40))


server = subprocess.Popen([sys.argv[1]], stdout=subprocess.PIPE, text=True)
try:
    seen = {}
    for name in ("connect-go", "vanguard"):
        target = f"127.0.0.1:{server.stdout.readline().strip()}"
        for days in (1, 365):
            seen[name, days] = firsts, further = count(target, days * DAY)
            print(f"{name}, {days} days: first calls {dict(firsts)}, further calls {dict(further)}")
finally:
    server.kill()
    server.wait()
right = seen["connect-go", 1] == seen["connect-go", 365] == ({"OK": 20}, {"OK": 40})
firsts, further = seen["vanguard", 1]
right = right and firsts[REJECTED] >= 1 and further["OK"] >= 20
firsts, further = seen["vanguard", 365]
sys.exit(not (right and firsts[REJECTED] == 20 and further[REJECTED] == 40))
PYTHON
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/venv/bin/python" "$folder/see.py" "$folder/see"
