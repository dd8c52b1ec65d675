// Published models: their shapes against those that transformers builds, and as the parameters of a scenario.
#include <algorithm>
#include <set>

#include "sim/base/limits.h"
#include "sim/scenario/model_shapes/published.h"
#include "tests/scenario/documents.h"
#include "tests/tools/command.h"

namespace gradledger::testing {
namespace {

// record.py in that folder wrote it.
const json& recorded() {
  static const json table = json::parse(text_of(source_folder / "tests/scenario/model_shapes/recorded.json"));
  return table;
}

std::string fnv1a(const std::string& text) {
  std::uint64_t out = 0xcbf29ce484222325;
  for (const unsigned char byte : text) out = (out ^ byte) * 0x100000001b3;
  std::string digits(16, '0');
  for (std::size_t i = digits.size(); i-- > 0; out >>= 4) digits[i] = "0123456789abcdef"[out & 15];
  return digits;
}

std::vector<TensorShape> shapes_in(const json& listed) {
  std::vector<TensorShape> out;
  for (const json& shape : listed) out.push_back({shape[0], shape[1], shape[2]});
  return out;
}

TEST(a_published_model, has_the_parameters_that_transformers_makes_in_their_order) {
  ASSERT_EQ(recorded()["models"].size(), published_models().size());
  for (const PublishedModel& model : published_models()) {
    SCOPED_TRACE(model.name);
    ASSERT_TRUE(recorded()["models"].contains(model.name));
    const json& real = recorded()["models"][model.name];
    const std::vector<TensorShape>& shapes = shapes_of(model);
    EXPECT_EQ(model.published_as, real["published_as"]);
    const std::vector<TensorShape> head = shapes_in(real["through_the_first_layer"]), tail = shapes_in(real["behind_the_layers"]);
    ASSERT_GE(shapes.size(), head.size() + tail.size());
    EXPECT_TRUE(std::equal(head.begin(), head.end(), shapes.begin()));
    EXPECT_TRUE(std::equal(tail.rbegin(), tail.rend(), shapes.rbegin()));
    EXPECT_EQ(shapes.size(), real["tensors"]);
    EXPECT_EQ(numel_of(shapes), real["numel"]);
    std::string text;
    for (const TensorShape& shape : shapes) text += shape.name + " " + std::to_string(shape.numel) + " " + std::to_string(shape.rows) + "\n";
    EXPECT_EQ(fnv1a(text), real["fnv1a"]) << "every name, number of elements and number of rows, in this order";
  }
}

TEST(a_published_model, has_the_elements_that_it_is_known_for) {
  EXPECT_EQ(numel_of(shapes_of(*published_model("gpt2"))), 124'439'808u);
  EXPECT_EQ(numel_of(shapes_of(*published_model("llama-7b"))), 6'738'415'616u);
  EXPECT_EQ(shapes_of(*published_model("llama-7b")), shapes_of(*published_model("llama-2-7b")));
  EXPECT_EQ(published_model("gpt-5"), nullptr);
}

TEST(a_published_model, has_layers_of_the_same_tensors) {
  for (const PublishedModel& model : published_models()) {
    SCOPED_TRACE(model.name);
    const auto layers = layers_of(shapes_of(model));
    ASSERT_EQ(layers.size(), model.layers);
    for (const auto& layer : layers) EXPECT_EQ(layer.size(), layers.front().size());
  }
  EXPECT_EQ(layers_of(std::vector<TensorShape>{{"embed", 1}, {"h.0.a", 1}, {"h.0.b.1.c", 1}, {"h.1.a", 1}, {"norm", 1}, {"h1.a", 1}}),
            (std::vector<std::vector<std::string>>{{"h.0.a", "h.0.b.1.c"}, {"h.1.a"}}));
}

TEST(parameters, of_a_published_model_are_its_shapes_in_the_scenarios_dtype) {
  json document = parameters_of_a_model();
  document["model_dtype"] = "bf16";
  const auto scenario = read(document);
  ASSERT_TRUE(scenario) << scenario.error().text();
  const std::vector<TensorShape>& shapes = shapes_of(*published_model("gpt2"));
  ASSERT_EQ(scenario->parameters.size(), shapes.size());
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    EXPECT_EQ(scenario->parameters[i].name, shapes[i].name);
    EXPECT_EQ(scenario->parameters[i].numel, shapes[i].numel);
    EXPECT_EQ(scenario->dtype_of(static_cast<std::uint32_t>(i)), Dtype::bfloat16);
  }
}

TEST(parameters, of_a_published_model_are_written_by_its_name_and_others_one_by_one) {
  auto scenario = read(parameters_of_a_model());
  ASSERT_TRUE(scenario) << scenario.error().text();
  EXPECT_EQ(json(to_json(*scenario))["parameters"], (json{{"model", "gpt2"}}));
  Scenario other = *scenario;
  other.parameters[3].trainable = false;
  const json written = to_json(other);
  EXPECT_EQ(written["parameters"].size(), other.parameters.size());
  EXPECT_EQ(written["parameters"][3]["trainable"], false);
  const auto again = read(written);
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_TRUE(*again == other);
}

TEST(parameters, of_a_model_that_nobody_published_are_refused_with_the_names_that_there_are) {
  const json document = small_document_with("/parameters", {{"model", "lama-7b"}});
  expect_refused(document, "/parameters/model", R"(is "lama-7b"; expected one of "gpt2", "gpt2-medium")");
  expect_refused(document, "/parameters/model", "did you mean \"llama-7b\"?");
  expect_refused(small_document_with("/parameters", {{"model", "gpt2"}, {"file", "gpt2.shapes"}}), "/parameters", "expected an object with exactly one of the keys file, model");
}

TEST(parameters, of_a_published_model_are_taken_where_there_is_room_for_them) {
  for (const PublishedModel& model : published_models()) {
    SCOPED_TRACE(model.name);
    const std::uint64_t numel = numel_of(shapes_of(model));
    const json document = small_document_with("/parameters", {{"model", model.name}});
    if (numel <= limits::model_numel_max) EXPECT_TRUE(read(document));
    else expect_refused(document, "/parameters/model", "names a model of " + std::to_string(numel) + " elements; expected at most " + std::to_string(limits::model_numel_max));
  }
}

TEST(schema, has_the_names_of_the_published_models) {
  std::vector<std::string> names;
  for (const PublishedModel& model : published_models()) names.emplace_back(model.name);
  const json& alternatives = scenario_schema()["properties"]["parameters"]["oneOf"];
  EXPECT_EQ(alternatives[1]["properties"]["model"]["enum"].get<std::vector<std::string>>(), names);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

}  // namespace
}  // namespace gradledger::testing
