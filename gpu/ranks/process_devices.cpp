#include "gpu/ranks/process_devices.h"

#include <algorithm>
#include <set>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/write.hpp>

#include "gpu/ranks/connection.h"
#include "sim/base/contract.h"
#include "sim/transport/door.h"
#include "sim/transport/private_folder.h"

namespace gradledger::gpu {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

// What is collected before it is sent, while nobody waits.
constexpr std::size_t buffered_bytes = 64 << 10;

bool has_reply(FrameKind kind) { return kind == FrameKind::fetch || kind == FrameKind::make_id || kind == FrameKind::join || kind == FrameKind::finish; }

// Where a process of this machine knocks at a door that is open on all interfaces.
transport::Address from_here(transport::Address address) {
  if (address.host == any_interface) address.host = "127.0.0.1";
  return address;
}

}  // namespace

class ProcessDevices::Control {
 public:
  Control(std::unique_ptr<RankLauncher> launcher, const Listening& listening, std::chrono::milliseconds deadline)
      : launcher_(std::move(launcher)),
        secret_(listening.secret.empty() ? transport::make_secret() : listening.secret),
        deadline_(deadline),
        ranks_expected_(listening.ranks),
        door_(context_, listening.at ? *listening.at : transport::Address::unix_socket(folder_.emplace().path() / "ranks"), secret_, [this](transport::Socket socket) {
          newcomers_.push_back(std::make_shared<Connection>(std::move(socket)));
          newcomers_.back()->receive();
        }) {}

  // Ranks that still answer are told to end; whatever is left is ended.
  ~Control() {
    if (!failed_) {
      try {
        for (std::uint32_t r = 0; r < ranks_.size(); ++r) post(r, FrameKind::finish, {});
        for (std::uint32_t r = 0; r < ranks_.size(); ++r) reply(r);
      } catch (const DeviceFailure&) {  // the run is over and was judged
      }
    }
    launcher_->end_all();
  }

  const transport::Address& address() const { return door_.address(); }
  const std::vector<Hello>& hellos() const { return hellos_; }

  void provide(std::uint32_t world) {
    const auto first = static_cast<std::uint32_t>(ranks_.size());
    world = std::max(world, ranks_expected_);
    if (world <= first) return;
    try {
      for (std::uint32_t r = first; r < world; ++r) launcher_->start({from_here(address()), r, secret_});
    } catch (const std::runtime_error& error) {
      fail(std::nullopt, error.what());
    }
    ranks_.resize(world);
    hellos_.resize(world);
    wait_for([&] { return all_there(); },
             [&] {
               std::uint32_t missing = 0;
               while (ranks_[missing]) ++missing;
               return std::pair(missing, std::string("did not connect"));
             });
  }

  // reply_bytes: of the reply, where the frame has one.
  void post(std::uint32_t rank, FrameKind kind, std::vector<std::byte> body, std::uint64_t reply_bytes = 0) {
    expects(rank < ranks_.size() && ranks_[rank], "a rank is spoken to that is not there");
    if (has_reply(kind)) ranks_[rank]->await(reply_bytes);
    std::vector<std::byte>& out = ranks_[rank]->outbox;
    const FrameHeader header{.kind = kind, .bytes = body.size()};
    const auto* begin = reinterpret_cast<const std::byte*>(&header);
    out.insert(out.end(), begin, begin + sizeof(header));
    out.insert(out.end(), body.begin(), body.end());
    if (out.size() >= buffered_bytes) flush(rank);
  }

  // Returns when everything that was posted to the rank is on its way.
  void flush(std::uint32_t rank) {
    Connection& to = *ranks_[rank];
    if (to.outbox.empty()) return;
    bool sent = false;
    boost::system::error_code failed;
    asio::async_write(to.socket, asio::buffer(to.outbox), [&](boost::system::error_code error, std::size_t) {
      sent = true;
      failed = error;
    });
    try {
      wait_for([&] { return sent; }, [&] { return std::pair(rank, std::string("did not take what it was sent")); });
    } catch (const DeviceFailure&) {
      close(to);
      while (!sent) context_.run_one();  // the write refers to this frame
      throw;
    }
    to.outbox.clear();
    if (failed) {
      to.lose("");
      watch(rank);
    }
  }

