#!/usr/bin/env bash
# A ttrpc server never hears that a call was cancelled: it works to the end, and the caller's error has no status.
#
# Versions: ttrpc 1.2.10 with grpc-go 1.85.0 to compare (Go modules); Go 1.26, Linux. containerd's ttrpc is "GRPC for
# low-memory environments"; its README lists the differences from gRPC, of which none is about the end of calls. gRPC's
# guide to cancellation says that the server is told, so that it can stop its work. A server of each works on a call for
# two seconds, or until the context of the call is done. A client makes three calls: one that it cancels after half a
# second, one with a deadline of half a second, and one that it cancels with the rest of the connection.
#
# Seen: grpc-go's server ends all three after half a second, and the errors have the codes Canceled, DeadlineExceeded
# and Canceled. ttrpc's server ends the second one, since it was told the deadline in advance, and the third one, since
# its connection is gone. The first one works for all of the two seconds, and its result is thrown away with a log line
# of an "inactive stream". The client's errors are those of the context, whose status code is Unknown. So a caller that
# gives up, such as a web request or a hedged call, leaves its work behind, and code that asks for codes.Canceled or
# codes.DeadlineExceeded, which works with gRPC, finds neither.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/go.mod" <<'MOD'
module see

go 1.25.0

require (
	github.com/containerd/ttrpc v1.2.10
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.11
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
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

const half = 500 * time.Millisecond

var ends = make(chan time.Duration)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// work takes two seconds, or until its caller has gone.
func work(ctx context.Context) {
	began := time.Now()
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
	}
	ends <- time.Since(began)
}

type client interface {
	call(ctx context.Context) error
	Close() error
}

type overGRPC struct{ *grpc.ClientConn }

func (c overGRPC) call(ctx context.Context) error {
	return c.Invoke(ctx, "/a.B/C", &durationpb.Duration{}, &durationpb.Duration{})
}

type overTTRPC struct{ *ttrpc.Client }

func (c overTTRPC) call(ctx context.Context) error {
	return c.Call(ctx, "a.B", "C", &durationpb.Duration{}, &durationpb.Duration{})
}

// see returns for each call whether the server stopped in time, and which code its error has.
func see(name string, c client) string {
	told := ""
	for _, how := range []string{"cancel", "deadline", "cancel and close"} {
		ctx, cancel := context.WithCancel(context.Background())
		switch how {
		case "cancel":
			time.AfterFunc(half, cancel)
		case "deadline":
			ctx, cancel = context.WithTimeout(ctx, half)
		default:
			time.AfterFunc(half, func() { cancel(); c.Close() })
		}
		err := c.call(ctx)
		worked, code := <-ends, status.Code(err)
		fmt.Printf("%s, %s: the server worked for %.1f s; %v (%v)\n", name, how, worked.Seconds(), code, err)
		told += fmt.Sprintf("%s: %v, %v; ", how, worked < 3*half, code)
		cancel()
	}
	return told
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	return listener
}

func main() {
	listener := listen()
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&durationpb.Duration{}); err != nil {
			return err
		}
		work(stream.Context())
		return stream.SendMsg(&durationpb.Duration{})
	}))
	go server.Serve(listener)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	usual := see("grpc-go", overGRPC{conn})

	listener = listen()
	other, err := ttrpc.NewServer()
	check(err)
	method := func(ctx context.Context, read func(any) error) (any, error) {
		request := &durationpb.Duration{}
		if err := read(request); err != nil {
			return nil, err
		}
		work(ctx)
		return request, nil
	}
	other.Register("a.B", map[string]ttrpc.Method{"C": method})
	go other.Serve(context.Background(), listener)
	transport, err := net.Dial("tcp", listener.Addr().String())
	check(err)
	lighter := see("ttrpc", overTTRPC{ttrpc.NewClient(transport)})

	const expected = "cancel: true, Canceled; deadline: true, DeadlineExceeded; cancel and close: true, Canceled; "
	const seen = "cancel: false, Unknown; deadline: true, Unknown; cancel and close: true, Unknown; "
	if usual != expected || lighter != seen {
		os.Exit(1)
	}
}
GO
(cd "$folder" && GOFLAGS=-mod=mod go build -o see . >&2)
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 "$folder/see"
