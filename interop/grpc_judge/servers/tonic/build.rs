//! Passes the versions that the program is built with to the program, which cannot find them out by itself.

use std::{env, error::Error, fs, process::Command};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=Cargo.lock");
    println!("cargo::rustc-env=TONIC_VERSION={}", locked("tonic")?);
    println!("cargo::rustc-env=RUST_VERSION={}", rust()?);
    Ok(())
}

fn locked(package: &str) -> Result<String, Box<dyn Error>> {
    let lock = fs::read_to_string("Cargo.lock")?;
    lock.split_once(&format!("name = \"{package}\"\nversion = \""))
        .and_then(|(_, rest)| rest.split('"').next())
        .map(str::to_owned)
        .ok_or_else(|| format!("{package} is not in Cargo.lock").into())
}

fn rust() -> Result<String, Box<dyn Error>> {
    let said = Command::new(env::var("RUSTC")?).arg("--version").output()?;
    let said = String::from_utf8(said.stdout)?;
    said.split_whitespace()
        .nth(1)
        .map(str::to_owned)
        .ok_or_else(|| "rustc does not say its version".into())
}
