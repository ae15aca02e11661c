//! A ledger in its own directory, and an independent reader of its log.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};

use belljar_ledger::{
    Body, Code, Digest, Draft, Entry, Ledger, LedgerPaths, RunCreated, RunExec, Severity,
    VerifyOptions, VerifyReport, verify,
};
use belljar_model::RunId;
use tempfile::TempDir;

/// A state directory.
pub(crate) struct Home {
    dir: TempDir,
}

/// The events that a writer acknowledged as being on disk.
#[derive(Debug, Default, Clone)]
pub(crate) struct Acknowledged {
    pub(crate) events: BTreeMap<u64, Digest>,
    /// Bodies that were redacted.
    pub(crate) redacted: Vec<Digest>,
}

pub(crate) const HEADER: usize = 64;

impl Home {
    /// Creates a state directory in memory if possible: kills and faults behave the same there and
    /// run faster.
    pub(crate) fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        Self { dir: dir.unwrap() }
    }

    pub(crate) fn on_disk() -> Self {
        Self { dir: TempDir::new().unwrap() }
    }

    /// Creates a ledger with a few recorded events.
    pub(crate) fn with_events(count: u32) -> Self {
        let home = Self::new();
        let ledger = home.open();
        for number in 0..count {
            ledger.record(Draft::new(event(number))).map(drop).unwrap();
        }
        home
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn paths(&self) -> LedgerPaths {
        LedgerPaths::under(self.path())
    }

    #[track_caller]
    pub(crate) fn open(&self) -> Ledger {
        Ledger::open(&self.paths()).unwrap()
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.paths().log()
    }

    #[track_caller]
    pub(crate) fn verify(&self) -> VerifyReport {
        verify_deep(&self.paths())
    }

    /// Returns a copy of the whole current state.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new();
        copy_tree(self.path(), copy.path());
        copy
    }

    /// Checks that all acknowledged events exist, nothing is damaged and the ledger can be
    /// continued.
    #[track_caller]
    pub(crate) fn check(&self, acknowledged: &Acknowledged) {
        let paths = self.paths();
        let before = verify_deep(&paths);
        assert!(before.is_sound(), "{:#?}", before.findings);
        check_acknowledged(&self.log(), acknowledged);
        let ledger = match Ledger::open(&paths) {
            Ok(ledger) => ledger,
            Err(error) => panic!("{error:?}: {:#?}", before.findings),
        };
        let receipt = ledger.record(Draft::new(event(1))).unwrap();
        drop(ledger);
        let after = verify_deep(&paths);
        assert!(after.is_sound(), "{:#?}", after.findings);
        assert_eq!(after.signed, Some(receipt.index() + 1), "{:#?}", after.findings);
        let told_of = [
            Code::RotationUnfinished,
            Code::HeadRetiredKey,
            Code::RedactionUnfinished,
            Code::HeadSlotDamaged,
        ];
        for finding in &after.findings {
            let fine = finding.severity == Severity::Note || told_of.contains(&finding.code);
            assert!(fine, "{finding:?}");
        }
        check_acknowledged(&self.log(), acknowledged);
        for hash in &acknowledged.redacted {
            let digits = hash.to_string();
            let (shelf, name) = digits.split_at(2);
            assert!(!paths.ledger().join("bodies").join(shelf).join(name).exists(), "{hash}");
        }
    }
}

#[track_caller]
pub(crate) fn verify_deep(paths: &LedgerPaths) -> VerifyReport {
    verify(paths, VerifyOptions { deep: true, ..VerifyOptions::default() }).unwrap()
}

pub(crate) fn codes(report: &VerifyReport) -> Vec<(Severity, Code)> {
    let mut codes: Vec<_> =
        report.findings.iter().map(|finding| (finding.severity, finding.code)).collect();
    codes.dedup();
    codes
}

pub(crate) fn damages(report: &VerifyReport) -> Vec<Code> {
    let mut found: Vec<Code> = report
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Damage)
        .map(|finding| finding.code)
        .collect();
    found.dedup();
    found
}

