#include "conformance/compare.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "ref/dtype_facts.h"
#include "sim/engine/engine.h"
#include "sim/frameworks/deepspeed/engines.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/framework.h"
#include "sim/load.h"
#include "sim/producers/producers.h"
#include "conformance/bounded_weights.h"
#include "conformance/replay.h"

namespace gradledger::conform {
namespace {

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Rounding of a norm: the framework sums squares of n elements in fp32 at worst and takes a root, so n + 2 roundings.
double norm_error(double norm, std::uint64_t elements) { return norm * static_cast<double>(elements + 2) * std::ldexp(1.0, -24); }

// A call as it is recorded; of the other one as much.
std::string text(const RecordedCollective& call, const RecordedCollective& as) {
  std::string out = fmt::format("{} of {} {}", call.kind, call.numel, call.dtype);
  if (!as.operation.empty()) out += " by " + call.operation;
  if (as.group && call.group) out += fmt::format(" between {}", fmt::join(*call.group, ", "));
  if (as.root && call.root) out += fmt::format(" with root {}", *call.root);
  return out;
}

// What is not recorded is not held against anything.
bool fits(const RecordedCollective& recorded, const RecordedCollective& mine) {
  return recorded.kind == mine.kind && recorded.numel == mine.numel && recorded.dtype == mine.dtype && (recorded.operation.empty() || recorded.operation == mine.operation) &&
         (!recorded.group || recorded.group == mine.group) && (!recorded.root || recorded.root == mine.root);
}

class Judge {
 public:
  Judge(const Recording& recording, const Timeline& timeline, const Replay& replay) : recording_(recording), timeline_(timeline), replay_(replay) {}

  Comparison run() {
    const auto operations = operations_by_event(recording_, timeline_.events.size());
    for (std::size_t r = 0; r < recording_.ranks.size() && out_.why.empty(); ++r) {
      std::uint32_t before = never;
      for (std::size_t i = 0; i < recording_.ranks[r].size() && out_.why.empty(); ++i) {
        moment(r, i, before);
        if (recording_.events[r][i] != never) before = recording_.events[r][i];
      }
      for (const EngineErrorRecord& error : replay_.errors(r)) {
        const std::uint32_t at = operations[r][error.event];
        if (recording_.left_out.empty() && (at >= recording_.ranks[r].size() || recording_.ranks[r][at].error.empty()))
          differ(fmt::format("rank {}: the replay raises {} ({}) at event {}, the recording does not", r, error.type, error.message, error.event));
      }
    }
    if (has_moments() && out_.why.empty()) bounded_weights();
    if (!replay_.stuck().empty()) differ("the replay " + replay_.stuck() + ", the recording does not");
    if (!out_.why.empty()) out_.outcome = Outcome::differs;
    return out_;
  }

 private:
  bool has_moments() const { return recording_.scenario.engine.optimizer.type != OptimizerType::sgd; }

  // fp32 at stage 0 is clipped by PyTorch's function, whose norm the framework tells nobody; the replay says what it was.
  bool norm_is_untold() const { return deepspeed_config(recording_.scenario).zero.stage == 0 && recording_.scenario.model_dtype == Dtype::float32; }

  // The wrappers of fp16 have a dynamic scale in bf16 too, and report it.
  bool scale_is_inert() const {
    const auto wrapper = deepspeed::select_wrapper(recording_.scenario);
    return recording_.scenario.model_dtype == Dtype::bfloat16 && wrapper && (*wrapper == deepspeed::Wrapper::fp16_fused || *wrapper == deepspeed::Wrapper::fp16_unfused);
  }

  // Formulas of Adam differ in the order of their operations: any of them lies within a bound of the same update in fp64.
  void bounded_weights() {
    const WeightsOutcome outcome = hold_weights(recording_, replay_, timeline_);
    out_.elements += outcome.elements;
    if (!outcome.why.empty()) differ(outcome.why);
  }

  // before: the rank's last event; where the operation is none, everything is as it was then.
  void moment(std::size_t r, std::size_t i, std::uint32_t before) {
    static const ReplayedMoment nothing;
    const RecordedMoment& recorded = recording_.ranks[r][i];
    const std::uint32_t event = recording_.events[r][i];
    const std::string where = fmt::format("rank {}, operation {} ({})", r, i, recorded.operation);
    if (!recorded.error.empty()) return error(r, event, recorded, where);
    const ReplayedMoment& ours = event != never ? replay_.at(r, event) : before != never ? replay_.at(r, before) : nothing;
    if (recorded.collectives && !recording_.reads[i]) collectives(recorded, event == never ? nothing : ours, where);
    if (event != never || before != never) buffers(recorded, ours, where);  // what a rank is made with is in no replay
    if (event != never) step(r, event, recorded, ours, where);
  }

