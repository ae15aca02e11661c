//! `--profile start`: shows the time of one start by process and by system call.
//!
//! Tracing slows down every system call, so the times are only useful relative to each other.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use super::lab::{Lab, timed};
use crate::shell::{as_from_a_shell, run};

/// The maximum number of rows of each table.
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
    timed(&mut lab.box_for(&["/bin/true"])).context("the first start, before tracing, failed")?;
    run(&mut strace)?;
    let text = std::fs::read(&trace).with_context(|| format!("cannot read {}", trace.display()))?;
    let calls: Vec<Call> = String::from_utf8_lossy(&text).lines().filter_map(parse).collect();
    print!("{}", tables(&calls));
    println!("\nfull trace: {}", trace.display());
    Ok(())
}

/// System calls in which a process waits for another one.
const WAITS: [&str; 8] =
    ["poll", "ppoll", "epoll_wait", "recvmsg", "wait4", "waitid", "futex", "clock_nanosleep"];

/// A system call of a trace.
#[derive(Debug, PartialEq)]
struct Call {
    pid: u32,
    /// The start time, in seconds since 1970.
    start: f64,
    name: String,
    /// The line of the trace without pid and times.
    text: String,
    /// The duration in seconds, including waiting.
    duration: f64,
}

impl Call {
    /// Whether the call waits for another process.
    fn waits(&self) -> bool {
        WAITS.contains(&self.name.as_str())
    }
}

/// Parses `PID TIME name(args) = result <duration>`, or the second part of an interrupted call.
fn parse(line: &str) -> Option<Call> {
    let (pid, rest) = line.trim_start().split_once(' ')?;
    let (time, rest) = rest.trim_start().split_once(' ')?;
    let (text, duration) = rest.rsplit_once(" <")?;
    let time: f64 = time.parse().ok()?;
    let duration: f64 = duration.strip_suffix('>')?.parse().ok()?;
    let (name, start) = match text.strip_prefix("<... ") {
        // The time of such a line is the end of the call.
        Some(resumed) => (resumed.split_whitespace().next()?, time - duration),
        None => (text.split_once('(')?.0, time),
    };
    Some(Call {
        pid: pid.parse().ok()?,
        start,
        name: name.to_owned(),
        text: text.to_owned(),
        duration,
    })
}

/// Formats tables of the time by process and by system call, and of the longest calls.
fn tables(calls: &[Call]) -> String {
    let first = calls.iter().map(|call| call.start).fold(f64::INFINITY, f64::min);
    let mut pids: Vec<u32> = Vec::new();
    for call in calls {
        if !pids.contains(&call.pid) {
            pids.push(call.pid);
        }
    }
    let mut text = String::from(
        "by process, in order of appearance: calls, ms in system calls, ms waiting, \
         start and end (ms)\n",
    );
    for pid in pids {
        let own: Vec<&Call> = calls.iter().filter(|call| call.pid == pid).collect();
        let (waiting, working): (Vec<&Call>, Vec<&Call>) =
            own.iter().copied().partition(|call| call.waits());
        let sum = |calls: &[&Call]| calls.iter().fold(0.0, |sum, call| sum + call.duration);
        let end = own.iter().map(|call| call.start + call.duration).fold(0.0, f64::max);
        let start = own.iter().map(|call| call.start).fold(f64::INFINITY, f64::min);
        text += &format!(
            "  {pid:>8} {:>6} {:>9.3} {:>9.3} {:>9.3} {:>9.3}\n",
            own.len(),
            sum(&working) * 1e3,
            sum(&waiting) * 1e3,
            (start - first) * 1e3,
            (end - first) * 1e3
        );
    }
    let mut by_name: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for call in calls.iter().filter(|call| !call.waits()) {
        let entry = by_name.entry(&call.name).or_default();
        entry.0 += 1;
        entry.1 += call.duration;
    }
    let mut by_name: Vec<_> = by_name.into_iter().collect();
    by_name.sort_by(|(_, (_, a)), (_, (_, b))| b.total_cmp(a));
    text += "\nby system call, without waiting calls: calls, ms in total, ms per call\n";
    for (name, (count, total)) in by_name.iter().take(TOP) {
        let each = total / f64::from(u32::try_from(*count).unwrap_or(u32::MAX));
        text += &format!("  {name:<20} {count:>6} {:>9.3} {:>9.3}\n", total * 1e3, each * 1e3);
    }
    let mut slowest: Vec<&Call> = calls.iter().filter(|call| !call.waits()).collect();
    slowest.sort_by(|a, b| b.duration.total_cmp(&a.duration));
    text += "\nthe longest calls: process, start (ms), duration (ms)\n";
    for call in slowest.iter().take(TOP) {
        let shown: String = call.text.chars().take(100).collect();
        text += &format!(
            "  {:>8} {:>9.3} {:>9.3}  {shown}\n",
            call.pid,
            (call.start - first) * 1e3,
            call.duration * 1e3
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
    fn parse_reads_system_calls_with_their_duration_and_skips_other_lines() {
        let calls: Vec<Call> = TRACE.lines().filter_map(parse).collect();
        let names: Vec<_> =
            calls.iter().map(|call| (call.pid, call.name.as_str(), call.duration)).collect();
        assert_eq!(names, [(12, "execve", 0.0005), (13, "write", 0.0001), (12, "wait4", 0.002)]);
    }

    #[test]
    fn tables_sum_the_time_by_process_and_by_system_call() {
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
