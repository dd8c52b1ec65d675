#include "sim/producers/driver/rank_streams.h"

#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "sim/base/limits.h"
#include "sim/producers/driver/messages.h"

namespace gradledger::driver {
namespace {

using nlohmann::json;

InputError at_place(std::uint32_t place, const std::string& what) { return wrong("/" + std::to_string(place), what); }

std::optional<std::uint32_t> number_in(const json& value, std::uint64_t end) {
  if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<std::int64_t>() < 0)) return std::nullopt;
  const auto number = value.get<std::uint64_t>();
  if (number >= end) return std::nullopt;
  return static_cast<std::uint32_t>(number);
}

}  // namespace

std::optional<InputError> RankStreams::take(const json& message, std::uint32_t event) {
  if (auto problem = keys_problem(message, {"type", "number", "entries"}, {"texts", "streams"})) return problem;
  const json expected = event == no_event ? json(-1) : json(event);
  if (message["number"] != expected) return wrong("/number", "is " + message["number"].dump() + " where the rank is at " + expected.dump());
  event_ = event;
  if (message.contains("texts"))
    if (auto problem = add_texts(message["texts"])) return problem;
  if (message.contains("streams"))
    if (auto problem = add_streams(message["streams"])) return problem;
  const json& entries = message["entries"];
  if (!entries.is_array()) return wrong("/entries", "expected a list");
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (auto problem = take_entry(entries[i])) return wrong(fmt::format("/entries/{}{}", i, problem->where), problem->message);
  return std::nullopt;
}

RankStreams::Problem RankStreams::add_texts(const json& texts) {
  if (!texts.is_array() || texts.size() > stream_texts_max - texts_.size()) return wrong("/texts", fmt::format("expected a list; a run has at most {}", stream_texts_max));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].is_string() || texts[i].get_ref<const std::string&>().size() > stream_text_length_max)
      return wrong(fmt::format("/texts/{}", i), fmt::format("expected a text of at most {} characters", stream_text_length_max));
    texts_.push_back(texts[i].get<std::string>());
  }
  return std::nullopt;
}

RankStreams::Problem RankStreams::add_streams(const json& streams) {
  if (!streams.is_array() || streams.size() > rank_streams_max - (stream_names_.size() - 1))
    return wrong("/streams", fmt::format("expected a list; a rank has at most {}", rank_streams_max));
  for (std::uint32_t i = 0; i < streams.size(); ++i) {
    std::uint32_t text = 0;
    if (auto problem = read_text(streams[i], i, text)) return wrong("/streams" + problem->where, problem->message);
    stream_names_.push_back(text);
    order_.add_stream();
  }
  return std::nullopt;
}

RankStreams::Problem RankStreams::take_entry(const json& entry) {
  struct Kind {
    std::string_view name;
    std::size_t size;
    Problem (RankStreams::*take)(const json&);
  };
  static constexpr std::array kinds{Kind{"run", 6, &RankStreams::run},   Kind{"allocate", 5, &RankStreams::allocate},       Kind{"free", 3, &RankStreams::free},
                                    Kind{"keep", 3, &RankStreams::keep}, Kind{"record", 3, &RankStreams::record},           Kind{"wait", 3, &RankStreams::wait},
                                    Kind{"join", 3, &RankStreams::join}, Kind{"synchronize", 1, &RankStreams::synchronize}, Kind{"name", 3, &RankStreams::name}};
  if (!entry.is_array() || entry.empty() || !entry[0].is_string()) return wrong("", "expected a list that begins with what it is");
  for (const Kind& kind : kinds) {
    if (entry[0].get_ref<const std::string&>() != kind.name) continue;
    if (entry.size() != kind.size) return wrong("", fmt::format("\"{}\" has {} parts; expected {}", kind.name, entry.size(), kind.size));
    return (this->*kind.take)(entry);
  }
  return at_place(0, "is no entry: " + entry[0].dump());
}

// ---- operations and memory ------------------------------------------------------------------------------------------------------------------

RankStreams::Problem RankStreams::begin_operation(Operation operation) {
  if (operations_.size() >= stream_operations_max) return wrong("", fmt::format("a rank has at most {} operations in a run", stream_operations_max));
  operation.event = event_;
  order_.enqueue(static_cast<std::uint32_t>(operations_.size()), operation.stream);
  operations_.push_back(operation);
  return std::nullopt;
}

RankStreams::Problem RankStreams::run(const json& entry) {
  Operation operation;
  if (auto problem = read_stream(entry[1], 1, false, operation.stream)) return problem;
  if (auto problem = read_text(entry[2], 2, operation.name)) return problem;
  if (auto problem = read_text(entry[3], 3, operation.site)) return problem;
  if (auto problem = begin_operation(operation)) return problem;
  if (auto problem = access(entry[4], "/4", false)) return problem;
  return access(entry[5], "/5", true);
}

