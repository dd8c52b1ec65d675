// What passes the schema and is still impossible: one error, at its place, that says what would be right.
#include <gtest/gtest.h>

#include "sim/base/limits.h"
#include "tests/scenario/documents.h"

namespace gradledger {
namespace {

using testing::expect_refused;
using testing::json;
using testing::small_document;
using testing::small_document_with;

TEST(bad_parameters, of_one_name_are_refused) {
  expect_refused(small_document_with("/parameters/1/name", "w"), "/parameters/1/name", "\"w\" names two parameters; expected each name once");
}

TEST(bad_names, that_cannot_be_printed_are_refused) {
  const std::string message = "holds a control character; expected a name that can be printed";
  for (const char* name : {"a\nb", "\x1b[31m", "\x7f"}) {
    expect_refused(small_document_with("/name", name), "/name", message);
    expect_refused(small_document_with("/parameters/1/name", name), "/parameters/1/name", message);
  }
  EXPECT_TRUE(testing::read(small_document_with("/parameters/1/name", "sch\xc3\xb6n, \"v\" / ~")));
}

TEST(bad_covers, of_no_entry_or_of_one_twice_are_refused) {
  expect_refused(small_document_with("/covers", {"live-1", "catalogue-99"}), "/covers/1",
                 "names no entry: \"catalogue-99\"; expected one of those that \"gradledger list entries\" prints; did you mean");
  expect_refused(small_document_with("/covers", {"live-1", "zoo-7", "live-1"}), "/covers/2", "names \"live-1\" again; expected each entry once");
  EXPECT_TRUE(testing::read(small_document_with("/covers", {"live-1", "zoo-seed"})));
}

TEST(bad_parameters, without_elements_are_refused_unless_another_has_some) {
  expect_refused(small_document_with("/parameters", {{{"name", "w"}, {"numel", 0}}, {{"name", "v"}, {"numel", 0}}}), "/parameters", "expected at least one");
  EXPECT_TRUE(testing::read(small_document_with("/parameters/0/numel", 0)));
}

TEST(bad_parameters, with_a_condition_that_cannot_be_read_are_refused) {
  expect_refused(small_document_with("/parameters/1/used_by", "microbatch < 3"), "/parameters/1/used_by", "at \"microbatch\"; expected micro_batch, rank or step");
}

TEST(bad_ranks, outside_the_world_are_refused_at_their_place) {
  const std::string expected = "expected ranks from 0 to 1";
  for (const char* event : {"forward", "backward", "step"}) {
    const std::string where = std::string("/script/0/") + event + "/ranks";
    expect_refused(small_document_with("/script/0", {{event, {{"ranks", {0, 2}}}}}), where + "/1", "is rank 2 of a world of 2; " + expected);
  }
  expect_refused(small_document_with("/script/0", {{"set_boundary", {{"value", true}, {"ranks", {127}}}}}), "/script/0/set_boundary/ranks/0", expected);
  expect_refused(small_document_with("/script/0", {{"zero_grad", {{"of", "engine"}, {"ranks", {5}}}}}), "/script/0/zero_grad/ranks/0", expected);
  expect_refused(small_document_with("/script/0", {{"no_sync", {{{"repeat", {{"times", 1}, {"of", {{{"step", {{"ranks", {3}}}}}}}}}}}}}),
                 "/script/0/no_sync/0/repeat/of/0/step/ranks/0", expected);
  expect_refused(small_document_with("/script/0", {{"no_sync", {{"ranks", {1}}, {"of", {{{"step", {{"ranks", {3}}}}}}}}}}), "/script/0/no_sync/of/0/step/ranks/0", expected);
  expect_refused(small_document_with("/script/0", {{"no_sync", {{"ranks", {1, 0}}, {"of", json::array()}}}}), "/script/0/no_sync/ranks", "names every rank; expected the");
  expect_refused(small_document_with("/expect/values", {{{"event", 0}, {"rank", 2}, {"buffer", "b"}, {"values", {1}}}}), "/expect/values/0/rank", expected);
}

TEST(bad_ranks, named_twice_are_refused) {
  expect_refused(small_document_with("/script/0", {{"backward", {{"ranks", {1, 0, 1}}}}}), "/script/0/backward/ranks/2", "names rank 1 again; expected each rank once");
  expect_refused(small_document_with("/script/0", {{"set_boundary", {{"value", true}, {"ranks", {0, 0}}}}}), "/script/0/set_boundary/ranks/1", "expected each rank once");
}

TEST(bad_uses, of_no_parameter_are_refused_and_the_parameters_are_named) {
  expect_refused(small_document_with("/script/0/backward/uses", {"w", "u"}), "/script/0/backward/uses/1", "names no parameter: \"u\"; expected one of \"w\", \"v\"");
}

TEST(bad_parameters, frozen_or_tied_in_ways_that_cannot_be_are_refused) {
  expect_refused(small_document_with("/parameters", {{{"name", "w"}, {"numel", 4}, {"trainable", false}}}), "/parameters", "have no element that is trainable");
  const auto tied = [](json second) { return small_document_with("/parameters", {{{"name", "w"}, {"numel", 4}}, std::move(second)}); };
  expect_refused(tied({{"name", "v"}, {"numel", 4}, {"tied_to", "u"}}), "/parameters/1/tied_to", "names no other parameter: \"u\"");
  expect_refused(tied({{"name", "v"}, {"numel", 4}, {"tied_to", "v"}}), "/parameters/1/tied_to", "names no other parameter: \"v\"");
  expect_refused(tied({{"name", "v"}, {"numel", 3}, {"tied_to", "w"}}), "/parameters/1/numel", "is 3, but \"w\" has 4 elements");
  expect_refused(tied({{"name", "v"}, {"numel", 4}, {"tied_to", "w"}, {"used_by", "rank == 0"}}), "/parameters/1/used_by", "goes with the parameter that this one is tied to");
  json chain =
      small_document_with("/parameters", {{{"name", "w"}, {"numel", 4}}, {{"name", "v"}, {"numel", 4}, {"tied_to", "w"}}, {{"name", "u"}, {"numel", 4}, {"tied_to", "v"}}});
  expect_refused(chain, "/parameters/2/tied_to", "names \"v\", which has no gradient of its own");
  json used = tied({{"name", "v"}, {"numel", 4}, {"tied_to", "w"}});
  used["script"] = json::parse(R"([{"backward": {"uses": ["v"]}}])");
  expect_refused(used, "/script/0/backward/uses", "names \"v\", which has no gradient of its own");
}

TEST(bad_layouts, that_do_not_divide_the_world_or_leave_a_rank_empty_are_refused) {
  expect_refused(small_document_with("/engine/pipeline_stages", 3), "/engine/pipeline_stages", "is 3, which does not divide world_size, 2");
  expect_refused(small_document_with("/engine/sequence_parallel_size", 4), "/engine/sequence_parallel_size", "is 4, which does not divide the ranks of a pipeline stage, 2");
  expect_refused(small_document_with("/engine/expert_parallel_size", 4), "/engine/expert_parallel_size", "is 4, which does not divide");
  expect_refused(small_document_with("/engine/pipeline_stages", 2), "/parameters", "leave rank 1 without an element that is trainable");
  expect_refused(small_document_with("/parameters/1/pipeline_stage", 1), "/parameters/1/pipeline_stage", "is 1; expected a stage below /engine/pipeline_stages, 1");
}

TEST(bad_param_groups, that_miss_repeat_or_invent_a_parameter_are_refused) {
  const auto groups = [](json names) { return small_document_with("/engine/param_groups", {{{"params", {"w"}}}, {{"params", std::move(names)}, {"lr", 0.5}}}); };
  expect_refused(groups({"u"}), "/engine/param_groups/1/params/0", "names no parameter; expected one of /parameters");
  expect_refused(groups({"v", "w"}), "/engine/param_groups/1/params/1", "stands in the groups before; expected each parameter once");
  expect_refused(groups({"v", "v"}), "/engine/param_groups/1/params/1", "stands in the groups before");
  expect_refused(groups(json::array()), "/engine/param_groups/1/params", "");
  expect_refused(small_document_with("/engine/param_groups", {{{"params", {"w"}}}}), "/engine/param_groups", "leave out \"v\"; expected every parameter that is trainable");
  json tied = groups({"v", "u"});
  tied["parameters"].push_back({{"name", "u"}, {"numel", tied["parameters"][0]["numel"]}, {"tied_to", "w"}});
  expect_refused(tied, "/engine/param_groups/1/params/1", "is another use of \"w\"; expected that one, once");
  json rate = groups({"v"});
  rate["engine"]["param_groups"][1]["lr"] = -1;
  expect_refused(rate, "/engine/param_groups/1/lr", "");
}

TEST(bad_layouts, that_give_some_ranks_alone_an_expert_to_train_are_refused) {
  json one = small_document_with("/engine/expert_parallel_size", 2);
  one["parameters"].push_back({{"name", "e"}, {"numel", 4}, {"expert", 0}});
  expect_refused(one, "/engine/expert_parallel_size", "is 2, which gives one of ranks 0 and 1 alone an expert to train");
  json two = one;
  two["parameters"].push_back({{"name", "f"}, {"numel", 4}, {"expert", 3}});
  EXPECT_TRUE(testing::read(two));
  json apart = two;  // each rank has an expert, but in another group
  apart["engine"]["param_groups"] = {{{"params", {"w", "e"}}}, {{"params", {"v", "f"}}}};
  expect_refused(apart, "/engine/expert_parallel_size", "alone an expert to train of some parameter group");
  two["parameters"][3]["trainable"] = false;
  expect_refused(two, "/engine/expert_parallel_size", "alone an expert to train");
}

TEST(bad_order, of_no_rank_or_no_parameter_is_refused) {
  expect_refused(small_document_with("/script/0/backward/order", {{"2", {"w"}}}), "/script/0/backward/order", "has the key \"2\"; expected ranks from 0 to 1");
  expect_refused(small_document_with("/script/0/backward/order", {{"01", {"w"}}}), "/script/0/backward/order", "has the key \"01\"");
  expect_refused(small_document_with("/script/0/backward/order", {{"1", {"w", "u"}}}), "/script/0/backward/order/1/1", "names no parameter: \"u\"");
}

TEST(bad_uses, of_one_parameter_twice_are_refused) {
  expect_refused(small_document_with("/script/0/backward/uses", {"w", "v", "w"}), "/script/0/backward/uses/2", "names \"w\" again; expected each parameter once");
}

TEST(bad_uses, of_a_model_with_many_parameters_name_the_first_few) {
  json document = small_document_with("/script/0/backward/uses", {"x"});
  for (int i = 0; i < 40; ++i) document["parameters"].push_back({{"name", "p" + std::to_string(i)}, {"numel", 1}});
  expect_refused(document, "/script/0/backward/uses/0", "\"p13\", ...");
}

TEST(bad_backwards, of_a_forward_that_was_not_are_refused) {
  const std::string message = "names forward 1, but only 1 explicit forwards came before it in its window on rank ";
  expect_refused(small_document_with("/script", {{{"forward", json::object()}}, {{"backward", {{"of", 1}}}}}), "/script/1/backward/of", message + "0");
  const json on_one = {{{"forward", json::object()}}, {{"forward", {{"ranks", {0}}}}}, {{"backward", {{"of", 1}}}}};
  expect_refused(small_document_with("/script", on_one), "/script/2/backward/of", message + "1");
  EXPECT_TRUE(testing::read(small_document_with("/script", {{{"forward", json::object()}}, {{"backward", {{"of", 0}}}}})));
}

TEST(bad_backwards, of_a_forward_of_an_earlier_window_are_refused) {
  json document = small_document_with("/engine/config/gradient_accumulation_steps", 1);
  document["script"] = {{{"forward", json::object()}}, {{"backward", {{"of", 0}}}}, {{"step", json::object()}}, {{"backward", {{"of", 0}}}}};
  expect_refused(document, "/script/3/backward/of", "only 0 explicit forwards");
}

TEST(bad_backwards, of_a_forward_are_one_backward) {
  json document = small_document_with("/script", {{{"forward", json::object()}}, {{"backward", {{"of", 0}, {"micro_batches", 2}}}}});
  expect_refused(document, "/script/1/backward/micro_batches", "expected it without \"of\"");
}

TEST(bad_overflows, that_no_gradient_can_hold_are_refused) {
  const auto with = [](const json& overflow) { return small_document_with("/script/1", {{"overflow", overflow}}); };
  expect_refused(with({{"micro_batch", 2}}), "/script/1/overflow/micro_batch", "is 2, but rank 0 runs 2 micro-batches in the window where this stands");
  expect_refused(with({{"rank", 2}, {"micro_batch", 0}}), "/script/1/overflow/rank", "expected ranks from 0 to 1");
  expect_refused(with({{"rank", 1}, {"ranks", {0}}, {"micro_batch", 0}}), "/script/1/overflow/rank", "expected one of the two");
  expect_refused(with({{"parameter", "u"}, {"micro_batch", 0}}), "/script/1/overflow/parameter", "names no parameter: \"u\"; expected one of \"w\", \"v\"");
  expect_refused(with({{"rank", 0}}), "/script/1/overflow", "lacks \"micro_batch\"");
  expect_refused(with({{"micro_batch", 0}, {"value", "infinity"}}), "/script/1/overflow/value", "expected one of \"inf\", \"-inf\", \"nan\"");
  json unused = with({{"parameter", "w"}, {"micro_batch", 0}});
  unused["script"][0]["backward"]["uses"] = {"v"};
  expect_refused(unused, "/script/1/overflow/parameter", "finds no gradient to plant in: micro-batch 0 of rank 0 uses no such parameter");
  EXPECT_TRUE(testing::read(with({{"rank", 1}, {"micro_batch", 1}, {"value", "nan"}})));
}

TEST(bad_overflows, of_an_unrolled_script_that_plants_too_often_are_refused) {
  json document = small_document();
  const json overflow = {{"overflow", {{"micro_batch", 0}}}};
  document["script"] = {{{"repeat", {{"times", 65536}, {"of", {{{"repeat", {{"times", 65536}, {"of", {overflow}}}}}}}}}}};
  expect_refused(document, "/script/0/repeat/of/0/repeat/of/0", "makes the unrolled script plant too often");
}

TEST(bad_set_gradients, of_what_has_no_gradient_are_refused) {
  const auto with = [](const json& set) { return small_document_with("/script/1", {{"set_gradient", set}}); };
  expect_refused(with({{"parameter", "u"}, {"times", 2}}), "/script/1/set_gradient/parameter", "names no parameter: \"u\"; expected one of \"w\", \"v\"");
  expect_refused(with({{"parameter", "w"}}), "/script/1/set_gradient", "lacks \"times\"");
  expect_refused(with({{"parameter", "w"}, {"times", 2}, {"ranks", {0}}}), "/script/1/set_gradient/ranks",
                 "is not a key that is known here; expected one of api, parameter, times");
  expect_refused(with({{"parameter", "w"}, {"times", 2}, {"api", "whole"}}), "/script/1/set_gradient/api", "expected one of \"full\", \"local\"");
  json frozen = with({{"parameter", "w"}, {"times", 2}});
  frozen["parameters"][0]["trainable"] = false;
  expect_refused(frozen, "/script/1/set_gradient/parameter", "has no gradient of its own; expected a parameter that is trainable");
}

TEST(bad_set_gradients, by_factors_that_are_not_exact_everywhere_are_refused) {
  const auto times = [](const json& factor) { return small_document_with("/script/1", {{"set_gradient", {{"parameter", "w"}, {"times", factor}}}}); };
  for (const json& factor : {json(0), json(-1), json(9), json(0.1), json("1/3"), json("1/128"), json(32), json("11/8")})
    expect_refused(times(factor), "/script/1/set_gradient/times", "expected from 1/64 to 16, an odd number up to 7 times a power of two");
  for (const char* text : {"x", "1/", "1/0"}) expect_refused(times(text), "/script/1/set_gradient/times", "");
  for (const json& factor : {json(16), json("1/64"), json("7/64"), json(14), json("3/8"), json(0.75)}) EXPECT_TRUE(testing::read(times(factor))) << factor;
}

TEST(bad_set_gradients, that_a_window_multiplies_too_far_are_refused) {
  const auto twice = [](const char* first, const char* second) {
    json document = small_document();
    const auto set = [](const char* times) { return json{{"set_gradient", {{"parameter", "w"}, {"times", times}}}}; };
    document["script"] = {{{"backward", json::object()}}, set(first), {{"backward", json::object()}}, set(second), {{"step", json::object()}}};
    return document;
  };
  expect_refused(twice("16/1", "2/1"), "/script/3/set_gradient/times", "makes what the window multiplies this gradient by inexact");
  expect_refused(twice("3/1", "3/1"), "/script/3/set_gradient/times", "expected all of it together from 1/64 to 16");
  EXPECT_TRUE(testing::read(twice("16/1", "1/16")));
  json document = twice("1/64", "16/1");
  document["script"].insert(document["script"].begin() + 4, json{{"set_gradient", {{"parameter", "w"}, {"times", 2}}}});
  expect_refused(document, "/script/4/set_gradient/times", "inexact");  // 1/2 altogether, but 32 for the second backward
}

TEST(bad_config, with_pytorchs_adam_for_sgd_is_refused) {
  json document = small_document();
  document["engine"]["optimizer"] = {{"type", "SGD"}, {"torch_adam", true}};
  expect_refused(document, "/engine/optimizer/torch_adam", "expected it with Adam or AdamW alone");
  document["engine"].erase("optimizer");
  document["engine"]["config"]["optimizer"] = {{"type", "SGD"}, {"params", {{"torch_adam", true}}}};
  expect_refused(document, "/engine/config/optimizer/params/torch_adam", "is true, with type SGD");
  document["engine"]["config"]["optimizer"]["type"] = "AdamW";
  EXPECT_TRUE(testing::read(document)->engine.optimizer.torch_adam);
}

TEST(bad_config, with_a_fraction_of_an_element_is_refused) {
  for (const char* key : {"reduce_bucket_size", "sub_group_size"}) {
    const std::string where = std::string("/engine/config/zero_optimization/") + key;
    expect_refused(small_document_with(where, 1.5), where, "is 1.5; expected a whole number of elements");
    EXPECT_TRUE(testing::read(small_document_with(where, 5e8)));
  }
}

TEST(bad_config, with_two_dtypes_is_refused) {
  json document = small_document_with("/engine/config/bf16", {{"enabled", true}});
  document["engine"]["config"]["fp16"] = {{"enabled", true}};
  expect_refused(document, "/engine/config/fp16/enabled", "is true, and so is bf16.enabled; expected one of the two");
  document = small_document_with("/engine/config/bf16", {{"enabled", true}});
  document["model_dtype"] = "fp16";
  expect_refused(document, "/model_dtype", "is \"fp16\", but the bf16 and fp16 sections of /engine/config make it \"bf16\"");
  document = small_document_with("/engine/config/bf16", {{"enabled", false}});
  document["model_dtype"] = "bf16";
  expect_refused(document, "/model_dtype", "make it \"fp32\"");
}

TEST(bad_config, with_two_optimizers_is_refused) {
  json document = small_document_with("/engine/optimizer", {{"type", "SGD"}});
  document["engine"]["config"]["optimizer"] = {{"type", "Adam"}};
  expect_refused(document, "/engine/optimizer", "is given, and so is /engine/config/optimizer; expected one of the two");
}

TEST(bad_config, that_the_framework_refuses_names_what_it_refuses) {
  struct Row {
    const char* what;
    json config;
    const char* where;
    const char* message;
  };
  const std::vector<Row> table{
      {"prescale with reduce_scatter", {{"prescale_gradients", true}, {"zero_optimization", {{"stage", 2}}}}, "/prescale_gradients", "do not prescale (AssertionError)"},
      {"predivide with reduce_scatter", {{"gradient_predivide_factor", 2.0}, {"zero_optimization", {{"stage", 3}}}}, "/gradient_predivide_factor", "need a factor of 1.0"},
      {"sum at stage 3", {{"gradient_allreduce_op", "sum"}, {"zero_optimization", {{"stage", 3}}}}, "/gradient_allreduce_op", "expected \"mean\""},
      {"mixed dtypes at stage 0", {{"data_types", {{"grad_accum_dtype", "bf16"}}}}, "/data_types/grad_accum_dtype", "a fp32 model cannot accumulate in bf16"},
      {"mixed dtypes at stage 0, bf16", {{"bf16", {{"enabled", true}}}, {"data_types", {{"grad_accum_dtype", "fp32"}}}}, "/data_types/grad_accum_dtype", "NotImplementedError"},
      {"an optimizer that stays in part at stage 2",
       {{"zero_optimization", {{"stage", 2}, {"offload_optimizer", {{"device", "cpu"}, {"ratio", 0.5}}}}}},
       "/zero_optimization/offload_optimizer/ratio",
       "below stage 3"},
      {"offload at stage 0",
       {{"zero_optimization", {{"stage", 0}, {"offload_optimizer", {{"device", "cpu"}}}}}},
       "/zero_optimization/offload_optimizer",
       "expected a stage from 1 to 3"},
  };
  for (const Row& row : table) {
    SCOPED_TRACE(row.what);
    expect_refused(small_document_with("/engine/config", row.config), std::string("/engine/config") + row.where, row.message);
  }
}

TEST(bad_config, with_weights_on_nvme_says_that_it_is_not_modelled) {
  const auto with = [](const json& offload) { return small_document_with("/engine/config", {{"zero_optimization", {{"stage", 3}, {"offload_param", offload}}}}); };
  const std::string where = "/engine/config/zero_optimization/offload_param";
  expect_refused(with({{"device", "nvme"}}), where + "/device", "is \"nvme\", which is not modelled; expected \"none\" or \"cpu\"");
  expect_refused(with({{"device", "disk"}}), where + "/device", "expected one of \"none\", \"cpu\", \"nvme\"");
  expect_refused(with({{"pin_memory", true}}), where, "lacks \"device\"");
  expect_refused(with({{"device", "cpu"}, {"nvme_path", "/tmp"}}), where + "/nvme_path", "is not a key that is known here");
  EXPECT_TRUE(testing::read(with({{"device", "cpu"}, {"pin_memory", true}})));
}

TEST(bad_as_of, names_what_is_known) {
  const auto refuse = [](const char* as_of, const std::string& message) { expect_refused(small_document_with("/engine/as_of", as_of), "/engine/as_of", message); };
  for (const char* as_of : {"1.0", "0.15.9", "0.15.4.1", "0.18", "0.18.9.", "0.18.9.1.2", "0.18.9.post", "0.18.9rc1", "#1", "before head", "before 0.20.0", "tomorrow", "-1.-1.-1"})
    refuse(as_of, "unknown release or change \"" + std::string(as_of) + "\"; expected a release from 0.16.0 to 0.19.8, \"head\", or a change, as \"DeepSpeed#7981\"");
  expect_refused(small_document_with("/engine/as_of", {{"base", "0.1"}, {"offload_keep", "gate_ga"}}), "/engine/as_of/base", "unknown release or change \"0.1\"");
  expect_refused(small_document_with("/engine/as_of", {{"offload_kept", "gate_ga"}}), "/engine/as_of/offload_kept", "unknown switch \"offload_kept\"; expected one of base, ");
  expect_refused(small_document_with("/engine/as_of", {{"offload_keep", "gate"}}), "/engine/as_of/offload_keep", "unknown value \"gate\"; expected one of counter_only, ");
}

TEST(bad_as_of, in_another_spelling_gets_the_right_one) {
  const std::vector<std::pair<const char*, const char*>> table{
      {"v0.18.9", "0.18.9"},
      {"DeepSpeed 0.18.9", "0.18.9"},
      {"7981", "#7981"},
      {"after #7981", "#7981"},
      {"PR 7981", "#7981"},
      {"# 7981", "#7981"},
      {"before 7981", "before #7981"},
      {"before#7981", "before #7981"},
      {"Before PR 7981", "before #7981"},
      {"0.18.9 ", "0.18.9"},
  };
  for (const auto& [written, meant] : table) expect_refused(small_document_with("/engine/as_of", written), "/engine/as_of", "did you mean \"" + std::string(meant) + "\"?");
  for (const char* hopeless : {"v1.0.0", "123", "release", "after the fix"}) {
    const InputError error = testing::error_of(testing::read(small_document_with("/engine/as_of", hopeless)));
    EXPECT_EQ(error.message.find("did you mean"), std::string::npos) << error.text();
  }
}

TEST(bad_expectations, with_a_fraction_that_is_none_are_refused) {
  for (const char* key : {"own", "peer", "lost_weight"})
    for (const char* fraction : {"", "3", "3/", "/8", "3/0", "3/00", "3/8/2", " 3/8", "3/8 ", "3 / 8", "-3/8", "3/-8", "+3/8", "0x3/8", "1.5/2", "99999999999/3", "nan"})
      expect_refused(small_document_with("/expect/findings", {{{"class", "deadlock"}, {key, fraction}}}), std::string("/expect/findings/0/") + key,
                     "expected a number, or a fraction such as \"3/8\"");
}

TEST(bad_expectations, with_a_condition_that_cannot_be_read_are_refused) {
  expect_refused(small_document_with("/expect/findings", {{{"class", "deadlock"}, {"contributions", "rank = 1"}}}), "/expect/findings/0/contributions", "at \"=\"");
}

TEST(bad_expectations, of_events_past_the_last_are_refused) {
  const json values = {{"event", 4}, {"rank", 0}, {"buffer", "b"}, {"values", {1}}};
  expect_refused(small_document_with("/expect/values", json::array({values})), "/expect/values/0/event", "past the script's last event, 3");
}

TEST(bad_expectations, of_an_unknown_class_name_all_classes) {
  expect_refused(small_document_with("/expect/findings", {{{"class", "offload"}}}), "/expect/findings/0/class", "\"offload-loss\"");
}

TEST(text_from_a_file, is_shortened_and_spelt_out_in_messages) {
  expect_refused(small_document_with("/world_size", std::string(5000, 'x')), "/world_size", "is \"" + std::string(56, 'x') + "...; expected");
  expect_refused(small_document_with("/world_size", "a\nb\x1b[31m"), "/world_size", R"(is "a\nb\u001b[31m"; expected)");
  expect_refused(small_document_with("/script/0/backward/uses", json::array({"\x1b[31m"})), "/script/0/backward/uses/0", R"("\u001b[31m")");
}

// ---- expectations of memory -----------------------------------------------------------------------------------------------------------

TEST(bad_scenario, memory_needs_bytes_and_what_is_resident_a_phase) {
  const auto with = [](json memory) { return small_document_with("/expect/memory", json::array({std::move(memory)})); };
  expect_refused(with({{"phase", "boundary"}}), "/expect/memory/0", "states no bytes; expected at least one of resident, at_most_resident, peak, at_most_peak");
  expect_refused(with({{"resident", 0}}), "/expect/memory/0", "not after which phase");
  expect_refused(with({{"peak", 0}, {"at_most_resident", 0}}), "/expect/memory/0", "not after which phase");
  expect_refused(with({{"peak", 0}, {"rank", 2}}), "/expect/memory/0/rank", "expected ranks from 0 to 1");
  expect_refused(with({{"peak", -1}}), "/expect/memory/0/peak", "from 0 to 9007199254740991");
  expect_refused(with({{"peak", 0}, {"of", "weigths"}}), "/expect/memory/0/of", "did you mean \"weights\"?");
}

TEST(bad_scenario, accounting_only_goes_with_nothing_that_needs_a_judgement) {
  const auto with = [](const char* key, json value) { return small_document_with("/expect", {{"accounting_only", true}, {"memory", {{{"peak", 0}}}}, {key, std::move(value)}}); };
  expect_refused(with("findings", json::array()), "/expect/findings", "needs a judgement");
  expect_refused(with("values", {{{"event", 0}, {"rank", 0}, {"buffer", "b"}, {"values", {1}}}}), "/expect/values", "needs a judgement");
  expect_refused(with("comparison", {{"with", "other.json"}, {"applied", "agree"}}), "/expect/comparison", "needs a judgement");
  expect_refused(small_document_with("/expect", {{"accounting_only", true}}), "/expect/accounting_only", "leaves nothing to hold");
}

}  // namespace
}  // namespace gradledger
