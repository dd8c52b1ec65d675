#include "drivers/sessions/process_ranks.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drivers/sessions/connection.h"
#include "drivers/sessions/frame_log.h"
#include "drivers/sessions/host_process.h"
#include "sim/base/contract.h"
#include "sim/producers/driver/messages.h"
#include "sim/transport/private_folder.h"

namespace gradledger::driver {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

namespace {

// A rank's connection may break a moment before the host says how its process ended.
constexpr std::chrono::milliseconds afterwards = std::chrono::seconds(2);

// Of all worlds together: each is a process with a framework in it.
constexpr std::size_t ranks_kept_max = 16;
// A host costs as much as some starts of its ranks.
constexpr std::uint32_t changes_before_another_host = 8;

std::string name_of(Channel channel) { return channel == Channel::events ? "driver" : "group"; }

}  // namespace

class ProcessRanks::Sessions {
 public:
  explicit Sessions(SessionOptions options)
      : options_(std::move(options)),
        log_(options_.log),
        secret_(transport::make_secret()),
        door_(context_, transport::Address::unix_socket(folder_.path() / "socket"), secret_, [this](transport::Socket socket) { greet(std::move(socket)); }) {}

  ~Sessions() {
    door_.close();
    for (const auto& connection : guests_) connection->close();
    host_.reset();  // with all that it started, while the folder is there
  }

  const DriverHello& hello() {
    if (!host_) start_host();
    return hello_;
  }

  std::size_t world_size() const { return ranks_.size(); }

  void provide(std::uint32_t world_size, bool fresh) {
    hello();
    context_.restart();
    context_.poll();
    if (lost_ && !told_ && !fresh) throw_lost();  // one that ended between two runs did not end by itself, unless the last was broken off by what it said
    if (!fresh && !lost_ && world_size == ranks_.size()) return;
    end_ranks();
    ranks_.resize(world_size);
    for (std::uint32_t r = 0; r < world_size; ++r) {
      std::filesystem::remove(errors_of(r));
      say_to_host({{"type", "start"}, {"rank", r}, {"world_size", world_size}, {"errors", errors_of(r).string()}});
    }
    wait_for([&] { return all_there(); }, [&] { return who_is_missing(); });
  }

  void send(std::uint32_t rank, Channel channel, const json& message) {
    log_.add("command", rank_text(rank), name_of(channel), message);
    if (const auto& connection = ranks_[rank].connections[channel]) connection->send(message);
  }

  std::optional<Incoming> poll() {
    context_.restart();
    context_.poll();
    if (inbox_.empty() && lost_) throw_lost();
    return pop();
  }

  Incoming next(std::span<const std::uint32_t> owing) {
    wait_for([&] { return !inbox_.empty(); },
             [&] {
               const std::optional<std::uint32_t> first = owing.empty() ? std::nullopt : std::optional(owing.front());
               return std::pair(first, fmt::format("rank{} {} did not answer", owing.size() == 1 ? "" : "s", fmt::join(owing, ", ")));
             });
    return *pop();
  }

 private:
  struct Rank {
    std::map<Channel, std::shared_ptr<Connection>> connections;
    bool ended = false;
    std::string how;
  };
  using Fault = std::pair<std::optional<std::uint32_t>, std::string>;

  std::filesystem::path errors_of(std::uint32_t rank) const { return folder_.path() / fmt::format("rank{}.err", rank); }
  static std::string rank_text(std::uint32_t rank) { return fmt::format("rank {}", rank); }
  static std::string host_text(const std::string& what) { return "the process of the driver " + what; }

  // ---- the host -------------------------------------------------------------------------------------------------------------------------

  void start_host() {
    std::vector<std::string> variables{"GRADLEDGER_ADDRESS=" + door_.address().text(), "GRADLEDGER_TOKEN=" + secret_, "GRADLEDGER_DELIVER=" + options_.deliver,
                                       fmt::format("GRADLEDGER_SEED={}", options_.seed), "PYTHONUNBUFFERED=1"};
    if (options_.virtual_streams) variables.push_back("GRADLEDGER_STREAMS=virtual");
    std::vector<std::string> path = options_.python_path;
    if (const char* inherited = getenv("PYTHONPATH"); inherited && *inherited) path.emplace_back(inherited);
    if (!path.empty()) variables.push_back(fmt::format("PYTHONPATH={}", fmt::join(path, ":")));
    std::vector<std::string> words{options_.program};
    if (options_.program.empty()) words = {options_.python, "-m", "gradledger.host", options_.driver, "--backend", options_.backend};
    try {
      host_ = std::make_unique<HostProcess>(std::move(words), variables, folder_.path() / "host.err");
    } catch (const std::runtime_error& error) {
      throw DriverFailure(std::nullopt, error.what());
    }
    wait_for([&] { return host_connection_ != nullptr; }, [&] { return Fault{std::nullopt, "the process of the driver did not connect"}; });
  }

  void say_to_host(const json& message) {
    log_.add("command", "host", "host", message);
    host_connection_->send(message);
  }

