//! HTTP to the broker of the box.
