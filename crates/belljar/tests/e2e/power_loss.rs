//! Power failures: a run whose command has ended is on disk, with its record and its changes.
//!
//! The state directory is on a file system of its own, in an image file on an XFS file system. A copy of the
//! image that shares its blocks (`cp --reflink`) is made in one step, between two writes of the kernel to
//! the image. So the copy is the disk after a power failure at this moment: it has what the kernel had
//! written, and nothing of the page cache. Mounting the copy replays the journal, as after a reboot.
//! A disk that loses writes after it confirmed a flush is not simulated.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use belljar_testkit::{Lab, Live, Program, eventually, root_or_skip};
use serde_json::Value;

use crate::lab;

/// The number of power failures per file system.
const FAILURES: usize = 6;

/// A computer whose power can fail: mounts in a mount namespace that ends with this value.
struct Machine {
    lab: Lab,
    /// A process that keeps the mount namespace.
    keeper: Live,
}

impl Machine {
    /// Creates a disk with a file system made by `mkfs`, and mounts it.
    fn new(mkfs: &[&str]) -> Self {
        let lab = lab();
        let keeper = ["--mount", "--propagation", "private", "cat"];
        let keeper = lab.program("unshare").args(keeper).open_input().start();
        let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
        eventually("the mount namespace exists", || {
            let own = namespace("self");
            namespace(&keeper.pid().to_string()).is_some_and(|it| Some(it) != own)
        });
        let machine = Self { lab, keeper };
        for dir in [machine.images(), machine.disk()] {
            fs::create_dir(dir).unwrap();
        }
        let store = machine.lab.dir().join("store.img");
        fs::File::create(&store).and_then(|file| file.set_len(4 << 30)).unwrap();
        machine.lab.program("mkfs.xfs").args(["-q", "-m", "reflink=1"]).arg(&store).succeed();
        machine.mount(&store, &machine.images());
        let image = machine.image("disk");
        machine.on_host("truncate").args(["-s", "400M"]).arg(&image).succeed();
        machine.on_host(mkfs[0]).args(&mkfs[1..]).arg(&image).succeed();
        machine.mount(&image, &machine.disk());
        machine
    }

    /// Returns the directory of the images.
    fn images(&self) -> PathBuf {
        self.lab.dir().join("images")
    }

    fn image(&self, name: &str) -> PathBuf {
        self.images().join(format!("{name}.img"))
    }

    /// Returns the directory at which the disk is mounted.
    fn disk(&self) -> PathBuf {
        self.lab.dir().join("disk")
    }

    /// Returns a path of the disk as this process can open it, outside of the mount namespace.
    fn on_disk(&self, name: &str) -> PathBuf {
        let disk = self.disk();
        let disk = disk.strip_prefix("/").unwrap();
        PathBuf::from(format!("/proc/{}/root", self.keeper.pid())).join(disk).join(name)
    }

    /// Returns the words that start a program in the mount namespace.
    fn enter(&self) -> Vec<String> {
        let target = self.keeper.pid().to_string();
        let workspace = format!("--wdns={}", self.lab.workspace().display());
        ["nsenter", "--mount", "--target", &target, &workspace, "--"].map(str::to_owned).into()
    }

    /// Returns a program of the machine.
    fn on_host(&self, program: &str) -> Program {
        self.lab.program(program).through(self.enter())
    }

    /// Returns a `belljar` command whose state directory is on the disk.
    fn belljar(&self, args: &[&str]) -> Program {
        let state = self.disk().join("state");
        self.lab.belljar(args).env("BELLJAR_HOME", state).through(self.enter())
    }

    #[track_caller]
    fn mount(&self, image: &std::path::Path, at: &std::path::Path) {
        self.on_host("mount").args(["-o", "loop"]).arg(image).arg(at).succeed();
    }

    #[track_caller]
    fn unmount(&self) {
        self.on_host("umount").arg(self.disk()).succeed();
    }

    /// Copies the disk as it is now.
    #[track_caller]
    fn fail_power(&self, name: &str) {
        let (from, to) = (self.image("disk"), self.image(name));
        self.on_host("cp").arg("--reflink=always").arg(from).arg(to).succeed();
    }

    /// Returns the output of `belljar runs --all --json`, by the id of the run.
    #[track_caller]
    fn runs(&self) -> BTreeMap<String, Value> {
        let out = self.belljar(&["runs", "--all", "--json"]).succeed();
        let lines = out.lines().map(|line| serde_json::from_str(line).expect("an object"));
        lines.filter_map(|run: Value| Some((run["id"].as_str()?.to_owned(), run))).collect()
    }
}

/// Checks that the ended runs survive power failures that come right after their end.
fn ended_runs_survive(mkfs: &[&str]) {
    if !root_or_skip("only root can mount the disk whose power fails") {
        return;
    }
    let machine = Machine::new(mkfs);
    machine.lab.write("removed", "host");
    let mut ended = Vec::new();
    for number in 0..FAILURES {
        // Few changes are synced one by one, many changes by one sync of the file system.
        let files = if number % 2 == 0 { 1 } else { 20 };
        let script = format!(
            "mkdir dir; for n in $(seq {files}); do echo box-{number} > dir/made-$n; done; rm removed"
        );
        let run = ["run", "--json", "--", "bash", "-c", &script];
        let result = machine.belljar(&run).run().result();
        ended.push(result["run"].as_str().expect("an id").to_owned());
        fs::write(machine.on_disk(&format!("unsynced-{number}")), "unsynced").unwrap();
        // Another run starts, runs or has ended when the power fails.
        let other = machine.belljar(&["run", "--", "bash", "-c", "echo x > other; echo on; read"]);
        let other = other.open_input().start();
        let fail_power = || machine.fail_power(&number.to_string());
        match number % 3 {
            0 => fail_power(),
            1 => {
                other.wait_for_output("on");
                fail_power();
            }
            _ => {}
        }
        other.wait().expect(1); // `read` fails at the end of its input
        if number % 3 == 2 {
            fail_power();
        }
    }
    machine.unmount();
    let mut lost = 0;
    for number in 0..FAILURES {
        let image = machine.image(&number.to_string());
        machine.mount(&image, &machine.disk());
        let runs = machine.runs();
        for id in &ended[..=number] {
            let run = runs.get(id).unwrap_or_else(|| panic!("run {id} is lost: {runs:?}"));
            assert_eq!(run["state"], "finished", "failure {number}: {run}");
            assert_eq!(run["review"], "pending", "failure {number}: {run}");
        }
        let diff = machine.belljar(&["diff", &ended[number]]).succeed();
        assert!(diff.contains(&format!("+box-{number}")), "failure {number}: {diff}");
        assert!(diff.contains("dir/made-1") && diff.contains("removed"), "{diff}");
        let unsynced = fs::read_to_string(machine.on_disk(&format!("unsynced-{number}")));
        lost += usize::from(unsynced.is_ok_and(|text| text == "unsynced").eq(&false));
        machine.unmount();
    }
    assert!(lost > 0, "control: no power failure lost a file that was not synced");
}

#[test]
fn h12_ended_runs_survive_a_power_failure_on_ext4() {
    ended_runs_survive(&["mkfs.ext4", "-q", "-F"]);
}

#[test]
fn h12_ended_runs_survive_a_power_failure_on_xfs() {
    ended_runs_survive(&["mkfs.xfs", "-q"]);
}

#[test]
fn h12_ended_runs_survive_a_power_failure_on_btrfs() {
    ended_runs_survive(&["mkfs.btrfs", "-q"]);
}