RankStreams::Problem RankStreams::access(const json& ranges, const std::string& where, bool writes) {
  if (!ranges.is_array() || ranges.size() > operation_ranges_max) return wrong(where, fmt::format("expected a list of at most {} ranges", operation_ranges_max));
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const std::string here = fmt::format("{}/{}", where, i);
    const json& range = ranges[i];
    if (!range.is_array() || range.size() != 3) return wrong(here, "expected [buffer, begin, end]");
    std::uint32_t buffer = 0;
    if (auto problem = read_buffer(range[0], 0, buffer)) return wrong(here + problem->where, problem->message);
    Allocation& of = allocations_[buffer];
    const auto begin = number_in(range[1], of.bytes), end = number_in(range[2], std::uint64_t{of.bytes} + 1);
    if (!begin || !end || *begin >= *end) return wrong(here, fmt::format("is no range of {} bytes", of.bytes));
    const auto report_it = [&](const Order::Stretch& stretch, std::uint32_t earlier) { report(buffer, stretch, earlier); };
    stretches_ -= of.touched.size();
    if (writes) order_.write(of.touched, *begin, *end, report_it);
    else order_.read(of.touched, *begin, *end, report_it);
    stretches_ += of.touched.size();
    if (stretches_ > stream_stretches_max) return wrong(here, fmt::format("memory is accessed in more than {} pieces", stream_stretches_max));
  }
  return std::nullopt;
}

// The stream is given back what was allocated on it and is free, as far as anybody can tell: of which sizes is the allocator's affair.
RankStreams::Problem RankStreams::allocate(const json& entry) {
  Allocation made;
  Operation operation;
  if (entry[1] != allocations_.size()) return at_place(1, fmt::format("is {} where the next allocation is {}", entry[1].dump(), allocations_.size()));
  const auto bytes = number_in(entry[2], std::uint64_t{allocation_bytes_max} + 1);
  if (!bytes || *bytes == 0) return at_place(2, fmt::format("expected a number of bytes from 1 to {}", allocation_bytes_max));
  if (auto problem = read_stream(entry[3], 3, true, operation.stream)) return problem;
  if (auto problem = read_text(entry[4], 4, operation.site)) return problem;
  operation.reuses = true;
  if (auto problem = begin_operation(operation)) return problem;
  if (operation.stream != Order::host) {
    made.stream = operation.stream;
    for (const std::uint32_t buffer : freed_[operation.stream]) {
      Allocation& freed = allocations_[buffer];
      order_.check_reuse(freed.touched, freed.waited, [&](const Order::Stretch& stretch, std::uint32_t earlier) { report(buffer, stretch, earlier); });
      stretches_ -= freed.touched.size();
      freed.touched = {};
    }
    freed_[operation.stream].clear();
  }
  made.bytes = *bytes;
  made.site = operation.site;
  made.touched = Order::untouched(*bytes);
  ++stretches_;
  allocations_.push_back(std::move(made));
  return std::nullopt;
}

// Streams that the memory was recorded for are waited for by the allocator, as far as they have come by now.
RankStreams::Problem RankStreams::free(const json& entry) {
  std::uint32_t buffer = 0, site = 0;
  if (auto problem = read_buffer(entry[1], 1, buffer)) return problem;
  if (auto problem = read_text(entry[2], 2, site)) return problem;
  Allocation& of = allocations_[buffer];
  of.live = false;
  of.freed_at = site;
  for (const std::uint32_t stream : of.recorded) {
    order_.enqueue(static_cast<std::uint32_t>(operations_.size()), stream);
    Order::join(of.waited, order_.reached());
  }
  if (of.stream) {
    freed_[*of.stream].push_back(buffer);
  } else {
    stretches_ -= of.touched.size();
    of.touched = {};
  }
  return std::nullopt;
}

RankStreams::Problem RankStreams::keep(const json& entry) {
  std::uint32_t buffer = 0, stream = 0;
  if (auto problem = read_buffer(entry[1], 1, buffer)) return problem;
  if (auto problem = read_stream(entry[2], 2, false, stream)) return problem;
  allocations_[buffer].recorded.insert(stream);
  return std::nullopt;
}

RankStreams::Problem RankStreams::name(const json& entry) {
  std::uint32_t buffer = 0;
  if (auto problem = read_buffer(entry[1], 1, buffer)) return problem;
  return read_text(entry[2], 2, allocations_[buffer].name);
}

// ---- order ----------------------------------------------------------------------------------------------------------------------------------

