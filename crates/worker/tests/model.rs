//! The model client, tested with real servers on loopback.

#[cfg(test)]
mod model {
    pub(crate) mod server;

    mod answers;
    mod failures;
    mod tools;
}
