//! Permits that require an approval: an ask rule creates the permit, which cannot be used before
//! the approval.

use std::collections::BTreeSet;

use belljar_model::net::{HttpRule, Rule, RuleLimits, Scheme, Target, Tls};

use super::denial::Act;
use super::{Code, Denial, Handling, OutboundRequest, Permit, Rules, TcpPermit, reach};
use crate::ask::Approved;

impl Permit {
    /// Returns the permit for one request after the operator approved it.
    #[must_use]
    pub(crate) fn approved(self, _approval: &Approved) -> Self {
        Self { asks: None, ..self }
    }
}

impl TcpPermit {
    /// Returns the permit for one connection after the operator approved it.
    #[must_use]
    pub(crate) fn approved(self, _approval: &Approved) -> Self {
        Self { asks: None, ..self }
    }
}

impl Rules {
    /// Returns the permit for a request that an `ask` rule matches; it needs an approval first. If
    /// an allow rule matches too, its limits also apply.
    pub(super) fn ask_first(
        &self,
        act: Act<'_>,
        rule: &Rule,
        request: &OutboundRequest,
        allowed: Result<Permit, Denial>,
    ) -> Result<Permit, Denial> {
        let permit = match (rule.http(), allowed) {
            (None, allowed) => allowed?,
            (Some(http), Ok(permit)) => {
                let connect = permit.connect.or(http.connect);
                let reach = reach(&request.target, connect)
                    .map_err(|code| act.denied(code, Some(&rule.id)))?;
                let mut secrets = permit.secrets;
                secrets.extend(secrets_of(http, request.scheme));
                Permit { connect, reach, secrets, ..permit }
            }
            (Some(http), Err(_)) => {
                let permit =
                    self.ask_permit(rule, http, request.scheme, &request.target, request.port);
                let permit = permit.map_err(|code| act.denied(code, Some(&rule.id)))?;
                Permit { secrets: secrets_of(http, request.scheme), ..permit }
            }
        };
        Ok(Permit { asks: Some(rule.id.clone()), ..permit })
    }

    /// Decides about a TLS connection that only an `ask` rule matches.
    pub(super) fn ask_tls(
        &self,
        act: Act<'_>,
        rule: &Rule,
        target: &Target,
        port: u16,
        denied: Option<&Rule>,
    ) -> Handling {
        let Some(http) = rule.http().filter(|http| http.tls == Tls::Passthrough) else {
            return Handling::Intercept;
        };
        if let Some(deny) = denied {
            return Handling::Refuse(act.denied(Code::DeniedByRule, Some(&deny.id)));
        }
        match self.ask_permit(rule, http, Scheme::Https, target, port) {
            Ok(permit) => Handling::Passthrough(Permit { opaque: true, ..permit }),
            Err(code) => Handling::Refuse(act.denied(code, Some(&rule.id))),
        }
    }

    /// Creates the permit of an `ask` rule, without its secrets.
    fn ask_permit(
        &self,
        rule: &Rule,
        http: &HttpRule,
        scheme: Scheme,
        target: &Target,
        port: u16,
    ) -> Result<Permit, Code> {
        let alike = |it: &&HttpRule| {
            it.host == http.host && it.scheme == scheme && it.ports.contains(&port)
        };
        let configured =
            || self.allow.iter().filter_map(Rule::http).filter(alike).find_map(|it| it.connect);
        let connect = http.connect.or_else(configured);
        Ok(Permit {
            rule: rule.id.clone(),
            index: None,
            scheme,
            target: target.clone(),
            port,
            connect,
            secrets: BTreeSet::new(),
            limits: RuleLimits::default(),
            reach: reach(target, connect)?,
            opaque: false,
            asks: Some(rule.id.clone()),
            model: http.model,
        })
    }
}

/// Returns the secrets that a rule inserts; none for plain HTTP.
fn secrets_of(http: &HttpRule, scheme: Scheme) -> BTreeSet<belljar_model::net::SecretName> {
    match scheme {
        Scheme::Https => http.secrets.clone(),
        Scheme::Http => BTreeSet::new(),
    }
}