  void heard_of_host(const json& message) {
    log_.add("host", "command", "host", message);
    const std::string type = message.value("type", "");
    if (type == "started") return;
    const json rank = message.value("rank", json());
    if (type != "ended" || !rank.is_number_unsigned() || rank >= ranks_.size())
      return lose(std::nullopt, "the process of the driver sent \"" + type + "\", which is not understood");
    Rank& of = ranks_[rank];
    of.ended = true;
    const json code = message.value("code", json()), signal = message.value("signal", json());
    of.how =
        signal.is_number_integer() ? fmt::format("was ended by signal {}", signal.get<int>()) : fmt::format("ended with code {}", code.is_number_integer() ? code.get<int>() : -1);
    if (!ending_) lose(rank.get<std::uint32_t>(), of.how);
  }

  // ---- who comes in ------------------------------------------------------------------------------------------------------------------------

  void greet(transport::Socket socket) {
    const auto guest = std::make_shared<Connection>(std::move(socket));
    guests_.push_back(guest);
    // Weak: one that never says who it is would else hold itself for ever.
    guest->start([this, self = std::weak_ptr(guest)](json message) { introduce(self.lock(), message); }, [](const std::string&) {});
  }

  // The first message of a connection: a hello, or it is closed.
  void introduce(const std::shared_ptr<Connection>& guest, const json& hello) {
    const json kind = hello.value("kind", json()), protocol = hello.value("protocol", json());
    if (hello.value("type", json()) != "hello" || !kind.is_string()) return dismiss(guest, "expected a hello");
    if (protocol != protocol_version) return dismiss(guest, fmt::format("protocol {} is not spoken here; expected {}", protocol.dump(), protocol_version));
    if (kind == "host") return welcome_host(guest, hello);
    const json rank = hello.value("rank", json());
    if ((kind != "driver" && kind != "group") || !rank.is_number_unsigned() || rank >= ranks_.size() || hello.value("world_size", json()) != ranks_.size())
      return dismiss(guest, "no rank of that number is expected");
    const Channel channel = kind == "driver" ? Channel::events : Channel::group;
    std::shared_ptr<Connection>& place = ranks_[rank].connections[channel];
    if (place) return dismiss(guest, "that rank is here already");
    place = guest;
    log_.add(rank_text(rank), "command", kind, hello);
    guest->trust();
    listen(guest, rank, channel);
    send(rank, channel, {{"type", "welcome"}});
  }

  void welcome_host(const std::shared_ptr<Connection>& guest, const json& hello) {
    log_.add("host", "command", "host", hello);
    if (host_connection_) return dismiss(guest, "the host is here already");
    auto read = hello_from(hello);
    if (!read) {
      dismiss(guest, read.error().text());
      return lose(std::nullopt, "the process of the driver introduced itself in a way that cannot be read: " + read.error().text());
    }
    hello_ = std::move(read).value();
    if (options_.virtual_streams && !hello_.streams) {
      dismiss(guest, "the driver has no virtual streams");
      return lose(std::nullopt, "driver " + hello_.driver + " cannot run on virtual streams (--streams): its hello does not name them");
    }
    host_connection_ = guest;
    guest->start_over([this](const json& message) { heard_of_host(message); }, [this](const std::string& why) { lose(std::nullopt, why.empty() ? "" : host_text(why)); });
    say_to_host({{"type", "welcome"}});
  }

  void listen(const std::shared_ptr<Connection>& guest, std::uint32_t rank, Channel channel) {
    guest->start_over(
        [this, rank, channel](json message) {
          log_.add(rank_text(rank), "command", name_of(channel), message);
          inbox_.push_back({rank, channel, std::move(message)});
        },
        [this, rank](const std::string& why) {
          if (!ending_) lose(rank, why.empty() ? "" : why);
        });
  }

  void dismiss(const std::shared_ptr<Connection>& guest, const std::string& reason) {
    guest->send({{"type", "bye"}, {"reason", reason}});
    guest->start_over([](const json&) {}, [](const std::string&) {});
  }

  // ---- waiting -----------------------------------------------------------------------------------------------------------------------------

