//! soon
use crate::failure::Outcome;
pub(crate) fn run(_args: &crate::cli::DoctorArgs) -> Outcome {
    Ok(1)
}
