//! `--profile start`: where the time of one start goes, by system call and by process.
//!
//! Tracing slows every call down, so the table shows shares, not times to promise.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use super::lab::{Lab, timed};
use crate::shell::{as_from_a_shell, run};

/// How many rows of each table are worth reading.
const TOP: usize = 25;

pub(super) fn start(lab: &Lab) -> Result<()> {
    let command = lab.box_for(&["/bin/true"]);
    let trace = lab.scratch.join("start.strace");
    let mut strace = as_from_a_shell("strace");
    strace
        .args(["-f", "-ttt", "-T", "-s", "60", "-o"])
        .arg(&trace)
        .arg(command.get_program())
        .args(command.get_args());
    strace.env("BELLJAR_HOME", &lab.state).current_dir(&lab.workspace);
    timed(&mut lab.box_for(&["/bin/true"])).context("warm up")?;
    run(&mut strace)?;
    let text = std::fs::read(&trace).with_context(|| format!("read {}", trace.display()))?;
    let calls: Vec<Call> = String::from_utf8_lossy(&text).lines().filter_map(parse).collect();
    print!("{}", tables(&calls));
    println!("\nthe whole trace: {}", trace.display());
    Ok(())
}

/// Calls in which a process waits for another one; their time is not work.
const WAITS: [&str; 8] =
    ["poll", "ppoll", "epoll_wait", "recvmsg", "wait4", "waitid", "futex", "clock_nanosleep"];

/// One line of a trace.
#[derive(Debug, PartialEq)]
struct Call {
    pid: u32,
    /// Seconds since the epoch.
    at: f64,
    name: String,
    /// The line without pid and times.
    text: String,
    /// Seconds in the kernel, waiting included.
    took: f64,
}

impl Call {
    fn waits(&self) -> bool {
        WAITS.contains(&self.name.as_str())
    }
}

/// `PID TIME name(args) = result <took>`, also the second half of a call that was interrupted.
fn parse(line: &str) -> Option<Call> {
    let (pid, rest) = line.trim_start().split_once(' ')?;
    let (at, rest) = rest.trim_start().split_once(' ')?;
    let (text, took) = rest.rsplit_once(" <")?;
    let at: f64 = at.parse().ok()?;
    let took: f64 = took.strip_suffix('>')?.parse().ok()?;
    let (name, at) = match text.strip_prefix("<... ") {
        // This line has the time at which the call ended.
        Some(resumed) => (resumed.split_whitespace().next()?, at - took),
        None => (text.split_once('(')?.0, at),
    };
    Some(Call { pid: pid.parse().ok()?, at, name: name.to_owned(), text: text.to_owned(), took })
}

fn tables(calls: &[Call]) -> String {
    let first = calls.iter().map(|call| call.at).fold(f64::INFINITY, f64::min);
    let mut order: Vec<u32> = Vec::new();
    for call in calls {
        if !order.contains(&call.pid) {
            order.push(call.pid);
        }
    }
    let mut text = String::from(
        "by process, in order of appearance: calls, ms at work in the kernel, ms waiting, \
         first and last call (ms)\n",
    );
    for pid in order {
        let own: Vec<&Call> = calls.iter().filter(|call| call.pid == pid).collect();
        let (waits, works): (Vec<&Call>, Vec<&Call>) =
            own.iter().copied().partition(|call| call.waits());
        let sum = |calls: &[&Call]| calls.iter().fold(0.0, |sum, call| sum + call.took);
        let ends = own.iter().map(|call| call.at + call.took).fold(0.0, f64::max);
        let begins = own.iter().map(|call| call.at).fold(f64::INFINITY, f64::min);
        text += &format!(
            "  {pid:>8} {:>6} {:>9.3} {:>9.3} {:>9.3} {:>9.3}\n",
            own.len(),
            sum(&works) * 1e3,
            sum(&waits) * 1e3,
            (begins - first) * 1e3,
            (ends - first) * 1e3
        );
    }
    let mut by_name: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for call in calls.iter().filter(|call| !call.waits()) {
        let entry = by_name.entry(&call.name).or_default();
        entry.0 += 1;
        entry.1 += call.took;
    }
    let mut by_name: Vec<_> = by_name.into_iter().collect();
    by_name.sort_by(|(_, (_, a)), (_, (_, b))| b.total_cmp(a));
    text += "\nby system call, without those that wait: calls, ms in all, ms each\n";
    for (name, (count, spent)) in by_name.iter().take(TOP) {
        let each = spent / f64::from(u32::try_from(*count).unwrap_or(u32::MAX));
        text += &format!("  {name:<20} {count:>6} {:>9.3} {:>9.3}\n", spent * 1e3, each * 1e3);
    }
    let mut slowest: Vec<&Call> = calls.iter().filter(|call| !call.waits()).collect();
    slowest.sort_by(|a, b| b.took.total_cmp(&a.took));
    text += "\nthe longest calls: process, at (ms), took (ms)\n";
    for call in slowest.iter().take(TOP) {
        let shown: String = call.text.chars().take(100).collect();
        text += &format!(
            "  {:>8} {:>9.3} {:>9.3}  {shown}\n",
            call.pid,
            (call.at - first) * 1e3,
            call.took * 1e3
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
12 100.000000 execve(\"/bin/true\", [\"/bin/true\"], 0x7f /* 3 vars */) = 0 <0.000500>
12 100.001000 wait4(-1,  <unfinished ...>
13 100.002000 write(1, \"<x> = \", 6) = 6 <0.000100>
12 100.003000 <... wait4 resumed>NULL, 0, NULL) = 13 <0.002000>
13 100.002500 +++ exited with 0 +++
";

    #[test]
    fn calls_are_read_with_their_time_and_the_rest_is_passed_over() {
        let calls: Vec<Call> = TRACE.lines().filter_map(parse).collect();
        let names: Vec<_> =
            calls.iter().map(|call| (call.pid, call.name.as_str(), call.took)).collect();
        assert_eq!(names, [(12, "execve", 0.0005), (13, "write", 0.0001), (12, "wait4", 0.002)]);
    }

    #[test]
    fn the_tables_add_up_by_process_and_by_call() {
        let calls: Vec<Call> = TRACE.lines().filter_map(parse).collect();
        let text = tables(&calls);
        assert!(
            text.contains("        12      2     0.500     2.000     0.000     3.000\n"),
            "{text}"
        );
        assert!(text.contains("  execve                    1     0.500     0.500\n"), "{text}");
        assert!(!text.contains("  wait4 "), "{text}");
    }
}
