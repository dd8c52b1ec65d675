// Producers that lie: the host executor's snapshots, changed on the way to the sink. A gate that cannot fail is none.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sim/numeric/kernels.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {

// A snapshot as a test sees it: its parameter elements as doubles, to be changed at will.
struct Snapshot {
  std::uint32_t rank, event, step;
  bool at_end;
  std::string buffer;
  Role role;
  bool linear;  // a pass of the ledger
  std::vector<double>* values;
};

using Tamper = std::function<void(const Snapshot&)>;
using TamperFact = std::function<void(StepRecord&)>;

class TamperingProducer final : public Producer {
 public:
  TamperingProducer(const Scenario& scenario, const Timeline& timeline, Tamper tamper, TamperFact fact = {})
      : inner_(scenario, timeline), timeline_(timeline), tamper_(std::move(tamper)), fact_(std::move(fact)) {}

  std::string_view name() const override { return "tampering"; }
  // Only numbers pass through here.
  Capabilities capabilities() const override {
    Capabilities out = inner_.capabilities();
    out.weights = false;
    return out;
  }

  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override {
    Sink tampered(*this, options.linear, sink);
    return inner_.run(source, options, tampered);
  }

 private:
  class Sink final : public TraceSink {
   public:
    Sink(TamperingProducer& owner, bool linear, TraceSink& to) : owner_(owner), linear_(linear), to_(to) {}

    void observe(const Observation& o) override {
      std::vector<double> values;
      for (const ObservedPiece& piece : o.pieces) {
        if (piece.parameter < 0) continue;
        const std::size_t at = values.size();
        values.resize(at + piece.numel);
        numeric::convert(Dtype::float64, values.data() + at, piece.dtype, piece.data, piece.numel);
      }
      owner_.tamper_({o.rank, o.event, owner_.timeline_.events[o.event].step, o.at_end, std::string(o.buffer), o.role, linear_, &values});
      std::vector<std::vector<std::byte>> bytes;
      std::vector<ObservedPiece> pieces;
      std::size_t at = 0;
      for (ObservedPiece piece : o.pieces) {
        if (piece.parameter >= 0) {
          std::vector<std::byte>& stored = bytes.emplace_back(std::size_t{piece.numel} * size_of(piece.dtype) + 1);
          numeric::convert(piece.dtype, stored.data(), Dtype::float64, values.data() + at, piece.numel);
          at += piece.numel;
          piece.data = stored.data();
        }
        pieces.push_back(piece);
      }
      Observation changed = o;
      changed.pieces = pieces;
      to_.observe(changed);
    }
    void collective(const CollectiveRecord& r) override { to_.collective(r); }
    void memory(const MemoryRecord& r) override { to_.memory(r); }
    void step_fact(const StepRecord& r) override {
      StepRecord changed = r;
      if (owner_.fact_) owner_.fact_(changed);
      to_.step_fact(changed);
    }
    void event_done(std::uint32_t rank, std::uint32_t event) override { to_.event_done(rank, event); }
    void engine_error(const EngineErrorRecord& r) override { to_.engine_error(r); }

   private:
    TamperingProducer& owner_;
    bool linear_;
    TraceSink& to_;
  };

  HostExecutor inner_;
  const Timeline& timeline_;
  Tamper tamper_;
  TamperFact fact_;
};

inline ref::Verdict judge_tampered(const Scenario& scenario, Tamper tamper, std::uint64_t seed = 0, TamperFact fact = {}) {
  const auto timeline = make_timeline(scenario);
  TamperingProducer producer(scenario, *timeline, std::move(tamper), std::move(fact));
  ref::OracleOptions options;
  options.seed = seed;
  return ref::judge(scenario, *timeline, producer, options);
}

}  // namespace gradledger::testing
