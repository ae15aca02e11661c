//! What each role may do, as the people page shows it.

/// The extent of an act for the roles owner, admin, operator, member and auditor: `all`, `own` or `none`.
pub type Extents = [&'static str; 5];

const EVERYONE: Extents = ["all", "all", "all", "all", "all"];
const SEE: Extents = ["all", "all", "all", "own", "all"];
const USE: Extents = ["all", "all", "all", "own", "none"];
const WRITE: Extents = ["all", "all", "all", "all", "none"];
const INSPECT: Extents = ["all", "all", "all", "none", "all"];
const MANAGE: Extents = ["all", "all", "none", "none", "none"];

/// All acts, in the order of the table of the server. A test of the server compares both.
pub const RIGHTS: [(&str, Extents); 25] = [
    ("See boxes and requests", SEE),
    ("See runs", SEE),
    ("See usage", SEE),
    ("Start and use boxes", USE),
    ("Submit and cancel runs", USE),
    ("Use MCP", USE),
    ("Review and apply changes", USE),
    ("Answer approvals", USE),
    ("See the policy", EVERYONE),
    ("Preview and propose rules", WRITE),
    ("Save the policy", MANAGE),
    ("See names of secrets", WRITE),
    ("Set and remove secrets", MANAGE),
    ("Read the ledger", SEE),
    ("Verify the ledger", INSPECT),
    ("Read recorded contents", USE),
    ("Remove content from the ledger", ["all", "none", "none", "none", "none"]),
    ("Read metrics", INSPECT),
    ("See the state of the machine", INSPECT),
    ("Run the attack suite", MANAGE),
    ("See people", ["all", "all", "none", "none", "all"]),
    ("Change roles and invite people", MANAGE),
    ("Manage the own account", ["own", "own", "own", "own", "own"]),
    ("Manage tokens and sessions of others", MANAGE),
    ("Manage webhooks", MANAGE),
];
