//! The files of one run of a plan.
//!
//! ```text
//! plans/<run id>/manifest.json      commitments to all files of the submission
//!                plan.json          the plan in its canonical form
//!                in/<input>         the inputs of the plan, copied once
//!                text/<task>        the program or the prompt of a task, if it is a file
//!                schema/<task>      the schema of the output of a task
//!                check/<task>.<n>   the schema of check number n of a task
//!                fixed/<name>       descriptions of tiers and agents, as they were at the submission
//!                out/<task>[.<n>]   the output of a task; `.json` beside it is its commitment
//!                work/<box run>/    the inputs of a running attempt
//!                control/           requests to the driver; see `runs::control`
//! ```
//! All files except those in `work/` are on disk before the fact that names them is recorded. The fact
//! `plan.accepted` has the digest of the manifest, and `task.ended` has the commitment of the output. The
//! outputs of stubs are part of the plan; see `stubs`.

mod schemas;
mod texts;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context as _, anyhow};
use belljar_ledger::{Committing, Digest, Salt};
use belljar_model::RunId;
use belljar_model::plan::{CheckedPlan, InputName, Text};
use serde::{Deserialize, Serialize};

use super::host::{self, TaskOutput};
use super::machine::TaskRef;
use super::stubs::{self, StubKey};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::scope::Scoped;
use crate::store::durable;
use crate::store::layout::Layout;

/// The maximum size of all inputs of a plan in bytes.
const MAX_INPUTS: u64 = 256 << 20;
/// The version of the manifest.
const FORMAT: u32 = 1;

const MANIFEST: &str = "manifest.json";
const PLAN: &str = "plan.json";

/// The directory of one run of a plan.
#[derive(Clone, Debug)]
pub(crate) struct RunFiles {
    dir: PathBuf,
    /// The key of the outputs of stubs, once it was needed; `None` if the manifest cannot be read.
    stub_key: OnceLock<Option<StubKey>>,
}

/// The commitments to the files of a submission.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    /// The directory that relative paths of the plan refer to.
    base: PathBuf,
    /// The commitment to each file, by the path of the file in the directory of the run.
    files: BTreeMap<String, TaskOutput>,
}

/// The plan of a run as it was submitted.
#[derive(Debug)]
pub(crate) struct Submitted {
    pub(crate) plan: CheckedPlan,
    pub(crate) base: PathBuf,
}

impl RunFiles {
    pub(crate) fn of(layout: &Layout, run: RunId) -> Self {
        Self { dir: layout.plan(run), stub_key: OnceLock::new() }
    }

    /// Returns whether the run of a plan has files here.
    pub(crate) fn exist(&self) -> bool {
        self.dir.join(MANIFEST).exists()
    }

