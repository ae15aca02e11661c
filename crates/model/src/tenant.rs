//! The limits that the operator sets for a tenant: a budget for all its runs together, a ceiling for each of
//! its boxes, and the directories of the host that it may use.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::cpus::Cpus;
use crate::limits::Limits;
use crate::plan::RunBudget;
use crate::quota::Quota;
use crate::size::ByteSize;
use crate::time::Timeout;

/// The section `[tenant.NAME]` of `belljar.toml`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantConfig {
    pub budget: Option<TenantBudget>,
    /// The quotas, which replace those of `[serve]`.
    pub quota: Option<Quota>,
    /// The directories of the host that the tenant may use as workspaces.
    pub workspaces: Vec<PathBuf>,
    pub limits: TenantLimits,
}

/// The limits of a tenant's boxes that the section `[tenant.NAME]` sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantLimits {
    pub memory: Option<ByteSize>,
    pub cpus: Option<Cpus>,
    pub pids: Option<u32>,
    pub disk: Option<ByteSize>,
    pub files: Option<u64>,
    pub output: Option<ByteSize>,
    pub timeout: Option<Duration>,
}

/// The upper limits of every box of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoxCeiling {
    pub memory: ByteSize,
    pub cpus: Cpus,
    pub pids: u32,
    pub disk: ByteSize,
    pub files: u64,
    /// `None` if the operator sets no limit.
    pub output: Option<ByteSize>,
    /// `None` if the operator sets no limit.
    pub timeout: Option<Duration>,
}

/// A limit of a box is above the ceiling of its tenant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {asked}, but the operator of the server permits at most {permitted}")]
pub struct AboveCeiling {
    /// The key of `belljar.toml`.
    pub key: &'static str,
    pub asked: String,
    pub permitted: String,
}

impl BoxCeiling {
    /// Returns the ceiling of a tenant. Limits that its section does not set are those of the operator's
    /// default template, except for the limits of output and time, which depend on the use of a box.
    pub fn new(own: &TenantLimits, default: &Limits) -> Self {
        // Destructured without `..`, so that a new limit cannot be forgotten here.
        let TenantLimits { memory, cpus, pids, disk, files, output, timeout } = own;
        Self {
            memory: memory.unwrap_or(default.memory),
            cpus: cpus.unwrap_or(default.cpus),
            pids: pids.unwrap_or(default.pids),
            disk: disk.unwrap_or(default.disk),
            files: files.unwrap_or(default.files),
            output: *output,
            timeout: *timeout,
        }
    }

    /// Returns an error for a limit above the ceiling. `is_set` returns whether a key was given.
    pub fn check(
        &self,
        limits: &Limits,
        is_set: impl Fn(&str) -> bool,
    ) -> Result<(), AboveCeiling> {
        let Limits { memory, cpus, pids, disk, files, output, timeout } = limits;
        let checks = [
            above("memory", memory, Some(&self.memory)),
            above("cpus", cpus, Some(&self.cpus)),
            above("pids", pids, Some(&self.pids)),
            above("disk", disk, Some(&self.disk)),
            above("files", files, Some(&self.files)),
            above("output-limit", output, self.output.as_ref()),
            self.timeout_above(*timeout),
        ];
        let found = checks.into_iter().flatten().find(|above| is_set(above.key));
        found.map_or(Ok(()), Err)
    }

    fn timeout_above(&self, asked: Option<Duration>) -> Option<AboveCeiling> {
        let (asked, permitted) = (Timeout(asked), Timeout(self.timeout));
        let text = || (asked.to_string(), permitted.to_string());
        asked.is_longer_than(permitted).then(text).map(|(asked, permitted)| AboveCeiling {
            key: "timeout",
            asked,
            permitted,
        })
    }

    /// Returns limits that are not above the ceiling.
    #[must_use]
    pub fn clamp(&self, limits: &Limits) -> Limits {
        let Limits { memory, cpus, pids, disk, files, output, timeout } = limits.clone();
        let longest = [timeout, self.timeout].into_iter().flatten().min();
        Limits {
            memory: memory.min(self.memory),
            cpus: cpus.min(self.cpus),
            pids: pids.min(self.pids),
            disk: disk.min(self.disk),
            files: files.min(self.files),
            output: self.output.map_or(output, |permitted| output.min(permitted)),
            timeout: longest,
        }
    }
}

fn above<T: Ord + fmt::Display>(
    key: &'static str,
    asked: &T,
    permitted: Option<&T>,
) -> Option<AboveCeiling> {
    let permitted = permitted.filter(|permitted| asked > *permitted)?;
    Some(AboveCeiling { key, asked: asked.to_string(), permitted: permitted.to_string() })
}

/// The budget of a tenant in `belljar.toml`. Its limits hold for all runs of the tenant together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantBudget {
    /// The limits. A tenant has no limits for single secrets.
    pub limits: RunBudget,
    /// The period over which everything except boxes at once is counted.
    pub period: Period,
}

/// The period over which the usage of a tenant is counted. Days and months are those of UTC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Period {
    Day,
    Month,
    /// The usage is never reset.
    #[default]
    Total,
}

/// The reason why a text is not a valid period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown period; write `day`, `month` or `total`")]
pub struct PeriodError;

impl Period {
    /// The name of the period in `belljar.toml`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
            Self::Total => "total",
        }
    }
}

impl FromStr for Period {
    type Err = PeriodError;

    fn from_str(text: &str) -> Result<Self, PeriodError> {
        let all = [Self::Day, Self::Month, Self::Total];
        all.into_iter().find(|period| period.name() == text).ok_or(PeriodError)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ceiling() -> BoxCeiling {
        let own = TenantLimits {
            memory: Some(ByteSize::mib(512)),
            timeout: Some(Duration::from_secs(60)),
            ..TenantLimits::default()
        };
        BoxCeiling::new(&own, &Limits::default())
    }

    #[test]
    fn ceiling_has_the_limits_of_the_default_template_for_missing_keys() {
        let BoxCeiling { memory, pids, output, timeout, .. } = ceiling();
        assert_eq!((memory, pids), (ByteSize::mib(512), Limits::default().pids));
        assert_eq!((output, timeout), (None, Some(Duration::from_secs(60))));
    }

    #[test]
    fn limit_above_the_ceiling_is_refused_with_its_key_and_clamped() {
        let asked = Limits { pids: 9999, timeout: None, ..Limits::default() };
        let error = ceiling().check(&asked, |_| true).unwrap_err();
        assert_eq!((error.key, error.permitted.as_str()), ("memory", "512MiB"));
        let error = ceiling().check(&asked, |key| key == "timeout").unwrap_err();
        assert_eq!((error.asked.as_str(), error.permitted.as_str()), ("none", "1m"));
        assert_eq!(ceiling().check(&asked, |key| key == "disk"), Ok(()));
        let clamped = ceiling().clamp(&asked);
        assert_eq!(clamped.pids, Limits::default().pids);
        assert_eq!(clamped.timeout, Some(Duration::from_secs(60)));
        assert_eq!(ceiling().check(&clamped, |_| true), Ok(()));
        let small = Limits { memory: ByteSize::mib(64), ..clamped };
        assert_eq!(ceiling().clamp(&small), small, "control");
    }
}
