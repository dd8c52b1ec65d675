// Runs the built command as a user does: a child process, its exit code, and what it wrote to which stream.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"

namespace gradledger::testing {

using nlohmann::json;

inline const std::filesystem::path source_folder = GRADLEDGER_SOURCE_DIR;
inline const std::string clean_scenario = (source_folder / "scenarios/deepspeed-7985/no-leak-7985.json").string();
inline const std::string leaking_scenario = (source_folder / "scenarios/deepspeed-7985/boundary-leak-before-7985.json").string();

inline std::string text_of(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

struct Outcome {
  int code = -1;  // -1: ended by a signal
  int signal = 0;
  std::string out, err;
};

// A program that runs beside the test. Precondition: wait() is called once.
class Child {
 public:
  explicit Child(std::vector<std::string> words) {
    const std::string out = folder_.path() / "out", err = folder_.path() / "err";
    posix_spawn_file_actions_t streams;
    posix_spawn_file_actions_init(&streams);
    posix_spawn_file_actions_addopen(&streams, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&streams, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
    posix_spawn_file_actions_addopen(&streams, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    if (posix_spawn(&pid_, arguments[0], &streams, nullptr, arguments.data(), environ) != 0) {
      ADD_FAILURE() << words[0] << " cannot be run";
      pid_ = 0;
    }
    posix_spawn_file_actions_destroy(&streams);
  }

  void signal(int number) const {
    if (pid_ > 0) ::kill(pid_, number);
  }
  // What it has printed so far.
  std::string out() const { return text_of(folder_.path() / "out"); }

  Outcome wait() const {
    int status = 0;
    if (pid_ == 0 || waitpid(pid_, &status, 0) != pid_) return {};
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0, out(), text_of(folder_.path() / "err")};
  }

 private:
  const TemporaryFolder folder_;
  pid_t pid_ = 0;
};

inline Outcome run_program(std::vector<std::string> words) { return Child(std::move(words)).wait(); }

inline Outcome run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), GRADLEDGER_COMMAND);
  return run_program(std::move(arguments));
}

// With the command's folder first in PATH, so that "gradledger ..." is a line that works.
inline Outcome shell(const std::string& line, const std::filesystem::path& directory = "/") {
  const std::string path = std::filesystem::path(GRADLEDGER_COMMAND).parent_path();
  return run_program({"/bin/bash", "-c", "PATH=\"" + path + ":$PATH\"; cd \"$0\" || exit 99; " + line, directory});
}

inline json json_of(const std::string& text) {
  json out = json::parse(text, nullptr, false);
  if (out.is_discarded()) ADD_FAILURE() << "is no JSON: " << text.substr(0, 200);
  return out;
}

// What a command printed with --json: an object in each line, of which the last sums up.
inline std::vector<json> records_of(const Outcome& outcome) {
  std::vector<json> out;
  std::istringstream stream(outcome.out);
  for (std::string line; std::getline(stream, line);) out.push_back(json_of(line));
  if (out.empty() || !out.back().is_object() || out.back().value("record", "") != "summary" || out.back()["exit_code"] != outcome.code)
    ADD_FAILURE() << "no summary of a run that ended with " << outcome.code << " is last: " << outcome.out.substr(0, 500) << outcome.err;
  return out;
}

// The first of them.
inline json record_of(const Outcome& outcome) {
  const std::vector<json> all = records_of(outcome);
  return all.empty() ? json() : all.front();
}

inline json summary_of(const Outcome& outcome) {
  const std::vector<json> all = records_of(outcome);
  return all.empty() ? json() : all.back();
}

// What a report says but for how long the run took.
inline std::string without_seconds(const std::string& text) { return std::regex_replace(text, std::regex("\"seconds\":[-+.0-9e]+"), "\"seconds\":0"); }

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) out.push_back(line);
  return out;
}

// Bad input of any kind: nothing on standard output, one line on standard error.
inline void expect_complaint(const Outcome& outcome, int code, const std::string& part) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_TRUE(outcome.out.empty()) << outcome.out.substr(0, 200);
  EXPECT_EQ(lines_of(outcome.err).size(), 1u) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("gradledger: ")) << outcome.err;
  EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err << "lacks: " << part;
}

}  // namespace gradledger::testing
