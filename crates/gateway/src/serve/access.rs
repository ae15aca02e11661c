//! Who may do what: one table of acts, roles and scopes. Routes and tests are made from it.

use std::fmt;
use std::str::FromStr;

use belljar_model::caller::PrincipalKind;
pub(crate) use belljar_model::role::Role;

/// A text is not the name of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown name")]
pub(crate) struct UnknownName;

/// A scope of a token: a part of the rights of its maker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Scope {
    BoxesRead,
    BoxesWrite,
    RunsRead,
    RunsWrite,
    ChangesApply,
    LedgerRead,
    UsageRead,
    MetricsRead,
    SecretsWrite,
    Mcp,
}

impl Scope {
    pub(crate) const ALL: [Self; 10] = [
        Self::BoxesRead,
        Self::BoxesWrite,
        Self::RunsRead,
        Self::RunsWrite,
        Self::ChangesApply,
        Self::LedgerRead,
        Self::UsageRead,
        Self::MetricsRead,
        Self::SecretsWrite,
        Self::Mcp,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::BoxesRead => "boxes:read",
            Self::BoxesWrite => "boxes:write",
            Self::RunsRead => "runs:read",
            Self::RunsWrite => "runs:write",
            Self::ChangesApply => "changes:apply",
            Self::LedgerRead => "ledger:read",
            Self::UsageRead => "usage:read",
            Self::MetricsRead => "metrics:read",
            Self::SecretsWrite => "secrets:write",
            Self::Mcp => "mcp",
        }
    }

    /// Returns whether a token with this scope changes more than boxes and runs: files of the host, or what
    /// others may use. A person needs a recent login to make one.
    pub(crate) const fn is_wide(self) -> bool {
        match self {
            Self::ChangesApply | Self::SecretsWrite => true,
            Self::BoxesRead
            | Self::BoxesWrite
            | Self::RunsRead
            | Self::RunsWrite
            | Self::LedgerRead
            | Self::UsageRead
            | Self::MetricsRead
            | Self::Mcp => false,
        }
    }

    /// Returns the acts that a token with this scope may do. The maker of the token needs the right to the first.
    pub(crate) const fn acts(self) -> &'static [Act] {
        match self {
            Self::BoxesRead => &[Act::SeeBoxes],
            Self::BoxesWrite => &[Act::UseBoxes],
            Self::RunsRead => &[Act::SeeRuns],
            Self::RunsWrite => &[Act::UseRuns],
            Self::ChangesApply => &[Act::ApplyChanges],
            Self::LedgerRead => &[Act::ReadLedger, Act::CheckLedger],
            Self::UsageRead => &[Act::SeeUsage],
            Self::MetricsRead => &[Act::ReadMetrics],
            Self::SecretsWrite => &[Act::WriteSecrets, Act::SeeSecrets],
            Self::Mcp => &[Act::UseMcp],
        }
    }
}

impl FromStr for Scope {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|scope| scope.name() == text).ok_or(UnknownName)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An act that needs a right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Act {
    SeeBoxes,
    SeeRuns,
    SeeUsage,
    UseBoxes,
    UseRuns,
    UseMcp,
    ApplyChanges,
    /// Answer approvals, and settle tasks that need a person.
    Answer,
    SeePolicy,
    /// Preview and propose rules.
    ProposeRules,
    SavePolicy,
    /// See the names of secrets. No act shows the value of a secret.
    SeeSecrets,
    WriteSecrets,
    /// See events, with their proofs.
    ReadLedger,
    /// Read the tiles of the ledger of the whole tenant, and verify the ledger.
    CheckLedger,
    /// Read the contents of bodies that events reference.
    ReadContents,
    /// Remove the content of events from the ledger.
    RedactLedger,
    ReadMetrics,
    /// See what the machine can enforce.
    SeeDoctor,
    /// Run the attack suite on the machine.
    ProveDoctor,
    SeeUsers,
    /// Change roles and invite people.
    ManageUsers,
    /// See the own account, and manage own tokens and sessions.
    OwnAccount,
    /// Manage the tokens and sessions of others.
    ManageAccounts,
    /// See and change webhooks, and see their deliveries.
    ManageWebhooks,
}

