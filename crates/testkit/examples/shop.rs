//! Serves the shop of the tests on plain loopback and says where, for the oracle of
//! `crates/belljar/tests/programs`. Ends when its input does.

use std::io::{Read as _, Write as _};

fn main() {
    let upstream = belljar_testkit::Upstream::plain(belljar_testkit::shop());
    writeln!(std::io::stdout(), "{}", upstream.address()).expect("standard output");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("standard input");
}
