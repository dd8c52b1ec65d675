// Drivers in C++, by the command itself: verdicts, and what becomes of programs that fail.
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/library/runtime.h"

namespace library_test {
namespace {

struct Ended {
  int code = -1;
  std::string text;  // of both outputs
};

Ended run_shell(const std::string& command) {
  Ended out;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return out;
  char buffer[4096];
  for (std::size_t n = fread(buffer, 1, sizeof(buffer), pipe); n > 0; n = fread(buffer, 1, sizeof(buffer), pipe)) out.text.append(buffer, n);
  const int status = pclose(pipe);
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return out;
}

// The tests' own one is in a namespace that the public headers have another of.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "gradledger-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

class a_driver_in_cpp : public ::testing::Test {
 protected:
  a_driver_in_cpp() { std::ofstream(file()) << averaging(R"("engine": {"framework": "external", "config": {}}, "contract": {"divide_by": 4}, "expect": {"findings": []})"); }

  std::string file() const { return (folder_.path() / "averaging.json").string(); }
  // What the command says of the runtime with a defect, run by `program`.
  Ended judged(Defect defect, const std::string& verb = "replay", const std::string& more = "", const std::string& program = GRADLEDGER_CPP_DRIVER) const {
    return run_shell("LIBRARY_TEST_DEFECT=" + std::to_string(static_cast<int>(defect)) + " " GRADLEDGER_COMMAND " " + verb + " " + file() + " --producer program:" + program +
                     (more.find("--deadline") == more.npos ? " --deadline 20" : "") + more);
  }
  std::string script(const std::string& lines) const {
    const std::filesystem::path path = folder_.path() / "program";
    std::ofstream(path) << "#!/bin/sh\n" << lines << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path.string();
  }

  Folder folder_;
};

void expect_says(const Ended& ended, int code, const std::string& what) {
  EXPECT_EQ(ended.code, code) << ended.text;
  EXPECT_NE(ended.text.find(what), std::string::npos) << ended.text;
}

TEST_F(a_driver_in_cpp, that_is_right_is_clean) {
  expect_says(judged(Defect::none), 0, "averaging: clean");
  expect_says(judged(Defect::none, "gate"), 0, "averaging");
}

TEST_F(a_driver_in_cpp, is_judged_as_it_is_in_one_process) {
  expect_says(judged(Defect::last_stays_local), 1, "missing-reduction: in step 0, rank 0, applied[0] (w0[0:6]), no average over ranks was taken of micro-batch 3 of ranks 0-1");
  expect_says(judged(Defect::forgets_the_first, "gate"), 1, "discarded-gradient");
}

TEST_F(a_driver_in_cpp, whose_wrapper_throws_is_reported_with_what_it_said) {
  const Ended ended = judged(Defect::raises);
  expect_says(ended, 1, "engine-error");
  expect_says(ended, 1, "rank 1 raises std::out_of_range (no such bucket) at event 1");
}

TEST_F(a_driver_in_cpp, whose_ranks_make_calls_that_do_not_fit_is_reported_with_their_places) {
  const Ended ended = judged(Defect::calls_less);
  expect_says(ended, 1, "collective-mismatch");
  expect_says(ended, 1, "runtime.h:");
}

TEST_F(a_driver_in_cpp, whose_rank_ends_is_reported_with_the_rank) { expect_says(judged(Defect::ends), 5, "rank 1 was ended by signal 6"); }

TEST_F(a_driver_in_cpp, that_is_silent_is_given_up) { expect_says(judged(Defect::is_silent, "replay", " --deadline 1"), 5, "did not answer within 1 s"); }

TEST_F(a_driver_in_cpp, that_has_nothing_for_an_event_is_not_run) {
  std::ofstream(file()) << averaging(R"("engine": {"framework": "external", "config": {}})",
                                     R"({"no_sync": [{"backward": {}}]}, {"backward": {"micro_batches": 3}}, {"step": {}})");
  expect_says(judged(Defect::none), 4, "driver runtime cannot do enter_no_sync");
}

// The driver serves "external" alone.
TEST_F(a_driver_in_cpp, is_not_asked_to_run_what_is_another_framework_s) {
  std::ofstream(file()) << averaging(R"("engine": {"framework": "ddp", "config": {}})");
  for (const char* verb : {"replay", "explore"}) expect_says(judged(Defect::none, verb), 4, "cannot be run: the scenario is of ddp, and driver runtime does not serve it");
  expect_says(judged(Defect::none, "explore", " --streams"), 4, "cannot be run: the scenario is of ddp");
}

TEST_F(a_driver_in_cpp, that_shows_what_is_not_there_is_reported_with_the_place) {
  expect_says(judged(Defect::shows_what_is_not_there), 5, "/buffers/4/pieces/0/0: is 99, which is no parameter");
}

TEST_F(a_driver_in_cpp, with_another_token_is_not_heard) {
  const std::string stranger = script("GRADLEDGER_TOKEN=" + std::string(64, '0') + " exec " GRADLEDGER_CPP_DRIVER);
  expect_says(judged(Defect::none, "replay", "", stranger), 5, "the process of the driver ended with code 0");
}

TEST_F(a_driver_in_cpp, that_speaks_something_else_is_reported) {
  expect_says(judged(Defect::none, "replay", "", script("echo 'cannot load the model' >&2; exit 3")), 5, "ended with code 3");
  expect_says(judged(Defect::none, "replay", "", script("echo 'cannot load the model' >&2; exit 3")), 5, "cannot load the model");
}

TEST_F(a_driver_in_cpp, that_is_not_there_is_bad_input) {
  expect_says(judged(Defect::none, "replay", "", "/nowhere/driver"), 2, "--producer: program:/nowhere/driver names no file");
  expect_says(judged(Defect::none, "replay", " --backend gloo"), 2, "--backend");
  expect_says(judged(Defect::none, "replay", " --deliver late"), 2, "--deliver");
  expect_says(run_shell(GRADLEDGER_COMMAND " replay " + file() + " --producer program:"), 2, "program:PATH");
}

TEST_F(a_driver_in_cpp, that_is_started_by_hand_says_who_starts_it) {
  expect_says(run_shell("env -u GRADLEDGER_ADDRESS " GRADLEDGER_CPP_DRIVER), 2, "--producer program:PATH");
  expect_says(run_shell("GRADLEDGER_ADDRESS=unix:/nowhere/socket GRADLEDGER_TOKEN=x " GRADLEDGER_CPP_DRIVER), 2, "cannot connect to unix:/nowhere/socket");
  expect_says(run_shell("GRADLEDGER_ADDRESS=elsewhere GRADLEDGER_TOKEN=x " GRADLEDGER_CPP_DRIVER), 2, "expected unix:PATH or tcp:HOST:PORT");
}

TEST_F(a_driver_in_cpp, can_be_repeated_by_the_command_that_is_printed) {
  const Ended ended = judged(Defect::none);
  expect_says(ended, 0, "--producer program:" GRADLEDGER_CPP_DRIVER);
  EXPECT_EQ(ended.text.find("--python"), std::string::npos) << ended.text;
}

}  // namespace
}  // namespace library_test