  // Everything posted is sent first, to all: nobody waits for what another one was not told.
  Frame reply(std::uint32_t rank) {
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) flush(r);
    Connection& from = *ranks_[rank];
    wait_for([&] { return !from.inbox.empty(); }, [&] { return std::pair(rank, std::string("did not answer")); });
    Frame frame = std::move(from.inbox.front());
    from.inbox.pop_front();
    if (frame.kind == FrameKind::failure) report_failure(frame, rank);
    return frame;
  }

  void know(const Group& group) {
    if (!known_.insert(group).second) return;
    post(group.front(), FrameKind::make_id, {}, sizeof(NcclUniqueId));
    Frame made = reply(group.front());
    NcclUniqueId id;
    if (made.body.size() != sizeof(id)) fail(group.front(), "sent no unique id");
    std::memcpy(&id, made.body.data(), sizeof(id));
    for (std::uint32_t r : group) post(r, FrameKind::join, Packer().add_all(std::span<const std::uint32_t>(group)).add(id).take());
    for (std::uint32_t r : group) reply(r);
  }

  [[noreturn]] void fail(std::optional<std::uint32_t> rank, const std::string& what) {
    failed_ = true;
    launcher_->end_all();
    throw DeviceFailure(rank, what);
  }

 private:
  // Newcomers become ranks with their hello. One that is none of this run is turned away.
  bool all_there() {
    for (std::size_t i = 0; i < newcomers_.size();) {
      const std::shared_ptr<Connection> one = newcomers_[i];
      if (one->inbox.empty() && !one->lost()) {
        ++i;
        continue;
      }
      newcomers_.erase(newcomers_.begin() + static_cast<std::ptrdiff_t>(i));
      if (one->inbox.empty() || !greet(one)) close(*one);
    }
    return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank != nullptr; });
  }

  // Whether it is a rank of this run.
  bool greet(const std::shared_ptr<Connection>& one) {
    const Frame frame = std::move(one->inbox.front());
    one->inbox.pop_front();
    if (frame.kind == FrameKind::failure) report_failure(frame, std::nullopt);
    if (frame.kind != FrameKind::hello) return false;
    try {
      Hello hello = Hello::unpacked(frame.body);
      if (hello.rank >= ranks_.size() || ranks_[hello.rank]) return false;
      const std::uint32_t rank = hello.rank;
      ranks_[rank] = one;
      hellos_[rank] = std::move(hello);
      return true;
    } catch (const WireError& error) {
      fail(std::nullopt, error.what());
    }
  }

  static void close(Connection& one) {
    boost::system::error_code ignored;
    one.socket.close(ignored);
  }

  // rank: whose connection it came by, where that is known.
  [[noreturn]] void report_failure(const Frame& frame, std::optional<std::uint32_t> rank) {
    std::string text = "failed, and does not say why";
    try {
      Unpacker in(frame.body);
      const auto said = in.get<std::uint32_t>();
      if (!rank) rank = said;
      text = in.get_text();
    } catch (const WireError&) {  // a failure it is all the same
    }
    fail(rank, text);
  }

  // Runs the connections until done() holds. late(): whose fault it is when the deadline passes, and what was not done.
  template <class Done, class Late>
  void wait_for(Done&& done, Late&& late) {
    const auto until = Clock::now() + deadline_;
    while (!done()) {
      for (std::uint32_t r = 0; r < ranks_.size(); ++r) watch(r);
      if (Clock::now() >= until) {
        const auto [rank, what] = late();
        fail(rank, what + " within " + std::to_string(deadline_.count()) + " ms");
      }
      context_.restart();
      context_.run_one_for(std::chrono::milliseconds(20));
    }
  }

  // Raises where a rank has failed or is no more.
  void watch(std::uint32_t rank) {
    if (ranks_[rank] && ranks_[rank]->failed()) report_failure(ranks_[rank]->inbox.back(), rank);
    if (ranks_[rank] && !ranks_[rank]->lost()) return;
    const std::optional<std::string> how = launcher_->ended(rank);
    if (how) {
      hear_last_words();
      fail(rank, "its process " + *how);
    }
    if (ranks_[rank]) fail(rank, ranks_[rank]->reason().empty() ? "its connection is closed" : ranks_[rank]->reason());
  }

  // What a process said before it ended may still be on its way.
  void hear_last_words() {
    for (int tries = 0; tries < 10; ++tries) {
      context_.restart();
      context_.run_for(std::chrono::milliseconds(10));  // all that comes, other ranks' too
      for (const auto* connections : {&newcomers_, &ranks_})
        for (const std::shared_ptr<Connection>& one : *connections)
          if (one && one->failed()) report_failure(one->inbox.back(), std::nullopt);
    }
  }

  asio::io_context context_;
  std::unique_ptr<RankLauncher> launcher_;
  std::optional<transport::PrivateFolder> folder_;
  std::string secret_;
  std::chrono::milliseconds deadline_;
  std::uint32_t ranks_expected_;
  std::vector<std::shared_ptr<Connection>> newcomers_, ranks_;
  std::vector<Hello> hellos_;
  std::set<Group> known_;
  bool failed_ = false;
  transport::Door door_;
};

ProcessDevices::ProcessDevices(std::unique_ptr<RankLauncher> launcher, const Listening& listening, std::chrono::milliseconds deadline) {
  try {
    control_ = std::make_unique<Control>(std::move(launcher), listening, deadline);
  } catch (const std::runtime_error& error) {
    throw DeviceFailure(std::nullopt, error.what());
  }
}

ProcessDevices::~ProcessDevices() = default;

const std::vector<Hello>& ProcessDevices::ranks() const { return control_->hellos(); }
const transport::Address& ProcessDevices::address() const { return control_->address(); }

void ProcessDevices::begin(std::uint32_t world) {
  control_->provide(world);
  for (std::uint32_t r = 0; r < world; ++r) control_->post(r, FrameKind::begin, {});
}

void ProcessDevices::enqueue(std::uint32_t rank, const Command& command, std::span<const double> values) {
  control_->post(rank, FrameKind::enqueue, Packer().add(command).add_all(values).take());
}

void ProcessDevices::collective(std::span<const Participant> members) {
  Group group;
  for (const Participant& member : members) group.push_back(member.rank);
  control_->know(group);
  for (const Participant& member : members) control_->post(member.rank, FrameKind::collective, Packer().add_all(std::span<const std::uint32_t>(group)).add(member.command).take());
  // At once: a member may wait for the collective in its next command, and take nothing more until its peers have theirs.
  for (const Participant& member : members) control_->flush(member.rank);
}

void ProcessDevices::fetch(std::uint32_t rank, Stream stream, std::span<const Operand> operands, std::vector<std::byte>& out) {
  std::size_t bytes = 0;
  for (const Operand& operand : operands) bytes += fetched_bytes(operand);
  control_->post(rank, FrameKind::fetch, Packer().add(stream).add_all(operands).take(), bytes);
  Frame reply = control_->reply(rank);
  if (reply.body.size() != bytes) control_->fail(rank, "sent " + std::to_string(reply.body.size()) + " bytes of " + std::to_string(bytes));
  out = std::move(reply.body);
}

}  // namespace gradledger::gpu