RankStreams::Problem RankStreams::record(const json& entry) {
  std::uint32_t stream = 0;
  if (auto problem = read_stream(entry[1], 1, false, stream)) return problem;
  const auto event = number_in(entry[2], stream_events_max);
  if (!event) return at_place(2, fmt::format("expected a number below {}", stream_events_max));
  order_.enqueue(static_cast<std::uint32_t>(operations_.size()), stream);
  recorded_[*event] = order_.reached();
  return std::nullopt;
}

// An event that was never recorded is waited for by nobody, as in CUDA.
RankStreams::Problem RankStreams::wait(const json& entry) {
  std::uint32_t stream = 0;
  if (auto problem = read_stream(entry[1], 1, true, stream)) return problem;
  const auto event = number_in(entry[2], stream_events_max);
  if (!event) return at_place(2, fmt::format("expected a number below {}", stream_events_max));
  const auto recorded = recorded_.find(*event);
  if (recorded == recorded_.end()) return std::nullopt;
  order_.enqueue(static_cast<std::uint32_t>(operations_.size()), stream);
  order_.wait(recorded->second);
  return std::nullopt;
}

RankStreams::Problem RankStreams::join(const json& entry) {
  std::uint32_t stream = 0, other = 0;
  if (auto problem = read_stream(entry[1], 1, true, stream)) return problem;
  if (auto problem = read_stream(entry[2], 2, false, other)) return problem;
  const auto now = static_cast<std::uint32_t>(operations_.size());
  order_.enqueue(now, other);
  const Clock reached = order_.reached();
  order_.enqueue(now, stream);
  order_.wait(reached);
  return std::nullopt;
}

RankStreams::Problem RankStreams::synchronize(const json&) {
  order_.enqueue(static_cast<std::uint32_t>(operations_.size()), Order::host);
  order_.synchronize();
  return std::nullopt;
}

// ---- numbers of the message -------------------------------------------------------------------------------------------------------------------

RankStreams::Problem RankStreams::read_stream(const json& value, std::uint32_t place, bool host_too, std::uint32_t& out) const {
  if (host_too && value == -1) {
    out = Order::host;
    return std::nullopt;
  }
  const auto stream = number_in(value, stream_names_.size() - 1);
  if (!stream) return at_place(place, value.dump() + " is no stream");
  out = *stream + 1;
  return std::nullopt;
}

RankStreams::Problem RankStreams::read_buffer(const json& value, std::uint32_t place, std::uint32_t& out) const {
  const auto buffer = number_in(value, allocations_.size());
  if (!buffer) return at_place(place, value.dump() + " is no allocation");
  if (!allocations_[*buffer].live) return at_place(place, fmt::format("allocation {} was freed", *buffer));
  out = *buffer;
  return std::nullopt;
}

RankStreams::Problem RankStreams::read_text(const json& value, std::uint32_t place, std::uint32_t& out) const {
  const auto text = number_in(value, texts_.size());
  if (!text) return at_place(place, value.dump() + " is no text");
  out = *text;
  return std::nullopt;
}

// ---- what is found ----------------------------------------------------------------------------------------------------------------------------

void RankStreams::report(std::uint32_t buffer, const Order::Stretch& stretch, std::uint32_t earlier) {
  const auto second = static_cast<std::uint32_t>(operations_.size()) - 1;
  const Operation &a = operations_[earlier - 1], &b = operations_[second];
  if (races_.size() >= limits::races_reported_max || !known_.insert({a.name, a.site, a.stream, b.name, b.site, b.stream}).second) return;
  races_.push_back({buffer, stretch.begin, stretch.end, earlier - 1, second});
}

RacingOperation RankStreams::describe(std::uint32_t number, const Allocation& of) const {
  const Operation& o = operations_[number];
  RacingOperation out{texts_[o.name], texts_[stream_names_[o.stream]], o.event, number, texts_[o.site]};
  if (o.reuses) out.operation = fmt::format("an allocation that may be given this memory, freed in {},", texts_[of.freed_at]);
  return out;
}

std::string RankStreams::buffer_text(const Allocation& of) const {
  if (!texts_[of.name].empty()) return texts_[of.name];
  return of.stream ? fmt::format("{} bytes from {}", of.bytes, texts_[of.site]) : fmt::format("{} bytes", of.bytes);
}

std::vector<RaceRecord> RankStreams::races() const {
  std::vector<RaceRecord> out;
  for (const Race& race : races_) {
    const Allocation& of = allocations_[race.buffer];
    const std::uint32_t event = operations_[race.second].event;
    out.push_back({rank_, event == no_event ? 0 : event, buffer_text(of), race.begin, race.end, describe(race.first, of), describe(race.second, of), true});
  }
  return out;
}

}  // namespace gradledger::driver
