#!/usr/bin/env bash
# kuberesolver takes each slice of endpoints for the whole service, also one that is deleted: then all calls fail.
#
# Versions: kuberesolver 6.0.1 with grpc-go 1.85.0 (Go modules); Go 1.26, Linux. kuberesolver finds the servers of a
# Kubernetes service for grpc-go's channels, by a watch of its EndpointSlices. Kubernetes has at most 100 endpoints in a
# slice by default, and those of IPv4 and IPv6 in slices of their own, so clients have to put the endpoints of a service
# together from all its slices. An API server that speaks as much of Kubernetes as it takes announces a slice with one
# server, then a second slice with another one; it announces the first one again, as it was; it deletes the second one,
# after its server has stopped. A channel with round_robin makes 100 calls after each event.
#
# Seen: after the first slice, 100 calls go to the first server. After the second, 100 go to the second, though both
# serve; after the repeated event 100 go to the first. Once the second slice is deleted, all 100 calls fail with
# UNAVAILABLE, though the first server serves all the time: `handle` gives grpc-go the addresses of the one slice that
# an event is about as all there are, whatever the type of the event. So of a service with some slices one gets all
# calls, and when Kubernetes deletes a slice, all calls go to the addresses that it had.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/go.mod" <<'MOD'
module see

go 1.25.0

require (
	github.com/sercand/kuberesolver/v6 v6.0.1
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)
MOD
cat > "$folder/main.go" <<'GO'
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sercand/kuberesolver/v6"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

const policy = `{"loadBalancingConfig": [{"round_robin": {}}]}`

type object map[string]any

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func listen() (net.Listener, int) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	return listener, listener.Addr().(*net.TCPAddr).Port
}

// A backend counts its calls.
type backend struct {
	*grpc.Server
	port  int
	calls atomic.Int64
}

func (b *backend) answer(_ any, stream grpc.ServerStream) error {
	b.calls.Add(1)
	if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
		return err
	}
	return stream.SendMsg(&emptypb.Empty{})
}

func serve() *backend {
	listener, port := listen()
	backend := &backend{port: port}
	backend.Server = grpc.NewServer(grpc.UnknownServiceHandler(backend.answer))
	go backend.Serve(listener)
	return backend
}

// event returns an event of the watch about a slice that has one server.
func event(kind, name string, backend *backend) object {
	return object{"type": kind, "object": object{
		"apiVersion":  "discovery.k8s.io/v1",
		"kind":        "EndpointSlice",
		"addressType": "IPv4",
		"metadata":    object{"name": name, "namespace": "default"},
		"endpoints":   []object{{"addresses": []string{"127.0.0.1"}, "conditions": object{"ready": true}}},
		"ports":       []object{{"name": "grpc", "protocol": "TCP", "port": backend.port}},
	}}
}

func main() {
	events := make(chan object)
	watch := func(answer http.ResponseWriter, request *http.Request) {
		if !strings.Contains(request.URL.Path, "/watch/namespaces/default/endpointslices") {
			http.NotFound(answer, request)
			return
		}
		controller := http.NewResponseController(answer)
		check(controller.Flush())
		for event := range events {
			check(json.NewEncoder(answer).Encode(event))
			check(controller.Flush())
		}
	}
	api, port := listen()
	go http.Serve(api, http.HandlerFunc(watch))
	kubernetes := kuberesolver.NewInsecureK8sClient(fmt.Sprintf("http://127.0.0.1:%d", port))
	client, err := grpc.NewClient("kubernetes:///b.default:grpc",
		grpc.WithResolvers(kuberesolver.NewBuilder(kubernetes, "kubernetes")),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(policy))
	check(err)
	client.Connect()
	first, second := serve(), serve()
	right := true
	see := func(event object, expected string) {
		events <- event
		time.Sleep(2 * time.Second) // the channel connects
		first.calls.Store(0)
		second.calls.Store(0)
		failed := 0
		for range 100 {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			err := client.Invoke(ctx, "/a.B/C", &emptypb.Empty{}, &emptypb.Empty{})
			cancel()
			if status.Code(err) == codes.Unavailable {
				failed++
			} else {
				check(err)
			}
		}
		seen := fmt.Sprintf("%d %d %d", first.calls.Load(), second.calls.Load(), failed)
		name := event["object"].(object)["metadata"].(object)["name"]
		fmt.Printf("%s %s: calls of the first server, of the second, UNAVAILABLE: %s\n", event["type"], name, seen)
		right = right && seen == expected
	}
	see(event("ADDED", "b-1", first), "100 0 0")
	see(event("ADDED", "b-2", second), "0 100 0")
	see(event("MODIFIED", "b-1", first), "100 0 0")
	second.Stop()
	see(event("DELETED", "b-2", second), "0 0 100")
	if !right {
		os.Exit(1)
	}
}
GO
(cd "$folder" && GOFLAGS=-mod=mod go build -o see . >&2)
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 120 "$folder/see"
