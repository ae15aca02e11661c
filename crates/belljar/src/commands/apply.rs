//! soon
use crate::failure::Outcome;
pub(crate) fn run(_args: &crate::cli::ApplyArgs) -> Outcome {
    Ok(1)
}
