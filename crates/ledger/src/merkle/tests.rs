//! Tests with published vectors, a literal implementation of the RFC and an independent
//! implementation.

use std::convert::Infallible;

use ct_merkle::mem_backed_tree::MemoryBackedTree;
use proptest::prelude::*;
use sha2::Sha256;

use super::*;

/// The test leaves of Certificate Transparency and transparency-dev/merkle.
const LEAVES: [&[u8]; 8] = [
    &[],
    &[0x00],
    &[0x10],
    &[0x20, 0x21],
    &[0x30, 0x31],
    &[0x40, 0x41, 0x42, 0x43],
    &[0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57],
    &[
        0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e,
        0x6f,
    ],
];

const ROOTS: [&str; 9] = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
];

/// Index, size and proof.
const INCLUSION: [(u64, u64, &[&str]); 5] = [
    (0, 1, &[]),
    (
        0,
        8,
        &[
            "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
        ],
    ),
    (
        5,
        8,
        &[
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ],
    ),
    (2, 3, &["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"]),
    (
        1,
        5,
        &[
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        ],
    ),
];

/// Old size, new size and proof.
const CONSISTENCY: [(u64, u64, &[&str]); 5] = [
    (1, 1, &[]),
    (
        1,
        8,
        &[
            "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
        ],
    ),
    (
        6,
        8,
        &[
            "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ],
    ),
    (
        2,
        5,
        &[
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        ],
    ),
    (
        6,
        7,
        &[
            "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
            "b08693ec2e721597130641e8211e7eedccb4c26413963eee6c1e2ed16ffb1a5f",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ],
    ),
];

/// A tree in memory that has only complete subtrees and panics on a request for another subtree.
struct Rows(Vec<Vec<Digest>>);

impl Rows {
    fn new(leaves: Vec<Digest>) -> Self {
        let mut rows = vec![leaves];
        while rows[rows.len() - 1].len() > 1 {
            let below = &rows[rows.len() - 1];
            rows.push(below.chunks_exact(2).map(|pair| Digest::node(&pair[0], &pair[1])).collect());
        }
        Self(rows)
    }

    fn classic() -> Self {
        Self::new(LEAVES.iter().map(|leaf| Digest::leaf(leaf)).collect())
    }

    fn numbered(size: u64) -> Self {
        Self::new((0..size).map(|index| Digest::leaf(&index.to_be_bytes())).collect())
    }

    fn leaves(&self) -> &[Digest] {
        &self.0[0]
    }

    fn root(&self, size: u64) -> Digest {
        root_of(self, size).unwrap()
    }

    fn inclusion(&self, index: u64, size: u64) -> Vec<Digest> {
        inclusion(self, index, size).unwrap().unwrap()
    }

    fn consistency(&self, old: u64, new: u64) -> Vec<Digest> {
        consistency(self, old, new).unwrap().unwrap()
    }
}

impl Hashes for Rows {
    type Error = Infallible;

    fn hash(&self, level: u8, index: u64) -> Result<Digest, Infallible> {
        Ok(self.0[usize::from(level)][at(index)])
    }
}

/// A tree of any size whose leaves are all equal.
struct Uniform(Vec<Digest>);

impl Uniform {
    fn new() -> Self {
        let leaf = Digest::leaf(b"the same");
        let up = |below: &Digest| Some(Digest::node(below, below));
        Self(std::iter::successors(Some(leaf), up).take(64).collect())
    }
}

impl Hashes for Uniform {
    type Error = Infallible;

    fn hash(&self, level: u8, index: u64) -> Result<Digest, Infallible> {
        let end = (u128::from(index) + 1) << level;
        assert!(end <= u128::from(u64::MAX), "subtree {index} of level {level}");
        Ok(self.0[usize::from(level)])
    }
}

/// `k` of RFC 9162: the largest power of two that is less than the number of leaves.
fn half(count: usize) -> usize {
    count.next_power_of_two() / 2
}

/// `MTH` of RFC 9162, section 2.1.1, implemented literally.
fn literal_root(leaves: &[Digest]) -> Digest {
    match leaves {
        [] => Digest::of(&[]),
        [leaf] => *leaf,
        _ => {
            let (left, right) = leaves.split_at(half(leaves.len()));
            Digest::node(&literal_root(left), &literal_root(right))
        }
    }
}

/// `PATH` of RFC 9162, section 2.1.3.1, implemented literally.
fn literal_path(index: usize, leaves: &[Digest]) -> Vec<Digest> {
    if leaves.len() == 1 {
        return vec![];
    }
    let k = half(leaves.len());
    let (left, right) = leaves.split_at(k);
    let (mut path, other) = if index < k {
        (literal_path(index, left), literal_root(right))
    } else {
        (literal_path(index - k, right), literal_root(left))
    };
    path.push(other);
    path
}

/// `SUBPROOF` of RFC 9162, section 2.1.4.1, implemented literally.
fn literal_subproof(old: usize, leaves: &[Digest], known: bool) -> Vec<Digest> {
    if old == leaves.len() {
        return if known { vec![] } else { vec![literal_root(leaves)] };
    }
    let k = half(leaves.len());
    let (left, right) = leaves.split_at(k);
    let (mut proof, other) = if old <= k {
        (literal_subproof(old, left, known), literal_root(right))
    } else {
        (literal_subproof(old - k, right, false), literal_root(left))
    };
    proof.push(other);
    proof
}

fn at(index: u64) -> usize {
    usize::try_from(index).unwrap()
}

fn digest(text: &str) -> Digest {
    text.parse().unwrap()
}

fn digests(texts: &[&str]) -> Vec<Digest> {
    texts.iter().map(|text| digest(text)).collect()
}

/// Returns variants of a proof with one hash removed, added, duplicated, swapped or changed by a
/// bit.
fn altered(proof: &[Digest], foreign: Digest) -> Vec<Vec<Digest>> {
    let mut all = vec![];
    for place in 0..=proof.len() {
        let mut longer = proof.to_vec();
        longer.insert(place, foreign);
        all.push(longer);
    }
    for place in 0..proof.len() {
        let (mut twice, mut shorter) = (proof.to_vec(), proof.to_vec());
        twice.insert(place, proof[place]);
        shorter.remove(place);
        all.extend([twice, shorter]);
    }
    for place in 1..proof.len() {
        if proof[place - 1] != proof[place] {
            let mut exchanged = proof.to_vec();
            exchanged.swap(place - 1, place);
            all.push(exchanged);
        }
    }
    all.extend(changed(proof, &[3]));
    all
}

fn flip(digest: Digest, bit: usize) -> Digest {
    let mut bytes = *digest.as_bytes();
    bytes[bit / 8] ^= 1 << (bit % 8);
    Digest::new(bytes)
}

#[test]
fn published_roots_are_computed_in_every_way() {
    let tree = Rows::classic();
    let mut frontier = Frontier::default();
    for (size, root) in ROOTS.iter().enumerate() {
        assert_eq!(tree.root(size as u64), digest(root), "{size}");
        assert_eq!(literal_root(&tree.leaves()[..size]), digest(root), "{size}");
        assert_eq!((frontier.size(), frontier.root()), (size as u64, digest(root)));
        if let Some(leaf) = LEAVES.get(size) {
            frontier.push(Digest::leaf(leaf));
        }
    }
    assert_eq!(empty_root(), digest(ROOTS[0]));
}

#[test]
fn published_inclusion_proofs_are_generated_and_verified() {
    let tree = Rows::classic();
    for (index, size, proof) in INCLUSION {
        let (proof, root) = (digests(proof), digest(ROOTS[at(size)]));
        let leaf = Digest::leaf(LEAVES[at(index)]);
        assert_eq!(tree.inclusion(index, size), proof, "{index} of {size}");
        assert_eq!(
            verify_inclusion(&leaf, index, size, &proof, &root),
            Ok(()),
            "{index} of {size}"
        );
    }
}

#[test]
fn published_invalid_inclusion_proofs_are_refused() {
    for (index, size, proof) in INCLUSION {
        let (proof, root) = (digests(proof), digest(ROOTS[at(size)]));
        let leaf = Digest::leaf(LEAVES[at(index)]);
        let some = digest("abacaba000000000000000000000000000000000000000000060061e00123456");
        for index in [index.wrapping_sub(1), index + 1, index ^ 2] {
            assert!(verify_inclusion(&leaf, index, size, &proof, &root).is_err());
        }
        for size in [size * 2, size / 2] {
            assert!(verify_inclusion(&leaf, index, size, &proof, &root).is_err());
        }
        let refused = |leaf: &Digest, proof: &[Digest], root: &Digest| {
            verify_inclusion(leaf, index, size, proof, root).unwrap_err()
        };
        assert_eq!(refused(&some, &proof, &root), ProofError::Root);
        assert_eq!(refused(&leaf, &proof, &some), ProofError::Root);
        assert_eq!(refused(&leaf, &proof, &empty_root()), ProofError::Root);
        for foreign in [some, root, leaf] {
            for bad in altered(&proof, foreign) {
                let error = refused(&leaf, &bad, &root);
                let same_length = bad.len() == proof.len();
                let expect = if same_length { ProofError::Root } else { ProofError::Length };
                assert_eq!(error, expect, "{index} of {size}: {bad:?}");
            }
        }
    }
}

#[test]
fn inclusion_returns_no_proof_for_an_index_outside_the_tree() {
    let tree = Rows::classic();
    let some = Digest::leaf(b"x");
    for (index, size) in [(0, 0), (1, 0), (1, 1), (2, 1), (8, 8), (u64::MAX, 8)] {
        assert_eq!(inclusion(&tree, index, size), Ok(None));
        let error = ProofError::OutOfTree { index, size };
        assert_eq!(verify_inclusion(&some, index, size, &[], &some), Err(error));
    }
    // The only entry is the whole tree.
    assert_eq!(verify_inclusion(&some, 0, 1, &[], &some), Ok(()));
    assert_eq!(verify_inclusion(&some, 0, 1, &[some], &some), Err(ProofError::Length));
    assert_eq!(verify_inclusion(&some, 0, 1, &[], &empty_root()), Err(ProofError::Root));
    assert_eq!(verify_inclusion(&some, 0, 2, &[], &some), Err(ProofError::Length));
}

#[test]
fn published_consistency_proofs_are_generated_and_verified() {
    let tree = Rows::classic();
    for (old, new, proof) in CONSISTENCY {
        let proof = digests(proof);
        let (old_root, new_root) = (digest(ROOTS[at(old)]), digest(ROOTS[at(new)]));
        assert_eq!(tree.consistency(old, new), proof, "{old} to {new}");
        let checked = verify_consistency(old, &old_root, new, &new_root, &proof);
        assert_eq!(checked, Ok(()), "{old} to {new}");
    }
}

#[test]
fn published_invalid_consistency_proofs_are_refused() {
    for (old, new, proof) in CONSISTENCY.into_iter().filter(|(_, _, proof)| !proof.is_empty()) {
        let proof = digests(proof);
        let (old_root, new_root) = (digest(ROOTS[at(old)]), digest(ROOTS[at(new)]));
        for old in [old - 1, old + 1, old ^ 2] {
            assert!(verify_consistency(old, &old_root, new, &new_root, &proof).is_err());
        }
        for new in [new * 2, new / 2] {
            assert!(verify_consistency(old, &old_root, new, &new_root, &proof).is_err());
        }
        let some = Digest::leaf(b"WrongRoot");
        let refused = |old_root: &Digest, new_root: &Digest, proof: &[Digest]| {
            verify_consistency(old, old_root, new, new_root, proof).unwrap_err()
        };
        assert_eq!(refused(&old_root, &some, &proof), ProofError::Root);
        assert!(refused(&some, &new_root, &proof) != ProofError::Length);
        assert!(refused(&new_root, &old_root, &proof) != ProofError::Length);
        assert_eq!(refused(&old_root, &new_root, &[]), ProofError::Length);
        for foreign in [old_root, new_root, proof[0], some] {
            for bad in altered(&proof, foreign) {
                let error = refused(&old_root, &new_root, &bad);
                assert_eq!(error == ProofError::Length, bad.len() != proof.len(), "{bad:?}");
            }
        }
    }
}

#[test]
fn consistency_of_equal_and_empty_trees_is_as_documented() {
    use ProofError::{Length, OldRoot, Root, Shrunk};
    let (empty, a, b) = (&empty_root(), &Digest::leaf(b"a"), &Digest::leaf(b"b"));
    for (old, old_root, new, new_root, proof, expect) in [
        (0, empty, 0, empty, &[][..], Ok(())),
        (0, empty, 1, a, &[], Ok(())),
        (1, a, 1, a, &[], Ok(())),
        (u64::MAX, a, u64::MAX, a, &[], Ok(())),
        (0, empty, u64::MAX, a, &[], Ok(())),
        (0, empty, 0, a, &[], Err(Root)),
        (0, a, 0, a, &[], Err(OldRoot)),
        (0, a, 1, b, &[], Err(OldRoot)),
        (1, a, 1, b, &[], Err(Root)),
        (0, empty, 0, empty, &[*a], Err(Length)),
        (0, empty, 1, a, &[*a], Err(Length)),
        (1, a, 1, a, &[*a], Err(Length)),
        (1, a, 2, b, &[], Err(Length)),
        (3, a, 4, b, &[], Err(Length)),
        (1, a, 0, empty, &[], Err(Shrunk { old: 1, new: 0 })),
        (2, a, 1, b, &[], Err(Shrunk { old: 2, new: 1 })),
    ] {
        let got = verify_consistency(old, old_root, new, new_root, proof);
        assert_eq!(got, expect, "{old} {old_root} to {new} {new_root}");
    }
    assert_eq!(consistency(&Rows::classic(), 5, 4), Ok(None));
}

const SOME_SIZES: u64 = 131;

#[test]
fn inclusion_proofs_of_small_trees_equal_those_of_the_rfc() {
    let tree = Rows::numbered(SOME_SIZES);
    for size in 1..=SOME_SIZES {
        let leaves = &tree.leaves()[..at(size)];
        let root = tree.root(size);
        assert_eq!(root, literal_root(leaves), "{size}");
        for (index, leaf) in (0..).zip(leaves) {
            let proof = tree.inclusion(index, size);
            assert_eq!(verify_inclusion(leaf, index, size, &proof, &root), Ok(()));
            if size < 40 || index % 16 == 15 || index + 3 > size {
                assert_eq!(proof, literal_path(at(index), leaves), "{index} of {size}");
            }
            for other in [0, index / 2, index.wrapping_sub(1), index + 1, size - 1] {
                let taken = verify_inclusion(leaf, other, size, &proof, &root).is_ok();
                assert_eq!(taken, other == index, "{index} as {other} of {size}");
            }
        }
    }
}

#[test]
fn consistency_proofs_of_small_trees_equal_those_of_the_rfc() {
    let tree = Rows::numbered(SOME_SIZES);
    let roots: Vec<_> = (0..=SOME_SIZES).map(|size| tree.root(size)).collect();
    let wrong = Digest::leaf(b"wrong");
    for new in 0..=SOME_SIZES {
        let leaves = &tree.leaves()[..at(new)];
        for old in 0..=new {
            let (old_root, new_root) = (&roots[at(old)], &roots[at(new)]);
            let proof = tree.consistency(old, new);
            assert_eq!(verify_consistency(old, old_root, new, new_root, &proof), Ok(()));
            if old != 0 && (new < 40 || old % 16 == 0 || old + 3 > new) {
                assert_eq!(proof, literal_subproof(at(old), leaves, true), "{old} to {new}");
            }
            if old != 0 {
                assert!(verify_consistency(old, &wrong, new, new_root, &proof).is_err());
                assert!(verify_consistency(old, old_root, new, &wrong, &proof).is_err());
            }
        }
    }
}

#[test]
fn frontier_from_peaks_continues_the_tree() {
    let tree = Rows::numbered(SOME_SIZES);
    let mut frontier = Frontier::default();
    for (size, leaf) in (1..).zip(tree.leaves()) {
        frontier.push(*leaf);
        assert_eq!((frontier.size(), frontier.root()), (size, tree.root(size)));
        assert_eq!(frontier.peaks().len(), at(size.count_ones().into()));
        let again = Frontier::from_peaks(size, frontier.peaks().to_vec());
        assert_eq!(again, Some(frontier.clone()));
    }
    let some = Digest::leaf(b"x");
    for (size, peaks) in [(0, 1), (1, 0), (1, 2), (3, 1), (7, 2), (u64::MAX, 63), (u64::MAX, 64)] {
        assert_eq!(Frontier::from_peaks(size, vec![some; peaks]), None, "{size}");
    }
    let mut huge = Frontier::from_peaks(1 << 63, vec![some]).unwrap();
    huge.push(some);
    assert_eq!(huge.size(), (1 << 63) + 1);
}

/// Generates sizes at the limits of integer arithmetic.
fn any_size() -> impl Strategy<Value = u64> {
    let near = |bit: u32, off: i64| (1_u64 << bit).wrapping_add_signed(off).max(1);
    prop_oneof![
        1..=u64::MAX,
        Just(u64::MAX),
        (0..64_u32, -2..=2_i64).prop_map(move |(bit, off)| near(bit, off)),
    ]
}

proptest! {
    #[test]
    fn generated_proofs_verify_in_trees_of_any_size(size in any_size(), pick: u64, other in any_size()) {
        let tree = Uniform::new();
        let (leaf, root) = (tree.0[0], root_of(&tree, size).unwrap());
        for index in [0, pick % size, size - 1] {
            let proof = inclusion(&tree, index, size).unwrap().unwrap();
            prop_assert_eq!(verify_inclusion(&leaf, index, size, &proof, &root), Ok(()));
        }
        let (old, new) = (size.min(other), size.max(other));
        let proof = consistency(&tree, old, new).unwrap().unwrap();
        let roots = (root_of(&tree, old).unwrap(), root_of(&tree, new).unwrap());
        prop_assert_eq!(verify_consistency(old, &roots.0, new, &roots.1, &proof), Ok(()));
    }

    #[test]
    fn verification_does_not_panic_on_any_numbers_or_proof(a: u64, b in any_size(), length in 0..70_usize) {
        let some = Digest::leaf(b"x");
        let proof = vec![some; length];
        prop_assert!(verify_inclusion(&some, a, b, &proof, &empty_root()).is_err());
        prop_assert!(verify_consistency(a, &some, b, &empty_root(), &proof).is_err());
        prop_assert!(verify_consistency(b, &some, a, &empty_root(), &proof).is_err());
    }

    #[test]
    fn roots_and_proofs_equal_those_of_another_implementation(
        leaves in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 1..300),
        pick: prop::sample::Index,
    ) {
        let mut other = MemoryBackedTree::<Sha256, Vec<u8>>::new();
        let mut roots = vec![];
        for leaf in &leaves {
            other.push(leaf.clone());
            roots.push(other.root());
        }
        let tree = Rows::new(leaves.iter().map(|leaf| Digest::leaf(leaf)).collect());
        let flat = |proof: Vec<Digest>| -> Vec<u8> {
            proof.iter().flat_map(Digest::as_bytes).copied().collect()
        };
        let (size, index) = (leaves.len(), pick.index(leaves.len()));
        for (root, size) in roots.iter().zip(1..) {
            let ours = tree.root(size);
            prop_assert_eq!(&ours.as_bytes()[..], &root.as_bytes()[..]);
        }
        let ours = flat(tree.inclusion(index as u64, size as u64));
        prop_assert_eq!(ours, other.prove_inclusion(index).as_bytes().to_vec());
        let ours = flat(tree.consistency(index as u64 + 1, size as u64));
        let theirs = other.prove_consistency(size - index - 1).as_bytes().to_vec();
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn altered_proof_is_refused_in_trees_of_many_sizes(
        new in 2..600_u64,
        pick: u64,
        bit in 0..256_usize,
    ) {
        let tree = Rows::numbered(new);
        check_altered_inclusion(&tree, pick % new, new, &[bit]);
        check_altered_consistency(&tree, pick % (new - 1) + 1, new, &[bit]);
    }
}

#[test]
fn proof_with_one_changed_bit_is_refused() {
    let bits: Vec<_> = (0..256).collect();
    let tree = Rows::numbered(11);
    for index in 0..11 {
        check_altered_inclusion(&tree, index, 11, &bits);
    }
    for old in 1..11 {
        check_altered_consistency(&tree, old, 11, &bits);
    }
}

#[track_caller]
fn check_altered_inclusion(tree: &Rows, index: u64, size: u64, bits: &[usize]) {
    let (leaf, root) = (tree.leaves()[at(index)], tree.root(size));
    let proof = tree.inclusion(index, size);
    let check = |proof: &[Digest]| verify_inclusion(&leaf, index, size, proof, &root);
    assert_eq!(check(&proof), Ok(()));
    for bad in changed(&proof, bits) {
        assert_eq!(check(&bad), Err(ProofError::Root), "{index} of {size}");
    }
    for bad in altered(&proof, leaf) {
        assert!(check(&bad).is_err(), "{index} of {size}");
    }
}

#[track_caller]
fn check_altered_consistency(tree: &Rows, old: u64, new: u64, bits: &[usize]) {
    let (old_root, new_root) = (tree.root(old), tree.root(new));
    let proof = tree.consistency(old, new);
    let check = |proof: &[Digest]| verify_consistency(old, &old_root, new, &new_root, proof);
    assert_eq!(check(&proof), Ok(()));
    for bad in changed(&proof, bits) {
        let refused = check(&bad);
        assert!(matches!(refused, Err(ProofError::Root | ProofError::OldRoot)), "{old} to {new}");
    }
    for bad in altered(&proof, new_root) {
        assert!(check(&bad).is_err(), "{old} to {new}");
    }
}

/// Returns variants of the proof, each with one bit of one hash changed.
fn changed(proof: &[Digest], bits: &[usize]) -> Vec<Vec<Digest>> {
    let mut all = vec![];
    for place in 0..proof.len() {
        for bit in bits {
            let mut bad = proof.to_vec();
            bad[place] = flip(bad[place], *bit);
            all.push(bad);
        }
    }
    all
}
