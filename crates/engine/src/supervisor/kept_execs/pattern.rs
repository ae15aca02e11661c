//! The bytes of streams in tests. Each offset of each stream has a byte of its own pattern.

/// The period of a stream. It divides no size of a buffer.
const PERIOD: usize = 65_521;

/// Returns the bytes of a numbered stream from an offset.
pub(super) fn bytes(stream: usize, from: u64, length: usize) -> Vec<u8> {
    let skipped = usize::try_from(from).unwrap() % PERIOD;
    let period: Vec<u8> = (0..PERIOD)
        .map(|at| (at ^ (at >> 8)).wrapping_mul(31).wrapping_add(stream).to_le_bytes()[0])
        .collect();
    let periods = (skipped + length).div_ceil(PERIOD);
    period.repeat(periods)[skipped..skipped + length].to_vec()
}

/// Returns whether these are the bytes of a numbered stream from an offset.
pub(super) fn is_equal(stream: usize, from: u64, found: &[u8]) -> bool {
    bytes(stream, from, found.len()) == found
}
