#!/usr/bin/env bash
# A fallback or a cached response of failsafe-go's gRPC client never arrives: the call succeeds with an empty message.
#
# Versions: failsafe-go 0.9.8 with grpc-go 1.85.0 (Go modules); Go 1.26, Linux. failsafe-go documents that a Fallback
# "returns the result when an execution fails", that a CachePolicy gets results from a cache, and that
# `NewUnaryClientInterceptor` "wraps the invoker with the policies". grpc-go's health server says SERVING for one
# service and NOT_FOUND for another. A client with a fallback of NOT_SERVING asks for the unknown service; one with a
# cache asks for the known one twice.
#
# Seen: without policies NOT_FOUND, as it should be. With the fallback the call has no error, and a response without any
# field set, whose status is UNKNOWN; the same with a function as fallback. With the cache the first response is SERVING
# and the second, from the cache, is empty too, without an error. The interceptor drops what the policies return: only
# an attempt writes into the caller's message. So a zero amount, an empty list or `false` goes on into the program as
# what the server has said, on each cached call and during each outage.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/go.mod" <<'MOD'
module see

go 1.25.0

require (
	github.com/failsafe-go/failsafe-go v0.9.8
	google.golang.org/grpc v1.85.0
)
MOD
cat > "$folder/main.go" <<'GO'
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/cachepolicy"
	"github.com/failsafe-go/failsafe-go/failsafegrpc"
	"github.com/failsafe-go/failsafe-go/fallback"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

type response = *healthpb.HealthCheckResponse

type cache map[string]response

func (c cache) Get(key string) (response, bool) {
	value, found := c[key]
	return value, found
}

func (c cache) Set(key string, value response) {
	c[key] = value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	go server.Serve(listener)

	// see returns how two calls of a client with these policies end.
	see := func(name, service string, policies ...failsafe.Policy[response]) string {
		client, err := grpc.NewClient(listener.Addr().String(),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithUnaryInterceptor(failsafegrpc.NewUnaryClientInterceptor(policies...)))
		check(err)
		ends := ""
		for range 2 {
			request := &healthpb.HealthCheckRequest{Service: service}
			answer, err := healthpb.NewHealthClient(client).Check(context.Background(), request)
			if status.Code(err) == codes.OK {
				ends += fmt.Sprintf("OK %v; ", answer.GetStatus())
			} else {
				ends += fmt.Sprintf("%v; ", status.Code(err))
			}
		}
		fmt.Printf("%s: %s\n", name, ends)
		return ends
	}

	none := &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}
	result := fallback.NewWithResult(none)
	function := fallback.NewWithFunc(func(failsafe.Execution[response]) (response, error) { return none, nil })
	cached := cachepolicy.NewBuilder[response](cache{}).WithKey("a").Build()
	right := see("no policy", "unknown") == "NotFound; NotFound; "
	right = see("fallback, a result", "unknown", result) == "OK UNKNOWN; OK UNKNOWN; " && right
	right = see("fallback, a function", "unknown", function) == "OK UNKNOWN; OK UNKNOWN; " && right
	right = see("no policy, known", "") == "OK SERVING; OK SERVING; " && right
	right = see("cache", "", cached) == "OK SERVING; OK UNKNOWN; " && right
	if !right {
		os.Exit(1)
	}
}
GO
(cd "$folder" && GOFLAGS=-mod=mod go build -o see . >&2)
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 "$folder/see"
