//! Bearer tokens, and the file that they are kept in.

pub(crate) mod token;
pub(crate) mod token_file;
