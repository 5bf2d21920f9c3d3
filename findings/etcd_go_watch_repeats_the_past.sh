#!/usr/bin/env bash
# A watch of etcd's Go client delivers a change from before it began, once its connection breaks: a job starts twice.
#
# Versions: go.etcd.io/etcd/client/v3 3.7.3 (Go modules), etcd 3.4.23 (Debian 12's package); Go 1.26, Debian 12. If a
# watch has no revision, "the returned channel will return watch events that happen after the server receives the watch
# request", says the client's documentation, and it goes on over lost connections. A program puts "old" under a key, and
# then begins two watches of the key: one without a revision, and one from the revision that follows that of the put.
# Etcd is killed and started again; ten seconds later the program puts "new".
#
# Seen: before the restart neither watch has an event. After it the watch without a revision delivers "old", which was
# put before it began, and then "new". The other one delivers "new" alone. The client notes the revision at which the
# watch began, and resumes at it, not after it, so that the last change of the store comes again if it was made to a
# watched key. So a worker that reads what there is, watches for more, and acts on each event, acts on the last one
# twice when etcd restarts; it must name the revision of its read, plus one, to be safe.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
(cd "$folder" && apt-get download -qq 'etcd-server=3.4.23*' && dpkg -x etcd-server*.deb debian) >&2
cat > "$folder/go.mod" <<'MOD'
module see

go 1.26.0

require go.etcd.io/etcd/client/v3 v3.7.3
MOD
cat > "$folder/main.go" <<'GO'
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func freeURL() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	defer listener.Close()
	return "http://" + listener.Addr().String()
}

var url, peer = freeURL(), freeURL()

// start starts etcd on the data that it had, if any.
func start(folder string) *exec.Cmd {
	etcd := exec.Command(filepath.Join(folder, "debian/usr/bin/etcd"),
		"--data-dir="+filepath.Join(folder, "data"), "--unsafe-no-fsync",
		"--listen-client-urls="+url, "--advertise-client-urls="+url,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	check(etcd.Start())
	return etcd
}

// put puts the value under the key, once etcd is there, and returns the revision.
func put(client *clientv3.Client, value string) int64 {
	for range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		response, err := client.Put(ctx, "key", value)
		cancel()
		if err == nil {
			return response.Header.Revision
		}
		time.Sleep(200 * time.Millisecond)
	}
	log.Fatal("etcd does not answer")
	return 0
}

// read adds the values that come within the time to those that were seen.
func read(events clientv3.WatchChan, limit time.Duration, seen []string) []string {
	end := time.After(limit)
	for {
		select {
		case response := <-events:
			check(response.Err())
			for _, event := range response.Events {
				seen = append(seen, string(event.Kv.Value))
			}
		case <-end:
			return seen
		}
	}
}

func main() {
	etcd := start(os.Args[1])
	defer func() { check(etcd.Process.Kill()) }()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}})
	check(err)
	revision := put(client, "old")
	ctx := context.Background()
	watches := map[string]clientv3.WatchChan{
		"without a revision":      client.Watch(ctx, "key", clientv3.WithCreatedNotify()),
		"from the one thereafter": client.Watch(ctx, "key", clientv3.WithCreatedNotify(), clientv3.WithRev(revision+1)),
	}
	before := map[string][]string{}
	for name, events := range watches {
		response := <-events
		check(response.Err())
		if !response.Created || len(response.Events) > 0 {
			log.Fatal("the watch has not begun")
		}
		before[name] = read(events, 2*time.Second, nil)
	}
	check(etcd.Process.Kill())
	_ = etcd.Wait()
	etcd = start(os.Args[1])
	after := map[string][]string{}
	for name, events := range watches {
		after[name] = read(events, 10*time.Second, nil)
	}
	put(client, "new")
	right := true
	for name, events := range watches {
		after[name] = read(events, 3*time.Second, after[name])
		fmt.Printf("watch %s: %q before the restart, %q after it\n", name, before[name], after[name])
		expected := []string{"new"}
		if name == "without a revision" {
			expected = []string{"old", "new"}
		}
		right = right && len(before[name]) == 0 && slices.Equal(after[name], expected)
	}
	if !right {
		os.Exit(1)
	}
}
GO
(cd "$folder" && GOFLAGS=-mod=mod go build -o see . >&2)
env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY "$folder/see" "$folder"
