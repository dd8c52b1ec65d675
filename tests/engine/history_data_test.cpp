// The audited history, as data, is that of the program's tables.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/history.h"

namespace gradledger::testing {
namespace {

using nlohmann::json;

json history_file(const std::string& name) {
  const std::string path = std::string(GRADLEDGER_SOURCE_DIR) + "/sim/frameworks/deepspeed/history/" + name;
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return json::parse(file);
}

// "DeepSpeed#7981" for "#7981", "DeepSpeed 0.19.8" for "0.19.8".
std::string id_of(std::string_view name) { return (name.starts_with("#") ? "DeepSpeed" : "DeepSpeed ") + std::string(name); }

TEST(history_data, has_every_change_in_its_order_with_its_first_release) {
  const json data = history_file("changes.json")["changes"];
  ASSERT_EQ(data.size(), changes().size());
  for (std::size_t i = 0; i < changes().size(); ++i) {
    EXPECT_EQ(data[i]["id"], id_of(changes()[i].name));
    EXPECT_EQ(data[i]["first_release"], first_release(changes()[i].change)) << data[i]["id"];
  }
}

TEST(history_data, names_the_switches_that_each_change_moved) {
  std::map<std::string, std::set<std::string>> moved;
  for (const SwitchInfo& info : switches())
    for (const SwitchInfo::Value& value : info.values) moved[id_of(value.since)].insert(std::string(info.name));
  const json data = history_file("changes.json")["changes"];
  for (const json& change : data) EXPECT_EQ(change["switches"].get<std::set<std::string>>(), moved[change["id"]]) << change["id"];
}

TEST(history_data, has_every_release_and_each_contains_what_its_line_does) {
  const json data = history_file("releases.json")["releases"];
  std::set<std::string> known;
  for (const json& release : data) {
    const std::string name = release["release"];
    EXPECT_TRUE(known.insert(name).second) << name;
    const auto point = point_named(name, "");
    ASSERT_TRUE(point.ok()) << name;
    EXPECT_FALSE(point_note(name)) << name << " is not in the tables";
  }
  for (const ReleaseInfo& line : releases())
    for (const std::string_view end : {line.first, line.last}) EXPECT_TRUE(known.contains(std::string(end))) << end;
  EXPECT_EQ(data.front()["release"], releases().front().first);
  EXPECT_EQ(data.back()["release"], releases().back().last);
}

TEST(history_data, classifies_every_entry_and_names_changes_that_exist_and_all_of_them) {
  const json data = history_file("audited.json");
  std::set<std::string> modelled, ids;
  for (const char* part : {"commits", "packages"})
    for (const json& entry : data[part]) {
      const std::string verdict = entry["verdict"];
      EXPECT_TRUE((std::set<std::string>{"modelled", "not modelled", "relevant, missing"}).contains(verdict)) << entry;
      EXPECT_FALSE(entry["title"].get<std::string>().empty()) << entry;
      if (verdict == "modelled") modelled.insert(entry["change"].get<std::string>());
      else EXPECT_FALSE(entry["reason"].get<std::string>().empty()) << entry;
    }
  for (const ChangeInfo& change : changes())
    if (!first_release(change.change).starts_with("before ")) ids.insert(id_of(change.name));
  EXPECT_EQ(modelled, ids);
  EXPECT_GT(data["commits"].size(), 150u);
}

TEST(history_data, is_counted_by_the_page_about_it_which_names_all_that_is_missing) {
  std::ifstream file(std::string(GRADLEDGER_SOURCE_DIR) + "/docs/history.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const json data = history_file("audited.json");
  std::size_t from = 0;
  for (const char* part : {"commits", "packages"}) {
    std::map<std::string, std::size_t> counts{{"all", data[part].size()}};
    for (const json& entry : data[part]) {
      ++counts[entry["verdict"]];
      const std::string where = part == std::string("commits") ? entry["pull_request"].dump() : entry["release"].dump();
      if (entry["verdict"] == "relevant, missing") EXPECT_NE(page.find(" | " + entry["title"].get<std::string>() + " |"), std::string::npos) << where << " " << entry["title"];
    }
    for (const char* name : {"all", "modelled", "not modelled", "relevant, missing"}) {
      const std::string row = "\n| " + std::string(name) + " | " + std::to_string(counts[name]) + " |";
      const std::size_t at = page.find(row, from);
      EXPECT_NE(at, std::string::npos) << part << ": " << row;
      if (at != std::string::npos) from = at;
    }
  }
}

}  // namespace
}  // namespace gradledger::testing
