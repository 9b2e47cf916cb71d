"""Every fault that a test injects, by its row, one line each (`make faults`). Status 1 if one of them does harm.

A test here belongs to the suite too; this table says which faults there are, and that none was forgotten.
"""

import contextlib
import io
import sys
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).parent

ROWS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # Storage and process.
    (
        "A1",
        "all processes are killed under load",
        (
            "test_durability::test_no_kill_takes_an_acknowledged_write_away",
            "test_durability::test_that_check_would_see_what_is_missing",
            "test_linearizability::test_a_write_lost_by_a_kill_is_found",
        ),
    ),
    (
        "A2",
        "the power fails",
        (
            "test_powerloss::test_acknowledged_writes_survive",
            "test_powerloss::test_a_lower_setting_would_lose_writes",
        ),
    ),
    (
        "A3",
        "killed at a system call, in a start too",
        (
            "test_crash::test_a_service_killed_while_it_writes_loses_nothing",
            "test_crash::test_a_killed_first_start_can_be_repeated",
        ),
    ),
    (
        "A4",
        "a sync fails",
        (
            "test_disk::test_after_an_error_of_the_disk_the_process_says_so_and_ends",
            "test_disk::test_a_worker_whose_disk_failed_is_replaced",
        ),
    ),
    (
        "A4r",
        "a page cannot be read",
        ("test_damage::test_a_page_that_cannot_be_read_ends_the_process_and_answers_nothing_wrong",),
    ),
    (
        "A5",
        "the disk is full, and then is not",
        (
            "test_disk::test_a_full_disk_refuses_writes_and_nothing_else_until_it_has_space",
            "test_disk::test_the_last_pages_of_a_disk_are_used_without_a_wrong_answer",
            "test_disk::test_the_index_of_the_log_may_find_no_space",
        ),
    ),
    (
        "A6",
        "locked, full, read-only, limited, unsynced, unreadable or corrupted, for each method",
        ("test_collection_failures::test_what_is_wrong_below_is_said_and_leaves_nothing_behind",),
    ),
    (
        "A7",
        "a file, folder or disk that may not be written",
        (
            "test_sqlite_schema::test_a_database_that_may_not_be_written_is_refused",
            "test_sqlite_schema::test_a_read_only_disk_is_refused",
            "test_service::test_a_folder_that_cannot_be_written_is_said",
        ),
    ),
    ("A8", "a damaged file at a start", ("test_sqlite_schema::test_what_is_no_good_database_is_refused_untouched",)),
    (
        "A8r",
        "a damaged page is read",
        (
            "test_damage::test_a_damaged_page_is_answered_with_503_and_the_others_are_read",
            "test_damage::test_a_list_over_a_damaged_page_does_not_look_whole",
            "test_disk::test_once_a_damaged_page_was_met_nothing_more_is_acknowledged",
        ),
    ),
    (
        "A9",
        "the file or its log is deleted or replaced while running",
        (
            "test_place::test_the_process_says_so_and_ends",
            "test_place::test_no_write_is_acknowledged_from_then_on",
            "test_place::test_that_would_be_seen",
            "test_place::test_its_successor_refuses_with_the_way_out",
            "test_place::test_a_supervisor_starts_no_worker_on_a_new_database",
        ),
    ),
    (
        "A12",
        "another process holds the lock",
        ("test_database_locked::test_while_another_process_writes_reads_go_on_and_writes_are_refused",),
    ),
    (
        "A14",
        "a slow reader of a list while stores change",
        ("test_long_lists::test_a_list_that_streams_while_stores_change_is_one_snapshot",),
    ),
    (
        "A15",
        "a disk that takes long to sync, and three times what it can take",
        (
            "test_damage::test_a_disk_that_takes_long_to_sync_keeps_no_read_waiting",
            "test_overload::test_the_excess_is_refused_before_what_is_accepted_is_done",
            "test_overload::test_that_would_be_seen",
            "test_overload::test_three_times_what_the_disk_can_take_is_survived",
        ),
    ),
    (
        "A17c",
        "the clock jumps by days",
        (
            "test_standstill::test_a_clock_that_jumps_ends_no_wait_and_breaks_no_order",
            "test_standstill::test_a_clock_that_jumps_would_be_seen",
        ),
    ),
    (
        "A17s",
        "a process is stopped, and goes on",
        (
            "test_standstill::test_what_came_while_the_process_stood_still_is_read_before_it_is_late",
            "test_standstill::test_after_a_standstill_deadlines_are_held_half_a_second_later",
            "test_standstill::test_while_a_worker_stands_still_the_others_serve_and_afterwards_it_does_too",
            "test_standstill::test_a_worker_that_stands_still_for_long_is_replaced",
        ),
    ),
    (
        "A19",
        "no file descriptor is left",
        (
            "test_crowd::test_a_crowd_of_silent_clients_keeps_nobody_out",
            "test_crowd::test_without_a_file_left_established_connections_are_answered_all_the_same",
        ),
    ),
    ("A20", "a copy beside writers, and killed", ("test_crash::test_a_copy_under_load_is_a_state_that_was",)),
    (
        "A21",
        "a migration or an import is killed",
        (
            "test_crash::test_a_killed_migration_can_be_repeated",
            "test_crash::test_a_killed_import_leaves_all_or_nothing",
            "test_sqlite_schema::test_a_crash_in_the_middle_of_a_migration_leaves_the_old_version",
        ),
    ),
    ("A22", "the writer dies", ("test_damage::test_a_writer_that_dies_leaves_nobody_waiting",)),
    # Shutdown and restart.
    (
        "B1",
        "SIGTERM with requests under way",
        (
            "test_service::test_writes_under_way_are_answered",
            "test_service::test_a_list_under_way_is_sent_to_its_end",
            "test_service::test_a_request_that_was_half_there_is_still_answered",
        ),
    ),
    ("B2", "SIGTERM with stuck clients", ("test_service::test_clients_that_are_stuck_do_not_keep_it_from_stopping",)),
    (
        "B3",
        "a second signal, one during the start, SIGHUP",
        (
            "test_service::test_a_second_signal_does_no_harm",
            "test_service::test_a_signal_that_comes_early_stops_it_too",
            "test_standstill::test_a_terminal_that_closes_stops_it_as_it_should",
            "test_standstill::test_several_workers_are_replaced_one_after_another_at_sighup",
        ),
    ),
    (
        "B4",
        "a worker is killed",
        (
            "test_workers::test_a_worker_that_is_killed_is_replaced",
            "test_crash::test_a_killed_worker_is_replaced",
        ),
    ),
    (
        "B5",
        "the supervisor is killed",
        (
            "test_workers::test_a_supervisor_that_is_killed_leaves_no_worker_behind",
            "test_crash::test_nothing_is_left_of_a_service_whose_supervisor_was_killed",
        ),
    ),
    (
        "B6",
        "the port is in use, the address is not ours, a setting is bad",
        (
            "test_service::test_a_port_in_use_is_said",
            "test_service::test_an_address_that_is_not_ours_is_said",
            "test_service::test_a_bad_option_is_said",
        ),
    ),
    # Clients.
    ("C1", "idle connections, more than may be", ("test_load", "test_crowd")),
    (
        "C2-C4",
        "slow heads, bodies and readers",
        (
            "test_patience::test_a_request_that_is_not_whole_in_time_is_refused",
            "test_patience::test_a_client_that_reads_nothing_is_dropped_and_one_that_reads_slowly_is_not",
            "test_patience::test_the_deadlines_hold_on_a_real_connection",
        ),
    ),
    (
        "C6-C8",
        "bodies, chunks, heads and targets beyond the limits",
        (
            "test_limits::test_a_request_over_a_limit_is_refused",
            "test_limits::test_a_client_in_the_middle_of_50_megabytes_sees_the_413_and_no_reset",
            "test_limits::test_chunks_are_refused_as_soon_as_they_are_too_much",
        ),
    ),
    (
        "C10",
        "garbage behind a write",
        ("test_connection_edges::test_garbage_behind_a_write_does_not_take_its_answer_away",),
    ),
    (
        "C11",
        "a client that asks for more than it reads",
        (
            "test_resources::test_a_client_that_does_not_read_thousands_of_answers_costs_little_and_then_gets_them_in_order",
        ),
    ),
    (
        "C12-C15",
        "what is not HTTP/1.x, smuggling, bad hosts and versions",
        ("test_refusals::test_it_is_refused_once_and_changes_nothing",),
    ),
    (
        "C20",
        "an offer of h2c",
        ("test_connection_edges::test_an_upgrade_is_ignored_and_the_request_is_answered_with_its_body",),
    ),
    (
        "C21",
        "clients that disappear, in mid-write too",
        (
            "test_resources::test_clients_that_reset_in_the_middle_leave_nothing_behind",
            "test_patience::test_a_client_that_goes_away_in_the_middle_leaves_nothing_behind",
        ),
    ),
    # PostgreSQL.
    (
        "E1",
        "the database is killed under load",
        (
            "test_postgres_failures::test_the_database_is_killed_and_restarted_under_load",
            "test_postgres_histories::test_histories_are_linearizable_across_a_kill_of_the_database",
        ),
    ),
    ("E2", "its connections are ended", ("test_postgres_failures::test_connections_are_ended_under_load",)),
    (
        "E3",
        "a standby takes over",
        (
            "test_postgres_failures::test_a_synchronous_standby_takes_over_under_load",
            "test_postgres_histories::test_histories_are_linearizable_across_a_failover",
        ),
    ),
    (
        "E4",
        "the standby is gone",
        (
            "test_postgres_failures::test_a_commit_that_no_standby_confirms_is_not_acknowledged",
            "test_postgres_failures::test_a_wait_for_the_standby_that_is_cancelled_is_no_success",
        ),
    ),
    (
        "E7",
        "it does not answer",
        ("test_postgres_failures::test_a_database_that_does_not_answer_keeps_nobody_waiting",),
    ),
    (
        "E8",
        "it lets in few, or takes no writes",
        (
            "test_postgres_failures::test_a_server_that_lets_in_few_connections_is_made_do_with",
            "test_postgres_failures::test_a_database_that_takes_no_writes_is_still_read",
        ),
    ),
    ("E9", "many first starts at once", ("test_postgres::test_ten_that_start_at_once_make_one_schema",)),
    (
        "E10",
        "two instances on one database",
        ("test_postgres_histories::test_histories_over_two_instances_are_linearizable",),
    ),
)


