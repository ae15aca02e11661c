//! Read access to the ledger: queries, bodies and proofs.
//!
//! Takes no lock and does not block writers. Derived files (index, tiles) are updated here, and
//! data from them is checked against the log or a signed root before it is returned.

mod tile;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use belljar_model::RunId;

use crate::anchor::{AnchorError, public_keys};
use crate::bodies::{Bodies, BodyError, Usage, Wanted};
use crate::checkpoint::{self, Checkpoint, CheckpointError};
use crate::digest::Digest;
use crate::entry::Entry;
use crate::frame::{HEADER, LedgerId};
use crate::head;
use crate::index::{self, BodyReference, Index, IndexError, Progress, Query, ReadError, Row};
use crate::log::{Log, LogError};
use crate::merkle;
use crate::paths::LedgerPaths;
use crate::receipt::{Disclose, Disclosure, PlanReceipt, ReceiptError, RunReceipt};
use crate::salts::{Kept, Reading};
use crate::tile::{TileError, Tiles, bundle, entries_path};

/// A ledger that is open for reading.
#[derive(Debug)]
pub struct Reader {
    paths: LedgerPaths,
    log: Log,
    index: Index,
    size: u64,
    /// Why events from index `size` on cannot be read, if the log is damaged there.
    damage: Option<IndexError>,
}

/// A proof that an event is in the tree of a signed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inclusion {
    pub index: u64,
    pub size: u64,
    pub leaf: Digest,
    pub proof: Vec<Digest>,
    /// The signed checkpoint.
    pub checkpoint: String,
}

/// The disk space of the ledger in bytes, by kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUsage {
    pub log: u64,
    pub salts: u64,
    pub bodies: Usage,
    /// Index and tiles, which can be deleted and rebuilt.
    pub derived: u64,
}

/// Why data of the ledger cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReaderError {
    #[error("there is no ledger yet in {}", path.display())]
    None { path: PathBuf },
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(transparent)]
    Event(#[from] ReadError),
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Tiles(#[from] TileError),
    #[error(transparent)]
    Anchor(#[from] AnchorError),
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
    #[error("cannot read or write {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("the newest checkpoint is not signed by a key of this ledger")]
    Checkpoint(#[from] CheckpointError),
    #[error("{} has no intact checkpoint", path.display())]
    NoHead { path: PathBuf },
    #[error("no event references a body {hash}")]
    NoBody { hash: Digest },
    #[error("only the hash of body {hash} was recorded")]
    HashOnly { hash: Digest },
    #[error(
        "body {hash} was dropped on purpose; `belljar ledger log --kind ledger` shows the reason"
    )]
    Dropped { hash: Digest },
    #[error("the salt of body {hash} is damaged or missing")]
    NoSalt { hash: Digest },
    #[error("there is no event {index}: the newest signed checkpoint has {size} events")]
    Beyond { index: u64, size: u64 },
    #[error(
        "no proof exists from {old} to {new} events: the first must not be larger, and both at most {size}"
    )]
    Order { old: u64, new: u64, size: u64 },
    #[error("the tiles do not match the signed root; run `belljar ledger verify` for details")]
    Contradiction,
}

const BUNDLE: u64 = 256;
/// The maximum number of index rows in memory at once.
const STRETCH: usize = 16_384;

impl Reader {
    /// Opens the ledger and rebuilds an index with missing rows. Takes about 10 ms for a million events.
    pub fn open(paths: &LedgerPaths) -> Result<Self, ReaderError> {
        Self::open_with(paths, Index::complete, &mut |_, _| {})
    }

