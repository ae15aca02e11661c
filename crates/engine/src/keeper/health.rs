//! Asks a box now and then whether it is well, by a program that joins it.

use std::os::fd::AsFd as _;
use std::time::Duration;

use belljar_box::{Door, Program};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::hub::Hub;
use super::protocol::Health;

/// Between two checks of a box that is well, and of one that is not (yet).
const PAUSES: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(2)];
/// A check that takes longer has failed.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Asks until the process ends.
pub(super) fn ask(line: &str, hub: &Hub) {
    let Some(door) = hub.door() else { return };
    hub.set_health(Health::Starting);
    loop {
        let is_well = check(line, door);
        hub.set_health(if is_well { Health::Healthy } else { Health::Unhealthy });
        let [well, unwell] = PAUSES;
        std::thread::sleep(if is_well { well } else { unwell });
    }
}

/// Whether the line succeeds. What it writes is nobody's.
fn check(line: &str, door: &Door) -> bool {
    let argv = ["sh", "-c", "exec </dev/null >/dev/null 2>&1; eval \"$0\"", line];
    let argv = argv.map(Into::into).to_vec();
    let Ok(mut guest) = door.exec(&Program { argv, ..Program::default() }) else { return false };
    drop(guest.ends.take());
    let mut polled = [PollFd::from_borrowed_fd(guest.as_fd(), PollFlags::IN)];
    if !rustix::event::poll(&mut polled, Some(&PATIENCE)).is_ok_and(|ready| ready > 0) {
        guest.signal(9).ok(); // or it ended this very moment, too late
        return false;
    }
    guest.wait().is_ok_and(|ended| ended.exit == Some(0))
}
