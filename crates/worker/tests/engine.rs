//! Programs in the real worker process, which the tests control with frames like the host does.

#[cfg(test)]
mod engine {
    pub(crate) mod worker;

    mod console;
    mod errors;
    mod files;
    mod model;
    mod modules;
    mod node;
    mod others;
    mod results;
    mod timers;
    mod tools;
}