    /// Stores the files of a submission durably. Returns the digest that binds them.
    ///
    /// `fixed` has the names and contents of further files.
    pub(crate) fn create(
        &self,
        plan: &CheckedPlan,
        base: &Path,
        fixed: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Digest, EngineError> {
        let created = self.try_create(plan, base, fixed);
        created.inspect_err(|_| {
            fs::remove_dir_all(&self.dir).ok(); // nothing refers to the directory yet
        })
    }

    fn try_create(
        &self,
        plan: &CheckedPlan,
        base: &Path,
        fixed: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Digest, EngineError> {
        self.create_directories()
            .map_err(|error| durable::with_disk_full_hint(error, &self.dir))
            .with_context(|| format!("cannot create {}", self.dir.display()))
            .kind(ErrorKind::Broken)?;
        let mut files = self.copy_schemas(plan, base)?;
        let mut rest = MAX_INPUTS;
        for (name, input) in plan.inputs() {
            let copied = self.copy_input(name, &input.content, base, rest)?;
            rest = rest.saturating_sub(copied.size());
            files.insert(format!("in/{name}"), copied);
        }
        files.extend(self.copy_texts(plan, base)?);
        let write = || -> io::Result<Digest> {
            for (name, content) in fixed {
                let to = self.dir.join("fixed").join(name);
                let stored = write_new(&to, &mut content.as_slice(), u64::MAX)?;
                files.insert(format!("fixed/{name}"), stored);
            }
            let text = plan.canonical();
            let stored = write_new(&self.dir.join(PLAN), &mut text.as_bytes(), u64::MAX)?;
            files.insert(PLAN.to_owned(), stored);
            let manifest = Manifest { format: FORMAT, base: base.to_owned(), files };
            let text = serde_json::to_vec(&manifest)?;
            sync_dir(&self.dir.join("in"))?;
            sync_dir(&self.dir.join("fixed"))?;
            durable::write(&self.dir, MANIFEST, &text)?;
            self.dir.parent().map_or(Ok(()), sync_dir)?;
            Ok(digest_of(&text))
        };
        write()
            .map_err(|error| durable::with_disk_full_hint(error, &self.dir))
            .context("cannot store the plan")
            .kind(ErrorKind::Broken)
    }

    /// Stores the files of an earlier submission again for a new run. Returns the digest that binds them.
    pub(crate) fn create_again(
        &self,
        earlier: &Self,
        bound: Digest,
    ) -> Result<Digest, EngineError> {
        let copy = || -> anyhow::Result<Digest> {
            let text = fs::read(earlier.dir.join(MANIFEST))?;
            anyhow::ensure!(digest_of(&text) == bound, "the manifest is not the recorded one");
            let mut manifest: Manifest = serde_json::from_slice(&text)?;
            self.create_directories()?;
            for (name, stored) in &mut manifest.files {
                let (from, to) = (earlier.dir.join(name), self.dir.join(name));
                let is_equal = stored.matches(&mut File::open(&from)?)?;
                anyhow::ensure!(is_equal, "{name} is not the recorded file");
                if let Some(parent) = to.parent() {
                    DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
                }
                *stored = write_new(&to, &mut File::open(&from)?, u64::MAX)?;
                to.parent().map_or(Ok(()), sync_dir)?;
            }
            let text = serde_json::to_vec(&manifest)?;
            durable::write(&self.dir, MANIFEST, &text)?;
            self.dir.parent().map_or(Ok(()), sync_dir)?;
            Ok(digest_of(&text))
        };
        copy().map_err(|error| {
            fs::remove_dir_all(&self.dir).ok(); // nothing refers to the directory yet
            let error = error.context("cannot copy the files of the earlier run");
            EngineError::new(ErrorKind::Broken, error)
        })
    }

    /// Copies the output of an earlier run with its commitment. Returns `false` if the output is missing or
    /// is not the recorded one. [`sync_outputs`](Self::sync_outputs) makes the copies durable.
    pub(crate) fn copy_output(
        &self,
        earlier: &Self,
        of: &TaskRef,
        bound: Digest,
    ) -> Result<bool, EngineError> {
        let Some(path) = earlier.checked_output(of, bound) else { return Ok(false) };
        let copy = || -> io::Result<()> {
            let (out, name) = (self.dir.join("out"), output_name(of));
            let commitment = fs::read(earlier.commitment(of))?;
            durable::write_unsynced(&out, &format!("{name}.json"), &commitment)?;
            durable::write_unsynced(&out, &name, &fs::read(path)?)
        };
        copy()
            .map_err(|error| durable::with_disk_full_hint(error, &self.dir))
            .with_context(|| format!("cannot copy the output of {of}"))
            .kind(ErrorKind::Broken)?;
        Ok(self.checked_output(of, bound).is_some())
    }

    /// Waits until all copied outputs are on disk. One call is faster than one for each file.
    pub(crate) fn sync_outputs(&self) -> Result<(), EngineError> {
        let sync = || -> io::Result<()> {
            rustix::fs::syncfs(File::open(self.dir.join("out"))?)?;
            Ok(())
        };
        sync()
            .map_err(|error| durable::with_disk_full_hint(error, &self.dir))
            .context("cannot write the outputs of the earlier run to the disk")
            .kind(ErrorKind::Broken)
    }

    fn create_directories(&self) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        builder.create(&self.dir)?;
        ["in", "fixed", "out", "work", "control"]
            .iter()
            .try_for_each(|name| builder.create(self.dir.join(name)))
    }

    fn copy_input(
        &self,
        name: &InputName,
        content: &Text,
        base: &Path,
        limit: u64,
    ) -> Result<TaskOutput, EngineError> {
        let to = self.dir.join("in").join(name.as_str());
        let copied = match content {
            Text::Inline(text) => write_new(&to, &mut text.as_bytes(), limit)
                .with_context(|| format!("cannot store input.{name}")),
            Text::File(path) => {
                let path = base.join(path);
                let file = open_regular(&path);
                file.and_then(|mut file| write_new(&to, &mut file, limit))
                    .with_context(|| format!("input.{name}: cannot read {}", path.display()))
            }
        };
        copied.map_err(|error| {
            let is_too_large = error
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::FileTooLarge);
            if is_too_large {
                let text = format!("the inputs of a plan have at most {} MiB", MAX_INPUTS >> 20);
                return invalid(text).context(format!("input.{name} is too large"));
            }
            EngineError::new(ErrorKind::Invalid, error)
        })
    }

