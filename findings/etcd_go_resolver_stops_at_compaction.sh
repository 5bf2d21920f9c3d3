#!/usr/bin/env bash
# If etcd compacts while a client is cut off from it, the client's gRPC resolver stops for good, and keeps dead servers.
#
# Versions: go.etcd.io/etcd/client/v3 3.7.3 with grpc-go 1.85.0 (Go modules), etcd 3.4.23 (Debian 12's package); Go
# 1.26, Debian 12. etcd's client has a resolver for grpc-go ("naming/resolver"), by which a channel follows the
# addresses that a service has in etcd: it watches the keys below the name. To grpc-go a resolver is what "watches for
# the updates on the specified target". An instance of a service is registered, and a channel calls it. The connection
# between the client and etcd is cut; the instance stops, another one takes over its key, and etcd compacts, as it does
# every few minutes where it is told to. Then the connection is there again. The same is done without the compaction. At
# last the channel's owner asks etcd for the addresses with the same client.
#
# Seen: without the compaction, the channel calls the new instance soon after. With it, all calls of the next twenty
# seconds are UNAVAILABLE, from the old address, and those after a third instance is registered, too, though the client
# works: it lists the new addresses at once. The watch ends with an error, which says that its revision is compacted.
# `endpointManager.watch` logs it and returns, `resolver.watch` returns as well, without an error for the channel, and
# `ResolveNow`, which gRPC calls after each lost connection, does nothing. So after a break in the network, clients
# whose instances were replaced meanwhile fail until they are started again, and retries and backoff are of no use.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
(cd "$folder" && apt-get download -qq 'etcd-server=3.4.23*' && dpkg -x etcd-server*.deb debian) >&2
cat > "$folder/go.mod" <<'MOD'
module see

go 1.26.0

require (
	go.etcd.io/etcd/client/v3 v3.7.3
	go.uber.org/zap v1.27.1
	google.golang.org/grpc v1.85.0
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
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/naming/endpoints"
	"go.etcd.io/etcd/client/v3/naming/resolver"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	return listener
}

func freeAddress() string {
	listener := listen()
	defer listener.Close()
	return listener.Addr().String()
}

// A link passes connections on to etcd, until it is cut.
type link struct {
	sync.Mutex
	cut   bool
	conns []net.Conn
}

func (l *link) setCut(cut bool) {
	l.Lock()
	defer l.Unlock()
	l.cut = cut
	for _, conn := range l.conns {
		conn.Close()
	}
	l.conns = nil
}

func (l *link) serve(listener net.Listener, address string) {
	for {
		near, err := listener.Accept()
		check(err)
		l.Lock()
		if far, err := net.Dial("tcp", address); err != nil || l.cut {
			near.Close()
		} else {
			l.conns = append(l.conns, near, far)
			for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					io.Copy(pair[0], pair[1])
					pair[0].Close()
				}()
			}
		}
		l.Unlock()
	}
}

// instance starts an instance of the service and returns its address.
func instance() (*grpc.Server, string) {
	listener := listen()
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	go server.Serve(listener)
	return server, listener.Addr().String()
}

// reach makes up to twenty calls, a second apart, until one succeeds, and returns how the last one ends.
func reach(conn *grpc.ClientConn) string {
	end := ""
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		cancel()
		if err == nil {
			return "OK"
		}
		end = status.Code(err).String()
		time.Sleep(time.Second)
	}
	return end
}

func connect(address string) (*clientv3.Client, endpoints.Manager) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + address}, Logger: zap.NewNop()})
	check(err)
	manager, err := endpoints.NewManager(client, "service")
	check(err)
	return client, manager
}

// see returns how calls end before the cut, after it, and after one more instance is there.
func see(address string, compacts bool) (string, string, string) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	admin, registry := connect(address)
	register := func(key string) *grpc.Server {
		server, address := instance()
		for registry.AddEndpoint(ctx, "service/"+key, endpoints.Endpoint{Addr: address}) != nil && ctx.Err() == nil {
			time.Sleep(200 * time.Millisecond) // etcd is about to start
		}
		check(ctx.Err())
		return server
	}
	first := register("1")
	way, outside := &link{}, listen()
	go way.serve(outside, address)
	client, manager := connect(outside.Addr().String())
	builder, err := resolver.NewBuilder(client)
	check(err)
	conn, err := grpc.NewClient("etcd:///service", grpc.WithResolvers(builder),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer conn.Close()
	before := reach(conn)

	way.setCut(true)
	first.Stop()
	register("1")
	last, err := admin.Put(ctx, "another key", "")
	check(err)
	if compacts {
		_, err = admin.Compact(ctx, last.Header.Revision)
		check(err)
	}
	way.setCut(false)
	after := reach(conn)
	register("2")
	later := reach(conn)
	list, err := manager.List(ctx)
	check(err)
	for key := range list {
		check(registry.DeleteEndpoint(ctx, key))
	}
	fmt.Printf("compaction %v: %s before the cut, %s after it, %s with a new instance; the client lists %d instances\n",
		compacts, before, after, later, len(list))
	if len(list) != 2 {
		log.Panic("the client does not work")
	}
	return before, after, later
}

func main() {
	folder, address, peer := os.Args[1], freeAddress(), "http://"+freeAddress()
	etcd := exec.Command(filepath.Join(folder, "debian/usr/bin/etcd"),
		"--data-dir="+filepath.Join(folder, "data"), "--unsafe-no-fsync",
		"--listen-client-urls=http://"+address, "--advertise-client-urls=http://"+address,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	runtime.LockOSThread() // etcd is killed if the thread that started it ends
	etcd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(etcd.Start())
	right := func() bool {
		defer etcd.Process.Kill()
		before, after, later := see(address, false)
		right := before == "OK" && after == "OK" && later == "OK"
		before, after, later = see(address, true)
		return right && before == "OK" && after == "Unavailable" && later == "Unavailable"
	}()
	if !right {
		os.Exit(1)
	}
}
GO
(cd "$folder" && GOFLAGS=-mod=mod go build -o see . >&2)
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 100 "$folder/see" "$folder"
