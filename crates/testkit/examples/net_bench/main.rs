//! Server and client of the network benchmarks of `cargo xtask bench`: a TLS server, and a client that
//! sends requests as fast as possible, directly, through a box, or through a competing sandbox.
//!
//! ```text
//! net_bench serve DIR                     writes DIR/ca.pem, prints its address, serves until killed
//! net_bench ask --path PATH …             prints `ready`, then one JSON result per line of stdin
//! ```

mod ask;
mod serve;

/// The host name in the certificate of the benchmark server.
const HOST: &str = "bench.example";

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match words.as_slice() {
        ["serve", dir] => runtime.block_on(serve::serve(dir)),
        ["ask", options @ ..] => runtime.block_on(ask::ask(options)),
        _ => Err("usage: net_bench serve DIR | net_bench ask OPTIONS".into()),
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;
