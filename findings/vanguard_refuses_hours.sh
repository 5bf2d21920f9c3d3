#!/usr/bin/env bash
# Vanguard refuses gRPC calls whose deadline of nine hours or more is written in hours, such as some calls of grpcio.
#
# Versions: Vanguard 0.4.0 with grpc-go 1.85.0 (Go modules), grpcio 1.85.3 as the client; Go 1.26, Python 3.11 or newer,
# Linux. The header grpc-timeout has up to eight digits and a unit, of which "H" is hours (PROTOCOL-HTTP2.md). grpc-go's
# health server is called by itself and through Vanguard's transcoder, which has nothing to translate here, with gRPC on
# both sides: with the headers "8H", "9H", and "32400S", which is nine hours as well, and with grpcio's calls with
# deadlines of one day and of 100 days, each as the first call of twenty channels.
#
# Seen: the server takes them all. Vanguard lets "8H" and "32400S" pass, and answers "9H" with HTTP 400. It refuses
# about half of grpcio's calls with a day and all with 100 days: INTERNAL, and the server never hears of them. grpcio
# rounds a deadline up to three digits and writes it in hours if it then is a whole number of them, so that a day is
# "24H" or "86500S" by how long the call waited for its connection. A comment in Vanguard says that so long a time is to
# be ignored, but its reader of the header returns this as an error. So a long subscription fails now and then, with a
# status that callers do not repeat.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet grpcio==1.85.3
cat > "$folder/go.mod" <<'MOD'
module see

go 1.25.0

require (
	connectrpc.com/vanguard v0.4.0
	google.golang.org/grpc v1.85.0
)
MOD
cat > "$folder/main.go" <<'GO'
package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"connectrpc.com/vanguard"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	schema := healthpb.File_grpc_health_v1_health_proto.Services().ByName("Health")
	protocol := vanguard.WithTargetProtocols(vanguard.ProtocolGRPC)
	service := vanguard.NewServiceWithSchema(schema, server, protocol)
	transcoder, err := vanguard.NewTranscoder([]*vanguard.Service{service})
	check(err)

	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := http.Client{Transport: &http.Transport{Protocols: protocols}}
	same := true
	see := func(name string, handler http.Handler, expected string) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		check(err)
		go (&http.Server{Handler: handler, Protocols: protocols}).Serve(listener)
		address := listener.Addr().String()
		var seen []string
		for _, timeout := range []string{"8H", "9H", "32400S"} {
			url := "http://" + address + healthpb.Health_Check_FullMethodName
			request, err := http.NewRequest("POST", url, bytes.NewReader(make([]byte, 5)))
			check(err)
			request.Header = http.Header{
				"Grpc-Timeout": {timeout},
				"Content-Type": {"application/grpc"},
				"Te":           {"trailers"},
			}
			response, err := client.Do(request)
			check(err)
			_, err = io.Copy(io.Discard, response.Body)
			check(err)
			end := fmt.Sprintf("HTTP %d", response.StatusCode)
			if response.Trailer.Get("Grpc-Status") == "0" {
				end = "OK"
			}
			seen = append(seen, timeout+" "+end)
		}
		command := exec.Command(os.Args[1], os.Args[2], address)
		command.Stderr = os.Stderr
		output, err := command.Output()
		check(err)
		line := strings.Join(seen, ", ") + ", " + strings.TrimSpace(string(output))
		fmt.Printf("%s: %s\n", name, line)
		same = same && line == expected
	}
	see("server", server, "8H OK, 9H OK, 32400S OK, 1 day all OK, 100 days all OK")
	see("Vanguard", transcoder, "8H OK, 9H HTTP 400, 32400S OK, 1 day some INTERNAL, 100 days all INTERNAL")
	if !same {
		os.Exit(1)
	}
}
GO
cat > "$folder/call.py" <<'PYTHON'
import sys
import grpc


def call(timeout):
    """Make the first call of a channel; return its status."""
    with grpc.insecure_channel(sys.argv[1], [("grpc.use_local_subchannel_pool", 1)]) as channel:
        try:
            channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=timeout)
        except grpc.RpcError as error:
            return error.code().name
    return "OK"


seen = []
for name, days in (("1 day", 1), ("100 days", 100)):
    ends = [call(days * 86400) for _ in range(20)]
    print(f"grpcio, {name}: {ends.count('OK')} of {len(ends)} succeed", file=sys.stderr)
    some = sorted(set(ends) - {"OK"}) or ["OK"]
    seen.append(f"{name} {'all' if len(set(ends)) == 1 else 'some'} {' '.join(some)}")
print(", ".join(seen))
PYTHON
(cd "$folder" && GOFLAGS=-mod=mod go build -o see . >&2)
see=("$folder/see" "$folder/venv/bin/python" "$folder/call.py")
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 "${see[@]}"
