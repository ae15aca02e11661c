//! Runs every attack of `docs/threat-model.md` against the binary of this build, one test per attack.
//!
//! `BELLJAR_BIN` selects another binary. The same tests run as root and as a plain user, because the two
//! build boxes in different ways.

#[cfg(test)]
mod attacks {
    use std::path::PathBuf;

    use belljar_attacks::{ATTACKS, Lab, Verdict};
    use belljar_testkit::{is_root, skip};

    /// The prefix of the skip reason for a control that could not run; the same text as in
    /// `xtask/src/skips.rs`.
    const NO_CONTROL: &str = "without a control as a plain user: ";

    /// The attacks that leave a known risk according to `docs/threat-model.md`.
    const RESIDUAL: [&str; 3] = ["D21", "H03", "H13"];

    /// Returns the path of the `belljar` binary of this build, next to the test executables.
    #[expect(clippy::disallowed_methods, reason = "the test runner selects the binary")]
    fn belljar() -> PathBuf {
        let given = std::env::var_os("BELLJAR_BIN");
        let built = || {
            let test = std::env::current_exe().expect("the path of the test executable is known");
            let profile =
                test.parent().and_then(|deps| deps.parent()).expect("target/PROFILE/deps");
            profile.join("belljar")
        };
        let path = given.map_or_else(built, PathBuf::from);
        assert!(
            path.exists(),
            "{} is missing: build it with `cargo build` or set BELLJAR_BIN",
            path.display()
        );
        path
    }

    /// Runs one attack and requires that the box withstands it.
    #[track_caller]
    fn check(id: &str) {
        let attack =
            ATTACKS.iter().find(|attack| attack.id == id).expect("the attack is in the table");
        let lab = Lab::new(&belljar(), &std::env::temp_dir()).expect("the lab can be created");
        let verdict = attack.run(&lab);
        println!("{id}: {verdict:?}");
        match verdict {
            Verdict::Held { checks, unproven, .. } => {
                assert!(checks > 0, "{id}: the attack made no checks");
                assert!(unproven.is_empty() || !is_root(), "{id}: {unproven:?}");
                for what in unproven {
                    skip(&format!("{NO_CONTROL}{what}"));
                }
            }
            Verdict::Residual { .. } => assert!(RESIDUAL.contains(&id), "{id}: {verdict:?}"),
            Verdict::NotHere { why } => skip(&why),
            Verdict::Broken { .. } | Verdict::ControlFailed { .. } => {
                panic!("{id} {}: {verdict:?}", attack.title)
            }
        }
    }

    #[test]
    fn attack_ids_are_unique_and_sorted() {
        assert!(ATTACKS.windows(2).all(|pair| pair[0].id < pair[1].id));
    }

    #[test]
    fn a02_box_without_network_rules_has_no_network() {
        check("A02");
    }

    #[test]
    fn a18_box_can_create_only_unix_tcp_and_udp_sockets() {
        check("A18");
    }

    #[test]
    fn a19_proxy_variables_do_not_open_the_network_of_a_box() {
        check("A19");
    }

    #[test]
    fn b16_secret_of_the_operator_leaves_no_trace_after_a_run() {
        check("B16");
    }

    #[test]
    fn b17_environment_of_other_processes_is_unreadable_through_proc() {
        check("B17");
    }

    #[test]
    fn c01_apply_holds_back_agent_settings() {
        check("C01");
    }

    #[test]
    fn c02_apply_holds_back_git_hooks() {
        check("C02");
    }

    #[test]
    fn c03_belljar_never_runs_programs_of_git_settings() {
        check("C03");
    }

    #[test]
    fn c04_apply_holds_back_internal_git_files() {
        check("C04");
    }

    #[test]
    fn c05_apply_holds_back_a_planted_bare_repository() {
        check("C05");
    }

    #[test]
    fn c06_apply_holds_back_files_that_tools_execute() {
        check("C06");
    }

    #[test]
    fn c07_apply_holds_back_replaced_tools() {
        check("C07");
    }

    #[test]
    fn c08_project_file_cannot_weaken_the_box() {
        check("C08");
    }

    #[test]
    fn c09_no_command_line_flag_disables_the_isolation_of_a_box() {
        check("C09");
    }

    #[test]
    fn c10_symbolic_links_out_of_the_workspace_are_not_followed() {
        check("C10");
    }

    #[test]
    fn c11_apply_does_not_follow_a_directory_swapped_for_a_symbolic_link() {
        check("C11");
    }

    #[test]
    fn c12_writable_directories_do_not_depend_on_the_working_directory() {
        check("C12");
    }

    #[test]
    fn c13_links_in_a_rootfs_do_not_redirect_mounts() {
        check("C13");
    }

    #[test]
    fn c14_rootfs_cannot_replace_devices_by_links() {
        check("C14");
    }

    #[test]
    fn c15_descriptors_that_belljar_inherits_do_not_reach_a_box() {
        check("C15");
    }

    #[test]
    fn c16_belljar_program_cannot_be_overwritten_from_a_box() {
        check("C16");
    }

    #[test]
    fn c17_links_and_renames_cannot_change_protected_files() {
        check("C17");
    }

    #[test]
    fn c18_apply_holds_back_unusual_names() {
        check("C18");
    }