  // A rank's process group connects when the framework makes one.
  bool all_there() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) { return rank.connections.contains(Channel::events); });
  }

  Fault who_is_missing() const {
    for (std::uint32_t r = 0; r < ranks_.size(); ++r)
      if (!ranks_[r].connections.contains(Channel::events)) return {r, fmt::format("rank {} did not connect", r)};
    return {std::nullopt, "a rank did not connect"};
  }

  template <class Condition, class Describe>
  void wait_for(Condition&& there, Describe&& fault) {
    const auto until = Clock::now() + options_.deadline;
    while (!there()) {
      if (lost_) {
        context_.restart();
        context_.poll();  // what a rank said before it ended says more than that it did
        if (there()) return;
        throw_lost();
      }
      context_.restart();
      const auto left = until - Clock::now();
      if (left.count() <= 0) {
        const Fault late = fault();
        lost_ = Fault{late.first, fmt::format("{} within {:g} s", late.second, std::chrono::duration<double>(options_.deadline).count())};
        throw_lost();
      }
      context_.run_one_for(std::min<Clock::duration>(left, std::chrono::milliseconds(200)));
      if (host_ && !ending_ && !lost_)
        if (const auto how = host_->ended()) lose(std::nullopt, host_text(*how));
    }
  }

  // Keeps the first fault, or what says more of the same rank.
  void lose(std::optional<std::uint32_t> rank, const std::string& what) {
    if (!lost_ || (lost_->first == rank && lost_->second.empty())) lost_ = Fault{rank, what};
  }

  [[noreturn]] void throw_lost() {
    // Its process says how it ended, if it has.
    const auto until = Clock::now() + afterwards;
    while (lost_->second.empty() && Clock::now() < until) {
      context_.restart();
      context_.run_one_for(std::chrono::milliseconds(50));
      lost_->second = end_of(lost_->first);
    }
    told_ = true;
    const std::optional<std::uint32_t> rank = lost_->first;
    std::string what = lost_->second.empty() ? (rank ? "closed its connection" : host_text("closed its connection")) : lost_->second;
    if (rank && !what.starts_with("rank")) what = fmt::format("rank {} {}", *rank, what);
    const std::string printed = last_lines(rank ? errors_of(*rank) : folder_.path() / "host.err");
    if (!printed.empty()) what += "; it printed last:\n" + printed;
    throw DriverFailure(rank, what);
  }

  // Empty where it has not ended, as far as is known.
  std::string end_of(std::optional<std::uint32_t> rank) {
    if (rank) return ranks_[*rank].how;
    const auto how = host_->ended();
    return how ? host_text(*how) : "";
  }

  void end_ranks() {
    ending_ = true;
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      for (const auto& [channel, connection] : ranks_[r].connections) connection->close();
      if (!ranks_[r].ended) say_to_host({{"type", "end"}, {"rank", r}});
    }
    inbox_.clear();
    const bool host_lost = lost_ && !lost_->first;
    lost_.reset();
    told_ = false;
    if (!host_lost)
      wait_for([&] { return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended; }); },
               [&] {
                 return Fault{std::nullopt, "ranks could not be ended"};
               });
    std::erase_if(guests_, [](const auto& guest) { return guest.use_count() == 1; });
    ranks_.clear();
    inbox_.clear();
    ending_ = false;
    if (host_lost) restart_host();  // which may end while it starts
  }

  void restart_host() {
    if (host_connection_) host_connection_->close();
    host_connection_.reset();
    host_.reset();
    start_host();
  }

  std::optional<Incoming> pop() {
    if (inbox_.empty()) return std::nullopt;
    Incoming out = std::move(inbox_.front());
    inbox_.pop_front();
    return out;
  }

  SessionOptions options_;
  FrameLog log_;
  std::string secret_;
  transport::PrivateFolder folder_;
  boost::asio::io_context context_;
  std::vector<std::shared_ptr<Connection>> guests_;
  std::shared_ptr<Connection> host_connection_;
  DriverHello hello_;
  std::vector<Rank> ranks_;
  std::deque<Incoming> inbox_;
  std::optional<Fault> lost_;
  bool told_ = false;  // somebody was told of it: the next run starts anew
  bool ending_ = false;
  transport::Door door_;
  std::unique_ptr<HostProcess> host_;
};

ProcessRanks::ProcessRanks(SessionOptions options) : options_(std::move(options)) { add(); }
ProcessRanks::~ProcessRanks() = default;

void ProcessRanks::add() {
  worlds_.push_back({std::make_unique<Sessions>(options_)});
  current_ = worlds_.size() - 1;
}

void ProcessRanks::choose(std::uint32_t world_size) {
  std::size_t kept = 0;
  for (std::size_t w = 0; w < worlds_.size(); ++w) {
    const std::size_t ranks = worlds_[w].sessions->world_size();
    kept += ranks;
    if (ranks != world_size && ranks != 0) continue;
    current_ = w;
    return;
  }
  if (options_.log.empty() && changes_++ >= changes_before_another_host && kept + world_size <= ranks_kept_max) add();
}

const DriverHello& ProcessRanks::hello() { return worlds_[current_].sessions->hello(); }

void ProcessRanks::provide(std::uint32_t world_size, bool fresh) {
  if (fresh) worlds_[current_].is_broken_off = true;
  choose(world_size);
  World& world = worlds_[current_];
  world.sessions->provide(world_size, std::exchange(world.is_broken_off, false));
}

void ProcessRanks::send(std::uint32_t rank, Channel channel, const json& message) { worlds_[current_].sessions->send(rank, channel, message); }
std::optional<Incoming> ProcessRanks::poll() { return worlds_[current_].sessions->poll(); }
Incoming ProcessRanks::next(std::span<const std::uint32_t> owing) { return worlds_[current_].sessions->next(owing); }

}  // namespace gradledger::driver
