// One run on the ranks of a real framework: who is told what next, and what is shown when.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <variant>
#include <vector>

#include "sim/base/hash.h"
#include "sim/producers/driver/coordinator.h"
#include "sim/producers/driver/driver_producer.h"
#include "sim/producers/driver/messages.h"
#include "sim/producers/driver/rank_streams.h"
#include "sim/producers/driver/ranks.h"
#include "sim/producers/driver/weights.h"
#include "sim/trace/producer.h"

namespace gradledger::driver {

// Keeps what ranks show until all of them are past it, and hands it on by event, then rank. Ranks are apart in time as they like.
class OrderedTrace final : public TraceSink {
 public:
  OrderedTrace(std::uint32_t world_size, TraceSink& sink) : sink_(sink), waiting_(world_size) {}

  void collective(const CollectiveRecord& record) override;
  void mismatch(const MismatchRecord& record) override { mismatches_.push_back(record); }
  void deadlock(const DeadlockRecord& record) override { deadlocks_.push_back(record); }
  void race(const RaceRecord& record) override { sink_.race(record); }
  // goes_on: the rank raised nothing, or the script goes on behind an error.
  void done(std::uint32_t rank, Done&& done, bool goes_on);

  // Everything of events before this one is there, of all ranks.
  void hand_on(std::uint32_t before_event);
  void finish();
  std::uint64_t hash() const { return hash_.value(); }

 private:
  struct Shown {
    std::uint32_t event = 0;
    std::variant<CollectiveRecord, Done> what;
    bool goes_on = true;
  };
  void put(std::uint32_t rank, Shown&& shown);
  void show_work(std::uint32_t rank, const Done& done);
  void show_left(std::uint32_t rank, const Done& done, bool goes_on);
  void show(std::uint32_t rank, std::uint32_t event, const ShownBuffer& buffer);

  TraceSink& sink_;
  std::vector<std::deque<Shown>> waiting_;  // by rank
  std::vector<MismatchRecord> mismatches_;
  std::vector<DeadlockRecord> deadlocks_;
  TraceHash hash_;
};

class DriverRun {
 public:
  DriverRun(const Scenario& scenario, const Timeline& timeline, const GradientSource& source, const RunOptions& options, DriverRanks& ranks, TraceSink& sink);

  // Throws DriverFailure and NotRun.
  RunSummary go(std::uint64_t number, std::uint64_t seed);

  const std::vector<std::string>& notes() const { return notes_; }
  const std::string& streams_note() const { return streams_note_; }  // how much was looked at; empty: nothing was to be
  // Nothing was raised and every rank came to the end of its script: its processes may serve the next run.
  bool unharmed() const { return unharmed_; }

 private:
  enum class Stage : std::uint8_t { configures, plays, finishes, finished };
  struct RankState {
    RankScript script;
    std::size_t at = 0;                  // of the script's events: the next that will be answered
    std::size_t told = 0;                // of the script's events: the next that the rank will be told of
    std::deque<std::size_t> bytes_told;  // of those in between
    std::size_t bytes_ahead = 0;         // their sum
    Stage stage = Stage::configures;
    bool complete = true;
    std::optional<WeightsOfRank> weights;  // of a black box
    std::optional<RankStreams> streams;    // where they are to be told
  };

  void take(Incoming&& in);
  void take_answer(std::uint32_t rank, nlohmann::json&& message);
  void take_done(std::uint32_t rank, nlohmann::json&& message);
  void add_applied(RankState& state, Done& shown) const;
  void take_streams(std::uint32_t rank, const nlohmann::json& message);
  void report_streams();
  void take_request(std::uint32_t rank, nlohmann::json&& message);
  void configured(std::uint32_t rank, const nlohmann::json& message);
  void refused(std::uint32_t rank, const nlohmann::json& message);
  void begin_if_all_are_configured();
  void tell_on(std::uint32_t rank);
  void finish(std::uint32_t rank);
  void send_all(std::vector<GroupAnswer> answers);
  bool settle();
  bool over() const;
  std::vector<std::uint32_t> owing() const;
  bool waits_for_the_others_to_be_configured(std::uint32_t rank) const;
  std::uint32_t frontier() const;
  [[noreturn]] void fail(std::uint32_t rank, const std::string& what) const;

  const Timeline& timeline_;
  const Scenario& scenario_;
  const GradientSource& source_;
  const RunOptions& options_;
  DriverRanks& ranks_;
  OrderedTrace trace_;
  Coordinator coordinator_;
  std::vector<RankState> states_;
  std::vector<std::uint32_t> became_idle_;  // of whom the coordinator is told when nothing is left to read
  std::uint32_t configured_ = 0;
  std::optional<NotRun> refusal_;
  std::vector<std::string> notes_;
  std::string streams_note_;
  bool unharmed_ = true;
};

}  // namespace gradledger::driver
