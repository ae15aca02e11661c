//! Programs in the real worker, as its host speaks to it: frames in, frames out.

mod engine {
    pub(crate) mod worker;

    mod results;
}
