// The ranks of a wrapper in this process, as a run sees them: what drivers/sessions is for processes. Nothing here waits for a socket or a clock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gradledger/player.hpp"
#include "sim/producers/driver/ranks.h"

namespace gradledger::library {

// A thread for each rank, since a collective waits in the middle of the wrapper's code. One runs at a time, in an order that the seed alone decides: a wrapper needs
// no locks, and a run can be repeated.
class LocalRanks final : public driver::DriverRanks {
 public:
  // `ranks` outlives it.
  LocalRanks(const api::Ranks& ranks, std::uint64_t seed);
  ~LocalRanks() override;

  const driver::DriverHello& hello() override { return hello_; }
  void provide(std::uint32_t world_size, bool fresh) override;
  void send(std::uint32_t rank, driver::Channel channel, const nlohmann::json& message) override;
  std::optional<driver::Incoming> poll() override;
  driver::Incoming next(std::span<const std::uint32_t> owing) override;

 private:
  class Rank;

  const api::Ranks& made_by_;
  std::uint64_t seed_, turns_ = 0;
  driver::DriverHello hello_;
  std::deque<driver::Incoming> outbox_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// All ranks in one object: an event is played once every rank that takes part in it has been told of it.
class LocalWorld final : public driver::DriverRanks {
 public:
  // `worlds` outlives it.
  explicit LocalWorld(const api::Worlds& worlds);

  const driver::DriverHello& hello() override { return hello_; }
  void provide(std::uint32_t world_size, bool fresh) override;
  void send(std::uint32_t rank, driver::Channel channel, const nlohmann::json& message) override;
  std::optional<driver::Incoming> poll() override;
  driver::Incoming next(std::span<const std::uint32_t> owing) override;

 private:
  struct Rank {
    std::deque<nlohmann::json> inbox;
    bool stopped = false;
  };

  bool answer_those_alone();
  void configure();
  void play();
  void call(const std::string& name, std::span<const std::uint32_t> ranks);
  void say(std::uint32_t rank, nlohmann::json message) { outbox_.push_back({rank, driver::Channel::events, std::move(message)}); }

  const api::Worlds& made_by_;
  driver::DriverHello hello_;
  std::deque<driver::Incoming> outbox_;
  std::vector<Rank> ranks_;
  std::unique_ptr<api::World> world_;
  api::Configuration configuration_;
  bool observe_ = true, stops_at_errors_ = true;
};

}  // namespace gradledger::library
