//! The policy of the tenant: its text, versions, a preview of a change, and proposals.

use askama::Template;
use serde::Deserialize;

use super::html;
use crate::diff::{self, Line};
use crate::frame::Frame;
use crate::text::{Moment, bytes, principal, segment};
use crate::{Api, List, PageRequest, Refusal, Text, path_with, read};

/// The policy, as `GET /v1/policy` returns it.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Policy {
    /// The text as it is, because a person edits it.
    policy: String,
    pub(super) version: u64,
    #[serde(default)]
    saved_by: Option<String>,
    #[serde(default)]
    saved: Option<String>,
    /// The file that the operator of the machine changes.
    #[serde(default)]
    pub(super) file: Option<Text>,
    versions: Vec<Version>,
}

impl Policy {
    /// Returns the number of the version that is saved next.
    pub(super) const fn next(&self) -> u64 {
        self.version.saturating_add(1)
    }

    fn saved(&self, now: u64) -> Option<(Text, Moment)> {
        let (by, time) = (self.saved_by.as_deref()?, self.saved.as_deref()?);
        Some((principal(by), Moment::of(time, now)))
    }
}

/// A version, as `GET /v1/policy` lists it.
#[derive(Debug, Deserialize)]
struct Version {
    version: u64,
    saved_by: String,
    saved: String,
    #[serde(default)]
    proposal: Option<String>,
    size: u64,
}

/// A row of the list of versions.
struct VersionRow {
    version: u64,
    path: String,
    by: Text,
    saved: Moment,
    proposal: Option<String>,
    size: String,
}

impl VersionRow {
    fn of(version: &Version, now: u64) -> Self {
        let number = version.version.to_string();
        let proposal = version.proposal.as_deref();
        Self {
            version: version.version,
            path: path_with("/policy", &[("version", &number)]),
            by: principal(&version.saved_by),
            saved: Moment::of(&version.saved, now),
            proposal: proposal.map(|id| format!("/policy/proposals/{}", segment(id))),
            size: bytes(version.size),
        }
    }
}

/// A proposal, as `GET /v1/policy/proposals` returns it.
#[derive(Debug, Deserialize)]
struct Proposal {
    id: String,
    state: String,
    base: u64,
    reason: Text,
    maker: String,
    created: String,
    #[serde(default)]
    decided_by: Option<String>,
    #[serde(default)]
    version: Option<u64>,
    /// The text, in the description of one proposal only.
    #[serde(default)]
    policy: String,
}

/// How a proposal is shown.
struct ProposalRow {
    path: String,
    id: Text,
    reason: Text,
    maker: Text,
    created: Moment,
    base: u64,
    class: &'static str,
    icon: &'static str,
    state: Text,
    decided_by: Option<Text>,
    version: Option<u64>,
    is_open: bool,
}

impl ProposalRow {
    fn of(proposal: &Proposal, now: u64) -> Self {
        let (class, icon) = match &*proposal.state {
            "open" => ("warn", "wait"),
            "accepted" => ("ok", "ok"),
            _ => ("off", "no"),
        };
        let has_reason = !proposal.reason.as_str().is_empty();
        let reason =
            if has_reason { proposal.reason.clone() } else { Text::from("no reason given") };
        Self {
            path: format!("/policy/proposals/{}", segment(&proposal.id)),
            id: Text::from(proposal.id.as_str()),
            reason,
            maker: principal(&proposal.maker),
            created: Moment::of(&proposal.created, now),
            base: proposal.base,
            class,
            icon,
            state: Text::from(proposal.state.as_str()),
            decided_by: proposal.decided_by.as_deref().map(principal),
            version: proposal.version,
            is_open: proposal.state == "open",
        }
    }
}

/// An earlier version, and how the newest version differs from it.
struct Earlier {
    version: u64,
    by: Text,
    saved: Moment,
    lines: Vec<Line>,
}

#[derive(Template)]
#[template(path = "policy.html")]
struct PolicyPage {
    frame: Frame,
    policy: Policy,
    saved: Option<(Text, Moment)>,
    /// The lines of the text, for a person who cannot edit it.
    shown: Vec<Text>,
    may_edit: bool,
    versions: Vec<VersionRow>,
    proposals: Vec<ProposalRow>,
    earlier: Option<Earlier>,
}

pub(super) async fn page(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let frame = Frame::read(api, request, "Policy").await?;
    let policy: Policy = read(api, "/v1/policy").await?;
    let wanted = request.query("version");
    let earlier = match wanted {
        "" => None,
        _ => Some(read::<Policy>(api, &path_with("/v1/policy", &[("version", wanted)])).await?),
    };
    let earlier = earlier.and_then(|old| {
        let (by, saved) = old.saved(request.now)?;
        let lines = diff::lines(&old.policy, &policy.policy);
        Some(Earlier { version: old.version, by, saved, lines })
    });
    let proposals: List<Proposal> = read(api, "/v1/policy/proposals?limit=20").await?;
    let proposals = proposals.items.iter();
    let may_edit = frame.me.may_use() && policy.file.is_none();
    html(&PolicyPage {
        may_edit,
        shown: policy.policy.lines().map(|line| Text::from(line.replace('\t', "    "))).collect(),
        saved: policy.saved(request.now),
        versions: policy.versions.iter().map(|it| VersionRow::of(it, request.now)).collect(),
        proposals: proposals.map(|it| ProposalRow::of(it, request.now)).collect(),
        earlier,
        frame,
        policy,
    })
}

#[derive(Template)]
#[template(path = "proposal.html")]
struct ProposalPage {
    frame: Frame,
    proposal: ProposalRow,
    lines: Vec<Line>,
    /// The text of the proposal, for a preview.
    text: String,
    /// Whether the policy changed since the proposal was made.
    is_stale: bool,
}

pub(super) async fn proposal(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let id = request.param("proposal");
    let proposal: Proposal = read(api, &format!("/v1/policy/proposals/{}", segment(id))).await?;
    let newest: Policy = read(api, "/v1/policy").await?;
    let is_stale = newest.version != proposal.base;
    let base = match proposal.base {
        0 => String::new(),
        base => read::<Policy>(api, &format!("/v1/policy?version={base}")).await?.policy,
    };
    // The text before the first version is that of a new tenant.
    let base = if is_stale || proposal.base > 0 { base } else { newest.policy };
    let frame = Frame::read(api, request, format!("Proposal {}", proposal.id)).await?;
    let lines = diff::lines(&base, &proposal.policy);
    let row = ProposalRow::of(&proposal, request.now);
    html(&ProposalPage { frame, proposal: row, lines, text: proposal.policy, is_stale })
}