/// The objects of a tenant that an act may concern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Extent {
    Nothing,
    /// The objects that the principal made.
    Own,
    All,
}

impl Extent {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Own => "own",
            Self::All => "all",
        }
    }
}

/// The rights to one act.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) act: Act,
    /// The extent for each role, in the order of [`Role::ALL`].
    roles: [Extent; 5],
    /// Whether tokens of services and devices can have the right, by scope.
    service: bool,
    /// The extent for tokens of agents, by scope.
    agent: Extent,
}

use Extent::{All, Nothing, Own};

/// The rights of all principals. The columns are owner, admin, operator, member, auditor; service; agent.
pub(crate) const TABLE: [Row; 25] = [
    row(Act::SeeBoxes, [All, All, All, Own, All], true, Own),
    row(Act::SeeRuns, [All, All, All, Own, All], true, Own),
    row(Act::SeeUsage, [All, All, All, Own, All], true, Nothing),
    row(Act::UseBoxes, [All, All, All, Own, Nothing], true, Nothing),
    row(Act::UseRuns, [All, All, All, Own, Nothing], true, Nothing),
    row(Act::UseMcp, [All, All, All, Own, Nothing], true, Own),
    row(Act::ApplyChanges, [All, All, All, Own, Nothing], true, Nothing),
    row(Act::Answer, [All, All, All, Own, Nothing], false, Nothing),
    row(Act::SeePolicy, [All, All, All, All, All], false, Nothing),
    row(Act::ProposeRules, [All, All, All, All, Nothing], false, Nothing),
    row(Act::SavePolicy, [All, All, Nothing, Nothing, Nothing], false, Nothing),
    row(Act::SeeSecrets, [All, All, All, All, Nothing], true, Nothing),
    row(Act::WriteSecrets, [All, All, Nothing, Nothing, Nothing], true, Nothing),
    row(Act::ReadLedger, [All, All, All, Own, All], true, Nothing),
    row(Act::CheckLedger, [All, All, All, Nothing, All], true, Nothing),
    row(Act::ReadContents, [All, All, All, Own, Nothing], false, Nothing),
    row(Act::RedactLedger, [All, Nothing, Nothing, Nothing, Nothing], false, Nothing),
    row(Act::ReadMetrics, [All, All, All, Nothing, All], true, Nothing),
    row(Act::SeeDoctor, [All, All, All, Nothing, All], false, Nothing),
    row(Act::ProveDoctor, [All, All, Nothing, Nothing, Nothing], false, Nothing),
    row(Act::SeeUsers, [All, All, Nothing, Nothing, All], false, Nothing),
    row(Act::ManageUsers, [All, All, Nothing, Nothing, Nothing], false, Nothing),
    row(Act::OwnAccount, [Own, Own, Own, Own, Own], false, Nothing),
    row(Act::ManageAccounts, [All, All, Nothing, Nothing, Nothing], false, Nothing),
    row(Act::ManageWebhooks, [All, All, Nothing, Nothing, Nothing], false, Nothing),
];

const fn row(act: Act, roles: [Extent; 5], service: bool, agent: Extent) -> Row {
    Row { act, roles, service, agent }
}

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TokenKind {
    Service,
    Agent,
    /// The token of a device on which a person logged in.
    Cli,
}

impl TokenKind {
    pub(crate) const ALL: [Self; 3] = [Self::Service, Self::Agent, Self::Cli];
    /// The kinds that a person makes with a request. The others come from a login.
    pub(crate) const MADE: [Self; 2] = [Self::Service, Self::Agent];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Agent => "agent",
            Self::Cli => "cli",
        }
    }

    /// Returns the kind of principal that a token of this kind stands for. A device is no person, so that no
    /// part of the engine takes its request for an answer of a person.
    pub(crate) const fn principal(self) -> PrincipalKind {
        match self {
            Self::Service | Self::Cli => PrincipalKind::Service,
            Self::Agent => PrincipalKind::Agent,
        }
    }
}

