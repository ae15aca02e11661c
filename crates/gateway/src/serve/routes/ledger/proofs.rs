//! The routes with which others verify the ledger: proofs, checkpoint, key and tiles.

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use belljar_engine::record::checking;
use belljar_engine::record::proofs::{Proof, SignedProof, TreeHead};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LedgerName, LedgerParameters, Source, event_index, no_ledger};
use crate::serve::access::Act;
use crate::serve::call::{Call, blocking, json_response};
use crate::serve::problem::{Problem, ProblemKind, of_state};
use crate::serve::routes::{Access, Operation, Routes};

const TEXT: &str = "text/plain; charset=utf-8";
const BYTES: &str = "application/octet-stream";

pub(super) fn add(routes: Routes) -> Routes {
    let read = Access::For(Act::ReadLedger);
    routes
        .add(
            Operation::get("/v1/ledger/events/{event}/proof", read)
                .about("Proves that an event is in the tree of the newest checkpoint")
                .query::<LedgerParameters>()
                .returns::<InclusionView>(StatusCode::OK),
            inclusion,
        )
        .add(
            Operation::get("/v1/ledger/checkpoint", read)
                .about("Returns the newest signed checkpoint in the format of C2SP tlog-checkpoint")
                .query::<LedgerParameters>()
                .returns_bytes(StatusCode::OK, TEXT),
            checkpoint,
        )
        .add(
            Operation::get("/v1/ledger/consistency", read)
                .about("Proves that the ledger only grew from one size to another")
                .query::<ConsistencyParameters>()
                .returns::<ConsistencyView>(StatusCode::OK)
                .problems(&[ProblemKind::WRONG_STATE]),
            consistency,
        )
        .add(
            Operation::get("/v1/ledger/key", read)
                .about("Returns the public keys that sign the checkpoints, the oldest first")
                .query::<LedgerParameters>()
                .returns::<KeysView>(StatusCode::OK),
            keys,
        )
        .add(
            Operation::get("/v1/ledger/tile/{*tile}", Access::For(Act::CheckLedger))
                .about("Returns a tile of the newest checkpoint in the format of C2SP tlog-tiles")
                .query::<LedgerParameters>()
                .returns_bytes(StatusCode::OK, BYTES),
            tile,
        )
}

/// A proof that an event is in the ledger.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SignedInclusion")]
struct InclusionView {
    /// The number of events of the checkpoint.
    size: u64,
    /// The root hash of the checkpoint.
    root: String,
    /// The content of a proof file, which `belljar ledger verify-proof` reads.
    proof: InclusionProofView,
}

/// The file of a proof of inclusion.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "InclusionProof")]
struct InclusionProofView {
    /// `belljar inclusion 1`
    format: &'static str,
    index: u64,
    /// The encoded event in base64, which is the input of the leaf hash.
    entry: String,
    leaf: String,
    /// The hashes from the leaf to the root (RFC 6962, section 2.1.1).
    proof: Vec<String>,
    /// The signed checkpoint.
    checkpoint: String,
}