    #[test]
    fn c19_box_cannot_read_a_secret_file_outside_its_mounts() {
        check("C19");
    }

    #[test]
    fn c20_box_cannot_replace_its_policy_file() {
        check("C20");
    }

    #[test]
    fn c21_belljar_in_the_workspace_cannot_be_replaced() {
        check("C21");
    }

    #[test]
    fn c22_box_cannot_create_or_use_set_user_id_files_and_devices() {
        check("C22");
    }

    #[test]
    fn c23_diff_and_apply_handle_huge_and_special_files() {
        check("C23");
    }

    #[test]
    fn c24_box_cannot_open_files_by_handle() {
        check("C24");
    }

    #[test]
    fn c25_box_cannot_access_kernel_settings_in_proc_and_sys() {
        check("C25");
    }

    #[test]
    fn c26_state_directory_of_belljar_cannot_be_mounted_in_a_box() {
        check("C26");
    }

    #[test]
    fn c27_run_finds_no_files_of_an_earlier_run() {
        check("C27");
    }

    #[test]
    fn d01_box_cannot_use_io_uring() {
        check("D01");
    }

    #[test]
    fn d02_32_bit_and_x32_system_calls_kill_the_process() {
        check("D02");
    }

    #[test]
    fn d03_box_cannot_inject_terminal_input() {
        check("D03");
    }

    #[test]
    fn d04_box_cannot_create_namespaces() {
        check("D04");
    }

    #[test]
    fn d05_box_cannot_mount_in_a_nested_user_namespace() {
        check("D05");
    }

    #[test]
    fn d06_box_cannot_connect_to_unix_sockets_of_the_host() {
        check("D06");
    }

    #[test]
    fn d07_box_cannot_connect_to_abstract_sockets_of_the_host() {
        check("D07");
    }

    #[test]
    fn d08_box_cannot_receive_descriptors_of_the_host() {
        check("D08");
    }

    #[test]
    fn d09_box_cannot_access_memory_or_descriptors_of_other_processes() {
        check("D09");
    }

    #[test]
    fn d10_system_calls_of_a_box_are_filtered_by_the_kernel_alone() {
        check("D10");
    }

    #[test]
    fn d11_system_calls_are_refused_while_the_supervisor_is_stopped() {
        check("D11");
    }

    #[test]
    fn d12_files_opened_in_a_box_use_no_supervisor_descriptors() {
        check("D12");
    }

    #[test]
    fn d13_seccomp_filter_applies_to_copied_programs_and_programs_in_memory() {
        check("D13");
    }

    #[test]
    fn d14_reported_isolation_layers_match_the_enforced_layers() {
        check("D14");
    }

    #[test]
    fn d15_dangerous_system_calls_of_a_box_are_refused() {
        check("D15");
    }

    #[test]
    fn d16_resource_bomb_affects_only_its_own_box() {
        check("D16");
    }

    #[test]
    fn d17_no_process_outlives_its_box() {
        check("D17");
    }

    #[test]
    fn d18_output_of_a_box_is_limited_and_cannot_forge_results() {
        check("D18");
    }

    #[test]
    fn d19_box_shares_no_ipc_name_or_clock_with_the_host() {
        check("D19");
    }

    #[test]
    fn d20_signals_of_a_box_stay_in_the_box() {
        check("D20");
    }

    #[test]
    fn d21_system_calls_of_known_exploits_are_refused() {
        check("D21");
    }

    #[test]
    fn d22_hostile_output_and_files_do_not_crash_belljar() {
        check("D22");
    }

    #[test]
    fn f13_commands_do_not_print_escape_sequences_from_names_or_contents() {
        check("F13");
    }

    #[test]
    fn f15_arguments_and_variables_are_passed_literally_without_a_shell() {
        check("F15");
    }

    #[test]
    fn h01_truncated_ledger_is_detected() {
        check("H01");
    }

    #[test]
    fn h02_missing_parts_of_a_ledger_are_detected() {
        check("H02");
    }

    #[test]
    fn h03_forged_ledger_is_detected_with_an_external_checkpoint() {
        check("H03");
    }

    #[test]
    fn h04_parallel_runs_share_one_ledger_and_a_fork_is_detected() {
        check("H04");
    }

    #[test]
    fn h05_belljar_does_not_append_to_a_truncated_ledger() {
        check("H05");
    }

    #[test]
    fn h06_verify_raises_no_false_alarm_during_writes() {
        check("H06");
    }

    #[test]
    fn h07_output_and_arguments_cannot_forge_events() {
        check("H07");
    }

    #[test]
    fn h08_names_of_recorded_contents_cannot_lead_to_other_files() {
        check("H08");
    }

    #[test]
    fn h09_secrets_stay_out_of_the_ledger_or_can_be_redacted() {
        check("H09");
    }

    #[test]
    fn h10_box_cannot_access_the_ledger() {
        check("H10");
    }

    #[test]
    fn h11_killed_run_is_reported_as_needing_attention() {
        check("H11");
    }

    #[test]
    fn h12_damaged_ledger_is_detected_and_blocks_runs() {
        check("H12");
    }

    #[test]
    fn h13_event_order_does_not_depend_on_clocks() {
        check("H13");
    }

    #[test]
    fn h17_recorded_contents_are_shared_only_within_a_policy_and_verified_when_read() {
        check("H17");
    }
}
