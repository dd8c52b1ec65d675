#include "library/local_ranks.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "sim/base/contract.h"
#include "sim/base/hash.h"
#include "sim/producers/driver/messages.h"

namespace gradledger::library {

using driver::Channel;
using driver::Incoming;
using nlohmann::json;

namespace {

driver::DriverHello hello_of(const api::Abilities& abilities) {
  auto hello = driver::hello_from(api::detail::hello_of(abilities, "host", 0));
  expects(hello.ok(), "abilities make a hello");
  return std::move(hello).value();
}

std::optional<Incoming> popped(std::deque<Incoming>& outbox) {
  if (outbox.empty()) return std::nullopt;
  Incoming out = std::move(outbox.front());
  outbox.pop_front();
  return out;
}

}  // namespace

// A baton between two threads. The semaphore of the standard library spins before it sleeps, which on a busy machine gives time away with every turn.
class Baton {
 public:
  void release() {
    const std::lock_guard lock(mutex_);
    there_ = true;
    changed_.notify_one();
  }
  void acquire() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return there_; });
    there_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool there_ = false;
};

// ---- a rank ---------------------------------------------------------------------------------------------------------------------------------

// Its thread runs between resume() and the next yield(), and nobody else does then.
class LocalRanks::Rank final : public api::Communicator {
 public:
  Rank(const api::Ranks& made_by, std::uint32_t rank, std::uint32_t world_size, std::deque<Incoming>& outbox)
      : Communicator(rank, world_size), outbox_(outbox), player_(made_by, *this), thread_([this] { live(); }) {}

  ~Rank() override {
    ending_ = true;
    go_.release();
    thread_.join();
  }

  void give(Channel channel, const json& message) {
    if (channel == Channel::group) result_ = message;
    else inbox_.push_back(message);
  }
  bool can_go_on() const { return waits_ ? result_.has_value() : !inbox_.empty(); }
  void resume() {
    go_.release();
    back_.acquire();
  }

  std::vector<std::byte> call(const api::Collective& collective) override {
    if (ending_) throw api::detail::Ended();
    const std::uint64_t id = next_id_++;
    say(Channel::group, api::detail::collective_json(collective, id, player_.event()));
    say(Channel::group, {{"type", "wait"}, {"id", id}});
    waits_ = true;
    while (!result_ || result_->at("type") == "go_on") {
      result_.reset();
      yield();
      if (ending_) throw api::detail::Ended();
    }
    waits_ = false;
    const json answer = std::move(*result_);
    result_.reset();
    return api::detail::result_of(answer);
  }

 private:
  void live() {
    go_.acquire();
    while (!ending_) {
      try {
        const json message = std::move(inbox_.front());
        inbox_.pop_front();
        if (auto answer = player_.answer(message)) say(Channel::events, std::move(*answer));
      } catch (const api::detail::Ended&) {
        return;
      } catch (const std::exception& error) {
        say(Channel::events, {{"type", "failure"}, {"text", error.what()}});
      }
      if (ending_) return;  // a wrapper that caught the end of its run comes here, and nobody gives it another turn
      yield();
    }
  }

  void yield() {
    back_.release();
    go_.acquire();
  }
  void say(Channel channel, json message) { outbox_.push_back({rank(), channel, std::move(message)}); }

  std::deque<Incoming>& outbox_;
  std::deque<json> inbox_;
  std::optional<json> result_;
  bool waits_ = false, ending_ = false;
  std::uint64_t next_id_ = 0;
  Baton go_, back_;
  api::detail::RankPlayer player_;
  std::thread thread_;  // last: it uses the others
};

LocalRanks::LocalRanks(const api::Ranks& ranks, std::uint64_t seed) : made_by_(ranks), seed_(seed), hello_(hello_of(ranks.abilities)) {}
LocalRanks::~LocalRanks() = default;

void LocalRanks::provide(std::uint32_t world_size, bool fresh) {
  turns_ = 0;
  if (!fresh && world_size == ranks_.size()) return;
  ranks_.clear();
  outbox_.clear();
  for (std::uint32_t r = 0; r < world_size; ++r) ranks_.push_back(std::make_unique<Rank>(made_by_, r, world_size, outbox_));
}

void LocalRanks::send(std::uint32_t rank, Channel channel, const json& message) {
  if (message["type"] != "welcome") ranks_[rank]->give(channel, message);
}

std::optional<Incoming> LocalRanks::poll() { return popped(outbox_); }

Incoming LocalRanks::next(std::span<const std::uint32_t> owing) {
  while (outbox_.empty()) {
    std::vector<Rank*> able;
    for (const auto& rank : ranks_)
      if (rank->can_go_on()) able.push_back(rank.get());
    if (able.empty()) throw driver::DriverFailure(owing.empty() ? std::nullopt : std::optional(owing.front()), "has nothing to do, and an answer is missing");
    able[hash_keys({seed_, turns_++}) % able.size()]->resume();
  }
  return *popped(outbox_);
}

