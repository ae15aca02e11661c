//! Small ledgers for tests, built without the writer so that they can be made faulty.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use belljar_model::RunId;

use crate::anchor::endorsed;
use crate::body::{Body, Committing, Salt};
use crate::checkpoint::Checkpoint;
use crate::digest::Digest;
use crate::entry::{Actor, Entry, Moment};
use crate::event::*;
use crate::frame::{self, HEADER, LOG_MAGIC, LedgerId, SALTS_MAGIC};
use crate::head::Head;
use crate::merkle::Frontier;
use crate::note::SigningKey;
use crate::paths::LedgerPaths;
use crate::salts::Salts;

pub(crate) const SECOND: u64 = 1_000_000_000;

/// A ledger that is not yet on disk.
pub(crate) struct Sample {
    pub(crate) id: LedgerId,
    pub(crate) key: SigningKey,
    pub(crate) keys: Vec<String>,
    pub(crate) batches: Vec<Vec<Vec<u8>>>,
    pub(crate) salts: Vec<(Digest, Salt)>,
    pub(crate) erased: Vec<Digest>,
    pub(crate) bodies: Vec<(Body, Vec<u8>)>,
    links: HashMap<Option<RunId>, (u64, Digest)>,
    clock: u64,
    next: u64,
}

pub(crate) fn run(number: u32) -> RunId {
    RunId::new(1_700_000_000_000, number)
}

pub(crate) fn key(seed: u8) -> SigningKey {
    SigningKey::generate(&LedgerId::new([7; 16]).origin(), [seed; 32]).unwrap()
}

impl Sample {
    pub(crate) fn empty() -> Self {
        let key = key(1);
        Self {
            id: LedgerId::new([7; 16]),
            keys: vec![key.verifying().to_string()],
            key,
            batches: Vec::new(),
            salts: Vec::new(),
            erased: Vec::new(),
            bodies: Vec::new(),
            links: HashMap::new(),
            clock: 1_700_000_000 * SECOND,
            next: 0,
        }
    }

    /// Returns a ledger of eight batches with two runs, stored and hashed bodies, a redaction and a
    /// rotation.
    pub(crate) fn small() -> Self {
        let mut sample = Self::empty();
        sample.batch(|it| it.add(None, LedgerCreated { version: "1".into(), reason: None }));
        sample.batch(|it| it.begin(run(1)));
        sample.batch(|it| {
            it.begin(run(2));
            it.add(Some(run(1)), RunExec { program: b"/bin/true".to_vec() });
        });
        let gone = sample.body(b"the password is hunter2", true);
        sample.batch(|it| {
            it.add(Some(run(2)), WorkspaceChanged { files: 1, changes: gone.clone() });
        });
        sample.batch(|it| it.end(run(1)));
        sample.rotate(2);
        sample.batch(|it| {
            let bodies = vec![gone.hash()];
            it.add(None, LedgerRedacted { bodies, reason: "secret".into() });
        });
        sample.bodies.retain(|(body, _)| body.hash() != gone.hash());
        sample.erased.push(gone.hash());
        sample.batch(|it| it.end(run(2)));
        sample
    }

    /// Returns a ledger of four batches with one run and a stored, a hashed and a redacted body.
    pub(crate) fn tiny() -> Self {
        let mut sample = Self::empty();
        sample.batch(|it| it.begin(run(1)));
        let gone = sample.body(b"hunter2", false);
        sample.batch(|it| {
            it.add(Some(run(1)), WorkspaceChanged { files: 1, changes: gone.clone() });
            it.end(run(1));
        });
        sample.batch(|it| {
            it.add(None, LedgerRedacted { bodies: vec![gone.hash()], reason: "r".into() });
        });
        sample.erased.push(gone.hash());
        sample
    }

    pub(crate) fn batch(&mut self, make: impl FnOnce(&mut Self)) {
        self.batches.push(Vec::new());
        make(self);
    }

    pub(crate) fn begin(&mut self, run: RunId) {
        let command = self.body(format!("sh\0-c\0{run}").as_bytes(), true);
        let event = RunCreated {
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
        };
        self.add(Some(run), event);
    }

    pub(crate) fn end(&mut self, run: RunId) {
        let stdout = self.body(b"hello\n", false);
        let event = RunEnded {
            reason: "exited".into(),
            exit: Some(0),
            signal: None,
            wall_micros: 1,
            cpu_micros: 1,
            peak_memory: None,
            stdin_bytes: 0,
            stdout: Some(stdout),
            stderr: None,
        };
        self.add(Some(run), event);
    }

    /// Creates a body with its salt, and with its content if `kept`.
    pub(crate) fn body(&mut self, content: &[u8], kept: bool) -> Body {
        let salt = Salt::new(*Digest::of(&[&[u8::try_from(self.salts.len()).unwrap()]]).as_bytes());
        let mut committing = Committing::new(salt);
        committing.update(content);
        let body = committing.finish();
        self.salts.push((body.hash(), salt));
        if kept {
            self.bodies.push((body.clone(), content.to_vec()));
            return body.kept();
        }
        body
    }

