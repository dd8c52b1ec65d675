// docs/scenario-format.md against the limits of the code.
#include <regex>
#include <set>

#include "sim/base/error_list.h"
#include "sim/base/limits.h"
#include "sim/base/lines.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/model_shapes/shapes_file.h"
#include "tests/docs/command.h"
#include "tests/docs/markdown.h"

namespace gradledger::testing {
namespace {

struct LimitRow {
  const char* constant;
  std::uint64_t value;
  const char* what;
};

// A new limit needs a row here and in the page.
const LimitRow limit_rows[] = {
    {"file_bytes_max", limits::file_bytes_max, "size of a scenario, of a table of gradients, of a trace to replay"},
    {"unpacked_bytes_max", limits::unpacked_bytes_max, "size of a file of lines, as a recording, and what it unpacks to"},
    {"json_bytes_max", limits::json_bytes_max, "memory that a JSON document stands for"},
    {"json_depth_max", limits::json_depth_max, "nesting of JSON"},
    {"errors_told_max", limits::errors_told_max, "errors of a file that are told"},
    {"errors_counted_max", limits::errors_counted_max, "errors of a file that are counted"},
    {"world_size_max", limits::world_size_max, "ranks"},
    {"real_ranks_max", limits::real_ranks_max, "ranks that run on devices or with a real framework"},
    {"parameters_max", limits::parameters_max, "parameters"},
    {"parameter_numel_max", limits::parameter_numel_max, "elements of a parameter"},
    {"recorded_numel_max", limits::recorded_numel_max, "elements of a parameter in a recording"},
    {"model_numel_max", limits::model_numel_max, "elements of all parameters"},
    {"safetensors_header_bytes_max", limits::safetensors_header_bytes_max, "header of a file of safetensors"},
    {"shapes_numel_max", limits::shapes_numel_max, "elements that a file of shapes may speak of"},
    {"whole_bucket_numel_max", limits::whole_bucket_numel_max, "`reduce_bucket_size` where a whole bucket is reduced"},
    {"events_max", limits::events_max, "events of the unrolled script, times ranks"},
    {"repeat_times_max", limits::repeat_times_max, "repeats of a `repeat`"},
    {"micro_batches_max", limits::micro_batches_max, "micro-batches of a `backward`"},
    {"gradient_accumulation_steps_max", limits::gradient_accumulation_steps_max, "`gradient_accumulation_steps`"},
    {"named_uses_max", limits::named_uses_max, "parameters named by `uses` and `order`, in the unrolled script"},
    {"gradients_set_max", limits::gradients_set_max, "gradients set, in the unrolled script"},
    {"formula_factors_max", limits::formula_factors_max, "factors of a formula"},
    {"formula_number_max", limits::formula_number_max, "a number in a formula"},
    {"tokens_max", limits::tokens_max, "tokens of a micro-batch"},
    {"group_names_max", limits::group_names_max, "names of groups"},
    {"loop_events_max", limits::loop_events_max, "events with which a loop changes gradients, in the unrolled script"},
    {"batch_size_max", limits::batch_size_max, "`train_batch_size` and its parts"},
    {"collectives_max", limits::collectives_max, "collectives expected in a step"},
    {"bytes_max", limits::bytes_max, "bytes expected of collectives and of memory"},
    {"loss_scale_steps_max", limits::loss_scale_steps_max, "`loss_scale_window`, `hysteresis`"},
    {"mlp_layers_max", limits::mlp_layers_max, "layers of a network"},
    {"mlp_width_max", limits::mlp_width_max, "inputs and outputs of a layer"},
    {"condition_length_max", limits::condition_length_max, "a condition"},
    {"name_length_max", limits::name_length_max, "a name"},
    {"compared_elements_max", limits::compared_elements_max, "elements of all contributions of a run that is judged again for its known defect"},
    {"compared_tensors_max", limits::compared_tensors_max, "likewise without numbers: tensors of the contributions that are run one by one"},
    {"ledger_cells_max", limits::ledger_cells_max, "weights in a ledger, of contributions in stretches of snapshots"},
    {"listed_cells_max", limits::listed_cells_max, "weights of it that are as due, in a report without `--ledger`"},
    {"races_reported_max", limits::races_reported_max, "pairs of racing operations named of a rank"},
    {"race_schedules_max", limits::race_schedules_max, "schedules tried for one that shows a race"},
    {"race_operations_max", limits::race_operations_max, "operations of all of these schedules"},
    {"stream_states_max", limits::stream_states_max, "states of a search of stream orders"},
    {"stream_variants_max", limits::stream_variants_max, "states of it that differ in values alone, where there are too many"},
    {"stream_bytes_max", limits::stream_bytes_max, "bytes that it holds"},
    {"stream_witnesses_max", limits::stream_witnesses_max, "outcomes that it shows an order of"},
    {"memory_bytes_default", limits::memory_bytes_default, "memory of a judgement, unless `--memory-limit` says otherwise"},
};

TEST(scenario_format_page, gives_every_limit_as_the_code_has_it) {
  const std::vector<Cells> rows = read_document(source_folder / "docs/scenario-format.md").section("Limits")->rows;
  std::set<std::string> covered;
  for (const LimitRow& limit : limit_rows) {
    covered.insert(limit.constant);
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const Cells& r) { return r.at(0) == limit.what; });
    ASSERT_NE(row, rows.end()) << limit.what;
    const std::string number = row->at(1).substr(0, row->at(1).find(' '));
    EXPECT_EQ(number, std::to_string(limit.value)) << limit.what;
  }
  std::string source;
  for (const char* file : {"sim/base/limits.h", "sim/base/error_list.h", "sim/base/lines.h", "sim/scenario/json_reader.h", "sim/scenario/model_shapes/shapes_file.h"})
    source += text_of(source_folder / file);
  const std::regex constant(R"(inline constexpr [\w:]+ (\w+) =)");
  std::size_t constants = 0;
  for (std::sregex_iterator at(source.begin(), source.end(), constant), end; at != end; ++at, ++constants) EXPECT_TRUE(covered.contains((*at)[1])) << (*at)[1] << " is in no row";
  EXPECT_EQ(constants, covered.size());
  EXPECT_EQ(rows.size(), covered.size() + 1);
}

}  // namespace
}  // namespace gradledger::testing