    /// As [`Self::open`]. `progress` receives the number of indexed bytes and the length of the log
    /// while the index is built.
    pub fn open_showing(
        paths: &LedgerPaths,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, ReaderError> {
        Self::open_with(paths, Index::complete, progress)
    }

    /// Opens the ledger in a time that does not depend on the number of events.
    ///
    /// Only the list of intents without an outcome is complete for certain. The caller must check the
    /// other results for gaps: events have consecutive indices, and those of a run have consecutive
    /// sequence numbers. After a gap, [`Reader::open`] rebuilds the index.
    pub fn open_uncounted(paths: &LedgerPaths) -> Result<Self, ReaderError> {
        Self::open_with(paths, Index::complete_intents, &mut |_, _| {})
    }

    fn open_with(
        paths: &LedgerPaths,
        complete: impl FnOnce(&mut Index, &Log, Progress<'_>) -> Result<(), IndexError>,
        progress: Progress<'_>,
    ) -> Result<Self, ReaderError> {
        let log = match Log::open(&paths.log()) {
            Err(LogError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(ReaderError::None { path: paths.ledger().to_owned() });
            }
            opened => opened?,
        };
        let index = Index::open(paths, &log)?;
        let mut reader = Self { paths: paths.clone(), log, index, size: 0, damage: None };
        reader.refresh_showing(progress)?;
        match complete(&mut reader.index, &reader.log, progress) {
            // A damaged log was reported by the refresh.
            Ok(()) | Err(IndexError::Log { .. } | IndexError::Event { .. }) => Ok(reader),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads new events and returns the number of readable events.
    pub fn refresh(&mut self) -> Result<u64, ReaderError> {
        self.refresh_showing(&mut |_, _| {})
    }

    fn refresh_showing(&mut self, progress: Progress<'_>) -> Result<u64, ReaderError> {
        (self.size, self.damage) = match self.index.catch_up_showing(&self.log, progress) {
            Ok(size) => (size, None),
            // The events before the damage stay readable, because they are needed to investigate
            // it.
            Err(damage @ (IndexError::Log { .. } | IndexError::Event { .. })) => {
                (self.index.size()?, Some(damage))
            }
            Err(error) => return Err(error.into()),
        };
        Ok(self.size)
    }

    /// Returns why not all events can be read; the events before the damage can.
    pub const fn damage(&self) -> Option<&IndexError> {
        self.damage.as_ref()
    }

    pub const fn id(&self) -> LedgerId {
        self.log.id()
    }

    /// Returns whether the log is still the file that this reader has open. Otherwise the ledger must be
    /// opened again.
    pub fn is_current(&self) -> bool {
        let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
        let named = fs::metadata(self.paths.log()).map(identity);
        named.is_ok_and(|named| self.log.file().metadata().is_ok_and(|own| identity(own) == named))
    }

    /// Returns the number of events at the last refresh.
    pub const fn size(&self) -> u64 {
        self.size
    }

    pub fn events(&self, query: &Query) -> Result<Vec<Row>, ReaderError> {
        Ok(self.index.events(query)?)
    }

    pub fn event(&self, index: u64) -> Result<Option<Row>, ReaderError> {
        Ok(self.index.event(index)?)
    }

    pub fn find(&self, run: RunId, sequence: u64) -> Result<Option<Row>, ReaderError> {
        Ok(self.index.find(run, sequence)?)
    }

    /// Returns the events whose cause is this event.
    pub fn effects_of(&self, index: u64) -> Result<Vec<Row>, ReaderError> {
        Ok(self.index.effects_of(index, None)?)
    }

    /// Returns the first events whose cause is this event.
    pub fn first_effects_of(&self, index: u64, limit: usize) -> Result<Vec<Row>, ReaderError> {
        Ok(self.index.effects_of(index, Some(limit))?)
    }

    /// Returns the intents without an outcome, of one run or of all runs.
    pub fn unsettled(&self, run: Option<RunId>) -> Result<Vec<Row>, ReaderError> {
        Ok(self.index.unsettled(run)?)
    }

    /// Returns the runs whose id starts with a prefix.
    pub fn find_run(&self, prefix: &str) -> Result<Vec<RunId>, ReaderError> {
        Ok(self.index.find_run(prefix)?)
    }

    /// Reads the whole event of a row and checks it against its hash.
    pub fn read(&self, row: &Row) -> Result<Entry, ReaderError> {
        Ok(index::read(&self.log, row)?)
    }

    /// Returns the bodies whose hash starts with a prefix, with the events that reference them.
    pub fn find_bodies(&self, prefix: &str) -> Result<Vec<BodyReference>, ReaderError> {
        Ok(self.index.find_bodies(prefix)?)
    }

    /// Returns whether a content is stored under the hash of a body, without checking it.
    pub fn has_body(&self, hash: Digest) -> bool {
        Bodies::open(&self.paths).has(hash)
    }

    /// Writes the stored content of a body after checking all of it, and returns its size.
    pub fn body(&self, hash: Digest, out: &mut dyn Write) -> Result<u64, ReaderError> {
        let named = self.index.find_bodies(&hash.to_string())?;
        let kept = named.iter().find(|naming| naming.is_kept);
        let size = match (kept, named.is_empty()) {
            (Some(naming), _) => naming.size,
            (None, false) => return Err(ReaderError::HashOnly { hash }),
            (None, true) => return Err(ReaderError::NoBody { hash }),
        };
        let path = self.paths.salts();
        let salts = Reading::open(&path, self.log.id());
        let salts = salts.map_err(|source| ReaderError::File { path, source })?;
        let salt = match self.index.salt(&salts, hash)? {
            Some(Kept::Salt(salt)) => salt,
            Some(Kept::Erased) => return Err(ReaderError::Dropped { hash }),
            Some(Kept::Damaged) | None => return Err(ReaderError::NoSalt { hash }),
        };
        Bodies::open(&self.paths).read(&Wanted { hash, size, salt }, out)?;
        Ok(size)
    }

    /// Returns the newest signed checkpoint, parsed and as text.
    pub fn checkpoint(&self) -> Result<(Checkpoint, String), ReaderError> {
        let path = self.paths.head();
        let head = File::open(&path).and_then(|file| head::settled(&file));
        let file_error = |source| ReaderError::File { path: path.clone(), source };
        let head = head.map_err(file_error)?.ok_or(ReaderError::NoHead { path })?;
        // The keys are read after the head, because a key is listed before it signs.
        let keys = public_keys(&self.paths)?;
        let (checkpoint, _) = checkpoint::open(&head.note, &keys)?;
        Ok((checkpoint, head.note))
    }

    /// Returns a proof that an event is in the tree of the newest checkpoint.
    pub fn inclusion(&self, index: u64) -> Result<Inclusion, ReaderError> {
        let (checkpoint, note) = self.checkpoint()?;
        let (size, root) = (checkpoint.size(), checkpoint.root());
        let row = self.index.event(index)?.filter(|_| index < size);
        let leaf = row.ok_or(ReaderError::Beyond { index, size })?.leaf;
        let prove = |tiles: &Tiles| -> Result<Option<Vec<Digest>>, ReaderError> {
            let Some(proof) = merkle::inclusion(tiles, index, size)? else { return Ok(None) };
            let holds = merkle::verify_inclusion(&leaf, index, size, &proof, &root).is_ok();
            Ok(holds.then_some(proof))
        };
        let proof = self.with_tiles(size, prove)?;
        Ok(Inclusion { index, size, leaf, proof, checkpoint: note })
    }

    /// Returns a proof that the tree of `new` events starts with the tree of `old` events.
    pub fn consistency(&self, old: u64, new: u64) -> Result<Vec<Digest>, ReaderError> {
        let (checkpoint, _) = self.checkpoint()?;
        let size = checkpoint.size();
        if old > new || new > size {
            return Err(ReaderError::Order { old, new, size });
        }
        self.with_tiles(size, |tiles| {
            if merkle::root_of(tiles, size)? != checkpoint.root() {
                return Ok(None);
            }
            Ok(merkle::consistency(tiles, old, new)?)
        })
    }

    /// Returns the root of the tree of the first `size` events.
    pub fn root_at(&self, size: u64) -> Result<Digest, ReaderError> {
        let (checkpoint, _) = self.checkpoint()?;
        let all = checkpoint.size();
        if size > all {
            return Err(ReaderError::Beyond { index: size, size: all });
        }
        self.with_tiles(all, |tiles| {
            let holds = merkle::root_of(tiles, all)? == checkpoint.root();
            Ok(holds.then_some(merkle::root_of(tiles, size)?))
        })
    }

    /// Returns the receipt of a run as the text of its file.
    pub fn receipt(&self, run: RunId, disclose: Disclose) -> Result<String, ReaderError> {
        Ok(RunReceipt::make(&self.paths, run, disclose)?.to_text())
    }

    /// Returns the receipt of a run of a plan with all its boxes as the text of its file.
    ///
    /// It discloses the stored bodies and the contents in `more`, unless `more` is absent.
    pub fn plan_receipt(
        &self,
        run: RunId,
        more: Option<Vec<Disclosure>>,
    ) -> Result<String, ReaderError> {
        Ok(PlanReceipt::make(&self.paths, run, more)?.to_text())
    }

    /// Exports the log as a static tiled log (tlog-tiles) for other tools.
    pub fn export_tiles(&self, dir: &Path) -> Result<Checkpoint, ReaderError> {
        let (checkpoint, note) = self.checkpoint()?;
        let mut tiles = Tiles::open(dir)?;
        let mut entries: Vec<Vec<u8>> = Vec::new();
        let mut scan = self.log.scan(HEADER as u64, 0);
        while let Some(batch) = scan.next()? {
            for event in batch.events().filter(|event| event.index < checkpoint.size()) {
                if event.index >= tiles.size() {
                    tiles.push(event.leaf)?;
                }
                entries.push(event.bytes.to_vec());
                if (event.index + 1) % BUNDLE == 0 || event.index + 1 == checkpoint.size() {
                    write_bundle(dir, event.index / BUNDLE, &entries)?;
                    entries.clear();
                }
            }
        }
        tiles.publish(checkpoint.size())?;
        if merkle::root_of(&tiles, checkpoint.size())? != checkpoint.root() {
            return Err(ReaderError::Contradiction);
        }
        write_file(&dir.join("checkpoint"), note.as_bytes())?;
        Ok(checkpoint)
    }

    /// Returns the disk space that the ledger uses.
    pub fn disk_usage(&self) -> Result<DiskUsage, ReaderError> {
        let length = |path: PathBuf| fs::metadata(path).map_or(0, |meta| meta.len());
        Ok(DiskUsage {
            log: self.log.length()?,
            salts: length(self.paths.salts()),
            bodies: Bodies::open(&self.paths).usage()?,
            derived: length(self.paths.index()) + tree_size(&self.paths.tiles().join("tile")),
        })
    }

    /// Runs a query on the tiles; if its result does not verify, rebuilds the tiles and retries
    /// once.
    fn with_tiles<T>(
        &self,
        size: u64,
        ask: impl Fn(&Tiles) -> Result<Option<T>, ReaderError>,
    ) -> Result<T, ReaderError> {
        match self.tiles(size).and_then(|tiles| ask(&tiles)) {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) | Err(ReaderError::Tiles(_)) => {}
            Err(error) => return Err(error),
        }
        let path = self.paths.tiles().join("tile");
        match fs::remove_dir_all(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(ReaderError::File { path, source });
            }
            _ => {}
        }
        ask(&self.tiles(size)?)?.ok_or(ReaderError::Contradiction)
    }

    /// Returns the tiles, up to date for at least `size` events.
    fn tiles(&self, size: u64) -> Result<Tiles, ReaderError> {
        let mut tiles = Tiles::open(self.paths.tiles())?;
        extend(&mut tiles, &self.index)?;
        if tiles.size() < size {
            // More events were signed since the last refresh.
            let mut index = Index::open(&self.paths, &self.log)?;
            index.catch_up(&self.log)?;
            extend(&mut tiles, &index)?;
        }
        Ok(tiles)
    }
}

/// Adds the newer leaves of the index to the tiles.
fn extend(tiles: &mut Tiles, index: &Index) -> Result<(), ReaderError> {
    loop {
        let after = tiles.size().checked_sub(1);
        let query = Query { after, limit: Some(STRETCH), ..Query::default() };
        let rows = index.events(&query)?;
        if rows.is_empty() {
            return Ok(());
        }
        tiles.extend(tiles.size(), rows.into_iter().map(|row| row.leaf))?;
    }
}

fn write_bundle(dir: &Path, index: u64, entries: &[Vec<u8>]) -> Result<(), ReaderError> {
    let width = u16::try_from(entries.len() % 256).unwrap_or(0);
    let path = dir.join(entries_path(index, if width == 0 { 256 } else { width }));
    let entries: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
    write_file(&path, &bundle(&entries).unwrap_or_default())
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), ReaderError> {
    let write = || -> io::Result<()> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, bytes)
    };
    write().map_err(|source| ReaderError::File { path: path.to_owned(), source })
}

/// Returns the total length of all files in a directory of the ledger.
fn tree_size(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => tree_size(&entry.path()),
        Ok(_) => entry.metadata().map_or(0, |meta| meta.len()),
        Err(_) => 0,
    };
    entries.map(size).sum()
}
