//! Masks placeholders in a streamed request body.

use bytes::Bytes;

use super::{Scrubber, Stream};

/// A function that is called with the name of a secret when its placeholder is masked for the first
/// time in a body.
type OnMasked = Box<dyn FnMut(&str) + Send>;

/// Masks the placeholders of a streamed request body.
pub(super) struct Mask {
    stream: Stream,
    /// The number of names that were reported.
    reported: usize,
    on_masked: OnMasked,
}

impl Mask {
    /// Creates the mask of one body. `on_masked` is called with the name of each masked secret once.
    pub(super) fn new(masked: &Scrubber, on_masked: impl FnMut(&str) + Send + 'static) -> Self {
        Self { stream: masked.stream(), reported: 0, on_masked: Box::new(on_masked) }
    }

    /// Returns the number of bytes that are held back, because they can be the start of a placeholder.
    pub(super) fn held(&self) -> usize {
        self.stream.held()
    }

    pub(super) fn push(&mut self, data: Bytes) -> Bytes {
        let masked = self.stream.push_bytes(data);
        self.report();
        masked
    }

    pub(super) fn finish(&mut self, data: &[u8]) -> Bytes {
        let mut masked = Vec::new();
        self.stream.push(data, &mut masked);
        self.stream.finish(&mut masked);
        self.report();
        masked.into()
    }

    fn report(&mut self) {
        let names = self.stream.names();
        names.iter().skip(self.reported).for_each(|name| (self.on_masked)(name));
        self.reported = names.len();
    }
}
