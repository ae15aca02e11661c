//! Runs the health check of a box at intervals, as a program inside the box.

use std::os::fd::AsFd as _;
use std::time::Duration;

use belljar_box::{ExecChannel, Program};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::protocol::Health;
use super::session::BoxSession;

/// The pause between two checks of a healthy box, and of any other one.
const PAUSES: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(2)];
/// A check that takes longer has failed.
const TIMEOUT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Runs checks until the process ends.
pub(super) fn check_repeatedly(line: &str, session: &BoxSession) {
    let Some(channel) = session.exec_channel() else { return };
    session.set_health(Health::Starting);
    loop {
        let is_healthy = check(line, channel);
        session.set_health(if is_healthy { Health::Healthy } else { Health::Unhealthy });
        let [healthy, other] = PAUSES;
        std::thread::sleep(if is_healthy { healthy } else { other });
    }
}

/// Whether the command line succeeds. Its output is not read.
fn check(line: &str, channel: &ExecChannel) -> bool {
    let argv = ["sh", "-c", "exec </dev/null >/dev/null 2>&1; eval \"$0\"", line];
    let argv = argv.map(Into::into).to_vec();
    let Ok(mut program) = channel.exec(&Program { argv, ..Program::default() }) else {
        return false;
    };
    drop(program.streams.take());
    let mut polled = [PollFd::from_borrowed_fd(program.as_fd(), PollFlags::IN)];
    if !rustix::event::poll(&mut polled, Some(&TIMEOUT)).is_ok_and(|ready| ready > 0) {
        program.signal(9).ok(); // it may have ended just now, too late
        return false;
    }
    program.wait().is_ok_and(|ended| ended.exit == Some(0))
}
