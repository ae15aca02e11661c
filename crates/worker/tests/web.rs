//! The web platform of the engine, against real servers on loopback.

#[cfg(test)]
mod web {
    pub(crate) mod page;

    mod bridge;
    mod fetch;
    mod load;
    mod oracle;
    mod platform;
}
