#include "tools/conform/compare.h"

#include <cmath>
#include <map>

#include <fmt/format.h>

#include "ref/probes.h"
#include "sim/engine/engine.h"
#include "sim/execution/host_executor.h"
#include "sim/numeric/kernels.h"

namespace gradledger::conform {
namespace {

// The framework's recorded names where they differ from the simulator's.
std::string recorded_name(std::string name) {
  const std::string ours = "fp32_partitioned_groups_flat[";
  if (name.starts_with(ours) && name.ends_with("].grad"))
    return "fp32_partition.grad[" + name.substr(ours.size(), name.size() - ours.size() - 6) + "]";
  return name;
}

struct Moment {
  std::map<std::string, std::vector<double>> buffers;
  std::map<std::string, Role> roles;
  std::vector<std::vector<double>> parameters;
  std::optional<double> norm;
};

class Collector final : public TraceSink {
 public:
  explicit Collector(const Scenario& scenario, std::size_t events)
      : scenario_(scenario), moments_(scenario.world_size, std::vector<Moment>(events)), error_(scenario.world_size) {}

  void observe(const Observation& o) override {
    if (!o.at_end) return;
    Moment& moment = moments_[o.rank][o.event];
    if (o.role == Role::parameter) return keep_weights(o, moment);
    if (o.role == Role::master_parameter || o.role == Role::optimizer_state) return;
    std::vector<double>& values = moment.buffers[recorded_name(std::string(o.buffer))];
    for (const ObservedPiece& piece : o.pieces) append(values, piece);
  }
  void metric(const MetricRecord& m) override {
    if (m.name == "global_grad_norm") moments_[m.rank][m.event].norm = m.value;
  }
  void engine_error(const EngineErrorRecord& e) override { error_[e.rank] = e; }

  const Moment& at(std::size_t rank, std::size_t event) const { return moments_[rank][event]; }
  const std::optional<EngineErrorRecord>& error(std::size_t rank) const { return error_[rank]; }

 private:
  static void append(std::vector<double>& into, const ObservedPiece& piece) {
    const std::size_t at = into.size();
    into.resize(at + piece.numel);
    numeric::convert(Dtype::float64, into.data() + at, piece.dtype, piece.data, piece.numel);
  }

  // Whole parameters, or stage 3's shards, put where they belong.
  void keep_weights(const Observation& o, Moment& moment) {
    moment.parameters.resize(scenario_.parameters.size());
    for (const ObservedPiece& piece : o.pieces) {
      if (piece.parameter < 0) continue;
      std::vector<double> values;
      append(values, piece);
      std::vector<double>& whole = moment.parameters[static_cast<std::size_t>(piece.parameter)];
      whole.resize(scenario_.parameters[static_cast<std::size_t>(piece.parameter)].numel, std::nan(""));
      std::copy(values.begin(), values.end(), whole.begin() + piece.parameter_offset);
    }
  }

  const Scenario& scenario_;
  std::vector<std::vector<Moment>> moments_;
  std::vector<std::optional<EngineErrorRecord>> error_;
};

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Rounding of a norm: the framework sums squares of n elements in fp32 at worst and takes a root, so n + 2 roundings.
double norm_error(double norm, std::uint64_t elements) { return norm * static_cast<double>(elements + 2) * std::ldexp(1.0, -24); }

class Judge {
 public:
  Judge(const Recording& recording, const Collector& replayed) : recording_(recording), replayed_(replayed) {}

  Comparison run() {
    for (std::size_t r = 0; r < recording_.ranks.size() && out_.why.empty(); ++r) {
      for (std::size_t i = 0; i < recording_.ranks[r].size() && out_.why.empty(); ++i) moment(r, i);
      const auto& error = replayed_.error(r);
      const bool recorded_error = !recording_.ranks[r].empty() && !recording_.ranks[r].back().error.empty();
      if (out_.why.empty() && error && !recorded_error)
        out_.why = fmt::format("rank {}: the replay raises {} ({}) at event {}, the recording does not", r, error->type, error->message, error->event);
    }
    if (!out_.why.empty()) out_.outcome = Outcome::differs;
    return out_;
  }

