// Gradients of kind "mlp": what a network must be to fit the scenario's parameters.
#include <gtest/gtest.h>

#include "tests/scenario/documents.h"

namespace gradledger {
namespace {

using testing::expect_refused;
using testing::json;

// w is 2 x 2, v has 3 elements: the small document's parameters, as two layers.
json document() {
  return testing::small_document_with("/gradients", {{"kind", "mlp"}, {"layers", {{{"weight", "w"}, {"in", 2}, {"out", 2}}, {{"weight", "v"}, {"in", 1}, {"out", 3}}}}});
}

json bent(const std::string& pointer, const json& value) {
  json out = document();
  out["gradients"]["layers"][1] = {{"weight", "u"}, {"bias", "v"}, {"in", 2}, {"out", 3}};
  out["parameters"].push_back({{"name", "u"}, {"numel", 6}});
  out[json::json_pointer(pointer)] = value;
  return out;
}

TEST(network, of_layers_that_chain_and_use_each_parameter_once_is_read) {
  const auto scenario = testing::read(bent("/gradients/activation", "relu"));
  ASSERT_TRUE(scenario) << scenario.error().text();
  const Mlp& mlp = *scenario->gradients.mlp;
  EXPECT_EQ(mlp.activation, Activation::relu);
  EXPECT_EQ(mlp.layers, (std::vector<LinearLayer>{{0, std::nullopt, 2, 2}, {2, 1, 2, 3}}));
  EXPECT_EQ(scenario->gradients.samples_per_micro_batch, 1u);
}

TEST(network, that_does_not_fit_is_refused_at_its_place) {
  expect_refused(document(), "/gradients/layers/1/in", "is 1, but the layer before has 2 outputs; expected the same");
  const struct {
    const char* where;
    json value;
    const char* message;
  } rows[] = {
      {"/gradients/layers/1/out", 4, "names \"u\", which has 6 elements; expected out x in, 8"},
      {"/gradients/layers/1/bias", "w", "names \"w\", as /gradients/layers/0/weight does; expected each parameter in one place"},
      {"/gradients/layers/1/bias", "vv", "names no parameter: \"vv\"; expected the name of a parameter of the scenario"},
      {"/parameters/1/numel", 4, "names \"v\", which has 4 elements; expected out, 3"},
      {"/parameters/2/expert", 0, "which is tied, an expert's or a later stage's; expected a parameter of its own on every rank"},
  };
  for (const auto& row : rows) {
    const std::string where = row.where;
    const std::string blamed = where == "/gradients/layers/1/out" || where == "/parameters/2/expert" ? "/gradients/layers/1/weight"
                               : where == "/parameters/1/numel"                                      ? "/gradients/layers/1/bias"
                                                                                                     : where;
    expect_refused(bent(where, row.value), blamed, row.message);
  }
  expect_refused(bent("/gradients/layers/1", {{"weight", "u"}, {"in", 2}, {"out", 3}}), "/gradients/layers", "leave out parameter \"v\"; expected each one in one layer");
  expect_refused(testing::small_document_with("/gradients", {{"kind", "mlp"}}), "/gradients", "need the network's \"layers\"");
}

TEST(network, goes_with_no_other_kind_and_takes_no_values) {
  for (const char* kind : {"probe", "normal", "adversarial", "values"}) {
    expect_refused(bent("/gradients/kind", kind), "/gradients/layers", "describes a network; expected it with kind \"mlp\" alone");
    expect_refused(testing::small_document_with("/gradients", {{"kind", kind}, {"activation", "gelu"}}), "/gradients/activation", "with kind \"mlp\" alone");
  }
  expect_refused(bent("/gradients/file", "table.json"), "/gradients/kind", "but values are given");
}

// 65536 x 65536 is more than a parameter may have: what does not fit is refused before a weight is drawn.
TEST(network, of_the_widest_layers_is_held_against_its_parameters_without_overflow) {
  json wide = bent("/gradients/layers/1/in", 2);
  wide["gradients"]["layers"] = {{{"weight", "w"}, {"in", 65536}, {"out", 65536}}};
  expect_refused(wide, "/gradients/layers/0/weight", "which has 4 elements; expected out x in, 4294967296");
}

}  // namespace
}  // namespace gradledger
