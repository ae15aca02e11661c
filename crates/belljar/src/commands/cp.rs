//! `belljar cp`: copies a file or directory between this machine and a running box.

use belljar_engine::box_store::NamedBox;
use belljar_engine::boxes::transfer::{self, BoxPath};
use belljar_engine::error::invalid;
use belljar_model::display;
use belljar_workspace::{Transferred, UnpackLimits};

use crate::cli::boxes::transfer::{CopyArgs, Place};
use crate::exit::Outcome;
use crate::print;
use crate::scope;

/// Runs `belljar cp`.
pub(crate) fn run(args: &CopyArgs) -> Outcome {
    let (from, to) =
        (Place::parse(&args.from).map_err(invalid)?, Place::parse(&args.to).map_err(invalid)?);
    let state = scope::open(None)?;
    let (done, to) = match (from, to) {
        (Place::Box(name, from), Place::Host(to)) => {
            let of = NamedBox::find(&state, &name)?;
            let limits = UnpackLimits { bytes: args.max_size.as_u64(), replace: args.force };
            transfer::copy_from_box(&state, &of, &BoxPath(from), &to, limits)?
        }
        (Place::Host(from), Place::Box(name, to)) => {
            let of = NamedBox::find(&state, &name)?;
            let done = transfer::copy_to_box(&state, &of, &from, &BoxPath(to), args.force)?;
            (done, args.to.clone().into())
        }
        (Place::Host(_), Place::Host(_)) => {
            return Err(invalid("neither path is in a box; write NAME:PATH for a path in a box"));
        }
        (Place::Box(..), Place::Box(..)) => {
            return Err(invalid(
                "both paths are in a box; copy to a directory of this machine first",
            ));
        }
    };
    let Transferred { files, bytes, left_out } = done;
    let to = display::safe(to.as_os_str().as_encoded_bytes()).to_string();
    let files = if files == 1 { "1 file".to_owned() } else { format!("{files} files") };
    print::note(&format!("copied {files} ({bytes} bytes) to {to}"));
    if left_out > 0 {
        let what = if left_out == 1 { "link or special file" } else { "links and special files" };
        print::note(&format!("left out {left_out} {what}"));
    }
    Ok(0)
}
