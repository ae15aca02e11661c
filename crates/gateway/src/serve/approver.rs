//! People who may answer approvals and settle tasks.
//!
//! **Invariant:** only a person with a session, or the user on the local socket, becomes an [`Approver`]. A token
//! never does, whatever its scopes and its maker are (G07).

use belljar_engine::approvals::{AnswerRule, Answerer};
use belljar_engine::error::EngineError;
use belljar_model::caller::{Principal, PrincipalKind};

use super::access::Grant;
use super::identity::{Credential, Identity};
use super::problem::{Problem, ProblemKind};

/// A person whose answer counts.
#[derive(Debug, Clone)]
pub(crate) struct Approver {
    who: Identity,
}

impl Approver {
    /// Returns the sender as an approver. A token is refused.
    pub(crate) fn of(who: &Identity) -> Result<Self, Problem> {
        let has_person = match (&who.credential, &who.grant) {
            (Credential::Session { .. } | Credential::LocalSocket, Grant::Person) => true,
            (Credential::Token { .. }, _) | (_, Grant::Token(..)) => false,
        };
        let is_person = match who.caller.principal.kind() {
            PrincipalKind::User | PrincipalKind::Person => true,
            PrincipalKind::Service | PrincipalKind::Agent | PrincipalKind::Schedule => false,
        };
        if has_person && is_person {
            return Ok(Self { who: who.clone() });
        }
        let detail = "only a person can answer; log in and answer there";
        Err(Problem::new(ProblemKind::FORBIDDEN, detail))
    }

    /// Returns the principal of the person.
    pub(crate) const fn principal(&self) -> &Principal {
        &self.who.caller.principal
    }

    /// Calls a function with the rights of the person.
    pub(crate) fn answer<T>(&self, answer: impl FnOnce(&Answerer<'_>) -> T) -> T {
        let owns = |maker: &Principal| self.who.owns(maker);
        answer(&Answerer { role: self.who.role, owns: &owns })
    }

    /// Checks that the person may answer a question with this rule.
    pub(crate) fn check(&self, rule: &AnswerRule) -> Result<(), EngineError> {
        self.answer(|person| rule.check(person))
    }
}

#[cfg(test)]
mod tests {
    use belljar_model::caller::Caller;

    use super::*;
    use crate::auth::api_token::TokenId;
    use crate::serve::access::{Scope, TokenKind};

    #[test]
    fn g07_no_token_becomes_an_approver() {
        let person = Identity::local(Caller::local(1000));
        assert_eq!(Approver::of(&person).unwrap().principal().to_string(), "user:1000", "control");
        let credential = Credential::Token { id: TokenId::parse("0123abcd").unwrap(), expires: 1 };
        for kind in TokenKind::ALL {
            let grant = Grant::Token(kind, Scope::ALL.to_vec());
            for (has_credential, has_grant) in [(true, true), (true, false), (false, true)] {
                let mut who = person.clone();
                if has_credential {
                    who.credential = credential.clone();
                }
                if has_grant {
                    who.grant = grant.clone();
                }
                assert_eq!(Approver::of(&who).unwrap_err().kind, ProblemKind::FORBIDDEN);
            }
        }
        for principal in ["service:ci", "agent:robot", "schedule:nightly"] {
            let mut who = person.clone();
            who.caller.principal = principal.parse().unwrap();
            assert_eq!(Approver::of(&who).unwrap_err().kind, ProblemKind::FORBIDDEN, "{principal}");
        }
    }
}
