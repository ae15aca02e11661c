//! OpenAPI documents: parses the operations of a service and renders them as data and types.
//!
//! A document is untrusted input, even if an operator chose it. Its size, depth and number of
//! operations are limited, references outside the document are ignored, and no text of a document
//! becomes code: a client receives operations as data, and declarations consist only of checked
//! names, string literals and comments.

mod document;
mod names;
mod operation;
mod types;

pub use document::{Document, DocumentError, MAX_DOCUMENT};
pub(crate) use operation::MAX_OPERATIONS;
pub use operation::{Operation, Parameter, ParameterLocation, RequestBody};
pub(crate) use types::{declarations, one, signature};

#[cfg(test)]
mod tests;
