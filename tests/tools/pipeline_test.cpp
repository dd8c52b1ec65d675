// What ci/ gives a pipeline: the comparison of two commits, the installation of the command, and the action that has both.
#include "tests/tools/command.h"

namespace gradledger::testing {
namespace {

// A repository in r whose second commit raises a defect.
class Repository {
 public:
  Repository() {
    json scenario = json_of(text_of(clean_scenario)), worse = json_of(text_of(leaking_scenario));
    for (json* s : {&scenario, &worse}) s->erase("twin_of");
    worse["expect"] = scenario["expect"];
    worse["name"] = scenario["name"];
    folder.write("first", scenario.dump());
    folder.write("second", worse.dump());
    const std::string git = "git -c user.name=n -c user.email=e -c commit.gpgsign=false ";
    const Outcome made = shell(
        "set -e; git init -q r; cd r; mkdir scenarios; cp ../first scenarios/a.json; git add .; " + git + "commit -qm 1; cp ../second scenarios/a.json; " + git + "commit -qam 2",
        folder.path());
    EXPECT_EQ(made.code, 0) << made.err;
  }

  // A line in the root of the repository; $OUT is a folder that is new each time.
  Outcome in(const std::string& line) const { return shell("OUT=$(mktemp -d " + folder.path().string() + "/out.XXXX); export OUT; cd r; " + line, folder.path()); }

  // The action's steps on a commit and the one before it.
  Outcome action(const std::string& head, const std::string& inputs) const {
    return in("GITHUB_SHA=$(git rev-parse " + head + ") " + (source_folder / "tests/tools/run_action.py").string() + " " + (source_folder / "ci/action.yml").string() +
              " $OUT scenarios=scenarios base=HEAD~1 " + inputs);
  }

  const TemporaryFolder folder;
};

TEST(gate_both, compares_two_commits_of_a_repository) {
  const Repository repository;
  const std::string both = "SCENARIOS=scenarios PREPARE='test -d scenarios' " + (source_folder / "ci/gate-both").string();
  const Outcome same = repository.in("BASE=HEAD HEAD=HEAD " + both), other = repository.in("BASE=HEAD~1 " + both);
  EXPECT_EQ(same.code, 0) << same.out << same.err;
  EXPECT_NE(same.out.find("no scenario is worse at head than at base (1 compared)"), std::string::npos) << same.out;
  EXPECT_EQ(other.code, 1) << other.out << other.err;
  EXPECT_NE(other.out.find("passed at base, failed at head"), std::string::npos) << other.out;
  EXPECT_NE(repository.in("BASE=none " + both).err.find("none cannot be checked out"), std::string::npos);
}

TEST(the_action, is_yaml_that_runs_the_script_with_every_input) {
  const Outcome outcome = shell(
      "/usr/bin/python3 -c 'import yaml, json; "
      "print(json.dumps(yaml.safe_load(open(\"action.yml\"))))'",
      source_folder / "ci");
  const std::string text = text_of(source_folder / "ci/action.yml");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json action = json_of(outcome.out);
  EXPECT_EQ(action["runs"]["using"], "composite");
  for (const auto& [name, input] : action["inputs"].items()) {
    EXPECT_TRUE(input.contains("description")) << name;
    EXPECT_NE(text.find("${{ inputs." + name), std::string::npos) << name << " is asked for and not used";
  }
  // What a user of the action writes reaches the shell as a variable, never as text of the script.
  for (const json& step : action["runs"]["steps"]) EXPECT_EQ(step["run"].get<std::string>().find("${{"), std::string::npos) << step["run"];
}

TEST(the_action, fails_where_the_head_is_worse_and_passes_where_it_is_not) {
  const Repository repository;
  const Outcome worse = repository.action("HEAD", "command=gradledger"), same = repository.action("HEAD~1", "command=gradledger");
  EXPECT_EQ(worse.code, 1) << worse.out << worse.err;
  EXPECT_NE(worse.out.find("left out: Install gradledger"), std::string::npos) << worse.out;
  EXPECT_NE(worse.out.find("passed at base, failed at head"), std::string::npos) << worse.out;
  EXPECT_EQ(same.code, 0) << same.out << same.err;
  EXPECT_NE(same.out.find("(1 compared)"), std::string::npos) << same.out;
}

TEST(the_action, runs_the_command_of_an_archive) {
  const Repository repository;
  // As cpack packs it: one folder, and the command in it. A script, so that it shows which command ran.
  const Outcome packed = shell(R"(set -e; mkdir -p gradledger-1/usr/bin; printf '#!/bin/sh\necho ran >>"%s"\nexec gradledger "$@"\n' "$PWD/ran" >gradledger-1/usr/bin/gradledger
                                  chmod +x gradledger-1/usr/bin/gradledger; tar -czf a.tar.gz gradledger-1; mkdir b; tar -czf empty.tar.gz b)",
                               repository.folder.path());
  ASSERT_EQ(packed.code, 0) << packed.err;
  const std::string archive = repository.folder.path() / "a.tar.gz";
  const Outcome outcome = repository.action("HEAD", "package=" + archive);
  EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("passed at base, failed at head"), std::string::npos) << outcome.out;
  EXPECT_EQ(text_of(repository.folder.path() / "ran"), "ran\nran\n");
  const Outcome by_address = repository.action("HEAD", "package=file://" + archive);
  EXPECT_EQ(by_address.code, 1) << by_address.out << by_address.err;
}

TEST(the_action, ends_where_there_is_nothing_to_install) {
  const Repository repository;
  ASSERT_EQ(shell("mkdir b; tar -czf empty.tar.gz b; echo text >no.tar.gz", repository.folder.path()).code, 0);
  const std::string folder = repository.folder.path().string() + "/";
  for (const auto& [package, said] : {std::pair{folder + "none.tar.gz", "cannot be unpacked"}, std::pair{folder + "no.tar.gz", "cannot be unpacked"},
                                      std::pair{folder + "empty.tar.gz", "has no usr/bin/gradledger"}, std::pair{"file://" + folder + "none.tar.gz", "cannot be fetched"}}) {
    const Outcome outcome = repository.action("HEAD", "package=" + package);
    EXPECT_EQ(outcome.code, 4) << package << outcome.out << outcome.err;
    EXPECT_NE(outcome.err.find(said), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace gradledger::testing
