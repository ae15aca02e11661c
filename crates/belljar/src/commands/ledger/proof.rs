//! `belljar ledger checkpoint`, `prove`, `consistency` and `verify-proof`.
//!
//! A proof is one JSON object with all that its reader needs but the key.

use anyhow::{Context, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_ledger::{
    Checkpoint, CheckpointMade, Digest, Draft, Entry, MAX_NOTE, Note, Reader, VerifyingKey,
    open_checkpoint, verify_consistency, verify_inclusion,
};
use belljar_model::display;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Home, log, number, read, read_input, trusted_keys, write_output};
use crate::cli::ledger::{
    CheckpointArgs, ConsistencyArgs, ProofOutput, ProveArgs, VerifyProofArgs,
};
use crate::exit::{self, Outcome};
use crate::print;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};

/// Longer than any proof of 2^64 events.
const MAX_PROOF: u64 = 1 << 20;

/// The file of a proof.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "format", deny_unknown_fields)]
enum Proof {
    #[serde(rename = "belljar inclusion 1")]
    Inclusion {
        index: u64,
        /// The event, in base64.
        entry: String,
        leaf: Digest,
        proof: Vec<Digest>,
        checkpoint: String,
    },
    #[serde(rename = "belljar consistency 1")]
    Consistency { old: End, new: End, proof: Vec<Digest> },
}

/// One end of a proof of consistency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    size: u64,
    root: Digest,
    /// Who vouches for it, if anybody does.
    checkpoint: Option<String>,
}

pub(crate) fn checkpoint(args: &CheckpointArgs) -> Outcome {
    let home = Home::open()?;
    let ledger = home.writer()?;
    let (checkpoint, note) = home.reader()?.checkpoint().kind(ErrorKind::Broken)?;
    // On record before anybody has it: so the ledger knows which ones may be held against it.
    let event = CheckpointMade { size: checkpoint.size(), root: checkpoint.root() };
    let recorded = ledger.record(Draft::new(event)).kind(ErrorKind::Broken)?;
    if args.json.json {
        let told = json!({
            "origin": checkpoint.origin(), "size": checkpoint.size(), "root": checkpoint.root(),
            "checkpoint": note, "event": recorded.index(),
        });
        let line = print::json_line(&told).kind(ErrorKind::Broken)?;
        write_output(args.output.as_deref(), &line)?;
    } else {
        write_output(args.output.as_deref(), &note)?;
    }
    if args.output.is_some() {
        print::note(
            "keep it on another machine; `belljar ledger verify --checkpoint FILE` holds the ledger against it",
        );
    }
    Ok(0)
}

pub(crate) fn prove(args: &ProveArgs) -> Outcome {
    let home = Home::open()?;
    let reader = home.reader()?;
    let row = home.event(&reader, &args.id)?;
    let entry = read(&reader, &row)?;
    let made = reader.inclusion(row.index).kind(ErrorKind::Broken)?;
    let proof = Proof::Inclusion {
        index: made.index,
        entry: STANDARD.encode(entry.encode().kind(ErrorKind::Broken)?),
        leaf: made.leaf,
        proof: made.proof,
        checkpoint: made.checkpoint,
    };
    give_out(&proof, &args.output)
}

pub(crate) fn consistency(args: &ConsistencyArgs) -> Outcome {
    let home = Home::open()?;
    let reader = home.reader()?;
    let keys = home.keys()?;
    let old = end(&reader, &keys, "A", &args.old)?;
    let new = end(&reader, &keys, "B", &args.new)?;
    if old.size > new.size {
        return Err(invalid(format!(
            "A is {} and B is {}: the first is the smaller",
            old.size, new.size
        )));
    }
    let proof = reader.consistency(old.size, new.size).kind(ErrorKind::Broken)?;
    give_out(&Proof::Consistency { old, new, proof }, &args.output)
}

/// A size, or a checkpoint in a file, which this ledger must have been at.
fn end(reader: &Reader, keys: &[VerifyingKey], flag: &str, text: &str) -> Result<End, EngineError> {
    let (newest, note) = reader.checkpoint().kind(ErrorKind::Broken)?;
    if let Some(size) = number(text) {
        if size > newest.size() {
            return Err(invalid(format!(
                "{flag} {size}: the ledger has {} signed events",
                newest.size()
            )));
        }
        let checkpoint = (size == newest.size()).then_some(note);
        return Ok(End { size, root: reader.root_at(size).kind(ErrorKind::Broken)?, checkpoint });
    }
    let bytes = read_input(flag, std::path::Path::new(text), MAX_NOTE as u64)?;
    let name = display::safe(text);
    let given =
        String::from_utf8(bytes).map_err(|_| invalid(format!("{flag} {name}: not text")))?;
    let (checkpoint, _) = open_checkpoint(&given, keys)
        .with_context(|| format!("{flag} {name}: neither a size nor a checkpoint of this ledger"))
        .kind(ErrorKind::Invalid)?;
    let size = checkpoint.size();
    let is_ours =
        size <= newest.size() && reader.root_at(size).kind(ErrorKind::Broken)? == checkpoint.root();
    if !is_ours {
        let error = anyhow!(
            "{flag} {name}: the ledger never was what this checkpoint of {size} events says; `belljar ledger verify --checkpoint {name}` tells more"
        );
        return Err(EngineError::new(ErrorKind::Broken, error));
    }
    Ok(End { size, root: checkpoint.root(), checkpoint: Some(given) })
}

