// What is known of a class, or of an entry.
#include "verbs/explain.h"

#include <set>

#include <gtest/gtest.h>

#include "sim/scenario/catalogue.h"
#include "verbs/class_help.h"

namespace gradledger::testing {
namespace {

const std::filesystem::path scenarios_folder = std::filesystem::path(GRADLEDGER_SOURCE_DIR) / "scenarios";

std::string text_of(const report::Listing& listing, const std::string& topic) {
  for (const auto& row : listing.table)
    if (row.at(0) == topic) return row.at(1);
  return "";
}

TEST(explaining, a_class_says_what_it_does_where_it_comes_from_and_what_to_do) {
  ASSERT_EQ(verbs::class_help().size(), ref::finding_classes().size());
  std::set<std::string> said;
  for (std::size_t i = 0; i < ref::finding_classes().size(); ++i) {
    const ref::FindingClassInfo& info = ref::finding_classes()[i];
    SCOPED_TRACE(info.name);
    EXPECT_EQ(ref::name_of(verbs::class_help()[i].finding), info.name);
    const auto listing = verbs::explain(std::string(info.name), scenarios_folder, {});
    ASSERT_TRUE(listing.ok());
    for (const char* topic : {"meaning", "in a ledger", "in training", "causes", "what to do"}) {
      const std::string text = text_of(*listing, topic);
      EXPECT_TRUE(text.ends_with(".")) << topic << ": " << text;
      EXPECT_TRUE(said.insert(text).second) << "said of another class too: " << text;
    }
  }
}

TEST(explaining, an_entry_says_since_when_and_until_when_by_a_replay) {
  const auto listing = verbs::explain("catalogue-4", scenarios_folder, {});
  ASSERT_TRUE(listing.ok());
  EXPECT_EQ(text_of(*listing, "reported as"), "DeepSpeed#7985");
  EXPECT_EQ(text_of(*listing, "since"), "0.18.5");
  EXPECT_EQ(text_of(*listing, "fixed in"), "0.19.0");
  EXPECT_NE(text_of(*listing, "to avoid it"), "");
  EXPECT_TRUE(text_of(*listing, "see it").starts_with("gradledger replay "));
}

TEST(explaining, takes_the_name_of_an_entry_as_well_as_its_number) {
  for (const Entry& entry : catalogue()) {
    const auto by_name = verbs::explain(std::string(entry.name), "no folder", {});
    ASSERT_TRUE(by_name.ok()) << entry.name;
    EXPECT_EQ(by_name->what, entry.id);
    EXPECT_NE(text_of(*by_name, "scenarios").find("there is no folder no folder"), std::string::npos);
  }
}

TEST(explaining, what_there_is_not_names_what_looks_like_it) {
  const auto none = verbs::explain("boundry-leak", scenarios_folder, {});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("did you mean \"boundary-leak\"?"), std::string::npos) << none.error().message;
}

}  // namespace
}  // namespace gradledger::testing