/// The credential that a request was authenticated with, as far as it limits rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Grant {
    /// A person with a session, or on the local socket.
    Person,
    /// A token, which has at most the rights of its maker.
    Token(TokenKind, Vec<Scope>),
}

/// Returns whether a token of some kind can do an act.
pub(crate) fn is_for_tokens(act: Act) -> bool {
    let is_for_tokens = |row: &Row| row.service || row.agent > Nothing;
    TABLE.iter().find(|row| row.act == act).is_some_and(is_for_tokens)
}

/// Returns the objects that an act may concern. `role` is that of the person, or of the maker of the token.
pub(crate) fn extent(act: Act, role: Role, grant: &Grant) -> Extent {
    let Some(row) = TABLE.iter().find(|row| row.act == act) else { return Nothing };
    let position = Role::ALL.iter().position(|known| *known == role);
    let of_role = position.and_then(|at| row.roles.get(at)).copied().unwrap_or(Nothing);
    match grant {
        Grant::Person => of_role,
        Grant::Token(kind, scopes) => {
            let has_scope = scopes.iter().any(|scope| scope.acts().contains(&act));
            let of_kind = match kind {
                TokenKind::Service | TokenKind::Cli if row.service => All,
                TokenKind::Service | TokenKind::Cli => Nothing,
                TokenKind::Agent => row.agent,
            };
            if has_scope { of_role.min(of_kind) } else { Nothing }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_act_has_one_row_and_each_scope_has_an_act_that_tokens_can_do() {
        for row in &TABLE {
            assert_eq!(TABLE.iter().filter(|it| it.act == row.act).count(), 1, "{row:?}");
        }
        for scope in Scope::ALL {
            let has_row = |act: &Act| TABLE.iter().any(|row| row.act == *act && row.service);
            assert!(scope.acts().iter().all(has_row), "{scope}");
            assert_eq!(scope.name().parse(), Ok(scope));
        }
    }

    #[test]
    fn people_page_shows_the_rights_that_the_server_checks() {
        let shown = belljar_console::RIGHTS.map(|(_, extents)| extents);
        assert_eq!(shown, TABLE.each_ref().map(|row| row.roles.map(Extent::name)));
    }

    #[test]
    fn g07_no_token_can_answer_approvals_or_manage_accounts() {
        for kind in TokenKind::ALL {
            let grant = Grant::Token(kind, Scope::ALL.to_vec());
            for act in [
                Act::Answer,
                Act::OwnAccount,
                Act::ManageAccounts,
                Act::ManageWebhooks,
                Act::ReadContents,
                Act::RedactLedger,
                Act::SavePolicy,
            ] {
                assert_eq!(extent(act, Role::Owner, &grant), Extent::Nothing, "{kind:?} {act:?}");
            }
        }
        assert_eq!(extent(Act::Answer, Role::Owner, &Grant::Person), Extent::All, "control");
    }

    #[test]
    fn f11_token_has_only_the_rights_of_its_scopes_and_of_its_maker() {
        for role in Role::ALL {
            for kind in TokenKind::ALL {
                for scope in Scope::ALL {
                    let grant = Grant::Token(kind, vec![scope]);
                    for row in &TABLE {
                        let extent = extent(row.act, role, &grant);
                        let of_maker = super::extent(row.act, role, &Grant::Person);
                        assert!(extent <= of_maker, "{role:?} {kind:?} {scope} {row:?}");
                        let is_allowed = scope.acts().contains(&row.act);
                        assert!(is_allowed || extent == Extent::Nothing, "{scope} {row:?}");
                    }
                }
            }
        }
        let token = Grant::Token(TokenKind::Service, vec![Scope::BoxesRead]);
        assert_eq!(extent(Act::SeeBoxes, Role::Owner, &token), Extent::All, "control");
        assert_eq!(extent(Act::SeeBoxes, Role::Member, &token), Extent::Own, "control");
    }
}
