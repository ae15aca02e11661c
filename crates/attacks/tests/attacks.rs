//! One test per row of `docs/threat-model.md`, against the binary of this build.
//!
//! `BELLJAR_BIN` names another binary. As root and as a plain user the same rows run, since a box is built
//! in different ways for the two.

#[cfg(test)]
mod attacks {
    use std::path::PathBuf;

    use belljar_attacks::{ATTACKS, Lab, Verdict};
    use belljar_testkit::{is_root, skip};

    /// How the reason of a skip begins that is about one control; `xtask/src/skips.rs` knows it.
    const NO_CONTROL: &str = "without a control as a plain user: ";

    /// Rows of which a part remains a risk, as `docs/threat-model.md` says.
    const RESIDUAL: [&str; 3] = ["D21", "H03", "H13"];

    /// The binary of this build lies beside the directory of the test executables.
    #[expect(
        clippy::disallowed_methods,
        reason = "a test is told by its runner which binary to use"
    )]
    fn belljar() -> PathBuf {
        let given = std::env::var_os("BELLJAR_BIN");
        let built = || {
            let test = std::env::current_exe().expect("the test knows its own path");
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

    #[track_caller]
    fn check(id: &str) {
        let attack =
            ATTACKS.iter().find(|attack| attack.id == id).expect("the row is in the table");
        let lab = Lab::new(&belljar(), &std::env::temp_dir()).expect("a lab");
        let verdict = attack.run(&lab);
        println!("{id}: {verdict:?}");
        match verdict {
            Verdict::Held { checks, unproven, .. } => {
                assert!(checks > 0, "{id}: nothing was checked");
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
    fn rows_are_unique_and_in_order() {
        assert!(ATTACKS.windows(2).all(|pair| pair[0].id < pair[1].id));
    }

    #[test]
    fn a02_no_rule_means_no_network() {
        check("A02");
    }

    #[test]
    fn a18_every_other_socket_is_refused() {
        check("A18");
    }

    #[test]
    fn a19_proxy_variables_decide_nothing() {
        check("A19");
    }

    #[test]
    fn b16_a_secret_leaves_no_trace() {
        check("B16");
    }

    #[test]
    fn b17_no_environment_is_read_through_proc() {
        check("B17");
    }

    #[test]
    fn c01_agent_settings_are_held_back() {
        check("C01");
    }

    #[test]
    fn c02_git_hooks_are_held_back() {
        check("C02");
    }

    #[test]
    fn c03_belljar_never_fires_git_settings() {
        check("C03");
    }

    #[test]
    fn c04_hidden_parts_of_git_are_held_back() {
        check("C04");
    }

    #[test]
    fn c05_a_bare_repository_is_held_back() {
        check("C05");
    }

    #[test]
    fn c06_files_that_tools_execute_are_held_back() {
        check("C06");
    }

    #[test]
    fn c07_replaced_tools_are_held_back() {
        check("C07");
    }

    #[test]
    fn c08_a_project_file_cannot_loosen_the_box() {
        check("C08");
    }

    #[test]
    fn c09_no_flag_turns_the_box_off() {
        check("C09");
    }

    #[test]
    fn c10_links_are_not_followed_out() {
        check("C10");
    }

    #[test]
    fn c11_apply_wins_no_race_for_the_attacker() {
        check("C11");
    }

    #[test]
    fn c12_the_working_directory_grants_nothing() {
        check("C12");
    }

    #[test]
    fn c13_links_do_not_redirect_mounts() {
        check("C13");
    }

    #[test]
    fn c14_devices_are_ours() {
        check("C14");
    }

    #[test]
    fn c15_inherited_descriptors_are_closed() {
        check("C15");
    }

    #[test]
    fn c16_the_runtime_cannot_be_overwritten() {
        check("C16");
    }

    #[test]
    fn c17_protected_files_have_no_second_name() {
        check("C17");
    }

    #[test]
    fn c18_odd_names_are_not_missed() {
        check("C18");
    }

    #[test]
    fn c19_every_program_is_refused_alike() {
        check("C19");
    }

    #[test]
    fn c20_the_policy_cannot_be_swapped() {
        check("C20");
    }

    #[test]
    fn c21_our_own_install_is_not_writable() {
        check("C21");
    }

    #[test]
    fn c22_set_user_id_means_nothing() {
        check("C22");
    }

    #[test]
    fn c23_strange_files_are_survived() {
        check("C23");
    }

    #[test]
    fn c24_no_file_is_opened_by_handle() {
        check("C24");
    }

    #[test]
    fn c25_kernel_knobs_are_out_of_reach() {
        check("C25");
    }

    #[test]
    fn c26_the_state_directory_is_never_mounted() {
        check("C26");
    }

    #[test]
    fn c27_runs_share_nothing() {
        check("C27");
    }

    #[test]
    fn d01_io_uring_is_refused() {
        check("D01");
    }

    #[test]
    fn d02_other_call_tables_kill() {
        check("D02");
    }

    #[test]
    fn d03_no_keys_are_pushed_into_a_terminal() {
        check("D03");
    }

    #[test]
    fn d04_no_namespace_is_made() {
        check("D04");
    }

    #[test]
    fn d05_nothing_is_mounted_in_a_nested_namespace() {
        check("D05");
    }

    #[test]
    fn d06_no_path_socket_is_reached() {
        check("D06");
    }

    #[test]
    fn d07_no_abstract_socket_is_reached() {
        check("D07");
    }

    #[test]
    fn d08_no_descriptor_is_handed_in() {
        check("D08");
    }

    #[test]
    fn d09_no_process_is_read_or_robbed() {
        check("D09");
    }

    #[test]
    fn d10_nobody_judges_calls_later() {
        check("D10");
    }

    #[test]
    fn d11_a_stopped_supervisor_changes_nothing() {
        check("D11");
    }

    #[test]
    fn d12_opens_cost_the_supervisor_nothing() {
        check("D12");
    }

    #[test]
    fn d13_a_program_is_confined_by_any_name() {
        check("D13");
    }

    #[test]
    fn d14_layers_are_told_and_true() {
        check("D14");
    }

    #[test]
    fn d15_dangerous_calls_are_refused() {
        check("D15");
    }

    #[test]
    fn d16_bombs_hurt_only_their_box() {
        check("D16");
    }

    #[test]
    fn d17_nothing_outlives_the_box() {
        check("D17");
    }

    #[test]
    fn d18_output_is_bounded_and_not_believed() {
        check("D18");
    }

    #[test]
    fn d19_nothing_is_shared_with_the_host() {
        check("D19");
    }

    #[test]
    fn d20_signals_stay_inside() {
        check("D20");
    }

    #[test]
    fn d21_the_doors_of_known_exploits_are_shut() {
        check("D21");
    }

    #[test]
    fn d22_the_host_side_does_not_fall_over() {
        check("D22");
    }

    #[test]
    fn f13_escapes_are_not_printed() {
        check("F13");
    }

    #[test]
    fn f15_words_and_variables_do_not_steer() {
        check("F15");
    }

    #[test]
    fn h01_a_cut_record_is_found() {
        check("H01");
    }

    #[test]
    fn h02_a_missing_record_is_found() {
        check("H02");
    }

    #[test]
    fn h03_a_forged_record_is_found_from_elsewhere() {
        check("H03");
    }

    #[test]
    fn h04_one_ledger_for_all_who_write() {
        check("H04");
    }

    #[test]
    fn h05_a_cut_record_is_not_continued() {
        check("H05");
    }

    #[test]
    fn h06_honest_records_raise_no_alarm() {
        check("H06");
    }

    #[test]
    fn h07_nothing_said_becomes_an_event() {
        check("H07");
    }

    #[test]
    fn h08_names_of_bodies_lead_nowhere_else() {
        check("H08");
    }

    #[test]
    fn h09_secrets_stay_out_or_can_be_taken_out() {
        check("H09");
    }

    #[test]
    fn h10_no_box_writes_the_record() {
        check("H10");
    }

    #[test]
    fn h11_a_killed_run_needs_attention() {
        check("H11");
    }

    #[test]
    fn h12_damage_is_found_and_stops_runs() {
        check("H12");
    }

    #[test]
    fn h13_clocks_decide_no_order() {
        check("H13");
    }

    #[test]
    fn h17_bodies_are_shared_within_a_policy_and_checked() {
        check("H17");
    }
}