  void buffers(const RecordedMoment& recorded, const ReplayedMoment& ours, const std::string& where) {
    for (const auto& [name, buffer] : recorded.buffers) {
      const auto mine = ours.buffers.find(name);
      if (mine == ours.buffers.end() && buffer.values.empty()) continue;  // of a parameter without elements
      if (mine == ours.buffers.end()) return differ(fmt::format("{}: the replay has no {}", where, name));
      if (!equal(buffer, mine->second, where + ": " + name)) return;
    }
    for (const auto& [name, buffer] : ours.buffers)
      if (!recorded.buffers.contains(name) && !buffer.values.empty()) return differ(fmt::format("{}: the recording has no {}", where, name));
  }

  void step(std::size_t r, std::uint32_t i, const RecordedMoment& recorded, const ReplayedMoment& ours, const std::string& where) {
    for (std::size_t p = 0; p < recorded.parameters.size() && !has_moments(); ++p) weights(r, i, p, recorded.parameters[p], where);
    const bool compares_scale = recorded.loss_scale && !scale_is_inert();
    if (compares_scale && !same(*recorded.loss_scale, replay_.loss_scale(r, i)))
      differ(fmt::format("{}: the loss scale is {} recorded, {} replayed", where, *recorded.loss_scale, replay_.loss_scale(r, i)));
    if (recorded.overflow && *recorded.overflow != replay_.overflow(r, i))
      differ(fmt::format("{}: an overflow is {}", where, *recorded.overflow ? "recorded, and not replayed" : "replayed, and not recorded"));
    out_.elements += compares_scale + recorded.overflow.has_value();
    if (recorded.norm) norm(*recorded.norm, replay_.norm(r, i), where);
    else if (ours.norm && !norm_is_untold()) differ(where + ": only the replay reports a gradient norm");
  }

  void error(std::size_t r, std::uint32_t i, const RecordedMoment& recorded, const std::string& where) {
    const auto& errors = replay_.errors(r);
    const auto mine = std::find_if(errors.begin(), errors.end(), [i](const EngineErrorRecord& e) { return e.event == i; });
    const std::string type = recorded.error.substr(0, recorded.error.find(':'));
    ++out_.elements;
    if (mine == errors.end()) differ(fmt::format("{}: the recording raises {}, the replay does not", where, type));
    else if (mine->type != type) differ(fmt::format("{}: the recording raises {}, the replay {}", where, type, mine->type));
  }

  // Stage 3 fetches parameters for every forward and backward, and checks that ranks fetch alike: no gradient is in these calls, and the
  // replay does not issue them.
  bool is_fetch(const RecordedCollective& call, const std::string& operation) const {
    return deepspeed_config(recording_.scenario).zero.stage == 3 && operation != "step" && (call.kind == "all_gather_into_tensor" || call.kind == "broadcast");
  }

  void collectives(const RecordedMoment& recorded, const ReplayedMoment& ours, const std::string& where) {
    std::size_t n = 0;
    for (const RecordedCollective& call : *recorded.collectives) {
      if (is_fetch(call, recorded.operation)) continue;
      if (n == ours.collectives.size()) return differ(fmt::format("{}: only the recording has collective {}, {}", where, n, text(call, call)));
      const RecordedCollective& mine = ours.collectives[n];
      ++out_.collectives;
      if (!fits(call, mine)) return differ(fmt::format("{}: collective {} is {} recorded, {} replayed", where, n, text(call, call), text(mine, call)));
      ++n;
    }
    if (n < ours.collectives.size()) differ(fmt::format("{}: only the replay has collective {}, {}", where, n, text(ours.collectives[n], {})));
  }

  // Stage 3 ranks hold shards: an element may be with any rank.
  double weight(std::size_t r, std::size_t i, std::size_t p, std::size_t e) const {  // i: an event
    double mine = replay_.weight(r, i, p, e);
    for (std::size_t other = 0; std::isnan(mine) && other < recording_.ranks.size(); ++other) mine = replay_.weight(other, i, p, e);
    return mine;
  }

