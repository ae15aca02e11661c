//! Tests that the verifier returns a report for any file content.

use proptest::prelude::*;

use super::super::sample::Sample;
use super::*;
use crate::frame::{LOG_MAGIC, header};

#[derive(Debug, Clone)]
enum Change {
    Set(usize, u8),
    Cut(usize, usize),
    Copy(usize, usize, usize),
    End(usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (any::<usize>(), 1..200_usize).prop_map(|(at, count)| Change::Cut(at, count)),
        (any::<usize>(), any::<usize>(), 1..400_usize)
            .prop_map(|(from, to, count)| Change::Copy(from, to, count)),
        any::<usize>().prop_map(Change::End),
    ]
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    let length = bytes.len().max(1);
    let place = |at: usize| at % length;
    match *change {
        Change::Set(at, byte) => bytes.iter_mut().skip(place(at)).take(1).for_each(|it| *it = byte),
        Change::Cut(at, count) => {
            let end = (place(at) + count).min(bytes.len());
            drop(bytes.drain(place(at).min(end)..end));
        }
        Change::Copy(from, to, count) => {
            let part: Vec<u8> = bytes.iter().skip(place(from)).take(count).copied().collect();
            let to = place(to).min(bytes.len());
            drop(bytes.splice(to..to, part));
        }
        Change::End(at) => bytes.truncate(place(at)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn h07_verifier_does_not_panic_on_any_bytes(
        log in proptest::collection::vec(any::<u8>(), 0..600),
        other in proptest::collection::vec(any::<u8>(), 0..600),
        with_header: bool,
    ) {
        let sample = Sample::empty();
        let report = verify_changed(&sample, |paths| {
            let start = if with_header { header(LOG_MAGIC, sample.id).to_vec() } else { Vec::new() };
            fs::write(paths.log(), [start, log].concat()).unwrap();
            for path in [paths.head(), paths.keys(), paths.key(), paths.salts()] {
                fs::write(path, &other).unwrap();
            }
        });
        prop_assert!(!report.is_sound());
    }

    #[test]
    fn h12_every_change_of_the_log_is_reported(
        changes in proptest::collection::vec(change(), 1..5),
    ) {
        let sample = Sample::small();
        let whole = sample.log();
        let mut bytes = whole.clone();
        changes.iter().for_each(|change| apply(&mut bytes, change));
        let report = verify_changed(&sample, |paths| fs::write(paths.log(), &bytes).unwrap());
        let only_longer = bytes.starts_with(&whole);
        prop_assert_eq!(report.findings.is_empty(), bytes == whole);
        prop_assert!(only_longer || !report.is_sound());
    }
}

#[test]
fn search_after_damage_ends_despite_many_false_batches() {
    let sample = Sample::small();
    // Each batch states a length of 16 MiB, and that many bytes follow.
    let mut one = b"BJB1".to_vec();
    one.extend((16_u32 << 20).to_be_bytes());
    one.extend([0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    let log = [sample.log(), one.repeat((20 << 20) / one.len())].concat();
    let report = verify_changed(&sample, |paths| fs::write(paths.log(), &log).unwrap());
    check(&report, &[(Severity::Damage, Code::BatchDamaged)]);
}
