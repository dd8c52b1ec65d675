// Lines and columns of values, and what a scenario is whatever it is called.
#include "sim/scenario/positions.h"

#include <gtest/gtest.h>

#include "sim/load.h"
#include "sim/scenario/identity.h"
#include "tests/support/temporary_folder.h"

namespace gradledger {
namespace {

const std::string text = "{\"a\": 1,\n  \"b\" : [10,\"x\", {\"c/d\": true}\n, [ ] ],\r\n\t\"\xc3\xa9\xc3\xa9\": \"\xe2\x82\xac\", \"z\":-2.5e1}";

Position position(const std::string& pointer) { return positions_of(text, {pointer}).front(); }

TEST(position_of_a_value, is_where_it_begins) {
  EXPECT_EQ(position(""), (Position{1, 1}));
  EXPECT_EQ(position("/a"), (Position{1, 7}));
  EXPECT_EQ(position("/b"), (Position{2, 9}));
  EXPECT_EQ(position("/b/0"), (Position{2, 10}));
  EXPECT_EQ(position("/b/1"), (Position{2, 13}));
  EXPECT_EQ(position("/b/2"), (Position{2, 18}));
  EXPECT_EQ(position("/b/2/c~1d"), (Position{2, 26}));
  EXPECT_EQ(position("/b/3"), (Position{3, 3}));
}

TEST(position_of_a_value, counts_characters_and_not_bytes) {
  EXPECT_EQ(position("/\xc3\xa9\xc3\xa9"), (Position{4, 8}));
  EXPECT_EQ(position("/z"), (Position{4, 17}));
}

TEST(position_of_a_value_that_is_not_there, is_that_of_what_it_would_be_in) {
  EXPECT_EQ(position("/b/9/x"), (Position{2, 9}));
  EXPECT_EQ(position("/none"), (Position{1, 1}));
}

TEST(position_in_a_text_that_is_no_json, is_known_up_to_there) {
  const auto places = positions_of("{\"a\": [1, 2,\n 3 oops", {"/a/2", "/b"});
  EXPECT_EQ(places[0], (Position{2, 2}));
  EXPECT_EQ(places[1], (Position{1, 1}));
  EXPECT_FALSE(positions_of("oops", {"/a"}).front().known());
  EXPECT_EQ(positions_of(std::string(1'000'000, '['), {"/0"}).front(), (Position{1, 2})) << "and the nesting is not followed for ever";
}

TEST(position_of_a_byte, is_its_line_and_column) {
  EXPECT_EQ(position_at("ab\ncd", 0), (Position{1, 1}));
  EXPECT_EQ(position_at("ab\ncd", 4), (Position{2, 2}));
  EXPECT_EQ(position_at("ab\ncd", 99), (Position{2, 3}));
}

TEST(an_error_in_a_scenarios_file, names_line_and_column) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.write("a b:1.json", R"({
  "name": 1, "world_size": 1, "parameters": [{"name": "w", "numel": 4}], "engine": {"framework": "deepspeed", "config": {}}, "script": [{"backward": {}}, {"step": {}}]})");
  const auto refused = load_scenario(path);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().where, path + ":2:11: /name");
  const Place place = place_from(refused.error().text(), path);
  EXPECT_EQ(place.pointer, "/name");
  EXPECT_EQ(place.at, (Position{2, 11}));
  const auto broken = load_scenario(folder.write("b.json", "{\n  \"name\": ,}"));
  ASSERT_FALSE(broken);
  EXPECT_TRUE(broken.error().where.ends_with("b.json:2:11")) << broken.error().where;
}

TEST(a_place, is_not_read_from_an_error_of_another_file) {
  EXPECT_FALSE(place_from("b.json:1:2: /x: wrong", "a.json").at.known());
  EXPECT_FALSE(place_from("--seed: wrong", "a.json").at.known());
  EXPECT_EQ(place_from("a.json: /x: wrong", "a.json").pointer, "/x");
}

TEST(identity_of_a_scenario, is_that_of_what_it_does) {
  const auto read = [](const std::string& name, const std::string& script, const std::string& as_of, int elements = 8) {
    const auto scenario = read_scenario("{\"name\": \"" + name + "\", \"world_size\": 2, \"parameters\": [{\"name\": \"w\", \"numel\": " + std::to_string(elements) +
                                            "}], \"engine\": {\"framework\": \"deepspeed\", \"as_of\": \"" + as_of +
                                            "\", \"config\": {\"zero_optimization\": {\"stage\": 1}, \"bf16\": {\"enabled\": true}}}, \"script\": " + script + "}",
                                        ".");
    EXPECT_TRUE(scenario) << scenario.error().text();
    return content_identity(*scenario);
  };
  const std::string one = R"([{"backward": {}}, {"step": {}}])", other = R"([{"step": {}}, {"backward": {}}])", more = R"([{"backward": {}}, {"backward": {}}, {"step": {}}])";
  EXPECT_EQ(read("a", one, "0.18.9"), read("b", other, "0.19.0"));
  EXPECT_NE(read("a", one, "0.18.9"), read("a", more, "0.18.9"));
  EXPECT_NE(read("a", one, "0.18.9"), read("a", one, "0.18.9", 9));
}

}  // namespace
}  // namespace gradledger
