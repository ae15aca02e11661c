//! Runs the health check of a named box repeatedly, as a program inside the box.

use std::os::fd::AsFd as _;
use std::time::Duration;

use belljar_box::{ExecChannel, Program};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::protocol::Health;
use super::session::BoxSession;

/// The pause before the next health check of a healthy box.
const HEALTHY_PAUSE: Duration = Duration::from_secs(30);
/// The pause before the next health check of an unhealthy box.
const UNHEALTHY_PAUSE: Duration = Duration::from_secs(2);
/// The maximum duration of a health check. A check that takes longer has failed.
const CHECK_TIMEOUT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Runs the health check `command` repeatedly until the supervisor exits.
pub(super) fn check_repeatedly(command: &str, session: &BoxSession) {
    let Some(channel) = session.target.channel() else { return };
    session.set_health(Health::Starting);
    loop {
        let is_healthy = check(command, channel);
        // A check that a pause interrupted says nothing about the box.
        if is_healthy || !session.target.pauses.is_kept() {
            session.set_health(if is_healthy { Health::Healthy } else { Health::Unhealthy });
        }
        std::thread::sleep(if is_healthy { HEALTHY_PAUSE } else { UNHEALTHY_PAUSE });
    }
}

/// Runs the health check once and returns whether the command succeeded in time. Its output is discarded.
fn check(command: &str, channel: &ExecChannel) -> bool {
    let argv = ["sh", "-c", "exec </dev/null >/dev/null 2>&1; eval \"$0\"", command];
    let argv = argv.map(Into::into).to_vec();
    let Ok(mut program) = channel.exec(&Program { argv, ..Program::default() }) else {
        return false;
    };
    drop(program.streams.take());
    let mut polled = [PollFd::from_borrowed_fd(program.as_fd(), PollFlags::IN)];
    if !rustix::event::poll(&mut polled, Some(&CHECK_TIMEOUT)).is_ok_and(|ready| ready > 0) {
        program.signal(9).ok(); // the program may have ended just after the timeout
        return false;
    }
    program.wait().is_ok_and(|ended| ended.exit == Some(0))
}
