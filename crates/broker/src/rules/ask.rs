//! What somebody must say yes to: the permit is there, and leads nowhere until then.

use std::collections::BTreeSet;

use belljar_model::net::{HttpRule, Rule, RuleLimits, Scheme, Target, Tls};

use super::denial::Act;
use super::{Ask, Code, Denial, Handling, Permit, Rules, TcpPermit, reach};
use crate::ask::Approved;

impl Permit {
    /// Leave after a yes, for this one time.
    #[must_use]
    pub(crate) fn approved(self, _yes: &Approved) -> Self {
        Self { asks: None, ..self }
    }
}

impl TcpPermit {
    /// Leave after a yes, for this one connection.
    #[must_use]
    pub(crate) fn approved(self, _yes: &Approved) -> Self {
        Self { asks: None, ..self }
    }
}

impl Rules {
    /// A request that `rule` asks about. Where it is allowed anyway, the limits of the rule that allows
    /// it hold as well.
    pub(super) fn ask_first(
        &self,
        act: Act<'_>,
        rule: &Rule,
        ask: &Ask,
        allowed: Result<Permit, Denial>,
    ) -> Result<Permit, Denial> {
        let permit = match (rule.http(), allowed) {
            (None, allowed) => allowed?,
            (Some(http), Ok(permit)) => {
                let connect = permit.connect.or(http.connect);
                let reach =
                    reach(&ask.target, connect).map_err(|code| act.denied(code, Some(&rule.id)))?;
                let mut secrets = permit.secrets;
                secrets.extend(secrets_of(http, ask.scheme));
                Permit { connect, reach, secrets, ..permit }
            }
            (Some(http), Err(_)) => {
                let permit = self.way(rule, http, ask.scheme, &ask.target, ask.port);
                let permit = permit.map_err(|code| act.denied(code, Some(&rule.id)))?;
                Permit { secrets: secrets_of(http, ask.scheme), ..permit }
            }
        };
        Ok(Permit { asks: Some(rule.id.clone()), ..permit })
    }

    /// A TLS connection that only a rule that asks names.
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
        match self.way(rule, http, Scheme::Https, target, port) {
            Ok(permit) => Handling::Passthrough(Permit { opaque: true, ..permit }),
            Err(code) => Handling::Refuse(act.denied(code, Some(&rule.id))),
        }
    }

    /// Where a rule that asks leads, without its secrets.
    fn way(
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
        let said =
            || self.allow.iter().filter_map(Rule::http).filter(alike).find_map(|it| it.connect);
        let connect = http.connect.or_else(said);
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
        })
    }
}

/// Plain HTTP never carries one.
fn secrets_of(http: &HttpRule, scheme: Scheme) -> BTreeSet<belljar_model::net::SecretName> {
    match scheme {
        Scheme::Https => http.secrets.clone(),
        Scheme::Http => BTreeSet::new(),
    }
}