class Report:
    """Counts, for pytest, what became of the tests of each row."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Counter[str]] = {row: Counter() for row, _, _ in ROWS}
        self.seconds = dict.fromkeys(self.outcomes, 0.0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count."""
        name = report.nodeid.partition("[")[0].rpartition("/")[2].replace(".py", "")
        for row, _, tests in ROWS:
            if name in tests or name.partition("::")[0] in tests:
                self.outcomes[row][report.outcome] += report.when == "call" or report.outcome != "passed"
                self.seconds[row] += report.duration


def main() -> int:
    """Run the tests of every row, or of those that are named, and print a line for each; then what failed."""
    chosen = [row for row in ROWS if row[0] in (sys.argv[1:] or row)]
    tests = {test for _, _, tests in chosen for test in tests}
    files = {test for test in tests if "::" not in test}
    parts = [test.partition("::") for test in sorted(tests) if test in files or test.partition("::")[0] not in files]
    report, said = Report(), io.StringIO()
    with contextlib.redirect_stdout(said):
        arguments = [f"{HERE}/{file}.py{separator}{name}" for file, separator, name in parts]
        # A test that is not there ends it with a status of its own.
        status = pytest.main([*arguments, "-m", "", "--tb=short", "--numprocesses=auto"], plugins=[report])
    for row, fault, _ in chosen:
        figures = "".join(f" {outcome}={count}" for outcome, count in sorted(report.outcomes[row].items()) if count)
        print(f"{row:8}{fault}:{figures or ' nothing'} seconds={report.seconds[row]:.1f}")
    if status:
        print(said.getvalue())
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
