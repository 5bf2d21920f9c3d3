#!/usr/bin/env bash
# A gRPC server that sheds load with failsafe-go answers PERMISSION_DENIED or UNKNOWN, which its own retries pass over.
#
# Versions: failsafe-go 0.9.8 with grpc-go 1.85.0 (Go modules); Go 1.26, Linux. gRPC's guide to statuses has UNAVAILABLE
# and RESOURCE_EXHAUSTED for a server that cannot take a call now; PERMISSION_DENIED "must not be used for rejections
# caused by exhausting some resource". failsafe-go documents `NewServerInHandle` as a way to "limit server side load",
# which "should be preferred" to `NewUnaryServerInterceptor`, and its `NewRetryPolicyBuilder` for clients to retry
# UNAVAILABLE, DEADLINE_EXCEEDED and RESOURCE_EXHAUSTED. grpc-go's health server gets each of the two, once with a
# bulkhead of one call that is taken and once with an open circuit breaker. A client with that retry policy calls it.
#
# Seen: the in-handle answers PERMISSION_DENIED "bulkhead full" and "circuit breaker open", the interceptor UNKNOWN with
# the same texts, and the client makes one attempt. failsafe-go returns its own errors; grpc-go's hook takes one without
# a status for a refusal, and its interceptors make it UNKNOWN. So an overload looks like a fault of the caller's
# credentials or a bug of the server, nothing is retried at another one, and an alarm for lost permissions goes off.
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
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafegrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// see returns the status of a call to a server with this option, and how many attempts a client with retries makes.
func see(name string, option grpc.ServerOption) (codes.Code, int) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	server := grpc.NewServer(option)
	healthpb.RegisterHealthServer(server, health.NewServer())
	go server.Serve(listener)
	attempts := 0
	count := func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		attempts++
		return invoke(ctx, method, request, reply, conn, options...)
	}
	retries := failsafegrpc.NewRetryPolicyBuilder[*healthpb.HealthCheckResponse]().ReturnLastFailure().Build()
	client, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(failsafegrpc.NewUnaryClientInterceptor(retries), count))
	check(err)
	_, err = healthpb.NewHealthClient(client).Check(context.Background(), &healthpb.HealthCheckRequest{})
	fmt.Printf("%s: %v, attempts %d\n", name, err, attempts)
	return status.Code(err), attempts
}

func refuse(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return nil, status.Error(codes.Unavailable, "no")
}

func main() {
	full := bulkhead.New[any](1)
	if !full.TryAcquirePermit() {
		log.Fatal("no permit")
	}
	open := circuitbreaker.NewWithDefaults[any]()
	open.Open()
	code, attempts := see("a status of its own", grpc.UnaryInterceptor(refuse))
	right := code == codes.Unavailable && attempts == 3
	for _, policy := range []failsafe.Policy[any]{full, open} {
		code, attempts = see("in-handle", grpc.InTapHandle(failsafegrpc.NewServerInHandle(policy)))
		right = right && code == codes.PermissionDenied && attempts == 1
		code, attempts = see("interceptor", grpc.UnaryInterceptor(failsafegrpc.NewUnaryServerInterceptor(policy)))
		right = right && code == codes.Unknown && attempts == 1
	}
	if !right {
		os.Exit(1)
	}
}
GO
(cd "$folder" && GOFLAGS=-mod=mod go build -o see . >&2)
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 "$folder/see"
