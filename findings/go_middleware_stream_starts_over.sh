#!/usr/bin/env bash
# A stream that go-grpc-middleware retries starts over halfway: its reader gets the first messages twice, and no error.
#
# Versions: go-grpc-middleware 2.3.4 with grpc-go 1.85.0 (Go modules); Go 1.26, Linux. gRFC A6 commits a call to its
# attempt once the client has received the beginning of an answer: after that it is not retried, since the caller may
# have seen a part. The library documents `StreamClientInterceptor` as a "retrying stream client interceptor for server
# side streaming calls", which buffers what the client has sent. A server streams the numbers 1 to 4, but fails the
# first two streams with UNAVAILABLE after two numbers. A client reads a stream, once with the retry policy of a service
# config and once with that interceptor, both with a limit of two attempts.
#
# Seen: with the retry policy, the reader gets 1, 2 and then UNAVAILABLE. With the interceptor, it gets 1, 2, 1, 2, 1,
# 2, 3, 4 and a good end, from three streams: the interceptor makes the call anew whenever the next message fails, and
# counts its attempts anew for each message. So a total, a list or a copy that is made of a stream has records twice
# after a server's restart; a reader who sees the error can throw away what he has, but this one sees none. And the
# limit of attempts does not bound the calls, as long as each brings a message.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/go.mod" <<'MOD'
module see

go 1.25.0

require (
	github.com/grpc-ecosystem/go-grpc-middleware/v2 v2.3.4
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.11
)
MOD
cat > "$folder/main.go" <<'GO'
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/retry"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const policy = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": "0.1s",
	"maxBackoff": "0.1s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

var streams atomic.Int64

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// count streams 1 to 4, but fails the first two streams after 2.
func count(_ any, stream grpc.ServerStream) error {
	number := streams.Add(1)
	if err := stream.RecvMsg(&wrapperspb.Int32Value{}); err != nil {
		return err
	}
	for value := range int32(4) {
		if value == 2 && number <= 2 {
			return status.Error(codes.Unavailable, "no")
		}
		if err := stream.SendMsg(wrapperspb.Int32(value + 1)); err != nil {
			return err
		}
	}
	return nil
}

// see returns what a reader of the stream gets, and how the stream ends.
func see(address, name string, option grpc.DialOption) string {
	streams.Store(0)
	client, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), option)
	check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	stream, err := client.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/a.B/C")
	check(err)
	check(stream.SendMsg(wrapperspb.Int32(0)))
	check(stream.CloseSend())
	got := ""
	for {
		message := &wrapperspb.Int32Value{}
		if err = stream.RecvMsg(message); err != nil {
			break
		}
		got += fmt.Sprintf("%d ", message.Value)
	}
	if err == io.EOF {
		got += "OK"
	} else {
		got += status.Code(err).String()
	}
	fmt.Printf("%s: %s; %d streams at the server\n", name, got, streams.Load())
	return got
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	server := grpc.NewServer(grpc.UnknownServiceHandler(count))
	go server.Serve(listener)
	address := listener.Addr().String()
	limits := []retry.CallOption{
		retry.WithMax(2),
		retry.WithCodes(codes.Unavailable),
		retry.WithBackoff(retry.BackoffLinear(100 * time.Millisecond)),
	}
	usual := see(address, "retry policy", grpc.WithDefaultServiceConfig(policy))
	retried := see(address, "go-grpc-middleware", grpc.WithStreamInterceptor(retry.StreamClientInterceptor(limits...)))
	if usual != "1 2 Unavailable" || retried != "1 2 1 2 1 2 3 4 OK" {
		os.Exit(1)
	}
}
GO
(cd "$folder" && GOFLAGS=-mod=mod go build -o see . >&2)
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 "$folder/see"
