//! The web platform of the engine, against real servers on loopback.

mod web {
    pub(crate) mod page;

    mod bridge;
    mod fetch;
    mod platform;
}
