#!/usr/bin/env bash
# A stream of grpchan's httpgrpc whose server fails to encode a message ends with OK, and the rest is missing.
#
# Versions: grpchan 1.1.2 with grpc-go 1.85.0 (Go modules); Go 1.26, Linux. httpgrpc carries gRPC over HTTP/1.1. Its
# documentation says that a stream of responses ends with a message of its own, which has the status of the call; gRPC
# ends a call without a status as a failure. A server streams three names, of which the second has a byte of Latin-1,
# so that it cannot be a string of protobuf; the handler returns the error of `SendMsg`. To compare, it fails another
# stream after the first name with DATA_LOSS. A client reads both streams over grpc-go and over httpgrpc.
#
# Seen: both bring DATA_LOSS. Of the bad name, grpc-go's client gets INTERNAL after "Anna", and httpgrpc's client gets
# "Anna" and io.EOF, the good end of a stream, though the same handler has returned an error. After a failed `SendMsg`
# the server (`handleStream`) writes no last message, for it takes the connection for broken, and closes the HTTP body
# in good order; the client (`doHttpCall`) hands on the EOF that it met where the last message should be. So a record
# with bad text cuts the list at its place, on each read, and the reader takes the part for the whole.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/go.mod" <<'MOD'
module see

go 1.25.0

require (
	github.com/fullstorydev/grpchan v1.1.2
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
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/fullstorydev/grpchan/httpgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// list streams three names, or fails after the first if the request is true.
func list(_ any, stream grpc.ServerStream) error {
	request := &wrapperspb.BoolValue{}
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	for _, name := range []string{"Anna", "Bj\xf6rn", "Carl"} {
		if err := stream.SendMsg(wrapperspb.String(name)); err != nil {
			fmt.Printf("the handler returns: %v\n", err)
			return err
		}
		if request.Value {
			return status.Error(codes.DataLoss, "no")
		}
	}
	return nil
}

var service = grpc.ServiceDesc{
	ServiceName: "a.B",
	HandlerType: (*any)(nil),
	Streams:     []grpc.StreamDesc{{StreamName: "C", Handler: list, ServerStreams: true}},
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	return listener
}

// see returns what a reader of the stream gets, and how the stream ends.
func see(name string, channel grpc.ClientConnInterface, fails bool) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	stream, err := channel.NewStream(ctx, &service.Streams[0], "/a.B/C")
	check(err)
	check(stream.SendMsg(wrapperspb.Bool(fails)))
	check(stream.CloseSend())
	got := ""
	for {
		message := &wrapperspb.StringValue{}
		if err = stream.RecvMsg(message); err != nil {
			break
		}
		got += message.Value + ", "
	}
	if err == io.EOF {
		got += "OK"
	} else {
		got += status.Code(err).String()
	}
	fmt.Printf("%s: %s\n", name, got)
	return got
}

func main() {
	listener := listen()
	server := grpc.NewServer()
	server.RegisterService(&service, struct{}{})
	go server.Serve(listener)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)

	listener = listen()
	other := httpgrpc.NewServer()
	other.RegisterService(&service, struct{}{})
	go http.Serve(listener, other)
	base := &url.URL{Scheme: "http", Host: listener.Addr().String()}
	channel := &httpgrpc.Channel{Transport: http.DefaultTransport, BaseURL: base}

	right := see("grpc-go, a status", conn, true) == "Anna, DataLoss"
	right = see("httpgrpc, a status", channel, true) == "Anna, DataLoss" && right
	right = see("grpc-go, bad text", conn, false) == "Anna, Internal" && right
	right = see("httpgrpc, bad text", channel, false) == "Anna, OK" && right
	if !right {
		os.Exit(1)
	}
}
GO
(cd "$folder" && GOFLAGS=-mod=mod go build -o see . >&2)
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 60 "$folder/see"
