// What the command's exit code says, and which stream says the rest.
#include "tools/gradledger/exit_codes.h"

#include <cstdlib>

#include "tests/tools/command.h"
#include "verbs/session.h"

namespace gradledger::testing {
namespace {

TEST(exit_code, is_0_for_a_clean_replay_and_nothing_is_complained_of) {
  const Outcome outcome = run({"replay", clean_scenario});
  EXPECT_EQ(outcome.code, tool::clean);
  EXPECT_NE(outcome.out.find("\n\nclean: "), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.err, "");
}

TEST(exit_code, is_1_for_findings_which_are_no_complaint_either) {
  const Outcome outcome = run({"replay", leaking_scenario});
  EXPECT_EQ(outcome.code, tool::findings);
  EXPECT_NE(outcome.out.find("\n\nboundary-leak: "), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.err, "");
}

TEST(exit_code, is_2_for_a_command_line_that_is_not_right) {
  expect_complaint(run({"reply", clean_scenario}), tool::bad_input, "");
  expect_complaint(run({"replay"}), tool::bad_input, "FILE is required");
  expect_complaint(run({"gate"}), tool::bad_input, "PATH is required");
  expect_complaint(run({"list"}), tool::bad_input, "WHAT is required");
  expect_complaint(run({"list", "everything"}), tool::bad_input, "everything");
  expect_complaint(run({"replay", clean_scenario, "--sede", "1"}), tool::bad_input, "--sede");
  expect_complaint(run({"replay", clean_scenario, "--seed"}), tool::bad_input, "--seed");
  expect_complaint(run({"gate", clean_scenario, "--trace", "t"}), tool::bad_input, "--trace");
  expect_complaint(run({"replay", clean_scenario, "--producer", "cloud"}), tool::bad_input, "--producer");
  expect_complaint(run({"replay", clean_scenario, "--ranks", "cloud"}), tool::bad_input, "--ranks");
  expect_complaint(run({"replay", clean_scenario, "--deadline", "0"}), tool::bad_input, "--deadline");
  expect_complaint(run({"gate", clean_scenario, "--compare", "host"}), tool::bad_input, "--compare: \"host\" names no two producers; expected host,gpu");
  expect_complaint(run({"rank", "--rank", "0"}), tool::bad_input, "--address is required");
}

TEST(a_comparison_of_two_runs_of_the_host, exits_with_0_where_they_are_equal_and_with_2_where_nothing_can_be_compared) {
  const auto one = run({"replay", clean_scenario, "--compare", "host,host"});
  EXPECT_EQ(one.code, tool::clean);
  EXPECT_NE(one.out.find(": equal: "), std::string::npos) << one.out;
  const auto gate = run({"gate", clean_scenario, "--compare", "host,host"});
  EXPECT_EQ(gate.code, tool::clean);
  EXPECT_NE(gate.out.find("1 passed, 0 failed"), std::string::npos) << gate.out;
  const std::string racing = (testing::source_folder / "scenarios/streams/ping-pong-6993.json").string();
  EXPECT_EQ(run({"replay", racing, "--compare", "host,host"}).code, tool::findings);
  const auto nothing = run({"gate", racing, "--compare", "host,host"});
  EXPECT_EQ(nothing.code, tool::bad_input);
  EXPECT_NE(nothing.err.find("--compare: found nothing to compare"), std::string::npos) << nothing.err;
}

TEST(exit_code, is_2_for_a_number_that_is_none) {
  for (const char* seed : {"-1", "1e3", "0x10", "010", "1.5", "", " 1", "1 ", "18446744073709551616", "99999999999999999999999", "seven"})
    expect_complaint(run({"replay", clean_scenario, "--seed", seed}), tool::bad_input,
                     "--seed: \"" + std::string(seed) + "\" is no number here; expected a whole one from 0 to 18446744073709551615");
  for (const char* size : {"-5", "-5gb", "1.5gb", "", "gb", "99999999999tb", "99999999999999999999999999", "99999999999999999999999999kb", "1 furlong"})
    expect_complaint(run({"replay", clean_scenario, "--memory-limit", size}), tool::bad_input, "--memory-limit");
}

TEST(exit_code, is_2_for_a_scenario_that_is_not_right_and_the_place_is_named) {
  const TemporaryFolder folder;
  const std::string path = folder.write(
      "s.json",
      R"({"name": "s", "world_size": 0, "parameters": [{"name": "w", "numel": 4}], "engine": {"framework": "deepspeed", "config": {}}, "script": [{"backward": {}}, {"step": {}}]})");
  expect_complaint(run({"replay", path}), tool::bad_input, ": /world_size: is 0; expected an integer from 1 to 65536");
  folder.write("s.json", "{\"name\": \n oops}");
  expect_complaint(run({"replay", path}), tool::bad_input, path + ":2:2: is not JSON from here on");
}

TEST(exit_code, is_4_for_what_this_machine_does_not_have) {
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "this machine has a GPU, so nothing is missing";
  expect_complaint(run({"replay", clean_scenario, "--producer", "gpu"}), tool::unavailable, "--producer: \"gpu\" ");
  expect_complaint(run({"gate", clean_scenario, "--producer", "gpu"}), tool::unavailable, "--producer: \"gpu\" ");
  expect_complaint(run({"gate", clean_scenario, "--compare", "host,gpu"}), tool::unavailable, "--producer: \"gpu\" ");
  expect_complaint(run({"rank", "--rank", "0", "--address", "unix:/nowhere/door"}), tool::unavailable, "--producer: \"gpu\" ");
}

TEST(exit_code, is_4_for_a_scenario_that_needs_more_memory_than_it_may_have) {
  expect_complaint(run({"replay", clean_scenario, "--memory-limit", "1kb", "--executor", "numeric"}), tool::unavailable,
                   ": /parameters: need up to 55152 bytes to be judged; expected at most --memory-limit, 1024 bytes");
  EXPECT_EQ(run({"replay", clean_scenario, "--memory-limit", "55151", "--executor", "numeric"}).code, tool::unavailable);
  // The symbolic run keeps no element, and yet its programs.
  expect_complaint(run({"replay", clean_scenario, "--memory-limit", "20000"}), tool::unavailable, ": /script: makes programs on 4 ranks");
  const Outcome gated = run({"gate", clean_scenario, "--memory-limit", "20000"});
  EXPECT_EQ(gated.code, tool::unavailable);
  EXPECT_NE(gated.out.find("/script: makes programs on 4 ranks"), std::string::npos) << gated.out;
  EXPECT_EQ(run({"replay", clean_scenario, "--memory-limit", "16 MB"}).code, tool::clean);
}

TEST(exit_code, is_4_at_once_for_a_model_that_no_machine_holds) {
  const TemporaryFolder folder;
  const std::string path = folder.write("s.json", R"({"name": "s", "world_size": 128, "parameters": [{"name": "w", "numel": 1099511627776}],
    "engine": {"framework": "deepspeed", "config": {}}, "script": [{"backward": {"micro_batches": 8000}}, {"step": {}}]})");
  expect_complaint(run({"replay", path, "--executor", "numeric"}), tool::unavailable, "--memory-limit");
}

TEST(a_scenario, of_more_ranks_than_fit_one_process_is_not_available_to_the_gpu_producer_by_threads) {
  const TemporaryFolder folder;
  const auto of = [&](int world) {
    return folder.write("s.json", R"({"name": "s", "world_size": )" + std::to_string(world) + R"(, "parameters": [{"name": "w", "numel": 64}],
      "engine": {"framework": "deepspeed", "config": {}}, "script": [{"backward": {}}, {"step": {}}]})");
  };
  verbs::Options by_threads, by_processes, on_host;
  by_threads.producer = by_processes.producer = "gpu";
  by_processes.ranks = "processes";
  EXPECT_TRUE(verbs::load(of(16), by_threads));
  const std::string path = of(17);
  const auto refused = verbs::load(path, by_threads);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().unavailable);
  EXPECT_EQ(refused.error().text().substr(refused.error().text().find(": /") + 2),
            "/world_size: is 17, more ranks than fit one process; expected at most 16 with --ranks threads, or --ranks processes");
  by_threads.producer = "host";
  by_threads.compare = "host,gpu";
  EXPECT_FALSE(verbs::load(path, by_threads));
  EXPECT_TRUE(verbs::load(path, by_threads, verbs::Use::account)) << "a dry run has no devices";
  EXPECT_TRUE(verbs::load(path, by_processes));
  EXPECT_TRUE(verbs::load(path, on_host));
}

