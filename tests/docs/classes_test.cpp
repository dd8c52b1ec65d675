// The page on classes says what `gradledger explain` says.
#include <gtest/gtest.h>

#include "tests/docs/markdown.h"
#include "verbs/class_help.h"

namespace gradledger::testing {
namespace {

TEST(classes_page, says_of_every_class_what_the_command_says) {
  const Document page = read_document(source_folder / "docs/classes.md");
  for (const verbs::ClassHelp& help : verbs::class_help()) {
    const Section* section = page.section(std::string(ref::name_of(help.finding)));
    ASSERT_TRUE(section) << ref::name_of(help.finding);
    for (const std::string_view text : {help.effect, help.causes, help.cure}) EXPECT_NE(section->text.find(text), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace gradledger::testing
