#include "conformance/loops/run.h"

#include <limits>

#include "sim/base/limits.h"
#include "conformance/fields.h"

namespace gradledger::conform::loop_runs {
namespace {

using nlohmann::json;

constexpr std::uint32_t any_count = std::numeric_limits<std::uint32_t>::max();

// Each has an event of its own, and as many gradients as an epoch has samples.
constexpr std::uint64_t samples_max = 1u << 10;

std::string text_of(const Field& field) { return field.text(limits::file_bytes_max); }

bool flag(const Field& line, const char* key) { return line.has(key) && line.at(key).flag(); }

std::vector<std::vector<double>> rows(const Field& list, std::size_t samples) {
  std::vector<std::vector<double>> out;
  for (const Field& row : list.entries(limits::events_max)) out.push_back(row.exactly(samples));
  return out;
}

MicroBatch read_micro_batch(const Field& entry, std::size_t samples) {
  MicroBatch out;
  out.syncs = entry.at(0).flag();
  out.sample = entry.at(1).count(0, static_cast<std::uint32_t>(samples - 1));
  const Field told = entry.at(2);
  if (told.json().is_array()) out.gradient = told.exactly(samples);
  else if (!told.json().is_null()) out.items = told.number();
  return out;
}

RankRun read_rank(const Field& rank, std::size_t samples) {
  RankRun out;
  if (rank.has("error")) out.error = text_of(rank.at("error"));
  if (rank.has("steps")) out.steps = rows(rank.at("steps"), samples);
  if (rank.has("weights_per_token")) out.per_token = rows(rank.at("weights_per_token"), samples);
  if (out.per_token.size() != out.steps.size()) rank.fail("has not one entry of weights_per_token for each of steps");
  if (rank.has("sync"))
    for (const Field& entry : rank.at("sync").entries(limits::events_max)) out.micro_batches.push_back(read_micro_batch(entry, samples));
  if (rank.has("batches"))
    for (const Field& sample : rank.at("batches").entries(limits::events_max)) out.samples.push_back(sample.count(0, static_cast<std::uint32_t>(samples - 1)));
  out.tells_left = rank.has("left_in_grad");
  if (out.tells_left && !rank.at("left_in_grad").json().is_null()) out.left = rank.at("left_in_grad").exactly(samples);
  return out;
}

std::string version_of(const Run& run) {
  const std::string package = run.loop == "trainer" ? "transformers" : run.loop == "open-instruct-finetune" ? "open-instruct" : run.loop == "nemo" ? "nemo-toolkit" : run.loop;
  const auto found = run.versions.find(package);
  return found == run.versions.end() ? "?" : package + " " + found->second;
}

Run read(const Field& line) {
  Run run;
  run.name = text_of(line.at("name"));
  run.loop = text_of(line.at("loop"));
  run.world = line.at("world").count(1, limits::real_ranks_max);
  run.accumulation = line.at("gas").count(1, limits::micro_batches_max);
  if (line.has("epochs")) run.epochs = line.at("epochs").count(1, limits::micro_batches_max);
  for (const Field& tokens : line.at("tok").entries(limits::micro_batches_max)) run.tokens.push_back(tokens.count(1, any_count));
  if (run.tokens.empty()) line.at("tok").fail("is empty; expected the tokens of at least one sample");
  if (run.tokens.size() * run.epochs > samples_max)
    line.at("tok").fail("has " + std::to_string(run.tokens.size()) + " samples, in " + std::to_string(run.epochs) + " epochs; expected at most " + std::to_string(samples_max) +
                        " together");
  if (line.has("stop_after")) run.stop_after = line.at("stop_after").count(0, limits::micro_batches_max);
  run.accepts = flag(line, "accepts");
  run.loss_function = flag(line, "compute_loss_func");
  run.sums = flag(line, "sum_loss");
  run.manual = flag(line, "manual");
  run.divides = flag(line, "divide");
  if (line.has("args")) run.arguments = line.at("args").object();
  if (line.has("plugin")) run.plugin = line.at("plugin").object();
  if (line.has("engine")) {
    run.engine = line.at("engine").object();
    text_of(line.at("engine").at("framework"));
    if (line.at("engine").has("config")) line.at("engine").at("config").object();
  }
  for (const auto& [package, release] : line.at("versions").members()) run.versions[package] = text_of(release);
  run.version = version_of(run);
  const std::vector<Field> ranks = line.at("ranks").entries(run.world);
  if (ranks.size() != run.world) line.at("ranks").fail("has not one entry for each rank");
  for (const Field& rank : ranks) run.ranks.push_back(read_rank(rank, run.tokens.size()));
  return run;
}

}  // namespace

bool is_loop_run(const json& line) { return line.is_object() && line.contains("loop") && line.contains("tok"); }

Result<Run> read_loop_run(const json& line) {
  try {
    return read(Field(line));
  } catch (const Unreadable& unreadable) {
    return unreadable.error;
  }
}

}  // namespace gradledger::conform::loop_runs
