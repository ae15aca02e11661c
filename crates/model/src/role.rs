//! The roles of people in a tenant.

use std::fmt;
use std::str::FromStr;

/// The role of a person in a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    Owner,
    Admin,
    Operator,
    Member,
    Auditor,
}

/// The reason why a text is not the name of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown role; write `owner`, `admin`, `operator`, `member` or `auditor`")]
pub struct RoleError;

impl Role {
    /// All roles, the one with the most rights first.
    pub const ALL: [Self; 5] =
        [Self::Owner, Self::Admin, Self::Operator, Self::Member, Self::Auditor];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Admin => "admin",
            Self::Operator => "operator",
            Self::Member => "member",
            Self::Auditor => "auditor",
        }
    }
}

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, RoleError> {
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or(RoleError)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_survives_a_round_trip_and_another_name_is_refused() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        for text in ["", "Owner", "root", "owner "] {
            assert_eq!(text.parse::<Role>(), Err(RoleError), "{text}");
        }
    }
}