    pub(crate) fn rotate(&mut self, seed: u8) {
        let new = key(seed);
        let event = KeyRotated {
            old: self.key.verifying().to_string(),
            new: new.verifying().to_string(),
            endorsement: self.key.sign_bytes(&endorsed(&new.verifying())).to_vec(),
        };
        self.batch(|it| it.add(None, event));
        self.keys.push(new.verifying().to_string());
        self.key = new;
    }

    pub(crate) fn add(&mut self, run: Option<RunId>, event: impl Into<Event>) {
        self.add_because(run, event, None);
    }

    pub(crate) fn add_because(
        &mut self,
        run: Option<RunId>,
        event: impl Into<Event>,
        cause: Option<u64>,
    ) {
        let event = event.into();
        let before = self.links.get(&run).copied();
        self.clock += SECOND;
        let entry = Entry {
            kind: event.kind().to_owned(),
            run,
            sequence: before.map_or(0, |(sequence, _)| sequence + 1),
            previous: before.map(|(_, hash)| hash),
            actor: Actor::Supervisor,
            cause,
            moment: Moment { time: self.clock, uptime: self.clock / 2, boot: [3; 16] },
            fields: event.fields(),
        };
        self.add_entry(&entry);
    }

    pub(crate) fn add_entry(&mut self, entry: &Entry) {
        let bytes = entry.encode().unwrap();
        self.links.insert(entry.run, (entry.sequence, Digest::leaf(&bytes)));
        self.batches.last_mut().unwrap().push(bytes);
        self.next += 1;
    }

    pub(crate) fn turn_clock_back(&mut self, nanos: u64) {
        self.clock -= nanos;
    }

    /// Returns the bytes of the log.
    pub(crate) fn log(&self) -> Vec<u8> {
        let mut log = frame::header(LOG_MAGIC, self.id).to_vec();
        let mut first = 0;
        for batch in &self.batches {
            log.extend(framed(first, batch));
            first += batch.len() as u64;
        }
        log
    }

    /// Returns the head after this many batches.
    pub(crate) fn head(&self, batches: usize, generation: u64) -> Head {
        let mut frontier = Frontier::default();
        let mut end = HEADER as u64;
        let mut own = None;
        for batch in self.batches.iter().take(batches) {
            for bytes in batch {
                let leaf = Digest::leaf(bytes);
                frontier.push(leaf);
                if let Ok(entry) = Entry::decode(bytes)
                    && entry.run.is_none()
                {
                    own = Some((entry.sequence, leaf));
                }
            }
            end += framed(0, batch).len() as u64;
        }
        let note = self.checkpoint(&frontier);
        Head { generation, end, own, frontier, note }
    }

    pub(crate) fn checkpoint(&self, frontier: &Frontier) -> String {
        let origin = self.id.origin();
        Checkpoint::new(origin, frontier.size(), frontier.root()).unwrap().sign(&[&self.key])
    }

    /// Returns a signed checkpoint of the first batches.
    pub(crate) fn checkpoint_after(&self, batches: usize) -> String {
        self.head(batches, 0).note
    }

    /// Writes all files as the writer would have.
    pub(crate) fn write(&self, home: &Path) -> LedgerPaths {
        let paths = LedgerPaths::under(home);
        fs::create_dir_all(paths.ledger()).unwrap();
        fs::create_dir_all(paths.anchor()).unwrap();
        fs::write(paths.lock(), "").unwrap();
        fs::write(paths.log(), self.log()).unwrap();
        fs::write(paths.keys(), self.keys.join("\n") + "\n").unwrap();
        fs::write(paths.key(), self.key.to_text() + "\n").unwrap();
        fs::set_permissions(paths.key(), fs::Permissions::from_mode(0o600)).unwrap();
        let file = fs::File::create(paths.head()).unwrap();
        file.set_len(8192).unwrap();
        let count = self.batches.len();
        if count > 0 {
            self.head(count - 1, count as u64).write(&file).unwrap();
        }
        self.head(count, count as u64 + 1).write(&file).unwrap();
        self.write_bodies(&paths);
        paths
    }

    fn write_bodies(&self, paths: &LedgerPaths) {
        fs::write(paths.salts(), frame::header(SALTS_MAGIC, self.id)).unwrap();
        Salts::open(&paths.salts(), self.id).unwrap().append(&self.salts).unwrap();
        crate::salts::erase(&paths.salts(), &self.erased).unwrap();
        for (body, content) in &self.bodies {
            let path = body_path(paths, &body.hash());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut bytes = b"BJBODY1\n".to_vec();
            bytes.extend_from_slice(body.hash().as_bytes());
            bytes.extend_from_slice(&body.size().to_be_bytes());
            bytes.extend(zstd::encode_all(content.as_slice(), 3).unwrap());
            let check = Digest::of(&[&bytes]);
            bytes.extend_from_slice(check.as_bytes());
            fs::write(path, bytes).unwrap();
        }
    }
}

pub(crate) fn body_path(paths: &LedgerPaths, hash: &Digest) -> PathBuf {
    let digits = hash.to_string();
    paths.bodies().join(&digits[..2]).join(&digits[2..])
}

/// Returns a batch with a valid checksum and any content.
pub(crate) fn framed(first: u64, entries: &[Vec<u8>]) -> Vec<u8> {
    let leaves: Vec<Digest> = entries.iter().map(|entry| Digest::leaf(entry)).collect();
    frame::batch(first, 42, entries, &leaves)
}
