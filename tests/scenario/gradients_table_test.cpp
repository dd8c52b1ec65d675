// Gradients that the user gives: the same table inline and in a file, right and wrong.
#include <gtest/gtest.h>

#include "tests/scenario/documents.h"

namespace gradledger {
namespace {

using testing::error_of;
using testing::json;
using testing::small_document_with;
using testing::TemporaryFolder;

// Two micro-batches of the small document.
json table() {
  return json::parse(R"([[{"w": [1, 2, 3, 4], "v": [5, 6, 7]}, {"w": [0, 0, 0, 0], "v": [0.5, "inf", "nan"]}],
                         [{"w": [1, 2, 3, 4], "v": [5, 6, 7]}, {"w": [0, 0, 0, 0], "v": [0.5, "-inf", 0]}]])");
}

json document_of(const json& values) { return small_document_with("/gradients", {{"kind", "values"}, {"micro_batches", values}}); }

TEST(gradients_table, reads_alike_inline_and_from_a_file) {
  const TemporaryFolder folder;
  folder.write("t.gradients.json", table().dump());
  const auto in_line = testing::read(document_of(table()));
  const auto from_file = testing::read(small_document_with("/gradients", {{"kind", "values"}, {"file", "t.gradients.json"}}), folder.path());
  ASSERT_TRUE(in_line) << in_line.error().text();
  ASSERT_TRUE(from_file) << from_file.error().text();
  EXPECT_EQ(in_line->gradients.values->at(0).at(0), (std::vector<double>{1, 2, 3, 4, 5, 6, 7}));
  Gradients same = from_file->gradients;
  same.file = "";
  EXPECT_TRUE(same == in_line->gradients);
}

TEST(gradients_table, that_is_wrong_is_refused_at_the_same_place_inline_and_from_a_file) {
  struct Row {
    const char* pointer;
    json value;
    const char* where;
    const char* message;
  };
  const std::vector<Row> rows{
      {"", 7, "", "is 7; expected an array"},
      {"", json::object(), "", "is an empty object; expected an array"},
      {"", json::array(), "", "is an array of 0 entries; expected an array of 1 to 65536 entries"},
      {"/1", json::array(), "/1", "is an array of 0 entries"},
      {"/1", "x", "/1", "is \"x\"; expected an array"},
      {"/1", {{{"w", {1, 2, 3, 4}}, {"v", {5, 6, 7}}}}, "/1", "has entries for 1 ranks; expected one for each of 2"},
      {"/0/1", json::array(), "/0/1", "is an array of 0 entries; expected an object"},
      {"/0/1", {{"w", {1, 2, 3, 4}}}, "/0/1", "lacks the gradient of parameter \"v\""},
      {"/0/1/u", {1}, "/0/1/u", "names no parameter; expected the 2 of /parameters"},
      {"/0/1/w", {1, 2, 3}, "/0/1/w", "has 3 elements; expected 4"},
      {"/0/1/w", {1, 2, 3, 4, 5}, "/0/1/w", "has 5 elements; expected 4"},
      {"/0/1/w", 1, "/0/1/w", "is 1; expected an array"},
      {"/1/0/v/2", nullptr, "/1/0/v/2", "is null; expected a finite number, or \"inf\", \"-inf\", \"nan\""},
      {"/1/0/v/2", "Inf", "/1/0/v/2", "is \"Inf\"; expected a finite number"},
      {"/1/0/v/2", 0.1, "/1/0/v/2", "is no fp32 value; expected one that fp32 holds exactly"},
      {"/1/0/v/2", 16777217, "/1/0/v/2", "is no fp32 value"},
      {"/1/0/v/2", 1e39, "/1/0/v/2", "is no fp32 value"},
  };
  const TemporaryFolder folder;
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.pointer) + " " + row.value.dump());
    json bent = table();
    bent[json::json_pointer(row.pointer)] = row.value;
    testing::expect_refused(document_of(bent), std::string("/gradients/micro_batches") + row.where, row.message);
    folder.write("t.json", bent.dump());
    const InputError error = error_of(testing::read(small_document_with("/gradients", {{"kind", "values"}, {"file", "t.json"}}), folder.path()));
    EXPECT_EQ(error.where, std::string("/gradients/file, t.json:") + row.where);
    EXPECT_NE(error.message.find(row.message), std::string::npos) << error.text();
  }
}

TEST(gradients_table, in_a_file_that_cannot_be_read_says_why) {
  const TemporaryFolder folder;
  const auto refuse = [&](const std::string& file, const std::string& message) {
    const InputError error = error_of(testing::read(small_document_with("/gradients", {{"kind", "values"}, {"file", file}}), folder.path()));
    EXPECT_EQ(error.where, "/gradients/file");
    EXPECT_NE(error.message.find(message), std::string::npos) << error.text();
  };
  folder.write("broken.json", "[[{\"w\": [1,\n 2}]]");
  folder.write("twice.json", R"([[{"w": [1], "w": [2]}]])");
  refuse("missing.json", "missing.json: cannot be read: No such file");
  refuse(".", "is a directory; expected a file");
  refuse("broken.json", "broken.json: line 2, column 3: is not JSON from here on");
  refuse("twice.json", "twice.json: /0/0/w: appears twice");
  refuse(std::string("twice.json\0", 11), "NUL");
}

TEST(gradients, of_one_kind_take_nothing_of_another) {
  const auto refuse = [](const json& gradients, const std::string& where, const std::string& message) {
    testing::expect_refused(small_document_with("/gradients", gradients), where, message);
  };
  for (const char* kind : {"probe", "normal", "adversarial"}) {
    refuse({{"kind", kind}, {"micro_batches", table()}}, "/gradients/kind", "but values are given; expected \"values\"");
    refuse({{"kind", kind}, {"file", "t.json"}}, "/gradients/kind", "but values are given; expected \"values\"");
  }
  refuse({{"kind", "values"}}, "/gradients", "need either micro_batches or file, and not both");
  refuse({{"kind", "values"}, {"micro_batches", table()}, {"file", "t.json"}}, "/gradients", "need either micro_batches or file, and not both");
  refuse({{"kind", "values"}, {"micro_batches", table()}, {"samples_per_micro_batch", 1}}, "/gradients/samples_per_micro_batch", "goes with random data");
}

TEST(gradients, that_give_too_few_micro_batches_are_refused_at_the_backward_that_needs_more) {
  json document = document_of(table());
  document["script"][0]["backward"]["micro_batches"] = 2;
  testing::expect_refused(document, "/script/2", "needs the gradient of micro-batch 2, but /gradients give 2 micro-batches; name one with \"micro_batch\"");
  document["script"][2]["backward"]["micro_batch"] = 1;
  const auto named = testing::read(document);
  EXPECT_TRUE(named) << named.error().text();
  document["script"][2]["backward"]["micro_batch"] = 2;
  testing::expect_refused(document, "/script/2", "needs the gradient of micro-batch 2");
}

}  // namespace
}  // namespace gradledger
