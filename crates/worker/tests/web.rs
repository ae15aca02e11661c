//! The web platform of the runtime, tested with real servers on loopback.

#[cfg(test)]
mod web {
    pub(crate) mod page;

    mod bridge;
    mod fetch;
    mod load;
    mod oracle;
    mod platform;
}