/// The file of a proof of consistency, which `belljar ledger verify-proof` reads.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ConsistencyProof")]
struct ConsistencyView {
    /// `belljar consistency 1`
    format: &'static str,
    old: TreeHeadView,
    new: TreeHeadView,
    /// The hashes of the proof (RFC 6962, section 2.1.2).
    proof: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TreeHead")]
struct TreeHeadView {
    size: u64,
    root: String,
    /// The signed checkpoint; null unless this is the newest size.
    checkpoint: Option<String>,
}

/// The keys of a ledger.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LedgerKeys")]
struct KeysView {
    /// The keys in the form `NAME+ID+BASE64` of C2SP signed-note.
    keys: Vec<String>,
    /// The key that signs now.
    signs: Option<String>,
}

fn hexadecimal(hashes: &[impl ToString]) -> Vec<String> {
    hashes.iter().map(ToString::to_string).collect()
}

impl InclusionView {
    fn of(signed: SignedProof) -> Option<Self> {
        let SignedProof { size, root, proof } = signed;
        let Proof::Inclusion { index, entry, leaf, proof, checkpoint } = proof else { return None };
        let proof = InclusionProofView {
            format: "belljar inclusion 1",
            index,
            entry,
            leaf: leaf.to_string(),
            proof: hexadecimal(&proof),
            checkpoint,
        };
        Some(Self { size, root: root.to_string(), proof })
    }
}

impl ConsistencyView {
    fn of(proof: Proof) -> Option<Self> {
        let Proof::Consistency { old, new, proof } = proof else { return None };
        let side = |TreeHead { size, root, checkpoint }: TreeHead| TreeHeadView {
            size,
            root: root.to_string(),
            checkpoint,
        };
        let (old, new) = (side(old), side(new));
        Some(Self { format: "belljar consistency 1", old, new, proof: hexadecimal(&proof) })
    }
}

async fn inclusion(call: Call) -> Result<Response, Problem> {
    let LedgerParameters { ledger } = call.query()?;
    let (source, index) = (Source::of(&call, ledger)?, event_index(&call)?);
    let proof = blocking(&call.app, move || {
        source.read_event(index, |browser, found| Ok(browser.prove(found)?))
    });
    let proof = InclusionView::of(proof.await?);
    json_response(StatusCode::OK, &proof.ok_or_else(|| Problem::internal("no proof was made"))?)
}

async fn checkpoint(call: Call) -> Result<Response, Problem> {
    let LedgerParameters { ledger } = call.query()?;
    let source = Source::of(&call, ledger)?;
    let read = move || source.read(|browser| Ok(browser.checkpoint()?));
    let note = blocking(&call.app, read).await?.ok_or_else(no_ledger)?;
    Ok(bytes_response(note, TEXT))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ConsistencyParameters {
    /// The smaller number of events; 0 by default.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    from: Option<u64>,
    /// The larger number of events; by default that of the newest checkpoint.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    to: Option<u64>,
    /// `tenant` by default.
    ledger: Option<LedgerName>,
}

async fn consistency(call: Call) -> Result<Response, Problem> {
    /// The largest integer that every JSON parser reads exactly.
    const MAX: u64 = 9_007_199_254_740_991;
    let ConsistencyParameters { from, to, ledger } = call.query()?;
    for (size, field) in [(from, "/from"), (to, "/to")] {
        if size.is_some_and(|size| size > MAX) {
            let detail = format!("the number of events must be at most {MAX}");
            return Err(Problem::invalid(detail).field(field));
        }
    }
    let source = Source::of(&call, ledger)?;
    let proof = blocking(&call.app, move || {
        let from = from.unwrap_or(0);
        source.read(|browser| browser.prove_consistency(from, to).map_err(of_state))
    });
    let proof = ConsistencyView::of(proof.await?.ok_or_else(no_ledger)?);
    json_response(StatusCode::OK, &proof.ok_or_else(|| Problem::internal("no proof was made"))?)
}

async fn keys(call: Call) -> Result<Response, Problem> {
    let LedgerParameters { ledger } = call.query()?;
    let source = Source::of(&call, ledger)?;
    let read = move || Ok(hexadecimal(&checking::keys(&source.scope)?));
    let keys = blocking(&call.app, read).await?;
    let signs = keys.last().cloned();
    json_response(StatusCode::OK, &KeysView { keys, signs })
}

async fn tile(call: Call) -> Result<Response, Problem> {
    let LedgerParameters { ledger } = call.query()?;
    let source = Source::of(&call, ledger)?;
    let path = format!("tile/{}", call.param("tile")?);
    let read = move || source.read(|browser| Ok(browser.tile(&path)?));
    let unknown = || Problem::new(ProblemKind::NOT_FOUND, "the ledger has no such tile");
    let content = blocking(&call.app, read).await?.flatten().ok_or_else(unknown)?;
    Ok(bytes_response(content, BYTES))
}

fn bytes_response(content: impl Into<Body>, media_type: &'static str) -> Response {
    let mut response = content.into().into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
