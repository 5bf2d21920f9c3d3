#!/usr/bin/env bash
# After one call of drpc that passes its deadline, all later calls of the connection fail: "context deadline exceeded".
#
# Versions: drpc 1.0.0 with grpc-go 1.85.0 to compare (Go modules); Go 1.26, Linux. drpc's README calls it "a drop-in,
# lightweight gRPC replacement". In gRPC a deadline ends its own call, and the server is told of it in advance (the
# header grpc-timeout). A server of each answers after the time that the request names, and notes whether a call has a
# deadline. A client with one connection makes a quick call, one of 2 s with a deadline of 0.3 s, and five more quick
# ones, each with a deadline of 5 s and each a second after the one before.
#
# Seen: with grpc-go the second call fails and the others succeed. With drpc the five later calls fail as well, each
# within a millisecond, with an error for which `errors.Is(err, context.DeadlineExceeded)` holds, though their own
# deadlines are 5 s away. Each is that of the old call: drpc closes the connection to cancel a call, unless an option
# says otherwise, and dials no other. The server has no deadline in any call. So one slow call ends the work of a client
# for good, and its logs say that all the later calls were slow as well.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/go.mod" <<'MOD'
module see

go 1.25.0

require (
	google.golang.org/grpc v1.85.0
	storj.io/drpc v1.0.0
)
MOD
cat > "$folder/main.go" <<'GO'
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"storj.io/drpc"
	"storj.io/drpc/drpcconn"
	"storj.io/drpc/drpcserver"
)

const method = "/a.B/C"

var deadlines atomic.Int64 // of the calls that the server has seen

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// answer waits as long as the request says, or until its caller is gone.
func answer(ctx context.Context, request *durationpb.Duration) {
	if _, has := ctx.Deadline(); has {
		deadlines.Add(1)
	}
	select {
	case <-time.After(request.AsDuration()):
	case <-ctx.Done():
	}
}

type encoding struct{}

func (encoding) Marshal(message drpc.Message) ([]byte, error) {
	return proto.Marshal(message.(proto.Message))
}

func (encoding) Unmarshal(data []byte, message drpc.Message) error {
	return proto.Unmarshal(data, message.(proto.Message))
}

type handler struct{}

func (handler) HandleRPC(stream drpc.Stream, rpc string) error {
	request := &durationpb.Duration{}
	if err := stream.MsgRecv(request, encoding{}); err != nil {
		return err
	}
	answer(stream.Context(), request)
	return stream.MsgSend(request, encoding{})
}

func handleGRPC(server any, stream grpc.ServerStream) error {
	request := &durationpb.Duration{}
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	answer(stream.Context(), request)
	return stream.SendMsg(request)
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	return listener
}

// see returns how the calls end and how many of them have a deadline at the server.
func see(name string, invoke func(context.Context, *durationpb.Duration) error) (string, int64) {
	deadlines.Store(0)
	call := func(work, limit time.Duration) string {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		err := invoke(ctx, durationpb.New(work))
		left := ctx.Err() == nil
		switch {
		case err == nil:
			return "OK"
		case errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded:
			return fmt.Sprintf("deadline exceeded (time left: %v)", left)
		}
		return err.Error()
	}
	ends := call(0, 5*time.Second) + ", " + call(2*time.Second, 300*time.Millisecond)
	for range 5 {
		time.Sleep(time.Second)
		ends += ", " + call(0, 5*time.Second)
	}
	fmt.Printf("%s: %s; deadlines at the server: %d\n", name, ends, deadlines.Load())
	return ends, deadlines.Load()
}

func main() {
	listener := listen()
	server := grpc.NewServer(grpc.UnknownServiceHandler(handleGRPC))
	go server.Serve(listener)
	client, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	usual, told := see("grpc-go", func(ctx context.Context, request *durationpb.Duration) error {
		return client.Invoke(ctx, method, request, &durationpb.Duration{})
	})

	listener = listen()
	go drpcserver.New(handler{}).Serve(context.Background(), listener)
	transport, err := net.Dial("tcp", listener.Addr().String())
	check(err)
	conn := drpcconn.New(transport)
	closed, untold := see("drpc", func(ctx context.Context, request *durationpb.Duration) error {
		return conn.Invoke(ctx, method, encoding{}, request, &durationpb.Duration{})
	})

	const own, other = ", deadline exceeded (time left: false)", ", deadline exceeded (time left: true)"
	right := usual == "OK"+own+", OK, OK, OK, OK, OK" && closed == "OK"+own+other+other+other+other+other
	if !right || told != 7 || untold != 0 {
		os.Exit(1)
	}
}
GO
(cd "$folder" && GOFLAGS=-mod=mod go build -o see . >&2)
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 "$folder/see"
