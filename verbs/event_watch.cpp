#include "verbs/event_watch.h"

#include <cmath>

#include "ref/dtype_facts.h"

namespace gradledger::verbs {

void EventWatch::observe(const Observation& o) {
  if (!holds_gradients(o.role)) return;
  report::EventLine::Buffer buffer{std::string(o.buffer), o.role, std::nullopt, o.at_end};
  double squares = 0;
  std::vector<double> values;
  for (const ObservedPiece& piece : o.pieces) {
    if (piece.parameter < 0) continue;
    values.resize(piece.numel);
    ref::read_stored(piece.dtype, piece.data, piece.numel, values.data());
    for (double x : values) squares += x * x;
  }
  buffer.norm = std::sqrt(squares) / o.scale;
  at({o.event, o.rank}).buffers.push_back(std::move(buffer));
}

void EventWatch::weights(const WeightObservation& o) {
  if (holds_gradients(o.role)) at({o.event, o.rank}).buffers.push_back({std::string(o.buffer), o.role, std::nullopt, o.at_end});
}

report::EventLine& EventWatch::at(const Place& place) {
  const auto [found, fresh] = lines_.try_emplace(place);
  if (fresh) std::tie(found->second.event, found->second.rank) = place;
  return found->second;
}

}  // namespace gradledger::verbs
