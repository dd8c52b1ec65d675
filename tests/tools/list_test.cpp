// The lists are the tables of the program.
#include <set>

#include "ref/finding.h"
#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/history.h"
#include "sim/frameworks/framework.h"
#include "sim/frameworks/history.h"
#include "sim/scenario/model_shapes/published.h"
#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

json rows_of(const Outcome& listed) { return testing::record_of(listed)["rows"]; }

TEST(list, has_a_row_for_each_thing_as_text_and_as_json) {
  std::size_t engines = 0;
  std::size_t moved = 0, lines = 0, steps = 0;  // of all histories
  for (const Framework* f : frameworks()) {
    engines += f->engines().size();
    if (!f->history()) continue;
    moved += f->history()->switch_rows("head").size();
    lines += f->history()->release_rows().size();
    steps += f->history()->change_rows().size();
  }
  EXPECT_GT(moved, switches().size());
  EXPECT_GT(lines, releases().size());
  for (const auto& [what, rows] :
       std::vector<std::pair<std::string, std::size_t>>{{"engines", engines},
                                                        {"behaviours", moved},
                                                        {"frameworks", frameworks().size()},
                                                        {"events", framework_named("ddp")->events().size() + framework_named("fsdp2")->events().size() +
                                                                       framework_named("megatron")->events().size() + framework_named("megatron-fsdp")->events().size()},
                                                        {"findings", ref::finding_classes().size()},
                                                        {"changes", steps},
                                                        {"releases", lines},
                                                        {"entries", catalogue().size()},
                                                        {"models", published_models().size()},
                                                        {"exit-codes", tool::exit_codes.size()}}) {
    SCOPED_TRACE(what);
    const Outcome text = run({"list", what}), as_json = run({"list", what, "--json"});
    EXPECT_EQ(text.code, tool::clean);
    EXPECT_EQ(text.err, "");
    EXPECT_EQ(lines_of(text.out.substr(0, text.out.find("\n\nA value holds from"))).size(), rows + 1);
    EXPECT_EQ(as_json.code, tool::clean);
    const json table = rows_of(as_json);
    ASSERT_EQ(table.size(), rows);
    for (const json& row : table) EXPECT_EQ(row.size(), table[0].size());
  }
}

TEST(list, of_findings_names_every_class) {
  std::set<std::string> listed, known;
  for (const json& row : rows_of(run({"list", "findings", "--json"}))) listed.insert(row["class"]);
  for (const ref::FindingClassInfo& info : ref::finding_classes()) known.insert(std::string(info.name));
  EXPECT_EQ(listed, known);
}

TEST(list, of_releases_has_what_the_changes_of_each_moved) {
  std::string moved;
  for (const json& row : rows_of(run({"list", "releases", "--json"})))
    if (row["releases"] == "0.17.6") moved = row["moves"];
  EXPECT_NE(moved.find("stage12_accumulator split_tests_AV (#7509)"), std::string::npos) << moved;
  EXPECT_NE(moved.find("bf16_acc_fp32_wrapper FP16_UnfusedOptimizer (#7515)"), std::string::npos) << moved;
  EXPECT_EQ(moved.find("#7665"), std::string::npos) << moved;
}

TEST(list, of_behaviours_has_the_values_of_the_release_that_is_asked_for) {
  const auto value = [](const std::string& as_of, const std::string& name) {
    for (const json& row : rows_of(run({"list", "behaviours", "--as-of", as_of, "--json"})))
      if (row["switch"] == name) return row["at " + as_of].get<std::string>();
    return std::string();
  };
  EXPECT_EQ(value("0.18.2", "stage12_accumulator"), "split_tests_AV");
  EXPECT_EQ(value("0.18.3", "stage12_accumulator"), "split_tests_L");
  const Outcome unknown = run({"list", "behaviours", "--as-of", "0.20"});
  EXPECT_EQ(unknown.code, tool::bad_input);
  EXPECT_NE(unknown.err.find("--as-of: unknown release or change \"0.20\""), std::string::npos) << unknown.err;
  const Outcome newer = run({"list", "behaviours", "--as-of", "0.20.0"});
  EXPECT_EQ(newer.code, tool::clean);
  EXPECT_NE(newer.err.find("--as-of: 0.20.0 is newer than every release that is known"), std::string::npos) << newer.err;
}

TEST(list, of_behaviours_has_those_frameworks_whose_release_it_is) {
  const auto frameworks_at = [](const std::string& as_of) {
    std::set<std::string> out;
    for (const json& row : rows_of(run({"list", "behaviours", "--as-of", as_of, "--json"}))) out.insert(row["framework"]);
    return out;
  };
  EXPECT_EQ(frameworks_at("0.18.2"), (std::set<std::string>{"deepspeed", "megatron"}));
  EXPECT_EQ(frameworks_at("0.18.9"), (std::set<std::string>{"deepspeed"}));
  EXPECT_EQ(frameworks_at("2.6.0"), (std::set<std::string>{"ddp", "fsdp1", "fsdp2"}));
  EXPECT_EQ(frameworks_at("0.5.1"), (std::set<std::string>{"megatron-fsdp"}));
  EXPECT_EQ(frameworks_at("head"), (std::set<std::string>{"ddp", "deepspeed", "fsdp1", "fsdp2", "megatron", "megatron-fsdp", "megatron-fsdp-v2"}));
  EXPECT_EQ(run({"list", "behaviours", "--as-of", "2.6.0"}).err, "");
}

TEST(list, says_what_the_words_of_its_table_of_switches_mean) {
  const std::string people = run({"list", "behaviours"}).out;
  for (const char* word : {"(older)", "(never)", "\n\nA value holds from", " older: ", " never: "}) EXPECT_NE(people.find(word), std::string::npos) << word;
  EXPECT_EQ(run({"list", "behaviours", "--json"}).out.find("A value holds from"), std::string::npos);
}

TEST(list, of_entries_has_every_id_once_and_every_number_of_the_catalogue) {
  std::set<std::string> ids;
  for (const json& row : rows_of(run({"list", "entries", "--json"}))) EXPECT_TRUE(ids.insert(row["entry"]).second) << row["entry"];
  for (int i = 1; i <= 42; ++i) EXPECT_TRUE(ids.contains("catalogue-" + std::to_string(i))) << i;
  for (int i = 1; i <= 20; ++i) EXPECT_TRUE(ids.contains("live-" + std::to_string(i))) << i;
  EXPECT_TRUE(ids.contains("live-5b"));
}

TEST(list, of_buffers_is_there) { EXPECT_GT(rows_of(run({"list", "buffers", "--json"})).size(), 5u); }

}  // namespace
}  // namespace gradledger::testing