  // A clipped gradient carries the rounding of its norm, whose order of summation is not modelled. Up to an operation a weight may differ by what each
  // update so far moved it, times the relative error of the norm and of three roundings on either side (the sum with the guard, the quotient, the
  // product), and by a rounding of each sum on either side; and by that of the model dtype at the end.
  double clipping_error(std::size_t r, std::size_t i, std::size_t p, std::size_t e) const {
    if (timeline_.contract.clip.max_norm == 0) return 0;
    const double u = ref::facts_of(Dtype::float32).unit_roundoff(), factor = norm_error(1.0, recording_.scenario.numel()) + 6 * u;
    double error = 0, before = weight(r, 0, p, e), largest = std::abs(before);
    for (std::size_t event = 1; event <= i; ++event) {
      const double now = weight(r, event, p, e);
      largest = std::max(largest, std::abs(now));
      if (now != before) error += std::abs(now - before) * factor + 2 * u * largest;
      before = now;
    }
    return error + 2 * ref::facts_of(recording_.scenario.model_dtype).unit_roundoff() * largest;
  }

  void weights(std::size_t r, std::size_t i, std::size_t p, const std::vector<double>& recorded, const std::string& where) {
    for (std::size_t e = 0; e < recorded.size(); ++e) {
      const double mine = weight(r, i, p, e);
      ++out_.elements;
      if (!same(recorded[e], mine) && !(std::abs(recorded[e] - mine) <= clipping_error(r, i, p, e)))
        return differ(fmt::format("{}: weight {} of parameter {} is {} recorded, {} replayed", where, e, p, recorded[e], mine));
    }
  }

  // The framework goes on reporting the norm of its last update, and 0 until there was one.
  void norm(double recorded, double mine, const std::string& where) {
    ++out_.elements;
    const double bound = norm_error(std::max(recorded, mine), recording_.scenario.numel());
    if (!same(recorded, mine) && !(std::abs(recorded - mine) <= bound)) differ(fmt::format("{}: the gradient norm is {} recorded, {} replayed", where, recorded, mine));
  }

  bool equal(const RecordedBuffer& recorded, const RecordedBuffer& mine, const std::string& where) {
    if (recorded.values.size() != mine.values.size()) {
      differ(fmt::format("{} has {} elements recorded, {} replayed", where, recorded.values.size(), mine.values.size()));
      return false;
    }
    if (!recorded.values.empty() && recorded.dtype != mine.dtype) {
      differ(fmt::format("{} is {} recorded, {} replayed", where, recorded.dtype, mine.dtype));
      return false;
    }
    for (std::size_t e = 0; e < recorded.values.size(); ++e) {
      ++out_.elements;
      if (same(recorded.values[e], mine.values[e])) continue;
      differ(fmt::format("{}[{}] is {} recorded, {} replayed", where, e, recorded.values[e], mine.values[e]));
      return false;
    }
    return true;
  }

  void differ(std::string why) {
    if (out_.why.empty()) out_.why = std::move(why);
  }

  const Recording& recording_;
  const Timeline& timeline_;
  const Replay& replay_;
  Comparison out_;
};

Comparison judge_refusal(const Recording& recording, bool refused) {
  Comparison out;
  out.elements = 1;
  if (refused) return out;
  out.outcome = Outcome::differs;
  out.why = "the framework refuses the configuration (" + recording.refusal + "), the replay does not";
  return out;
}

Comparison judge_run(const Recording& recording) {
  const auto timeline = make_timeline(recording.scenario);
  if (!timeline) return {.outcome = Outcome::inexpressible, .why = timeline.error().text()};
  expects(recording.ranks.size() == recording.scenario.world_size, "a recording lacks ranks");
  for (const auto& moments : recording.ranks) expects(moments.size() <= recording.reads.size(), "a recording has more operations than its script");
  try {
    return Judge(recording, *timeline, Replay(recording.scenario, *timeline)).run();
  } catch (const ProgramsTooLarge&) {
    return {.outcome = Outcome::inexpressible, .why = fmt::format("its replay would take more than {} bytes", Replay::program_bytes_max)};
  }
}

Comparison judge_either(const Recording& recording) {
  const auto engine = select_engine(recording.scenario);
  if (!recording.refusal.empty()) return judge_refusal(recording, !engine);
  if (!engine) return {.outcome = Outcome::differs, .why = "the replay refuses the configuration: " + engine.error().text()};
  return judge_run(recording);
}

}  // namespace

Comparison compare(const Recording& recording) {
  Comparison out = judge_either(recording);
  out.name = recording.name;
  out.version = recording.version;
  if (out.outcome == Outcome::agrees && !recording.left_out.empty()) out.why = "not judged: " + recording.left_out;
  return out;
}

Result<Comparison> judge(const RecordedRun& run) {
  const auto recording = express(run);
  if (recording) return compare(*recording);
  if (recording.error().where != inexpressible) return recording.error();
  return Comparison{.name = run.name, .version = run.version, .outcome = Outcome::inexpressible, .why = recording.error().message};
}

}  // namespace gradledger::conform
