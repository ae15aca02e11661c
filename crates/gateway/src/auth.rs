//! Bearer tokens and the file that stores them.

pub(crate) mod api_token;
pub(crate) mod network;
pub(crate) mod token;
pub(crate) mod token_file;