TEST(exit_code, of_several_files_is_the_worst_and_every_file_is_judged) {
  const TemporaryFolder folder;
  const std::string bad = folder.write("bad.json", "{}");
  const Outcome both = run({"replay", "--summary", clean_scenario, leaking_scenario});
  EXPECT_EQ(both.code, tool::findings);
  const Outcome all = run({"replay", "--summary", leaking_scenario, bad, clean_scenario});
  EXPECT_EQ(all.code, tool::bad_input);
  EXPECT_NE(all.out.find("boundary-leak: "), std::string::npos);
  EXPECT_NE(all.out.find("\nclean: "), std::string::npos);
  EXPECT_TRUE(all.err.starts_with("gradledger: " + bad + ": lacks \"name\"")) << all.err;
}

TEST(exit_code, is_0_for_help_on_standard_output) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"}, {"replay", "--help"}, {"gate", "-h"}, {"list", "-h"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, tool::clean);
    EXPECT_NE(outcome.out.find("Usage: "), std::string::npos);
    EXPECT_EQ(outcome.err, "");
  }
}

TEST(exit_code, meanings_are_in_the_help_and_in_a_list) {
  const std::string help = run({"--help"}).out, list = run({"list", "exit-codes"}).out;
  for (const tool::ExitCodeInfo& e : tool::exit_codes) {
    EXPECT_NE(help.find(e.meaning), std::string::npos) << e.meaning;
    EXPECT_NE(list.find(e.meaning), std::string::npos) << e.meaning;
  }
}

