#include "conformance/trace/record.h"

#include <cstring>
#include <limits>
#include <set>

#include "conformance/trace/base64.h"
#include "sim/base/limits.h"
#include "sim/base/overloaded.h"

namespace gradledger::conform {
namespace {

constexpr std::uint32_t any = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t words_max = 1u << 20;  // what a framework or a process group says

// The value of an enumeration with the name that stands there; `last` is its last one.
template <class Enum>
Enum named(const Field& field, Enum last) {
  const std::string& name = field.text(limits::name_length_max);
  for (int i = 0; i <= static_cast<int>(last); ++i)
    if (name_of(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  field.fail("is no such name that is known here");
}

// Lines of this form alone: a key more is a mistake, and not lost.
void expect_keys(const Field& object, const std::set<std::string>& required, const std::set<std::string>& optional = {}) {
  for (const auto& [key, value] : object.members())
    if (!required.contains(key) && !optional.contains(key)) value.fail("is not a key that is known here");
  for (const std::string& key : required) static_cast<void>(object.at(key));
}

class Reader {
 public:
  Reader(const Workload& workload, const Timeline& timeline) : workload_(workload), timeline_(timeline) {}

  Record record(const Field& line) const {
    if (line.has("collective")) return collective(only(line, "collective"));
    if (line.has("fact")) return fact(only(line, "fact"));
    if (line.has("done")) {
      const Field done = only(line, "done");
      expect_keys(done, {"rank", "event"});
      return EventDone{rank(done), event(done)};
    }
    if (line.has("error")) return error(only(line, "error"));
    if (line.has("memory")) return memory(only(line, "memory"));
    if (line.has("unwritten")) return unwritten(only(line, "unwritten"));
    if (line.has("deadlock")) return deadlock(only(line, "deadlock"));
    if (line.has("mismatch")) return mismatch(only(line, "mismatch"));
    if (line.has("race")) return race(only(line, "race"));
    if (line.has("summary")) return summary(only(line, "summary"));
    return observation(line);
  }

 private:
  static Field only(const Field& line, const std::string& key) {
    expect_keys(line, {key});
    return line.at(key);
  }

  std::uint32_t rank(const Field& record) const { return record.at("rank").count(0, workload_.world_size - 1); }
  std::uint32_t event(const Field& record) const {
    if (timeline_.events.empty()) record.at("event").fail("is of a script that has no events");
    return record.at("event").count(0, static_cast<std::uint32_t>(timeline_.events.size() - 1));
  }

  CollectiveRecord collective(const Field& c) const {
    expect_keys(c, {"rank", "event", "kind", "operator", "purpose", "dtype", "numel"}, {"group", "communicator", "sequence", "root", "factor", "in_words"});
    CollectiveRecord out;
    out.rank = rank(c);
    out.event = event(c);
    if (c.has("group")) out.group = c.at("group").count(0, any);
    if (c.has("communicator")) out.communicator = c.at("communicator").count(0, communicators_max - 1);
    if (c.has("sequence")) out.sequence = c.at("sequence").count(0, any);
    out.kind = named(c.at("kind"), CollectiveKind::broadcast);
    out.op = named(c.at("operator"), ReduceOp::other);
    out.purpose = named(c.at("purpose"), Purpose::control);
    out.dtype = named(c.at("dtype"), Dtype::int32);
    out.numel = c.at("numel").count(0, any);
    if (c.has("root")) out.root = c.at("root").count(0, any);
    if (c.has("factor")) out.factor = c.at("factor").number();
    if (c.has("in_words")) out.in_words = c.at("in_words").text(words_max);
    return out;
  }

  StepRecord fact(const Field& f) const {
    expect_keys(f, {"rank", "event", "name", "value"});
    return {rank(f), event(f), named(f.at("name"), StepFact::loop_norm), f.at("value").number()};
  }

  EngineErrorRecord error(const Field& e) const {
    expect_keys(e, {"rank", "event", "type", "text"});
    return {rank(e), event(e), e.at("type").text(words_max), e.at("text").text(words_max)};
  }

  KeptMemory memory(const Field& m) const {
    expect_keys(m, {"rank", "event", "allocated", "buffer", "space", "bytes", "at_start", "order"});
    const Field bytes = m.at("bytes");
    if (!bytes.json().is_number_unsigned()) bytes.fail("is no number of bytes");
    KeptMemory out{{}, m.at("buffer").text(limits::name_length_max)};
    out.record = {rank(m),
                  event(m),
                  m.at("allocated").flag(),
                  {},
                  named(m.at("space"), MemorySpace::host),
                  bytes.json().get<std::uint64_t>(),
                  m.at("at_start").flag(),
                  false,
                  m.at("order").count(0, any)};
    return out;
  }

  UnwrittenRecord unwritten(const Field& u) const {
    expect_keys(u, {"rank", "event", "buffer", "begin", "end", "reader", "released"});
    return {rank(u),
            event(u),
            u.at("buffer").text(limits::name_length_max),
            u.at("begin").count(0, any),
            u.at("end").count(0, any),
            u.at("reader").text(limits::name_length_max),
            u.at("released").flag()};
  }

  DeadlockRecord deadlock(const Field& ranks) const {
    DeadlockRecord out;
    for (const Field& entry : some(ranks)) {
      expect_keys(entry, {"rank", "event", "finished"}, {"collective", "sender"});
      out.ranks.push_back({rank(entry), event(entry), std::nullopt, entry.at("finished").flag()});
      if (entry.has("collective")) out.ranks.back().collective = collective(entry.at("collective"));
      if (entry.has("sender")) out.ranks.back().sender = entry.at("sender").count(0, workload_.world_size - 1);
    }
    return out;
  }

  MismatchRecord mismatch(const Field& m) const {
    expect_keys(m, {"of", "calls"});
    MismatchRecord out{m.at("of").text(limits::name_length_max), {}};
    for (const Field& call : some(m.at("calls"))) out.calls.push_back(collective(call));
    return out;
  }

  // Of ranks, one at least.
  std::vector<Field> some(const Field& list) const {
    std::vector<Field> out = list.entries(workload_.world_size);
    if (out.empty()) list.fail("is of no rank; expected one at least");
    return out;
  }

  RaceRecord race(const Field& r) const {
    expect_keys(r, {"rank", "event", "buffer", "begin", "end", "first", "second"});
    return {rank(r), event(r), r.at("buffer").text(limits::name_length_max), r.at("begin").count(0, any), r.at("end").count(0, any), racing(r.at("first")), racing(r.at("second"))};
  }

  // Streams are named by texts that live as long as the program.
  RacingOperation racing(const Field& o) const {
    static std::set<std::string> streams;
    constexpr std::size_t streams_max = 64;
    expect_keys(o, {"operation", "stream", "event", "number"});
    const std::string& stream = o.at("stream").text(limits::name_length_max);
    if (!streams.contains(stream) && streams.size() >= streams_max) o.at("stream").fail("is one stream more than can be told apart");
    return {o.at("operation").text(limits::name_length_max), *streams.insert(stream).first, event(o), o.at("number").count(0, any)};
  }

  RunSummary summary(const Field& s) const {
    expect_keys(s, {"completed"}, {"trace_hash", "value_hash", "operations", "bytes_peak", "replay_diverged"});
    RunSummary out;
    out.completed = s.at("completed").flag();
    out.trace_hash = hash(s, "trace_hash");
    out.value_hash = hash(s, "value_hash");
    for (const auto& [key, value] : {std::pair{"operations", &out.operations}, {"bytes_peak", &out.bytes_peak}})
      if (s.has(key)) {
        if (!s.at(key).json().is_number_unsigned()) s.at(key).fail("is no number");
        *value = s.at(key).json().get<std::uint64_t>();
      }
    out.replay_diverged = s.has("replay_diverged") && s.at("replay_diverged").flag();
    return out;
  }

  static std::uint64_t hash(const Field& s, const std::string& key) {
    if (!s.has(key)) return 0;
    const std::string& text = s.at(key).text(16);
    if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos) s.at(key).fail("is no hash; expected sixteen digits of base 16");
    return std::stoull(text, nullptr, 16);
  }

  // ---- what a buffer holds --------------------------------------------------------------------------------------------------------------

  KeptObservation observation(const Field& o) const {
    expect_keys(o, {"event", "rank", "buffer", "role", "pieces", "data"}, {"at_end", "scale", "space", "errors"});
    KeptObservation out;
    out.rank = rank(o);
    out.event = event(o);
    if (o.has("at_end")) out.at_end = o.at("at_end").flag();
    out.buffer = o.at("buffer").text(words_max);
    out.role = named(o.at("role"), Role::scratch);
    if (o.has("scale")) out.scale = o.at("scale").number();
    if (o.has("space")) out.space = named(o.at("space"), MemorySpace::host);
    std::uint64_t bytes = 0, elements = 0;
    for (const Field& piece : o.at("pieces").entries(pieces_max)) {
      out.pieces.push_back(this->piece(piece));
      elements += out.pieces.back().numel;
      bytes += std::uint64_t{out.pieces.back().numel} * size_of(out.pieces.back().dtype);
    }
    out.data = bytes_in(o.at("data"), bytes);
    if (!o.has("errors")) return out;
    const std::vector<std::byte> errors = bytes_in(o.at("errors"), elements * sizeof(double));
    out.errors.resize(elements);
    std::memcpy(out.errors.data(), errors.data(), errors.size());
    return out;
  }

  KeptObservation::Piece piece(const Field& p) const {
    KeptObservation::Piece out;
    if (p.at(3).json().size() == 0 || p.json().size() != 4) p.fail("has not four entries: parameter, offset, numel, dtype");
    out.dtype = named(p.at(3), Dtype::float64);
    out.numel = p.at(2).count(0, any);
    out.offset = p.at(1).count(0, any);
    if (p.at(0).json() == -1) return out;
    out.parameter = static_cast<std::int32_t>(p.at(0).count(0, static_cast<std::uint32_t>(workload_.parameters.size() - 1)));
    const std::uint64_t numel = workload_.parameters[static_cast<std::size_t>(out.parameter)].numel;
    if (std::uint64_t{out.offset} + out.numel > numel) p.fail("lies beyond its parameter, which has " + std::to_string(numel) + " elements");
    return out;
  }

  // As long as the pieces together.
  static std::vector<std::byte> bytes_in(const Field& text, std::uint64_t bytes) {
    auto out = bytes_of_base64(text.text(limits::file_bytes_max));
    if (!out) text.fail("is no base64");
    if (out->size() != bytes) text.fail("has " + std::to_string(out->size()) + " bytes; expected " + std::to_string(bytes) + ", as many as the pieces");
    return std::move(*out);
  }

  static constexpr std::uint64_t pieces_max = 1u << 20;

  const Workload& workload_;
  const Timeline& timeline_;
};

}  // namespace

Record record_of(const Field& line, const Workload& workload, const Timeline& timeline) { return Reader(workload, timeline).record(line); }

std::uint64_t bytes_of(const Record& record) {
  std::uint64_t out = sizeof(Record);
  if (const auto* o = std::get_if<KeptObservation>(&record)) out += o->buffer.size() + o->pieces.size() * sizeof(KeptObservation::Piece) + o->data.size() + o->errors.size() * 8;
  if (const auto* e = std::get_if<EngineErrorRecord>(&record)) out += e->type.size() + e->message.size();
  if (const auto* c = std::get_if<CollectiveRecord>(&record)) out += c->in_words.size();
  if (const auto* d = std::get_if<DeadlockRecord>(&record))
    for (const WaitingRank& rank : d->ranks) out += sizeof(WaitingRank) + (rank.collective ? rank.collective->in_words.size() : 0);
  if (const auto* m = std::get_if<MismatchRecord>(&record))
    for (const CollectiveRecord& call : m->calls) out += sizeof(CollectiveRecord) + call.in_words.size();
  return out;
}

void play(const Record& record, TraceSink& sink) {
  std::visit(overloaded{[&](const KeptObservation& o) {
                          std::vector<ObservedPiece> pieces;
                          std::size_t byte = 0, element = 0;
                          for (const KeptObservation::Piece& p : o.pieces) {
                            pieces.push_back({p.parameter, p.offset, p.numel, p.dtype, o.data.data() + byte, o.errors.empty() ? nullptr : o.errors.data() + element});
                            byte += std::size_t{p.numel} * size_of(p.dtype);
                            element += p.numel;
                          }
                          sink.observe({o.rank, o.event, o.at_end, o.buffer, o.role, o.scale, pieces, o.space});
                        },
                        [&](const CollectiveRecord& r) { sink.collective(r); },
                        [&](const KeptMemory& m) {
                          MemoryRecord r = m.record;
                          r.buffer = m.buffer;
                          sink.memory(r);
                        },
                        [&](const StepRecord& r) { sink.step_fact(r); }, [&](const EventDone& r) { sink.event_done(r.rank, r.event); },
                        [&](const UnwrittenRecord& r) { sink.unwritten(r); }, [&](const EngineErrorRecord& r) { sink.engine_error(r); },
                        [&](const DeadlockRecord& r) { sink.deadlock(r); }, [&](const MismatchRecord& r) { sink.mismatch(r); }, [&](const RaceRecord& r) { sink.race(r); },
                        [](const RunSummary&) {}},
             record);
}

}  // namespace gradledger::conform
