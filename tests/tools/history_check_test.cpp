// tools/history/check fails on what it is there to find. The repository is one of a few commits, made here.
#include "tests/tools/command.h"

namespace gradledger::testing {
namespace {

const std::filesystem::path data_folder = source_folder / "sim/frameworks/deepspeed/history";

bool has_programs() { return shell("command -v python3 && command -v git").code == 0; }

Outcome check(const std::string& options) { return shell((source_folder / "tools/history/check").string() + " " + options); }

// The data of a history of three commits, of which the middle one touches the only audited file, and the history itself.
struct SmallHistory {
  SmallHistory() {
    const Outcome made = shell(
        "git init -q . && git config user.email a@b && git config user.name a && touch engine.py other.py && git add . && git commit -qm start && git tag v0.15.4 && "
        "echo 1 > engine.py && git commit -qam 'Change the engine (#6675)' && git tag v0.16.0 && echo 1 > other.py && git commit -qam 'Other (#2)' && git tag v0.16.1",
        folder.path());
    EXPECT_EQ(made.code, 0) << made.err;
    changes = json_of(text_of(data_folder / "changes.json"));
    for (json& change : changes["changes"]) change["commit"] = nullptr;
    releases = {{"releases", {release("0.16.0"), release("0.16.1")}}};
    audited = {{"first", "v0.15.4"},
               {"last", hash("HEAD")},
               {"last_date", ""},
               {"files", {"engine.py"}},
               {"packages", json::array()},
               {"commits", {{{"commit", hash("v0.16.0")}, {"pull_request", "DeepSpeed#6675"}, {"date", ""}, {"title", "a"}, {"verdict", "not modelled"}, {"reason", "b"}}}}};
  }

  std::string hash(const std::string& revision) const {
    std::string out = shell("git rev-parse " + revision + "^{commit}", folder.path()).out;
    return out.substr(0, out.find('\n'));
  }
  json release(const std::string& name) const {
    return {{"release", name}, {"tag", "v" + name}, {"commit", hash("v" + name)}, {"date", shell("git log -1 --format=%cs v" + name, folder.path()).out.substr(0, 10)}};
  }
  Outcome checked(const std::string& options = "") const {
    folder.write("changes.json", changes.dump());
    folder.write("releases.json", releases.dump());
    folder.write("audited.json", audited.dump());
    return check("--data " + folder.path().string() + " --repository " + folder.path().string() + " " + options);
  }
  void expect_problem(const std::string& part, bool is_one = true) const {
    const Outcome outcome = checked();
    EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.err;
    EXPECT_EQ(outcome.out.find(part) != std::string::npos, is_one) << outcome.out << "about: " << part;
  }

