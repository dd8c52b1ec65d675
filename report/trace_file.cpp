#include "report/trace_file.h"

#include <fmt/format.h>

#include "ref/dtype_facts.h"
#include "report/json_parts.h"

namespace gradledger::report {
namespace {

ordered_json collective_json(const CollectiveRecord& r) {
  return {{"kind", name_of(r.kind)}, {"op", name_of(r.op)}, {"purpose", name_of(r.purpose)}, {"dtype", name_of(r.dtype)},     {"numel", r.numel},
          {"root", r.root},          {"group", r.group},    {"sequence", r.sequence},        {"communicator", r.communicator}};
}

}  // namespace

void TraceWriter::header(const std::string& command, const std::string& scenario, std::uint64_t seed) {
  // Of this file alone (docs/schemas/trace-file.schema.json): it does not follow what reports are like.
  constexpr int trace_schema_version = 1;
  ordered_json head{{"record", "start"}, {"schema_version", trace_schema_version}, {"tool", tool_json()}};
  head["command"] = command;
  head["scenario"] = scenario;
  head["seed"] = seed;
  line(head);
}

void TraceWriter::observe(const Observation& o) {
  ordered_json json{{"record", "snapshot"},         {"event", o.event}, {"rank", o.rank}, {"at_end", o.at_end}, {"buffer", o.buffer}, {"role", name_of(o.role)},
                    {"scale", number_json(o.scale)}};
  json["pieces"] = ordered_json::array();
  for (const ObservedPiece& piece : o.pieces) {
    ordered_json entry{{"parameter", piece.parameter}, {"offset", piece.parameter_offset}, {"dtype", name_of(piece.dtype)}};
    std::vector<double> values(piece.numel);
    ref::read_stored(piece.dtype, piece.data, piece.numel, values.data());
    ordered_json decimal = ordered_json::array(), hex = ordered_json::array();
    for (double x : values) {
      decimal.push_back(number_json(x));
      hex.push_back(fmt::format("{:a}", x));
    }
    entry["values"] = std::move(decimal);
    entry["hex"] = std::move(hex);
    json["pieces"].push_back(std::move(entry));
  }
  line(json);
}

void TraceWriter::collective(const CollectiveRecord& r) {
  ordered_json json{{"record", "collective"}, {"event", r.event}, {"rank", r.rank}};
  json.update(collective_json(r));
  line(json);
}

void TraceWriter::memory(const MemoryRecord& r) {
  line({{"record", r.allocated ? "allocate" : "release"},
        {"event", r.event},
        {"rank", r.rank},
        {"buffer", r.buffer},
        {"space", r.space == MemorySpace::host ? "host" : "device"},
        {"bytes", r.bytes}});
}

void TraceWriter::step_fact(const StepRecord& r) {
  line({{"record", "step_fact"}, {"event", r.event}, {"rank", r.rank}, {"fact", name_of(r.fact)}, {"value", number_json(r.value)}, {"hex", fmt::format("{:a}", r.value)}});
}

void TraceWriter::event_done(std::uint32_t rank, std::uint32_t event) { line({{"record", "event_done"}, {"event", event}, {"rank", rank}}); }

void TraceWriter::unwritten(const UnwrittenRecord& r) {
  line({{"record", "unwritten"}, {"event", r.event}, {"rank", r.rank}, {"buffer", r.buffer}, {"begin", r.begin}, {"end", r.end}, {"reader", r.reader}, {"released", r.released}});
}

void TraceWriter::engine_error(const EngineErrorRecord& r) { line({{"record", "engine_error"}, {"event", r.event}, {"rank", r.rank}, {"type", r.type}, {"message", r.message}}); }

void TraceWriter::deadlock(const DeadlockRecord& r) {
  ordered_json json{{"record", "deadlock"}, {"ranks", ordered_json::array()}};
  for (const WaitingRank& waiting : r.ranks) {
    json["ranks"].push_back({{"rank", waiting.rank},
                             {"event", waiting.event},
                             {"finished", waiting.finished},
                             {"collective", waiting.collective ? collective_json(*waiting.collective) : ordered_json(nullptr)},
                             {"sender", waiting.sender ? ordered_json(*waiting.sender) : ordered_json(nullptr)}});
  }
  line(json);
}

void TraceWriter::mismatch(const MismatchRecord& r) {
  ordered_json json{{"record", "mismatch"}, {"what", r.what}, {"calls", ordered_json::array()}};
  for (const CollectiveRecord& call : r.calls) {
    ordered_json entry{{"rank", call.rank}, {"event", call.event}};
    entry.update(collective_json(call));
    json["calls"].push_back(std::move(entry));
  }
  line(json);
}

void TraceWriter::race(const RaceRecord& r) {
  ordered_json json{{"record", "race"}, {"event", r.event}, {"rank", r.rank}, {"buffer", r.buffer}, {"begin", r.begin}, {"end", r.end}};
  for (const auto& [key, o] : {std::pair{"first", &r.first}, std::pair{"second", &r.second}}) json[key] = operation_json(*o);
  line(json);
}

std::optional<InputError> TraceWriter::finish(const RunSummary& s) {
  line({{"record", "end"},
        {"completed", s.completed},
        {"trace_hash", fmt::format("{:016x}", s.trace_hash)},
        {"value_hash", fmt::format("{:016x}", s.value_hash)},
        {"operations", s.operations},
        {"decisions", s.decisions}});
  return out_.close();
}

}  // namespace gradledger::report
