//! Programs in the real worker, as its host speaks to it: frames in, frames out.

#[cfg(test)]
mod engine {
    pub(crate) mod worker;

    mod console;
    mod errors;
    mod files;
    mod modules;
    mod node;
    mod others;
    mod results;
    mod timers;
    mod tools;
}