// ---- a world --------------------------------------------------------------------------------------------------------------------------------

LocalWorld::LocalWorld(const api::Worlds& worlds) : made_by_(worlds), hello_(hello_of(worlds.abilities)) {}

void LocalWorld::provide(std::uint32_t world_size, bool) {
  world_.reset();
  outbox_.clear();
  ranks_.assign(world_size, {});
}

void LocalWorld::send(std::uint32_t rank, Channel, const json& message) { ranks_[rank].inbox.push_back(message); }

std::optional<Incoming> LocalWorld::poll() { return popped(outbox_); }

Incoming LocalWorld::next(std::span<const std::uint32_t> owing) {
  while (outbox_.empty()) {
    if (answer_those_alone()) continue;
    const bool waits = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.inbox.empty(); });
    if (!waits) throw driver::DriverFailure(owing.empty() ? std::nullopt : std::optional(owing.front()), "has nothing to do, and an answer is missing");
    play();
  }
  return *popped(outbox_);
}

// What needs no other rank: the start of all, the end of each, and events behind an error.
bool LocalWorld::answer_those_alone() {
  bool any = false;
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    while (!rank.inbox.empty() && rank.stopped && rank.inbox.front()["type"] == "event") rank.inbox.pop_front();
    if (rank.inbox.empty() || rank.inbox.front()["type"] == "event") continue;
    any = true;
    if (rank.inbox.front()["type"] == "configure") {
      configure();
      return true;
    }
    rank.inbox.pop_front();
    say(r, {{"type", "finished"}});
  }
  return any;
}

void LocalWorld::configure() {
  const json message = ranks_.front().inbox.front();
  for (Rank& rank : ranks_) rank = {};
  world_.reset();
  configuration_ = api::detail::configuration_of(message, 0, static_cast<std::uint32_t>(ranks_.size()));
  observe_ = message.at("observe");
  stops_at_errors_ = message.at("engine").value("after_error", "stop") == "stop";
  const json error = api::detail::raised_by([&] { world_ = api::detail::there(made_by_.make(configuration_)); });
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    if (error.is_null()) say(r, {{"type", "configured"}, {"notes", json::array()}});
    else say(r, {{"type", "refused"}, {"error", error}, {"by_driver", error["type"] == "Refused"}});
  }
}

// The next event of the script. Ranks are told of their events in its order, and each of the next one at least.
void LocalWorld::play() {
  std::int64_t number = std::numeric_limits<std::int64_t>::max();
  for (const Rank& rank : ranks_)
    if (!rank.inbox.empty()) number = std::min(number, rank.inbox.front().at("number").get<std::int64_t>());
  std::vector<std::uint32_t> members;
  std::vector<json> events, answers;
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].inbox.empty() || ranks_[r].inbox.front()["number"] != number) continue;
    members.push_back(r);
    events.push_back(std::move(ranks_[r].inbox.front()));
    ranks_[r].inbox.pop_front();
    answers.push_back({{"type", "done"}, {"number", number}, {"buffers", json::array()}, {"facts", json::object()}});
  }
  const std::string name = events.front().at("name");
  const json error = api::detail::raised_by([&] {
    if (name == "backward") {
      std::vector<api::Backward> backwards;
      for (std::size_t i = 0; i < members.size(); ++i) backwards.push_back(api::detail::backward_of(events[i], members[i], configuration_));
      world_->backward(backwards);
    } else if (name == "set_boundary") {
      world_->set_boundary(members, events.front().at("arguments").at("boundary"));
    } else {
      call(name, members);
    }
    for (std::size_t i = 0; i < members.size() && (observe_ || name == "step"); ++i) {
      api::Shown shown(name);
      world_->show(members[i], shown);
      api::detail::add_shown(shown, made_by_.abilities.shows, answers[i]);
    }
  });
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!error.is_null()) {
      answers[i]["error"] = error;
      ranks_[members[i]].stopped = api::detail::stops(error, stops_at_errors_);
    }
    say(members[i], std::move(answers[i]));
  }
}

void LocalWorld::call(const std::string& name, std::span<const std::uint32_t> ranks) {
  if (name == "step") return world_->step(ranks);
  if (name == "forward") return world_->forward(ranks);
  if (name == "zero_grad") return world_->zero_grad(ranks);
  if (name == "enter_no_sync") return world_->enter_no_sync(ranks);
  if (name == "exit_no_sync") return world_->exit_no_sync(ranks);
  if (name == "finalize") return world_->finalize(ranks);
  if (name == "save") return world_->save(ranks);
  if (name == "restore") return world_->restore(ranks);
  throw api::NotSupported("wrappers in C++ have no " + name);
}

}  // namespace gradledger::library