TEST(standard_streams, that_take_no_report_make_bad_input_of_any_verdict) {
  const std::string replay = "gradledger replay '" + clean_scenario + "'";
  EXPECT_EQ(shell(replay + " >/dev/full").code, tool::bad_input);
  EXPECT_TRUE(shell(replay + " >/dev/full").err.starts_with("gradledger: "));
  EXPECT_EQ(shell("gradledger list engines >/dev/full").code, tool::bad_input);
  EXPECT_EQ(shell("gradledger gate '" + clean_scenario + "' >/dev/full").code, tool::bad_input);
  EXPECT_EQ(shell(replay + " >&-").code, tool::bad_input);
}

TEST(standard_streams, that_take_no_complaint_change_no_exit_code) {
  EXPECT_EQ(shell("gradledger replay missing.json 2>&-").code, tool::bad_input);
  EXPECT_EQ(shell("gradledger replay missing.json 2>/dev/full").code, tool::bad_input);
  EXPECT_EQ(shell("gradledger list nothing <&- >&- 2>&-").code, tool::bad_input);
  EXPECT_EQ(shell("gradledger replay '" + clean_scenario + "' 2>&-").code, tool::clean);
  EXPECT_EQ(shell("gradledger replay '" + clean_scenario + "' >&- 2>&-").code, tool::bad_input);
}

TEST(standard_streams, that_are_closed_are_not_mixed_with_the_trace) {
  const TemporaryFolder folder;
  EXPECT_EQ(shell("gradledger replay '" + clean_scenario + "' --trace t.jsonl <&- >&-", folder.path()).code, tool::bad_input);
  const auto lines = testing::lines_of(testing::text_of(folder.path() / "t.jsonl"));
  ASSERT_GT(lines.size(), 10u);
  for (const std::string& line : lines) EXPECT_TRUE(testing::json_of(line).is_object());
}

// Runs a line on a terminal of its own and gives back what the terminal showed.
std::string on_a_terminal(const std::string& line) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  EXPECT_EQ(grantpt(terminal), 0);
  EXPECT_EQ(unlockpt(terminal), 0);
  const std::string name = ptsname(terminal);
  std::string command = "'" GRADLEDGER_COMMAND "' " + line + " >" + name;
  char shell_name[] = "/bin/sh", option[] = "-c";
  char* arguments[] = {shell_name, option, command.data(), nullptr};
  const int kept_open = open(name.c_str(), O_RDWR | O_NOCTTY);  // so that reading ends with the marker, not with an error
  pid_t child = 0;
  command += "; echo END >" + name;
  arguments[2] = command.data();
  EXPECT_EQ(posix_spawn(&child, shell_name, nullptr, nullptr, arguments, environ), 0);
  std::string shown;
  char buffer[4096];
  while (shown.find("END") == std::string::npos) {
    const ssize_t n = read(terminal, buffer, sizeof buffer);
    if (n <= 0) break;
    shown.append(buffer, static_cast<std::size_t>(n));
  }
  int status = 0;
  waitpid(child, &status, 0);
  close(kept_open);
  close(terminal);
  return shown;
}

TEST(colour, is_for_terminals_alone) {
  const std::string shown = on_a_terminal("replay --summary '" + leaking_scenario + "'");
  EXPECT_NE(shown.find("\x1b[31;1mboundary-leak: "), std::string::npos) << shown;
  EXPECT_EQ(run({"replay", leaking_scenario}).out.find('\x1b'), std::string::npos);
  EXPECT_EQ(run({"replay", clean_scenario}).out.find('\x1b'), std::string::npos);
  EXPECT_EQ(on_a_terminal("replay --json '" + leaking_scenario + "'").find('\x1b'), std::string::npos);
}

TEST(colour, never_comes_from_a_file) {
  const TemporaryFolder folder;
  testing::json document = testing::json_of(testing::text_of(clean_scenario));
  document.erase("twin_of");
  document["note"] = "a \x1b[31mred\x1b[0m note\nof two lines";
  const Outcome outcome = run({"replay", "--summary", folder.write("s.json", document.dump())});
  EXPECT_EQ(outcome.code, tool::clean);
  EXPECT_NE(outcome.out.find(R"(# a \x1b[31mred\x1b[0m note of two lines)"), std::string::npos) << outcome.out;
  document["unknown \x1b[31m key\n"] = 1;
  expect_complaint(run({"replay", folder.write("s.json", document.dump())}), tool::bad_input, R"(/unknown \x1b[31m key\x0a: is not a key)");
}

}  // namespace
}  // namespace gradledger::testing