 private:
  void moment(std::size_t r, std::size_t i) {
    const RecordedMoment& recorded = recording_.ranks[r][i];
    const std::string where = fmt::format("rank {}, operation {} ({})", r, i, recorded.operation);
    if (!recorded.error.empty()) return error(r, i, recorded, where);
    const Moment& ours = replayed_.at(r, i);
    for (const auto& [name, values] : recorded.buffers) {
      const auto mine = ours.buffers.find(name);
      if (mine == ours.buffers.end()) return differ(fmt::format("{}: the replay has no {}", where, name));
      if (!vectors(values, mine->second, where + ": " + name)) return;
    }
    for (const auto& [name, values] : ours.buffers)
      if (!recorded.buffers.contains(name)) return differ(fmt::format("{}: the recording has no {}", where, name));
    if (ours.parameters.empty()) return;
    for (std::size_t p = 0; p < recorded.parameters.size(); ++p) parameter(r, i, p, where);
    if (recorded.norm && ours.norm) norm(*recorded.norm, *ours.norm, where);
  }

  void error(std::size_t r, std::size_t i, const RecordedMoment& recorded, const std::string& where) {
    const auto& mine = replayed_.error(r);
    const std::string type = recorded.error.substr(0, recorded.error.find(':'));
    if (!mine) differ(fmt::format("{}: the recording raises {}, the replay does not", where, type));
    else if (mine->event != i || mine->type != type) differ(fmt::format("{}: the recording raises {}, the replay {} at event {}", where, type, mine->type, mine->event));
  }

  // Stage 3 ranks hold shards: an element may be with any rank.
  void parameter(std::size_t r, std::size_t i, std::size_t p, const std::string& where) {
    const std::vector<double>& recorded = recording_.ranks[r][i].parameters[p];
    for (std::size_t e = 0; e < recorded.size(); ++e) {
      double mine = weight(r, i, p, e);
      for (std::size_t other = 0; std::isnan(mine) && other < recording_.ranks.size(); ++other) mine = weight(other, i, p, e);
      ++out_.compared;
      if (!same(recorded[e], mine)) return differ(fmt::format("{}: weight {} of parameter {} is {} recorded, {} replayed", where, e, p, recorded[e], mine));
    }
  }

  double weight(std::size_t r, std::size_t i, std::size_t p, std::size_t e) const {
    const std::vector<std::vector<double>>& parameters = replayed_.at(r, i).parameters;
    return p < parameters.size() && e < parameters[p].size() ? parameters[p][e] : std::nan("");
  }

  void norm(double recorded, double mine, const std::string& where) {
    ++out_.compared;
    const double bound = norm_error(std::max(recorded, mine), recording_.scenario.numel());
    if (!(std::abs(recorded - mine) <= bound)) differ(fmt::format("{}: the gradient norm is {} recorded, {} replayed", where, recorded, mine));
  }

  bool vectors(const std::vector<double>& recorded, const std::vector<double>& mine, const std::string& where) {
    if (recorded.size() != mine.size()) {
      differ(fmt::format("{} has {} elements recorded, {} replayed", where, recorded.size(), mine.size()));
      return false;
    }
    for (std::size_t e = 0; e < recorded.size(); ++e) {
      ++out_.compared;
      if (same(recorded[e], mine[e])) continue;
      differ(fmt::format("{}[{}] is {} recorded, {} replayed", where, e, recorded[e], mine[e]));
      return false;
    }
    return true;
  }

  void differ(std::string why) {
    if (out_.why.empty()) out_.why = std::move(why);
  }

  const Recording& recording_;
  const Collector& replayed_;
  Comparison out_;
};

}  // namespace

Comparison compare(const Recording& recording) {
  Comparison out;
  const auto engine = select_engine(recording.scenario);
  if (!recording.refusal.empty()) {
    if (engine) {
      out.outcome = Outcome::differs;
      out.why = "the framework refuses the configuration (" + recording.refusal + "), the replay does not";
    }
    out.compared = 1;
  } else if (!engine) {
    out.outcome = Outcome::differs;
    out.why = "the replay refuses the configuration: " + engine.error().text();
  } else {
    const auto timeline = make_timeline(recording.scenario);
    if (!timeline) {
      out.outcome = Outcome::inexpressible;
      out.why = timeline.error().text();
    } else {
      HostExecutor executor(recording.scenario, *timeline, CollectiveArithmetic::gloo_fp32);
      Collector collector(recording.scenario, timeline->events.size());
      const auto source = ref::value_source(recording.scenario, *timeline, GradientKind::values, 0);
      executor.run(*source, RunOptions{}, collector);
      out = Judge(recording, collector).run();
    }
  }
  out.name = recording.name;
  out.version = recording.version;
  return out;
}

}  // namespace gradledger::conform
