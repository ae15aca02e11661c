//! OpenAPI documents: what operations a service has, as names, data and types.
//!
//! A document is a stranger's, also where an operator chose it. It is bounded in bytes, depth and
//! number, references lead nowhere outside of it, and nothing of it ever becomes code: a client gets
//! its operations as data, and declarations are made of checked names, literals and comments only.

mod document;
mod names;
mod operation;
mod types;

pub use document::{Document, DocumentError, MAX_DOCUMENT};
pub use operation::{Body, BodyKind, Operation, Parameter, Place};
pub(crate) use types::{declarations, one, signature};

#[cfg(test)]
mod tests;
