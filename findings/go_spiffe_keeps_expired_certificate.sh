#!/usr/bin/env bash
# After one CANCELED from its agent, go-spiffe's X509Source never asks it again: it hands out an expired certificate.
#
# Versions: go-spiffe 2.9.0 with grpc-go 1.85.0 (Go modules); Go 1.26, Linux. A workload of SPIFFE, such as one of a
# service mesh, gets its short-lived certificates by a stream from the agent of its node. go-spiffe documents
# `X509Source` as a "source of X509-SVIDs and X.509 bundles maintained via the Workload API". It renews a stream that
# ends. An agent sends certificates that live for four seconds, every two; it ends its first stream after two seconds,
# once with UNAVAILABLE, and once with CANCELED, as a handler of grpc-go does that returns the error of a context which
# was cancelled. Seven seconds after that, a source of each is asked for its certificate.
#
# Seen: after UNAVAILABLE, the source logs the error, makes a new stream after a second, and has a certificate that is
# valid. After CANCELED, the agent gets no other stream; the source returns the first certificate, which expired five
# seconds ago, without an error, and its logger has got no error. `handleWatchError` takes CANCELED for the caller's own
# wish and ends the watch without a line, and the source drops the error that the watch returns. So after one such
# answer a service works until its certificate expires; then its peers refuse it, until it is restarted.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/go.mod" <<'MOD'
module see

go 1.25.0

require (
	github.com/spiffe/go-spiffe/v2 v2.9.0
	google.golang.org/grpc v1.85.0
)
MOD
cat > "$folder/main.go" <<'GO'
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const life = 4 * time.Second

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// issue returns a certificate that lives for four seconds, a key, and the certificate of a CA.
func issue() *workload.X509SVID {
	id := &url.URL{Scheme: "spiffe", Host: "a.example"}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	now := time.Now()
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, URIs: []*url.URL{id}}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: now, NotAfter: now.Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, URIs: []*url.URL{id.JoinPath("b")}}
	bundle, err := x509.CreateCertificate(rand.Reader, authority, authority, key.Public(), key)
	check(err)
	certificate, err := x509.CreateCertificate(rand.Reader, leaf, authority, key.Public(), key)
	check(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	check(err)
	return &workload.X509SVID{SpiffeId: leaf.URIs[0].String(), X509Svid: certificate, X509SvidKey: private,
		Bundle: bundle}
}

// An agent ends its first stream with a code after two seconds, and renews the certificate of the others.
type agent struct {
	workload.UnimplementedSpiffeWorkloadAPIServer
	code    codes.Code
	streams atomic.Int64
}

type answers = workload.SpiffeWorkloadAPI_FetchX509SVIDServer

func (a *agent) FetchX509SVID(_ *workload.X509SVIDRequest, stream answers) error {
	first := a.streams.Add(1) == 1
	for {
		if err := stream.Send(&workload.X509SVIDResponse{Svids: []*workload.X509SVID{issue()}}); err != nil {
			return err
		}
		time.Sleep(life / 2)
		if first {
			return status.Error(a.code, "the agent reloads")
		}
	}
}

// A logger counts the errors.
type logger struct{ errors atomic.Int64 }

func (l *logger) Debugf(string, ...any) {}
func (l *logger) Infof(string, ...any)  {}
func (l *logger) Warnf(string, ...any)  { l.errors.Add(1) }
func (l *logger) Errorf(string, ...any) { l.errors.Add(1) }

func see(code codes.Code, expected string) bool {
	agent, logger := &agent{code: code}, &logger{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	server := grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(server, agent)
	go server.Serve(listener)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	address := fmt.Sprintf("tcp://%s", listener.Addr())
	source, err := workloadapi.NewX509Source(ctx,
		workloadapi.WithClientOptions(workloadapi.WithAddr(address), workloadapi.WithLogger(logger)))
	check(err)
	defer source.Close()
	time.Sleep(life/2 + 7*time.Second)
	svid, err := source.GetX509SVID()
	check(err)
	left := time.Until(svid.Certificates[0].NotAfter)
	seen := fmt.Sprintf("%d streams, %d errors logged, expired: %t", agent.streams.Load(), logger.errors.Load(), left < 0)
	fmt.Printf("%v: %s (%.1f s left)\n", code, seen, left.Seconds())
	return seen == expected
}

func main() {
	usual := see(codes.Unavailable, "2 streams, 1 errors logged, expired: false")
	cancelled := see(codes.Canceled, "1 streams, 0 errors logged, expired: true")
	if !usual || !cancelled {
		os.Exit(1)
	}
}
GO
(cd "$folder" && GOFLAGS=-mod=mod go build -o see . >&2)
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY timeout 100 "$folder/see"
