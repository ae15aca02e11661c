//! `belljar schedule`: lists and faults. The slots themselves are tested in the engine.

use std::fs;

use serde_json::Value;

use crate::lab;

const PLAN: &str = "[task.a]\ndo = { stub = 'x' }\n";

#[test]
fn schedule_list_shows_each_state_and_faults_with_file_line_and_exit_code_2() {
    let lab = lab();
    let plan = lab.dir().join("plan.toml");
    fs::write(&plan, PLAN).unwrap();
    let section = |name: &str, cron: &str, zone: &str| {
        let plan = plan.display();
        format!("[schedule.{name}]\nplan = '{plan}'\ncron = '{cron}'\nzone = '{zone}'\n")
    };
    assert_eq!(lab.belljar(["schedule", "list"]).succeed(), "belljar.toml has no schedule");
    lab.configure(&(section("far", "0 12 1 1 *", "UTC") + &section("off", "* * * * *", "UTC")));
    let ended = lab.belljar(["schedule", "pause", "off"]).run();
    assert_eq!((ended.code(), ended.out().trim_end().to_owned()), (0, "off is paused".to_owned()));
    let ended = lab.belljar(["schedule", "list"]).run();
    let out = ended.out();
    let [far, off] = out.lines().collect::<Vec<_>>()[..] else { panic!("two lines: {out}") };
    assert!(
        far.starts_with("far  0 12 1 1 *  next ") && far.ends_with("-01-01 12:00 UTC"),
        "{far}"
    );
    assert_eq!(off, "off  * * * * *   paused");
    assert!(ended.err().contains("no driver is running"), "{}", ended.err());
    assert_eq!(ended.code(), 0);
    let lines = lab.belljar(["schedule", "list", "--json"]).succeed();
    let lines: Vec<Value> = lines.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!((&lines[0]["state"], &lines[1]["state"]), (&"enabled".into(), &"paused".into()));
    assert_eq!((&lines[0]["missed"], &lines[0]["driver"]), (&"once".into(), &false.into()));
    lab.configure(&(section("far", "0 12 1 1 *", "UTC") + &section("wrong", "0 25 * * *", "UTC")));
    let ended = lab.belljar(["schedule", "list"]).run();
    assert_eq!(ended.code(), 2);
    assert!(ended.out().contains("wrong  0 25 * * *  stopped"), "{}", ended.out());
    assert!(ended.err().contains("belljar.toml:7: `cron = \"0 25 * * *\"`: "), "{}", ended.err());
    for name in ["wrong", "missing"] {
        let ended = lab.belljar(["schedule", "resume", name]).run();
        assert_eq!((ended.code(), ended.out()), (2, String::new()), "{}", ended.err());
    }
    let ended = lab.belljar(["--config", "x.toml", "schedule", "list"]).run();
    assert_eq!(ended.code(), 2);
    assert!(ended.err().contains("omit --config"), "{}", ended.err());
}
