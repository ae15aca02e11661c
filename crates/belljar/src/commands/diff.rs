//! soon
use crate::failure::Outcome;
pub(crate) fn run(_args: &crate::cli::DiffArgs) -> Outcome {
    Ok(1)
}