pub(crate) fn copy_tree(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

#[track_caller]
fn check_acknowledged(log: &Path, acknowledged: &Acknowledged) {
    // A ledger that was never created has no log.
    let log = if log.exists() { fs::read(log).unwrap() } else { Vec::new() };
    let leaves: Vec<Digest> = batches(&log).concat();
    for (index, hash) in &acknowledged.events {
        let found = leaves.get(usize::try_from(*index).unwrap());
        assert_eq!(found, Some(hash), "event {index} of {} was acknowledged", leaves.len());
    }
}

/// Returns the leaf hashes of each complete batch, read as the description of the format says.
///
/// Stops at the first bytes that are not a batch. Every event must link to its chain.
#[track_caller]
pub(crate) fn batches(log: &[u8]) -> Vec<Vec<Digest>> {
    let mut all = Vec::new();
    let mut chains: BTreeMap<String, (u64, Digest)> = BTreeMap::new();
    let mut next = 0;
    for (_, bytes) in spans(log) {
        let mut rest = &bytes[28..bytes.len() - 32];
        assert_eq!(number(&bytes[8..16]), next, "indices have no gap");
        let mut leaves = Vec::new();
        while !rest.is_empty() {
            let length = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
            let event = &rest[2..2 + length];
            rest = &rest[2 + length..];
            let leaf = Digest::leaf(event);
            let entry = Entry::decode(event).unwrap();
            let chain = entry.run.map(|run| run.to_string()).unwrap_or_default();
            let before = chains.insert(chain, (entry.sequence, leaf));
            assert_eq!(entry.sequence, before.map_or(0, |(sequence, _)| sequence + 1));
            assert_eq!(entry.previous, before.map(|(_, hash)| hash));
            leaves.push(leaf);
        }
        assert_eq!(number(&[&[0; 4], &bytes[16..20]].concat()), leaves.len() as u64);
        next += leaves.len() as u64;
        all.push(leaves);
    }
    all
}

/// Returns the offset and the bytes of each complete batch.
pub(crate) fn spans(log: &[u8]) -> Vec<(usize, &[u8])> {
    let mut spans = Vec::new();
    let mut at = HEADER;
    while let Some(head) = log.get(at..at + 28) {
        let payload = usize::try_from(number(&[&[0; 4], &head[4..8]].concat())).unwrap();
        let Some(bytes) = log.get(at..at + 28 + payload + 32).filter(|_| head.starts_with(b"BJB1"))
        else {
            break;
        };
        let mut leaves = Vec::new();
        let mut rest = &bytes[28..28 + payload];
        while let Some(length) = rest.get(..2).map(|two| u16::from_be_bytes([two[0], two[1]])) {
            let Some(event) = rest.get(2..2 + usize::from(length)) else { break };
            leaves.push(Digest::leaf(event));
            rest = &rest[2 + event.len()..];
        }
        let mut parts: Vec<&[u8]> = vec![b"belljar batch 1\0", head];
        parts.extend(leaves.iter().map(|leaf| leaf.as_bytes().as_slice()));
        if !rest.is_empty() || Digest::of(&parts).as_bytes() != &bytes[28 + payload..] {
            break;
        }
        spans.push((at, bytes));
        at += bytes.len();
    }
    spans
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().unwrap())
}

pub(crate) fn event(number: u32) -> RunExec {
    RunExec { program: format!("/bin/{number}").into_bytes() }
}

pub(crate) fn created() -> RunCreated {
    created_with(Body::hash_of(b"sh\0-c\0true").unwrap())
}

pub(crate) fn created_with(command: Body) -> RunCreated {
    RunCreated {
        name: None,
        template: "default".into(),
        mode: "overlay".into(),
        net: "none".into(),
        policy: Digest::of(&[b"policy"]),
        workspace: None,
        record: "bodies".into(),
        command,
        environment: vec!["PATH".into()],
        limits: vec!["memory=1".into()],
        purpose: None,
        principal: None,
        tenant: None,
        session: None,
        writable: None,
    }
}

pub(crate) fn run_id() -> RunId {
    RunId::new(random() >> 16, u32::try_from(random() >> 32).unwrap())
}

/// `RandomState` is the only source of randomness in std: every state has new keys.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

pub(crate) fn below(limit: u64) -> u64 {
    random() % limit
}

/// Returns the number of repetitions of a random test.
pub(crate) fn times(count: u64) -> u64 {
    let factor = std::env::var("BELLJAR_TORTURE").ok().and_then(|text| text.parse().ok());
    count * factor.unwrap_or(1)
}
