// Recordings judged by the oracle directly: what a real run held against what the documentation has due, with no engine between.
#pragma once

#include "conformance/judged/recorded_producer.h"
#include "ref/oracle.h"

namespace gradledger::conform {

// Preconditions: the recording came from express() and was not refused; the timeline is its scenario's. `watch` sees the run too.
inline ref::Verdict judge_alone(const Recording& recording, const Timeline& timeline, TraceSink* watch = nullptr) {
  RecordedProducer producer(recording, timeline);
  ref::OracleOptions options;
  options.watch = watch;
  return ref::judge(recording.scenario, timeline, producer, options);
}

}  // namespace gradledger::conform
