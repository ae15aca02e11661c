//! Serves the test service `shop` on loopback without TLS and prints its address, for the oracle of
//! `crates/belljar/tests/programs`. Ends when standard input is closed.

use std::io::{Read as _, Write as _};

fn main() {
    let upstream = belljar_testkit::Upstream::plain(belljar_testkit::shop());
    writeln!(std::io::stdout(), "{}", upstream.address()).expect("standard output");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("standard input");
}
