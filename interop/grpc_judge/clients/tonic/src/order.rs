//! The command-line arguments.

use std::{error::Error, fs, time::Duration};

use lexopt::prelude::*;

pub struct Order {
    /// The target to connect to.
    pub target: String,
    /// How long to make calls.
    pub seconds: Duration,
    /// How many workers make calls.
    pub workers: usize,
    /// How long a worker pauses after each call.
    pub pause: Duration,
    /// The certificate authority to trust, in PEM; without it, no TLS.
    pub ca: Option<Vec<u8>>,
}

impl Order {
    pub fn read() -> Result<Self, Box<dyn Error>> {
        let mut order = Order {
            target: String::new(),
            seconds: Duration::ZERO,
            workers: 1,
            pause: Duration::from_millis(20),
            ca: None,
        };
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("target") => order.target = parser.value()?.string()?,
                Long("seconds") => {
                    order.seconds = Duration::try_from_secs_f64(parser.value()?.parse()?)?;
                }
                Long("workers") => order.workers = parser.value()?.parse()?,
                Long("pause-ms") => order.pause = Duration::from_millis(parser.value()?.parse()?),
                Long("ca") => order.ca = Some(fs::read(parser.value()?)?),
                _ => return Err(argument.unexpected().into()),
            }
        }
        Ok(order)
    }
}