  TemporaryFolder folder;
  json changes, releases, audited;
};

TEST(history_check, finds_that_the_files_agree_with_the_tables) {
  if (!has_programs()) GTEST_SKIP() << "no python3, or no git";
  for (const std::string& tables : {std::string(), "--program " + std::string(GRADLEDGER_COMMAND)}) {
    const Outcome outcome = check(tables);
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    EXPECT_NE(outcome.out.find("0 unclassified; 0 problems"), std::string::npos) << outcome.out;
  }
}

TEST(history_check, fails_on_commits_that_are_not_classified_or_not_there) {
  if (!has_programs()) GTEST_SKIP() << "no python3, or no git";
  SmallHistory history;
  history.expect_problem("unclassified: ", false);
  const std::string commit = history.hash("v0.16.0");
  history.audited["commits"][0]["commit"] = std::string(40, '0');
  history.expect_problem("unclassified: " + commit.substr(0, 12));
  history.expect_problem("audited.json: " + std::string(40, '0') + ": not behind v0.15.4");
  history.audited["commits"] = json::array();
  const Outcome updated = history.checked("--update");
  EXPECT_EQ(updated.code, 1) << updated.out << updated.err;
  const json entry = json_of(text_of(history.folder.path() / "audited.json"))["commits"][0];
  EXPECT_EQ(entry["commit"], commit);
  EXPECT_EQ(entry["pull_request"], "DeepSpeed#6675");
  EXPECT_EQ(entry["verdict"], "unclassified");
}

TEST(history_check, fails_on_releases_that_the_tags_contradict) {
  if (!has_programs()) GTEST_SKIP() << "no python3, or no git";
  SmallHistory history;
  json& change = *std::find_if(history.changes["changes"].begin(), history.changes["changes"].end(), [](const json& c) { return c["id"] == "DeepSpeed#6675"; });
  change["commit"] = history.hash("v0.16.0");
  history.expect_problem("DeepSpeed#6675: first", false);
  change["first_tag"] = "v0.16.1";
  history.expect_problem("DeepSpeed#6675: first tag v0.16.1, but v0.16.0 by the tags that contain it");
  change["first_release"] = "0.16.1";
  history.expect_problem("DeepSpeed#6675: first release 0.16.1, but 0.16.0 by the commits of releases");
  history.releases["releases"].erase(1);
  history.expect_problem("releases.json: v0.16.1 is missing");
  history.releases["releases"][0]["commit"] = history.hash("HEAD");
  history.expect_problem("releases.json: 0.16.0: commit " + history.hash("HEAD") + ", but " + history.hash("v0.16.0") + " by the tag");
}

TEST(history_check, says_what_it_cannot_read) {
  if (!has_programs()) GTEST_SKIP() << "no python3, or no git";
  const TemporaryFolder folder;
  EXPECT_EQ(check("--repository " + folder.path().string()).code, 2);
  EXPECT_EQ(check("--update").code, 2);
  folder.write("releases.json", "{");
  EXPECT_EQ(check("--data " + folder.path().string()).code, 2);
  folder.write("releases.json", "[]");
  for (const char* name : {"changes.json", "audited.json"}) folder.write(name, "[]");
  const Outcome outcome = check("--data " + folder.path().string());
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("docs/history.md"), std::string::npos) << outcome.err;
}

// A history of two releases, the second of which changes the only file; and what is said of it.
struct SmallMegatron {
  SmallMegatron() {
    const Outcome made = shell(
        "git init -q . && git config user.email a@b && git config user.name a && echo 0 > ddp.py && git add . && git commit -qm start && git tag core_v0.8.0 && "
        "echo 1 > ddp.py && git commit -qam change && git tag core_v0.9.0 && git tag core_v0.9.1",
        folder.path());
    EXPECT_EQ(made.code, 0) << made.err;
    audited = {{"files", {{"ddp", {"ddp.py"}}}},
               {"releases", {release("0.8.0", "0\n"), release("0.9.0", "1\n")}},
               {"differences", {{{"release", "0.9.0"}, {"title", "a"}, {"verdict", "modelled"}, {"commit", line("git rev-parse core_v0.9.0^{commit}")}}}}};
    audited["releases"][1]["patches"] = {"0.9.1"};
  }

  std::string line(const std::string& command) const {
    const std::string out = shell(command, folder.path()).out;
    return out.substr(0, out.find('\n'));
  }
  json release(const std::string& name, const std::string& content) const {
    const std::string digest = line("printf '" + content + "' | sha256sum");
    return {{"release", name},
            {"commit", line("git rev-parse core_v" + name + "^{commit}")},
            {"date", line("git log -1 --format=%cs core_v" + name)},
            {"sha256", {{"ddp", digest.substr(0, 64)}}}};
  }
  Outcome checked() const {
    folder.write("audited.json", audited.dump());
    return check("--megatron " + folder.path().string() + " --megatron-data " + (folder.path() / "audited.json").string());
  }
  void expect_problem(const std::string& part) const {
    const Outcome outcome = checked();
    EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.err;
    EXPECT_NE(outcome.out.find(part), std::string::npos) << outcome.out << "about: " << part;
  }

  TemporaryFolder folder;
  json audited;
};

TEST(history_check, holds_megatrons_releases_files_and_changes_against_a_clone) {
  if (!has_programs()) GTEST_SKIP() << "no python3, or no git";
  SmallMegatron history;
  EXPECT_EQ(history.checked().code, 0) << history.checked().out;
  const json right = history.audited;
  history.audited["releases"][1].erase("patches");
  history.expect_problem("unclassified: Megatron-Core 0.9.1");
  history.audited = right;
  history.audited["releases"][1]["sha256"]["ddp"] = right["releases"][0]["sha256"]["ddp"];
  history.expect_problem("Megatron-Core 0.9.0: the files of ddp at core_v0.9.1 are others than those that were compared");
  history.audited = right;
  history.audited["releases"][0]["commit"] = right["releases"][1]["commit"];
  history.expect_problem("Megatron-Core 0.8.0: " + right["releases"][1]["commit"].get<std::string>());
  history.audited = right;
  history.audited["differences"][0]["commit"] = right["releases"][0]["commit"];
  history.expect_problem("a: is no change between the two releases");
}

}  // namespace
}  // namespace gradledger::testing
