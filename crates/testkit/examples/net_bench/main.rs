//! The two ends of the network benches of `cargo xtask bench`: a server with real TLS, and a client that
//! asks it as fast as it can, directly, through a box, or through a peer.
//!
//! ```text
//! net_bench serve DIR                     writes DIR/ca.pem, prints its address, serves until killed
//! net_bench ask --path PATH …             says `ready`; for each line on stdin one round, told as JSON
//! ```

mod ask;
mod serve;

/// The name that the server's certificate is for.
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
