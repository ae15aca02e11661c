//! `belljar logs`: stored and followed output of a box.

use super::up;
use crate::lab;

#[test]
fn logs_prints_the_output_of_a_stopped_box_and_tail_limits_it() {
    let lab = lab();
    up(&lab, "task", "echo one; echo two >&2");
    let log = lab.belljar(["logs", "task"]).succeed();
    assert_eq!(log, "one\r\ntwo\r\nready\r");
    assert_eq!(lab.belljar(["logs", "task", "--tail", "2"]).succeed(), "two\r\nready\r");
    assert_eq!(lab.belljar(["logs", "task", "--tail", "0"]).succeed(), "");
    lab.belljar(["stop", "--now", "task"]).succeed();
    assert_eq!(lab.belljar(["logs", "task", "--follow"]).succeed(), log);
    lab.belljar(["logs", "none"]).run().fails_with(2, "there is no box none");
}

#[test]
fn logs_follow_prints_all_output_until_the_box_ends() {
    let lab = lab();
    let script = "echo first; read; seq 200000; echo last";
    lab.belljar(["up", "task", "--", "bash", "-c", script]).succeed();
    let follower = lab.belljar(["logs", "task", "--follow"]).start();
    follower.wait_for_output("first");
    // The program waits for a key, which an attached viewer types.
    let mut viewer = belljar_testkit::Terminal::start(lab.belljar(["attach", "task"]), 24, 80);
    viewer.type_keys("\r");
    let ended = follower.wait();
    let output = ended.expect(0);
    assert!(output.ends_with("199999\r\n200000\r\nlast\r"), "{}", &output[output.len() - 100..]);
    assert_eq!(output.matches("\r\n123456\r\n").count(), 1);
    viewer.end();
}
