//! MD5 (RFC 1321), which programs still use to tell files apart. It protects nothing.

/// How far each step turns, four for each of four rounds.
const TURNS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

pub(super) fn md5(bytes: &[u8]) -> [u8; 16] {
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    let length = (padded.len() + 8).next_multiple_of(64);
    padded.resize(length - 8, 0);
    padded.extend((bytes.len() as u64).wrapping_mul(8).to_le_bytes());
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let sines: Vec<u32> = (1..=64_u32).map(sine).collect();
    for block in padded.as_chunks::<64>().0 {
        let words = block.as_chunks::<4>().0.iter();
        let words: Vec<u32> = words.map(|word| u32::from_le_bytes(*word)).collect();
        state = mixed(state, &words, &sines);
    }
    let mut out = [0; 16];
    for (into, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *into = word.to_le_bytes();
    }
    out
}

/// The table of the standard: the fraction of a sine.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive and below two to the thirty-second"
)]
fn sine(step: u32) -> u32 {
    (f64::from(step).sin().abs() * 4_294_967_296.0) as u32
}

fn mixed(before: [u32; 4], words: &[u32], sines: &[u32]) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = before;
    for (step, sine) in sines.iter().enumerate() {
        let (round, turn) = (step / 16, step % 4);
        let (mix, word) = match round {
            0 => ((b & c) | (!b & d), step),
            1 => ((d & b) | (!d & c), 5 * step + 1),
            2 => (b ^ c ^ d, 3 * step + 5),
            _ => (c ^ (b | !d), 7 * step),
        };
        let word = words.get(word % 16).copied().unwrap_or_default();
        let turn = TURNS.get(round).and_then(|round| round.get(turn)).copied().unwrap_or_default();
        let sum = a.wrapping_add(mix).wrapping_add(*sine).wrapping_add(word);
        (a, d, c) = (d, c, b);
        b = b.wrapping_add(sum.rotate_left(turn));
    }
    let [w, x, y, z] = before;
    [w.wrapping_add(a), x.wrapping_add(b), y.wrapping_add(c), z.wrapping_add(d)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_of_the_standard_and_lengths_around_a_block() {
        let hex =
            |bytes: &[u8]| md5(bytes).iter().map(|it| format!("{it:02x}")).collect::<String>();
        assert_eq!(hex(b""), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(hex(b"message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
        assert_eq!(hex(&b"1234567890".repeat(8)), "57edf4a22be3c955ac49da2e2107b67a");
        assert_eq!(hex(&[b'a'; 55]), "ef1772b6dff9a122358552954ad0df65");
        assert_eq!(hex(&[b'a'; 56]), "3b0c8ac703f828b04c6c197006d17218");
        assert_eq!(hex(&[b'a'; 64]), "014842d480b571495a4a0363793f7367");
    }
}
