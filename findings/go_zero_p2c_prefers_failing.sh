#!/usr/bin/env bash
# Of two servers, go-zero's balancer prefers the one that refuses every call at once: 999 of 1000 calls fail.
#
# Versions: go-zero 1.10.3 with grpc-go 1.85.0 (Go modules); Go 1.26, Linux. zrpc's balancer, "p2c_ewma", is the default
# of its clients. It takes two servers by chance, keeps a success rate of each beside its delay and its running calls,
# and has a threshold below which a server is not healthy; so a server that only fails should get the fewest calls, as
# with any balancer that looks at health. One server answers each call after 5 ms; another one refuses each at once,
# with UNAVAILABLE, or with RESOURCE_EXHAUSTED, as one does that sheds load. A client of zrpc makes 1000 calls, one
# after another, to two good servers, to one good one and the refusing one, and to two good ones and the refusing one;
# then it makes the same with round_robin.
#
# Seen: with good servers alone no call fails. With round_robin a half and a third fail, as many as the refusing server
# is due. With go-zero's balancer 999 fail of one good server and the refusing one, with either status, and about 300
# with two good ones. The load of a server (`subConn.load`) is its delay by its running calls, in which failures do not
# count, and a refusal is the quickest answer of all; `Pick` asks for health only from three servers on, and only to
# draw again, three times at most. With zrpc's circuit breaker, which holds for all the servers of a method, 950 of the
# calls fail in the client. So one broken or overloaded server of two is an outage, and the good one is idle.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/go.mod" <<'MOD'
module see

go 1.25.0

require (
	github.com/zeromicro/go-zero v1.10.3
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
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

	"github.com/zeromicro/go-zero/core/breaker"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/zrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// serve answers each call after 5 ms, or ends it at once with the status, and returns its address.
func serve(code codes.Code) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		if code != codes.OK {
			return status.Error(code, "no")
		}
		time.Sleep(5 * time.Millisecond)
		return stream.SendMsg(&emptypb.Empty{})
	}))
	go server.Serve(listener)
	return listener.Addr().String()
}

// see returns how many of 1000 calls fail, and how many of them the breaker refuses.
func see(name string, breaks bool, addresses []string, options ...zrpc.ClientOption) (int, int) {
	config := zrpc.RpcClientConf{Endpoints: addresses, Timeout: 10000, NonBlock: true}
	config.Middlewares = zrpc.ClientMiddlewaresConf{Timeout: true, Breaker: breaks}
	client, err := zrpc.NewClient(config, options...)
	check(err)
	conn := client.Conn()
	defer conn.Close()
	conn.Connect()
	for range 100 {
		if conn.GetState() == connectivity.Ready {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(500 * time.Millisecond) // so that the other servers are connected as well
	failed, refused := 0, 0
	for range 1000 {
		err := conn.Invoke(context.Background(), "/a.B/C", &emptypb.Empty{}, &emptypb.Empty{})
		if err != nil {
			failed++
		}
		if err == breaker.ErrServiceUnavailable {
			refused++
		}
	}
	fmt.Printf("%s: %d of 1000 calls fail, %d of them in the client\n", name, failed, refused)
	return failed, refused
}

func main() {
	logx.Disable()
	turns := zrpc.WithDialOption(grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))
	first, second := serve(codes.OK), serve(codes.OK)
	right := true
	within := func(failed, refused, least, most int) {
		right = right && least <= failed && failed <= most && refused == 0
	}
	for _, code := range []codes.Code{codes.Unavailable, codes.ResourceExhausted} {
		sick := serve(code)
		good, two, three := []string{first, second}, []string{first, sick}, []string{first, second, sick}
		failed, refused := see("p2c_ewma, two good ones", false, good)
		within(failed, refused, 0, 0)
		failed, refused = see("round_robin, one good, one with "+code.String(), false, two, turns)
		within(failed, refused, 480, 520)
		failed, refused = see("p2c_ewma, one good, one with "+code.String(), false, two)
		within(failed, refused, 950, 1000)
		failed, refused = see("round_robin, two good, one with "+code.String(), false, three, turns)
		within(failed, refused, 313, 353)
		failed, refused = see("p2c_ewma, two good, one with "+code.String(), false, three)
		within(failed, refused, 200, 400)
		failed, refused = see("p2c_ewma and breaker, one good, one with "+code.String(), true, two)
		right = right && failed >= 950 && refused >= 700
	}
	if !right {
		os.Exit(1)
	}
}
GO
(cd "$folder" && GOFLAGS=-mod=mod go build -tags no_k8s -o see . >&2)
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 100 "$folder/see"
