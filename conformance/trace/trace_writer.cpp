#include "conformance/trace/trace_writer.h"

#include <cmath>
#include <span>
#include <vector>

#include "conformance/trace/base64.h"
#include "conformance/trace/capabilities.h"
#include "conformance/trace/pass_key.h"
#include "ref/facts.h"
#include "sim/scenario/parse.h"

namespace gradledger::conform {
namespace {

using nlohmann::ordered_json;

std::string line_of(const ordered_json& record) { return record.dump(-1, ' ', false, ordered_json::error_handler_t::replace); }

ordered_json number_json(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return x;
}

ordered_json call_json(const CollectiveRecord& c) {
  ordered_json out{{"rank", c.rank},
                   {"event", c.event},
                   {"group", c.group},
                   {"sequence", c.sequence},
                   {"kind", name_of(c.kind)},
                   {"operator", name_of(c.op)},
                   {"purpose", name_of(c.purpose)},
                   {"dtype", name_of(c.dtype)},
                   {"numel", c.numel},
                   {"root", c.root}};
  if (c.communicator != 0) out["communicator"] = c.communicator;
  if (c.op == ReduceOp::premultiplied_sum) out["factor"] = c.factor;
  if (!c.in_words.empty()) out["in_words"] = c.in_words;
  return out;
}

ordered_json operation_json(const RacingOperation& o) { return {{"operation", o.operation}, {"stream", o.stream}, {"event", o.event}, {"number", o.number}}; }

// A line for each record.
class LineSink final : public TraceSink {
 public:
  explicit LineSink(LineWriter& file) : file_(file) {}

  void observe(const Observation& o) override {
    ordered_json out{{"event", o.event}, {"rank", o.rank}, {"at_end", o.at_end}, {"buffer", o.buffer}, {"role", name_of(o.role)}, {"scale", number_json(o.scale)}};
    out["space"] = name_of(o.space);
    out["pieces"] = ordered_json::array();
    bytes_.clear();
    errors_.clear();
    bool bounded = false;
    for (const ObservedPiece& piece : o.pieces) {
      out["pieces"].push_back({piece.parameter, piece.parameter_offset, piece.numel, name_of(piece.dtype)});
      bytes_.insert(bytes_.end(), piece.data, piece.data + std::size_t{piece.numel} * size_of(piece.dtype));
      bounded = bounded || piece.error;
      for (std::uint32_t e = 0; e < piece.numel; ++e) errors_.push_back(piece.error ? piece.error[e] : 0);
    }
    out["data"] = base64_of(bytes_);
    if (bounded) out["errors"] = base64_of(std::as_bytes(std::span(errors_)));
    write(out);
  }

  void collective(const CollectiveRecord& r) override { write({{"collective", call_json(r)}}); }

  void memory(const MemoryRecord& r) override {
    write({{"memory",
            {{"rank", r.rank},
             {"event", r.event},
             {"allocated", r.allocated},
             {"buffer", r.buffer},
             {"space", name_of(r.space)},
             {"bytes", r.bytes},
             {"at_start", r.at_start},
             {"order", r.order}}}});
  }

  void step_fact(const StepRecord& r) override { write({{"fact", {{"rank", r.rank}, {"event", r.event}, {"name", name_of(r.fact)}, {"value", number_json(r.value)}}}}); }

  void event_done(std::uint32_t rank, std::uint32_t event) override { write({{"done", {{"rank", rank}, {"event", event}}}}); }

  void unwritten(const UnwrittenRecord& r) override {
    write({{"unwritten", {{"rank", r.rank}, {"event", r.event}, {"buffer", r.buffer}, {"begin", r.begin}, {"end", r.end}, {"reader", r.reader}, {"released", r.released}}}});
  }

  void engine_error(const EngineErrorRecord& r) override { write({{"error", {{"rank", r.rank}, {"event", r.event}, {"type", r.type}, {"text", r.message}}}}); }

  void deadlock(const DeadlockRecord& r) override {
    ordered_json ranks = ordered_json::array();
    for (const WaitingRank& waiting : r.ranks) {
      ranks.push_back({{"rank", waiting.rank}, {"event", waiting.event}, {"finished", waiting.finished}});
      if (waiting.collective) ranks.back()["collective"] = call_json(*waiting.collective);
      if (waiting.sender) ranks.back()["sender"] = *waiting.sender;
    }
    write({{"deadlock", std::move(ranks)}});
  }

  void mismatch(const MismatchRecord& r) override {
    ordered_json calls = ordered_json::array();
    for (const CollectiveRecord& call : r.calls) calls.push_back(call_json(call));
    write({{"mismatch", {{"of", r.what}, {"calls", std::move(calls)}}}});
  }

  void race(const RaceRecord& r) override {
    write({{"race",
            {{"rank", r.rank},
             {"event", r.event},
             {"buffer", r.buffer},
             {"begin", r.begin},
             {"end", r.end},
             {"first", operation_json(r.first)},
             {"second", operation_json(r.second)}}}});
  }

 private:
  void write(const ordered_json& record) { file_.write(line_of(record)); }

  LineWriter& file_;
  std::vector<std::byte> bytes_;
  std::vector<double> errors_;
};

}  // namespace

RecordingProducer::RecordingProducer(Producer& inner, const Scenario& scenario, const Timeline& timeline, const TraceOrigin& origin, LineWriter file)
    : inner_(inner), scenario_(scenario), timeline_(timeline), file_(std::move(file)) {
  // Whatever it names is to be in the file, and what it is to show is nobody's to expect any more.
  Scenario whole = scenario;
  whole.gradients.file.clear();
  whole.tokens.file.clear();
  whole.twin_of.clear();
  whole.expect = {};
  ordered_json head{{"gradledger_trace", 1}, {"scenario", ordered_json::parse(serialise(whole))}, {"versions", origin.versions}};
  head["driver"] = origin.driver;
  head["capabilities"] = json_of(inner.capabilities());
  head["seed"] = origin.seed;
  file_.write(line_of(head));
}

RunSummary RecordingProducer::run(const GradientSource& source, const RunOptions& options, TraceSink& sink) {
  file_.write(line_of({{"pass", passes_++}, {"key", key_text(key_of(scenario_, timeline_, source, options))}}));
  LineSink lines(file_);
  ref::Tee both;
  both.add(&sink);
  both.add(&lines);
  const RunSummary summary = inner_.run(source, options, both);
  file_.write(line_of({{"summary",
                        {{"completed", summary.completed},
                         {"trace_hash", key_text(summary.trace_hash)},
                         {"value_hash", key_text(summary.value_hash)},
                         {"operations", summary.operations},
                         {"bytes_peak", summary.bytes_peak},
                         {"replay_diverged", summary.replay_diverged}}}}));
  return summary;
}

std::optional<InputError> RecordingProducer::close(const std::vector<std::string>& notes) {
  ordered_json end{{"end", true}, {"passes", passes_}};
  if (!notes.empty()) end["replaced"] = notes;
  file_.write(line_of(end));
  return file_.close();
}

}  // namespace gradledger::conform
