#!/usr/bin/env bash
# grpc-gateway takes `Grpc-Timeout: 0m`, a deadline that is over, for no deadline: the call runs on without a limit.
#
# Versions: grpc-gateway 2.33.0 with grpc-go 1.85.0 (Go modules); Go 1.26, Linux. grpc-gateway sets "gRPC timeouts" from
# this header (README), whose values gRPC defines as positive (PROTOCOL-HTTP2.md); `DefaultContextTimeout` is documented
# for requests without the header. A health service answers after two seconds and notes the deadline of its call. A
# handler of the gateway calls it as generated ones do, with `AnnotateContext`. A plain HTTP client sends it the headers
# "10S", "1m", "-1S" and "0m", and then sends "0m" to the gRPC server itself.
#
# Seen: with "10S" the call has a deadline of 10 s and succeeds; with "1m", a millisecond, it ends at once (HTTP 504),
# and "-1S" is refused with 400. With "0m" the call has no deadline at all and succeeds after two seconds. The server
# itself answers "0m" at once with DEADLINE_EXCEEDED. A client that sends the rest of its time, such as
# `Math.max(0, deadline - now)`, sends 0 when that is used up, and older versions of grpc-java did so as well. So the
# calls whose callers have no time left are the ones that nothing ends.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/go.mod" <<'MOD'
module see

go 1.25.0

require (
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.33.0
	google.golang.org/grpc v1.85.0
)
MOD
cat > "$folder/main.go" <<'GO'
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
)

type service struct {
	health.UnimplementedHealthServer
	deadlines chan string
}

func (s service) Check(ctx context.Context, _ *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	deadline, ok := ctx.Deadline()
	if ok {
		s.deadlines <- fmt.Sprintf("%.0f s", max(0, time.Until(deadline).Seconds()))
	} else {
		s.deadlines <- "none"
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(2 * time.Second):
		return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	deadlines := make(chan string, 10)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	server := grpc.NewServer()
	health.RegisterHealthServer(server, service{deadlines: deadlines})
	go server.Serve(listener)
	address := listener.Addr().String()
	channel, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)

	mux := runtime.NewServeMux()
	call := func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
		_, marshaler := runtime.MarshalerForRequest(mux, r)
		ctx, err := runtime.AnnotateContext(r.Context(), mux, r, health.Health_Check_FullMethodName)
		var response *health.HealthCheckResponse
		if err == nil {
			response, err = health.NewHealthClient(channel).Check(ctx, &health.HealthCheckRequest{})
		}
		if err != nil {
			runtime.HTTPError(r.Context(), mux, marshaler, w, r, err)
			return
		}
		runtime.ForwardResponseMessage(ctx, mux, marshaler, w, r, response)
	}
	check(mux.HandlePath("GET", "/check", call))
	gateway := httptest.NewServer(mux)

	same := true
	see := func(name, seen, expected string) {
		fmt.Printf("%s: %s\n", name, seen)
		same = same && seen == expected
	}
	for header, expected := range map[string]string{
		"10S": "HTTP 200, server's deadline 10 s",
		"1m":  "HTTP 504",
		"-1S": "HTTP 400",
		"0m":  "HTTP 200, server's deadline none",
	} {
		request, err := http.NewRequest("GET", gateway.URL+"/check", nil)
		check(err)
		request.Header.Set("Grpc-Timeout", header)
		response, err := http.DefaultClient.Do(request)
		check(err)
		response.Body.Close()
		seen := fmt.Sprintf("HTTP %d", response.StatusCode)
		if response.StatusCode == 200 {
			seen += ", server's deadline " + <-deadlines
		}
		for len(deadlines) > 0 {
			<-deadlines
		}
		see("gateway, "+header, seen, expected)
	}

	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := http.Client{Transport: &http.Transport{Protocols: protocols}, Timeout: 10 * time.Second}
	url := "http://" + address + health.Health_Check_FullMethodName
	request, err := http.NewRequest("POST", url, bytes.NewReader(make([]byte, 5)))
	check(err)
	request.Header = http.Header{"Grpc-Timeout": {"0m"}, "Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	began := time.Now()
	response, err := client.Do(request)
	check(err)
	_, err = io.Copy(io.Discard, response.Body)
	check(err)
	seen := "grpc-status " + response.Header.Get("Grpc-Status")
	if time.Since(began) < time.Second {
		seen += " at once"
	}
	see("server, 0m", seen, "grpc-status 4 at once")
	if !same {
		os.Exit(1)
	}
}
GO
(cd "$folder" && GOFLAGS=-mod=mod go build -o see . >&2)
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 "$folder/see"
