#!/usr/bin/env bash
# A Kratos server logs an error 500 for each upload that ends well, and none for a stream that fails with UNAVAILABLE.
#
# Versions: Kratos 2.8.3 with grpc-go 1.85.0 (Go modules); Go 1.26, Linux. Kratos's middlewares, such as logs, metrics
# and rate limits, go around the calls of a server: `Middleware` is for unary calls, and `StreamMiddleware` for streams.
# grpc-go's `RecvMsg` returns io.EOF in a handler when the client has sent all its messages. A server of Kratos has
# Kratos's own `logging.Server` for both. It gets four calls: a good unary call, one that fails with UNAVAILABLE, an
# upload of three messages that succeeds, and a stream of responses that fails with UNAVAILABLE after one message.
#
# Seen: of the unary calls, the log has one line each, with the codes 200 and 503. Of the upload, it has five lines, of
# which one is an ERROR with the code 500, "EOF"; the client has its answer, and OK. Of the stream that fails, it has
# two lines, both with 200, and not a word of UNAVAILABLE. The middlewares run once for each message that a handler
# receives or sends (`wrappedStream.RecvMsg` and `SendMsg`), where the good end of an upload looks like an error, and
# never around the handler: `streamServerInterceptor` puts a chain of them around it, and does not call it. So alerts on
# errors fire for each good upload, and stay silent while every stream fails.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/go.mod" <<'MOD'
module see

go 1.25.0

require (
	github.com/go-kratos/kratos/v2 v2.8.3
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
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
	"strings"
	"sync"
	"time"

	klog "github.com/go-kratos/kratos/v2/log"
	"github.com/go-kratos/kratos/v2/middleware/logging"
	kratos "github.com/go-kratos/kratos/v2/transport/grpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

var unavailable = status.Error(codes.Unavailable, "no")

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A logger keeps the level and the code of each line.
type logger struct {
	sync.Mutex
	lines []string
}

func (l *logger) Log(level klog.Level, pairs ...any) error {
	l.Lock()
	defer l.Unlock()
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] == "code" {
			l.lines = append(l.lines, fmt.Sprintf("%v %v", level, pairs[i+1]))
		}
	}
	return nil
}

// take returns the lines since it was called before.
func (l *logger) take() string {
	l.Lock()
	defer l.Unlock()
	defer func() { l.lines = nil }()
	return strings.Join(l.lines, ", ")
}

// add answers an upload with the sum of its numbers.
func add(_ any, stream grpc.ServerStream) error {
	for sum := int32(0); ; {
		number := &wrapperspb.Int32Value{}
		if err := stream.RecvMsg(number); err == io.EOF {
			return stream.SendMsg(wrapperspb.Int32(sum))
		} else if err != nil {
			return err
		}
		sum += number.Value
	}
}

// fail streams one number and fails.
func fail(_ any, stream grpc.ServerStream) error {
	number := &wrapperspb.Int32Value{}
	if err := stream.RecvMsg(number); err != nil {
		return err
	}
	if err := stream.SendMsg(number); err != nil {
		return err
	}
	return unavailable
}

// answer answers a number below zero, and fails on others.
func answer(_ any, ctx context.Context, decode func(any) error, around grpc.UnaryServerInterceptor) (any, error) {
	number := &wrapperspb.Int32Value{}
	if err := decode(number); err != nil {
		return nil, err
	}
	info := &grpc.UnaryServerInfo{FullMethod: "/a.B/Answer"}
	return around(ctx, number, info, func(context.Context, any) (any, error) {
		if number.Value < 0 {
			return number, nil
		}
		return nil, unavailable
	})
}

var service = grpc.ServiceDesc{
	ServiceName: "a.B",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Answer", Handler: answer}},
	Streams: []grpc.StreamDesc{
		{StreamName: "Add", Handler: add, ClientStreams: true},
		{StreamName: "Fail", Handler: fail, ServerStreams: true},
	},
}

func main() {
	lines := &logger{}
	klog.SetLogger(klog.NewFilter(klog.DefaultLogger, klog.FilterLevel(klog.LevelFatal)))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	logs := logging.Server(lines)
	server := kratos.NewServer(kratos.Listener(listener), kratos.Middleware(logs), kratos.StreamMiddleware(logs))
	server.RegisterService(&service, struct{}{})
	_, err = server.Endpoint()
	check(err)
	go server.Start(context.Background())
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	unary := func(number int32) error {
		return conn.Invoke(ctx, "/a.B/Answer", wrapperspb.Int32(number), &wrapperspb.Int32Value{})
	}
	// stream sends the numbers, and reads until the end or the one answer of an upload.
	stream := func(description *grpc.StreamDesc, numbers ...int32) error {
		stream, err := conn.NewStream(ctx, description, "/a.B/"+description.StreamName)
		check(err)
		for _, number := range numbers {
			check(stream.SendMsg(wrapperspb.Int32(number)))
		}
		check(stream.CloseSend())
		for {
			err := stream.RecvMsg(&wrapperspb.Int32Value{})
			if err == io.EOF && description.ServerStreams {
				return nil
			} else if err != nil || !description.ServerStreams {
				return err
			}
		}
	}
	right := true
	see := func(name string, err error, code codes.Code, expected string) {
		time.Sleep(500 * time.Millisecond) // a line may follow the answer
		seen := lines.take()
		fmt.Printf("%s: %v for the client; in the log %s\n", name, status.Code(err), seen)
		right = right && status.Code(err) == code && seen == expected
	}
	see("good unary call", unary(-1), codes.OK, "INFO 200")
	see("bad unary call", unary(1), codes.Unavailable, "ERROR 503")
	see("good upload", stream(&service.Streams[0], 1, 2, 3), codes.OK,
		"INFO 200, INFO 200, INFO 200, ERROR 500, INFO 200")
	see("bad stream of responses", stream(&service.Streams[1], 1), codes.Unavailable, "INFO 200, INFO 200")
	if !right {
		os.Exit(1)
	}
}
GO
(cd "$folder" && GOFLAGS=-mod=mod go build -o see . >&2)
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 "$folder/see"
