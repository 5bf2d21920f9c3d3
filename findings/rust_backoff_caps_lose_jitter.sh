#!/usr/bin/env bash
# Once their backoff is at its maximum, all clients of exponential-backoff, and most of again's, wait the same time.
#
# Versions: exponential-backoff 2.1.1, again 0.1.2 (crates.io); Rust 1.88 or newer, Linux. Jitter is there so that
# clients which failed together do not come back together; gRPC's connection backoff (connection-backoff.md) adds it to
# the wait that has been limited already. exponential-backoff is "an exponential backoff generator with jitter", of 30 %
# each way by default; again's `with_jitter` is for "many clients which might all retry at the same time". 200 clients
# of each fail eleven times, and wait before ten retries, at first 20 ms, and 500 ms at most.
#
# Seen: exponential-backoff's clients spread while the wait grows, but about half of them make the first retry after
# exactly 20 ms; from the seventh retry on all 200 wait exactly 500 ms, and so they do for as long as the outage lasts.
# Without a maximum they spread there as well. Of again's clients, exactly 500 ms are the wait of more and more: about
# 160 at the eighth retry, and 190 of 200 at the tenth. Both (`IntoIter::next`, `BackoffIter::next`) limit the wait
# after they have spread it, so that the limit cuts the jitter off, and exponential-backoff does so at the minimum, too.
# So the longer a server is down, the more of its clients call it at the same moments.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/src"
cat > "$folder/Cargo.toml" <<'TOML'
[package]
name = "see"
version = "0.0.0"
edition = "2024"

[dependencies]
again = "=0.1.2"
exponential-backoff = "=2.1.1"
tokio = { version = "=1.54.1", features = ["macros", "rt", "time"] }
TOML
cat > "$folder/src/main.rs" <<'RUST'
use std::{
    cell::RefCell,
    collections::BTreeMap,
    process::exit,
    rc::Rc,
    time::{Duration, Instant},
};

use again::RetryPolicy;
use exponential_backoff::Backoff;
use tokio::task::{LocalSet, spawn_local};

const CLIENTS: usize = 200;
const RETRIES: usize = 10;
const FIRST: Duration = Duration::from_millis(20);
const MOST: Duration = Duration::from_millis(500);

/// Returns the waits of a client that always fails, as it measures them.
async fn wait_again() -> Vec<Duration> {
    let times = Rc::new(RefCell::new(Vec::new()));
    let policy = RetryPolicy::exponential(FIRST)
        .with_jitter(true)
        .with_max_delay(MOST)
        .with_max_retries(RETRIES);
    let call = || {
        times.borrow_mut().push(Instant::now());
        async { Err::<(), _>("UNAVAILABLE") }
    };
    policy.retry(call).await.expect_err("the call fails");
    let times = times.borrow();
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Returns how many clients have the most frequent wait before each retry.
fn wait_exponential(most: Option<Duration>) -> Vec<(usize, Duration)> {
    let mut counts = vec![BTreeMap::<Duration, usize>::new(); RETRIES];
    for _ in 0..CLIENTS {
        let backoff = Backoff::new(RETRIES as u32 + 1, FIRST, most);
        for (wait, count) in backoff.iter().flatten().zip(&mut counts) {
            *count.entry(wait).or_default() += 1;
        }
    }
    let most_frequent = |count: &BTreeMap<Duration, usize>| {
        count.iter().map(|(wait, clients)| (*clients, *wait)).max().expect("each client waits")
    };
    counts.iter().map(most_frequent).collect()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let limited = wait_exponential(Some(MOST));
    let unlimited = wait_exponential(None);
    for (name, waits) in [("exponential-backoff", &limited), ("the same, no maximum", &unlimited)] {
        for (number, (clients, wait)) in waits.iter().enumerate() {
            println!("{name}, retry {}: {clients} of {CLIENTS} wait {wait:?}", number + 1);
        }
    }
    let waits = LocalSet::new()
        .run_until(async {
            let clients: Vec<_> = (0..CLIENTS).map(|_| spawn_local(wait_again())).collect();
            let mut waits = Vec::new();
            for client in clients {
                waits.push(client.await.expect("the client does not panic"));
            }
            waits
        })
        .await;
    let at_most: Vec<_> =
        (0..RETRIES).map(|number| waits.iter().filter(|client| client[number] >= MOST).count()).collect();
    for (number, clients) in at_most.iter().enumerate() {
        println!("again, retry {}: {clients} of {CLIENTS} wait {MOST:?} or a little more", number + 1);
    }
    let right = limited[0].1 == FIRST
        && limited[0].0 > CLIENTS / 3
        && limited[1..5].iter().all(|(clients, _)| *clients < CLIENTS / 4)
        && limited[6..].iter().all(|same| *same == (CLIENTS, MOST))
        && unlimited[1..].iter().all(|(clients, _)| *clients < CLIENTS / 4)
        && at_most[3] < CLIENTS / 4
        && at_most[9] > CLIENTS * 17 / 20;
    exit(if right { 0 } else { 1 });
}
RUST
(cd "$folder" && cargo build --quiet >&2)
timeout 60 "$folder/target/debug/see"