    /// Reads the plan of the run, if its files are those that the digest binds.
    pub(crate) fn read(&self, bound: Digest) -> Result<Submitted, EngineError> {
        let read = || -> anyhow::Result<Submitted> {
            let text = fs::read(self.dir.join(MANIFEST)).context("cannot read the manifest")?;
            anyhow::ensure!(digest_of(&text) == bound, "the manifest is not the recorded one");
            let manifest: Manifest = serde_json::from_slice(&text)?;
            anyhow::ensure!(manifest.format == FORMAT, "the manifest has an unknown format");
            let text = fs::read_to_string(self.dir.join(PLAN)).context("cannot read the plan")?;
            let stored = manifest.files.get(PLAN).context("the manifest has no plan")?;
            let is_equal = stored.matches(&mut text.as_bytes())?;
            anyhow::ensure!(is_equal, "the plan is not the recorded one");
            Ok(Submitted { plan: CheckedPlan::stored(&text)?, base: manifest.base })
        };
        read().map_err(|error| {
            let error = error.context(format!("the files in {} are damaged", self.dir.display()));
            EngineError::new(ErrorKind::Damaged, error)
        })
    }

    /// Returns the file of an input of the plan, or `None` if it is not the recorded one.
    pub(crate) fn input(&self, bound: Digest, name: &InputName) -> Option<PathBuf> {
        self.submitted(bound, &format!("in/{name}"))
    }

    /// Returns the content of a file that was fixed at the submission, or `None` if it is not the recorded
    /// one.
    pub(crate) fn fixed(&self, bound: Digest, name: &str) -> Option<Vec<u8>> {
        fs::read(self.submitted(bound, &format!("fixed/{name}"))?).ok()
    }

    /// Returns the content of a file that a submission fixes only if it is needed; `None` if the file is not
    /// the recorded one.
    pub(crate) fn optional_fixed(&self, bound: Digest, name: &str) -> Option<Option<Vec<u8>>> {
        let text = fs::read(self.dir.join(MANIFEST)).ok()?;
        let manifest: Manifest =
            (digest_of(&text) == bound).then(|| serde_json::from_slice(&text).ok())??;
        match manifest.files.contains_key(&format!("fixed/{name}")) {
            true => self.fixed(bound, name).map(Some),
            false => Some(None),
        }
    }

    /// Returns a file of the submission, or `None` if it is not the recorded one.
    fn submitted(&self, bound: Digest, name: &str) -> Option<PathBuf> {
        let text = fs::read(self.dir.join(MANIFEST)).ok()?;
        let manifest: Manifest =
            (digest_of(&text) == bound).then(|| serde_json::from_slice(&text).ok())??;
        let path = self.dir.join(name);
        let stored = manifest.files.get(name)?;
        let is_equal = stored.matches(&mut File::open(&path).ok()?).ok()?;
        is_equal.then_some(path)
    }

    /// Returns the file with the plan.
    pub(crate) fn plan(&self) -> PathBuf {
        self.dir.join(PLAN)
    }

    /// Returns the commitments to all stored outputs with the files of the outputs.
    pub(crate) fn outputs(&self) -> io::Result<Vec<(TaskOutput, PathBuf)>> {
        let listed = match fs::read_dir(self.dir.join("out")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed?,
        };
        let mut outputs = Vec::new();
        for entry in listed {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json")
                && let Ok(stored) = serde_json::from_slice(&fs::read(&path)?)
            {
                outputs.push((stored, path.with_extension("")));
            }
        }
        outputs.sort_by(|(_, one), (_, two)| one.cmp(two));
        Ok(outputs)
    }

    /// Returns the file with the output of a task instance.
    pub(crate) fn output(&self, of: &TaskRef) -> PathBuf {
        self.dir.join("out").join(output_name(of))
    }

    /// Returns the file with an output, or `None` if it is not the one with this commitment.
    pub(crate) fn checked_output(&self, of: &TaskRef, bound: Digest) -> Option<PathBuf> {
        self.stored_output(of, bound).or_else(|| {
            let plan = fs::read_to_string(self.dir.join(PLAN)).ok()?;
            self.write_stub_output(&CheckedPlan::stored(&plan).ok()?, of, bound)
        })
    }

    /// Returns the commitment to the output of a stub; `None` if the manifest cannot be read.
    pub(crate) fn commit_stub(&self, of: &TaskRef, content: &[u8]) -> Option<TaskOutput> {
        let key = self.stub_key.get_or_init(|| {
            fs::read(self.dir.join(MANIFEST)).ok().map(|manifest| StubKey::of(&manifest))
        });
        Some(key.as_ref()?.commit(of, content))
    }

