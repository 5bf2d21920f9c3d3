//! The outcomes of the calls.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tonic::{Code, Status};

#[derive(Default)]
pub struct Tally {
    made: usize,
    ok: usize,
    failed: BTreeMap<String, usize>,
}

impl Tally {
    pub fn begin(&mut self) {
        self.made += 1;
    }

    pub fn end(&mut self, outcome: Result<(), Status>) {
        match outcome {
            Ok(()) => self.ok += 1,
            Err(status) => *self.failed.entry(name(status.code())).or_default() += 1,
        }
    }

    pub fn add(&mut self, other: Tally) {
        self.made += other.made;
        self.ok += other.ok;
        for (name, count) in other.failed {
            *self.failed.entry(name).or_default() += count;
        }
    }

    pub fn account(&self) -> Value {
        json!({
            "event": "done",
            "made": self.made,
            "ok": self.ok,
            "failed": self.failed,
            "unfinished": self.made - self.ok - self.failed.values().sum::<usize>(),
            "versions": {"tonic": env!("TONIC_VERSION"), "rust": env!("RUST_VERSION")},
        })
    }
}

/// Returns the protocol's name of a code: `DEADLINE_EXCEEDED` for tonic's `DeadlineExceeded`.
fn name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}
