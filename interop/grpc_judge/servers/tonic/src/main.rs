//! Serves EmptyCall with tonic. `servers/README.md` documents its arguments and output.
//!
//! Without `--grace-ms`, running calls may continue for as long as they like, which is tonic's default.

mod codec;

use std::{
    convert::Infallible,
    error::Error,
    future::Future,
    pin::Pin,
    process,
    task::{Context, Poll},
    time::Duration,
};

use lexopt::{Arg, Parser, ValueExt};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, stdin},
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    time::sleep,
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Request, Response, Status,
    body::Body,
    server::{Grpc, NamedService, UnaryService},
    transport::Server,
};
use tower_service::Service;

use crate::codec::Empty;

type Later<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// The metadata key of a request that holds how long to delay the answer, in milliseconds.
const ANSWER_AFTER: &str = "answer-after-ms";

#[derive(Default)]
struct Order {
    port: u16,
    max_age: Option<Duration>,
    grace: Option<Duration>,
}

impl Order {
    fn read() -> Result<Order, lexopt::Error> {
        let mut order = Order::default();
        let mut given = Parser::from_env();
        while let Some(argument) = given.next()? {
            match argument {
                Arg::Long("port") => order.port = given.value()?.parse()?,
                Arg::Long("max-age-ms") => order.max_age = Some(milliseconds(&mut given)?),
                Arg::Long("grace-ms") => order.grace = Some(milliseconds(&mut given)?),
                _ => return Err(argument.unexpected()),
            }
        }
        Ok(order)
    }
}

fn milliseconds(given: &mut Parser) -> Result<Duration, lexopt::Error> {
    Ok(Duration::from_millis(given.value()?.parse()?))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let order = Order::read()?;
    let listener = TcpListener::bind(("127.0.0.1", order.port)).await?;
    let mut told = signal(SignalKind::terminate())?;
    tokio::spawn(async {
        while stdin().read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
        process::exit(0);
    });
    let mut server = Server::builder();
    if let Some(age) = order.max_age {
        server = server.max_connection_age(age);
    }
    if let Some(grace) = order.grace {
        server = server.max_connection_age_grace(grace);
    }
    let versions = json!({"tonic": env!("TONIC_VERSION"), "rust": env!("RUST_VERSION")});
    let port = listener.local_addr()?.port();
    println!("{}", json!({"event": "listening", "port": port, "versions": versions}));
    server
        .add_service(EmptyCall)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async move {
            told.recv().await;
        })
        .await?;
    process::exit(0) // the thread that reads standard input would keep the program
}

/// The service with the one method that is called.
#[derive(Clone)]
struct EmptyCall;

impl NamedService for EmptyCall {
    const NAME: &'static str = "grpc.testing.TestService";
}

impl Service<http::Request<Body>> for EmptyCall {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Later<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move { Ok(Grpc::new(Empty).unary(Answer, request).await) })
    }
}

struct Answer;

impl UnaryService<()> for Answer {
    type Response = ();
    type Future = Later<Response<()>, Status>;

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let after = request.metadata().get(ANSWER_AFTER).cloned();
        Box::pin(async move {
            if let Some(after) = after {
                let after = after.to_str().ok().and_then(|text| text.parse().ok());
                let after = after.ok_or_else(|| Status::invalid_argument(ANSWER_AFTER))?;
                sleep(Duration::from_millis(after)).await;
            }
            Ok(Response::new(()))
        })
    }
}
