//! `belljar ledger checkpoint`, `prove`, `consistency` and `verify-proof`.
//!
//! A proof is one JSON object. To verify it, only the public key is needed in addition.

use anyhow::{Context, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_ledger::{
    Checkpoint, CheckpointMade, Digest, Draft, Entry, MAX_NOTE, Note, Reader, VerifyingKey,
    open_checkpoint, verify_consistency, verify_inclusion,
};
use belljar_model::display;
use serde_json::json;

use super::{LedgerHome, log, number, read_input, trusted_keys, write_output};
use crate::cli::ledger::{
    CheckpointArgs, ConsistencyArgs, ProofOutput, ProveArgs, VerifyProofArgs,
};
use crate::exit::{self, Outcome};
use crate::print;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::record::proofs::{self, Proof, TreeHead};

/// The maximum size of a proof file; proofs for 2^64 events are smaller.
const MAX_PROOF_BYTES: u64 = 1 << 20;

/// Runs `belljar ledger checkpoint`.
pub(crate) fn checkpoint(args: &CheckpointArgs) -> Outcome {
    let home = LedgerHome::open()?;
    let ledger = home.writer()?;
    let (checkpoint, note) = home.reader()?.checkpoint().kind(ErrorKind::Broken)?;
    // Recorded before it is printed, so that the ledger knows every checkpoint that was given out.
    let event = CheckpointMade { size: checkpoint.size(), root: checkpoint.root() };
    let recorded = ledger.record(Draft::new(event)).kind(ErrorKind::Broken)?;
    if args.json.json {
        let report = json!({
            "origin": checkpoint.origin(), "size": checkpoint.size(), "root": checkpoint.root(),
            "checkpoint": note, "event": recorded.index(),
        });
        let line = print::json_line(&report).kind(ErrorKind::Broken)?;
        write_output(args.output.as_deref(), &line)?;
    } else {
        write_output(args.output.as_deref(), &note)?;
    }
    if args.output.is_some() {
        print::note(
            "keep the checkpoint on another machine; `belljar ledger verify --checkpoint FILE` compares the ledger with it",
        );
    }
    Ok(0)
}

/// Runs `belljar ledger prove`.
pub(crate) fn prove(args: &ProveArgs) -> Outcome {
    let home = LedgerHome::open()?;
    let reader = home.reader()?;
    let row = home.event(&reader, &args.id)?;
    output_proof(&proofs::inclusion(&reader, &row)?, &args.output)
}

/// Runs `belljar ledger consistency`.
pub(crate) fn consistency(args: &ConsistencyArgs) -> Outcome {
    let home = LedgerHome::open()?;
    let reader = home.reader()?;
    let keys = home.keys()?;
    let old = tree_head(&reader, &keys, "A", &args.old)?;
    let new = tree_head(&reader, &keys, "B", &args.new)?;
    if old.size > new.size {
        return Err(invalid(format!(
            "A ({} events) is larger than B ({} events); the smaller size comes first",
            old.size, new.size
        )));
    }
    output_proof(&proofs::consistency(&reader, old, new)?, &args.output)
}

/// Returns the tree head for a size or for a checkpoint file, which must belong to this ledger.
fn tree_head(
    reader: &Reader,
    keys: &[VerifyingKey],
    flag: &str,
    text: &str,
) -> Result<TreeHead, EngineError> {
    let (newest, _) = reader.checkpoint().kind(ErrorKind::Broken)?;
    if let Some(size) = number(text) {
        if size > newest.size() {
            return Err(invalid(format!(
                "{flag}: the size {size} is too large, because the ledger has only {} signed events",
                newest.size()
            )));
        }
        return proofs::tree_head(reader, Some(size));
    }
    let bytes = read_input(flag, std::path::Path::new(text), MAX_NOTE as u64)?;
    let name = display::safe(text);
    let given = String::from_utf8(bytes).map_err(|_| {
        invalid(format!("{flag}: {name} is not a checkpoint, because it is not UTF-8 text"))
    })?;
    let (checkpoint, _) = open_checkpoint(&given, keys)
        .with_context(|| {
            format!("{flag}: {name} is neither a size nor a checkpoint of this ledger")
        })
        .kind(ErrorKind::Invalid)?;
    let size = checkpoint.size();
    let is_in_ledger =
        size <= newest.size() && reader.root_at(size).kind(ErrorKind::Broken)? == checkpoint.root();
    if !is_in_ledger {
        let error = anyhow!(
            "{flag}: the checkpoint {name} of {size} events does not match this ledger; `belljar ledger verify --checkpoint {name}` shows details"
        );
        return Err(EngineError::new(ErrorKind::Broken, error));
    }
    Ok(TreeHead { size, root: checkpoint.root(), checkpoint: Some(given) })
}

/// Writes a proof as JSON to a file, or as text or JSON to standard output.
fn output_proof(proof: &Proof, output: &ProofOutput) -> Outcome {
    if output.json || output.file.is_some() {
        let line = print::json_line(proof).kind(ErrorKind::Broken)?;
        write_output(output.file.as_deref(), &line)?;
    } else {
        print::out(&proof_text(proof)).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

/// Returns a proof as text; `verify-proof` reads only the JSON form.
fn proof_text(proof: &Proof) -> String {
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

/// Runs `belljar ledger verify-proof`.
pub(crate) fn verify(args: &VerifyProofArgs) -> Outcome {
    let bytes = read_input("FILE", &args.file, MAX_PROOF_BYTES)?;
    let name = display::safe(args.file.as_os_str().as_encoded_bytes());
    let proof: Proof = serde_json::from_slice(&bytes)
        .with_context(|| {
            format!("FILE: {name} is not a proof of `belljar ledger prove` or `consistency`")
        })
        .kind(ErrorKind::Invalid)?;
    let text = check(&proof, &trusted_keys(&args.trust)?);
    if args.trust.json.json {
        let holds = text.is_ok();
        let why = text.as_ref().map_or_else(|error| format!("{error:#}"), Clone::clone);
        print::json(&json!({ "holds": holds, "text": why })).kind(ErrorKind::Broken)?;
        return Ok(if holds { 0 } else { exit::FAILED });
    }
    print::out(&text.kind(ErrorKind::Broken)?).kind(ErrorKind::Broken)?;
    Ok(0)
}

/// Checks a proof and returns a text that says what it proves.
fn check(proof: &Proof, keys: &[VerifyingKey]) -> anyhow::Result<String> {
    match proof {
        Proof::Inclusion { index, entry, leaf, proof, checkpoint } => {
            let (signed, key) = open_signed_checkpoint(checkpoint, keys)?;
            let bytes = STANDARD
                .decode(entry)
                .context("the field `entry` of the proof is not valid base64")?;
            if Digest::leaf(&bytes) != *leaf {
                return Err(anyhow!("the event of the proof does not match its leaf hash"));
            }
            verify_inclusion(leaf, *index, signed.size(), proof, &signed.root())?;
            let entry = Entry::decode(&bytes).context("cannot decode the event of the proof")?;
            let line = log::event_line(*index, &entry, print::colour());
            let ledger = format!("{} events, signed by {key}", signed.size());
            Ok(format!(
                "{line}valid: this event is in the ledger of {}\n",
                display::safe_line(ledger)
            ))
        }
        Proof::Consistency { old, new, proof } => {
            for tree_head in [old, new] {
                let Some(note) = &tree_head.checkpoint else { continue };
                let (signed, _) = open_signed_checkpoint(note, keys)?;
                if (signed.size(), signed.root()) != (tree_head.size, tree_head.root) {
                    return Err(anyhow!(
                        "a checkpoint in the proof does not match the size or the root hash of the proof"
                    ));
                }
            }
            verify_consistency(old.size, &old.root, new.size, &new.root, proof)?;
            if new.checkpoint.is_none() {
                return Err(anyhow!(
                    "the proof has no signed checkpoint for its larger size, {} events, so its root hash cannot be trusted",
                    new.size
                ));
            }
            let (old, new) = (old.size, new.size);
            Ok(format!(
                "valid: the ledger of {new} events starts with the ledger of {old} events\n"
            ))
        }
    }
}

/// Opens a checkpoint and checks its signature with the trusted keys.
fn open_signed_checkpoint<'k>(
    note: &str,
    keys: &'k [VerifyingKey],
) -> anyhow::Result<(Checkpoint, &'k VerifyingKey)> {
    if keys.is_empty() {
        let signed = Note::parse(note).ok();
        let name =
            signed.and_then(|note| note.signatures().first().map(|one| one.name().to_owned()));
        let name = display::safe_line(name.unwrap_or_default());
        return Err(anyhow!(
            "cannot check the signature of {name:?}: this machine has no ledger key; use --key"
        ));
    }
    open_checkpoint(note, keys)
        .context("the checkpoint in the proof has no valid signature of a trusted key")
}