fn give_out(proof: &Proof, output: &ProofOutput) -> Outcome {
    if output.json || output.file.is_some() {
        let line = print::json_line(proof).kind(ErrorKind::Broken)?;
        write_output(output.file.as_deref(), &line)?;
    } else {
        print::out(&told(proof)).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

/// A proof for people. What `verify-proof` reads is the JSON.
fn told(proof: &Proof) -> String {
    let hashes = |proof: &[Digest]| {
        proof.iter().map(|hash| format!("  {hash}\n")).collect::<Vec<_>>().concat()
    };
    match proof {
        Proof::Inclusion { index, leaf, proof, checkpoint, entry: _ } => format!(
            "event {index}\nleaf {leaf}\nproof\n{}checkpoint\n{}",
            hashes(proof),
            display::safe_multiline(checkpoint)
        ),
        Proof::Consistency { old, new, proof } => format!(
            "from {} events, root {}\nto   {} events, root {}\nproof\n{}",
            old.size,
            old.root,
            new.size,
            new.root,
            hashes(proof)
        ),
    }
}

pub(crate) fn verify(args: &VerifyProofArgs) -> Outcome {
    let bytes = read_input("FILE", &args.file, MAX_PROOF)?;
    let name = display::safe(args.file.as_os_str().as_encoded_bytes());
    let proof: Proof = serde_json::from_slice(&bytes)
        .with_context(|| format!("FILE {name}: not a proof that `prove` or `consistency` wrote"))
        .kind(ErrorKind::Invalid)?;
    let text = judge(&proof, &trusted_keys(&args.trust)?);
    if args.trust.json.json {
        let holds = text.is_ok();
        let why = text.as_ref().map_or_else(|error| format!("{error:#}"), Clone::clone);
        print::json(&json!({ "holds": holds, "text": why })).kind(ErrorKind::Broken)?;
        return Ok(if holds { 0 } else { exit::FAILED });
    }
    print::out(&text.kind(ErrorKind::Broken)?).kind(ErrorKind::Broken)?;
    Ok(0)
}

/// What a proof shows, if it holds.
fn judge(proof: &Proof, keys: &[VerifyingKey]) -> anyhow::Result<String> {
    match proof {
        Proof::Inclusion { index, entry, leaf, proof, checkpoint } => {
            let (signed, key) = vouched(checkpoint, keys)?;
            let bytes = STANDARD.decode(entry).context("`entry` is not base64")?;
            if Digest::leaf(&bytes) != *leaf {
                return Err(anyhow!("the event is not the one of the leaf"));
            }
            verify_inclusion(leaf, *index, signed.size(), proof, &signed.root())?;
            let entry = Entry::decode(&bytes).context("the event cannot be read")?;
            let line = log::one_line(*index, &entry, print::colour());
            let of = format!("{} events, signed by {key}", signed.size());
            Ok(format!("{line}holds: this event is in the ledger of {}\n", display::safe_line(of)))
        }
        Proof::Consistency { old, new, proof } => {
            for end in [old, new] {
                let Some(note) = &end.checkpoint else { continue };
                let (signed, _) = vouched(note, keys)?;
                if (signed.size(), signed.root()) != (end.size, end.root) {
                    return Err(anyhow!("a checkpoint of the proof is of something else"));
                }
            }
            verify_consistency(old.size, &old.root, new.size, &new.root, proof)?;
            if new.checkpoint.is_none() {
                return Err(anyhow!(
                    "the proof holds, but nothing vouches for the root at {}: it has no checkpoint",
                    new.size
                ));
            }
            let (old, new) = (old.size, new.size);
            Ok(format!("holds: the ledger of {new} events begins with the one of {old}\n"))
        }
    }
}

fn vouched<'k>(
    note: &str,
    keys: &'k [VerifyingKey],
) -> anyhow::Result<(Checkpoint, &'k VerifyingKey)> {
    if keys.is_empty() {
        let signed = Note::parse(note).ok();
        let name =
            signed.and_then(|note| note.signatures().first().map(|one| one.name().to_owned()));
        let name = display::safe_line(name.unwrap_or_default());
        return Err(anyhow!(
            "there is no key here to check the signature of {name:?} with; give one with --key"
        ));
    }
    open_checkpoint(note, keys).context("the checkpoint of the proof does not hold")
}