    /// Writes the file with the output of a stub. Returns `None` if the task is not a stub, or if its
    /// output is not the one with this commitment.
    pub(crate) fn write_stub_output(
        &self,
        plan: &CheckedPlan,
        of: &TaskRef,
        bound: Digest,
    ) -> Option<PathBuf> {
        let content = stubs::content(plan, of)?;
        let stored = self.commit_stub(of, content.as_bytes())?;
        if stored.hash() != bound {
            return None;
        }
        let (out, name) = (self.dir.join("out"), output_name(of));
        let text = serde_json::to_vec(&stored).ok()?;
        // A file that is lost is written again.
        durable::write_unsynced(&out, &name, content.as_bytes()).ok()?;
        durable::write_unsynced(&out, &format!("{name}.json"), &text).ok()?;
        Some(self.output(of))
    }

    /// Returns the file with an output if it exists and has this commitment.
    pub(crate) fn stored_output(&self, of: &TaskRef, bound: Digest) -> Option<PathBuf> {
        let text = fs::read(self.commitment(of)).ok()?;
        let stored: TaskOutput = serde_json::from_slice(&text).ok()?;
        let path = self.output(of);
        let is_equal =
            stored.hash() == bound && stored.matches(&mut File::open(&path).ok()?).ok()?;
        is_equal.then_some(path)
    }

    fn commitment(&self, of: &TaskRef) -> PathBuf {
        self.dir.join("out").join(format!("{}.json", output_name(of)))
    }

    /// Stores an output that was made without a box.
    pub(crate) fn store_output(&self, of: &TaskRef, content: &[u8]) -> io::Result<TaskOutput> {
        let (out, name) = (self.dir.join("out"), output_name(of));
        let salt = Salt::random()?;
        let mut committing = Committing::new(salt);
        committing.update(content);
        let stored = TaskOutput::new(&committing.finish(), salt);
        self.store_commitment(of, &stored)?;
        durable::write(&out, &name, content)?;
        Ok(stored)
    }

    /// Writes a commitment to the disk. The caller syncs the directory.
    fn store_commitment(&self, of: &TaskRef, stored: &TaskOutput) -> io::Result<()> {
        let name = format!("{}.json", output_name(of));
        durable::write_unsynced(&self.dir.join("out"), &name, &serde_json::to_vec(stored)?)?;
        File::open(self.commitment(of))?.sync_all()
    }

    /// Moves the output of an attempt to its place in the run, durably. A new driver repeats it until the
    /// end of the attempt is on record.
    pub(crate) fn take_output(
        &self,
        state: &Scoped,
        box_run: RunId,
        of: &TaskRef,
        stored: &TaskOutput,
    ) -> Result<(), EngineError> {
        self.store_commitment(of, stored)
            .context("cannot store the commitment of an output")
            .kind(ErrorKind::Broken)?;
        // Its sync of the directory also makes the name of the commitment durable.
        host::take_output(state, box_run, &self.output(of))?;
        if self.stored_output(of, stored.hash()).is_none() {
            let error = anyhow!("the output of {of} in box run {box_run} was changed");
            return Err(EngineError::new(ErrorKind::Damaged, error));
        }
        Ok(())
    }

    /// Returns the directory of the inputs of an attempt. The host creates it.
    pub(crate) fn work(&self, box_run: RunId) -> PathBuf {
        self.dir.join("work").join(box_run.to_string())
    }

    /// Returns the directory with the inputs of all running attempts.
    pub(crate) fn work_dir(&self) -> PathBuf {
        self.dir.join("work")
    }

    /// Returns the directory with the files of a branch for the check in a box.
    pub(crate) fn checkout(&self, box_run: RunId) -> PathBuf {
        self.dir.join("work").join(format!("{box_run}-files"))
    }

    /// Returns the directory of the requests to the driver.
    pub(crate) fn control(&self) -> PathBuf {
        self.dir.join("control")
    }
}

fn output_name(of: &TaskRef) -> String {
    match of.item {
        Some(item) => format!("{}.{item}", of.task),
        None => of.task.to_string(),
    }
}

fn digest_of(manifest: &[u8]) -> Digest {
    Digest::of(&[b"belljar plan files 1\0", manifest])
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Opens a regular file of the user.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(file)
}

/// Copies a content of at most `limit` bytes to a new file, waits until it is on disk and commits to it.
fn write_new(to: &Path, content: &mut dyn Read, limit: u64) -> io::Result<TaskOutput> {
    let salt = Salt::random()?;
    let (mut file, mut committing) = (File::create_new(to)?, Committing::new(salt));
    let mut chunk = vec![0; 1 << 16];
    let mut size = 0_u64;
    loop {
        let read = match content.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            break;
        }
        size = size.saturating_add(read as u64);
        if size > limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let chunk = chunk.get(..read).unwrap_or_default();
        committing.update(chunk);
        file.write_all(chunk)?;
    }
    file.sync_all()?;
    Ok(TaskOutput::new(&committing.finish(), salt))
}
