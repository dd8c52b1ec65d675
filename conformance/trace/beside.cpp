#include "conformance/trace/beside.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "ref/dtype_facts.h"
#include "ref/facts.h"

namespace gradledger::conform {
namespace {

// That no value stands there. A value that is no number is another NaN.
const double not_shown = std::numeric_limits<double>::signaling_NaN();

bool is_shown(double x) { return !std::isnan(x) || !std::signbit(x); }

}  // namespace

class BesideProducer::Collector final : public TraceSink {
 public:
  Collector(const Scenario& scenario, bool weights) : scenario_(scenario), weights_(weights) {}

  void observe(const Observation& o) override {
    if (o.role != Role::applied_gradient && (o.role != Role::parameter || !o.at_end || !weights_)) return;
    for (const ObservedPiece& piece : o.pieces) {
      if (piece.parameter < 0 || piece.error) continue;  // one that was worked out is not what was there
      std::vector<double>& whole = shown_[{o.event, o.rank, o.role, piece.parameter}];
      whole.resize(scenario_.parameters[static_cast<std::size_t>(piece.parameter)].numel, -std::abs(not_shown));
      ref::read_stored(piece.dtype, piece.data, piece.numel, whole.data() + piece.parameter_offset);
      for (std::uint32_t e = 0; e < piece.numel; ++e) {
        double& x = whole[piece.parameter_offset + e];
        x = std::isnan(x) ? std::numeric_limits<double>::quiet_NaN() : x / (o.role == Role::applied_gradient ? o.scale : 1.0);
      }
    }
  }

  const Shown& shown() const { return shown_; }

 private:
  const Scenario& scenario_;
  bool weights_;
  Shown shown_;
};

RunSummary BesideProducer::run(const GradientSource& source, const RunOptions& options, TraceSink& sink) {
  Collector recorded(scenario_, weights_), replayed(scenario_, weights_);
  ref::Tee both;
  both.add(&sink);
  both.add(&recorded);
  const RunSummary summary = trace_.run(source, options, both);
  if (why_.empty()) {
    replay_.run(source, options, replayed);
    compare(recorded.shown(), replayed.shown());
  }
  return summary;
}

void BesideProducer::compare(const Shown& recorded, const Shown& replayed) {
  for (const auto& [place, values] : recorded) {
    const auto other = replayed.find(place);
    if (other == replayed.end()) continue;
    for (std::size_t e = 0; e < values.size(); ++e) {
      const double ours = values[e], theirs = other->second[e];
      if (!is_shown(ours) || !is_shown(theirs)) continue;
      ++elements_;
      if (ours == theirs || (std::isnan(ours) && std::isnan(theirs))) continue;
      const auto& [event, rank, role, parameter] = place;
      why_ = fmt::format("{}, rank {}: {} {}[{}] is {} recorded, {} replayed", timeline_.describe(event), rank, name_of(role),
                         scenario_.parameters[static_cast<std::size_t>(parameter)].name, e, ours, theirs);
      return;
    }
  }
}

}  // namespace gradledger::conform
