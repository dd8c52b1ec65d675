#include "gpu/ranks/process_devices.h"

#include <algorithm>
#include <deque>
#include <random>
#include <set>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "sim/base/contract.h"

namespace gradledger::gpu {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

// What is collected before it is sent, while nobody waits.
constexpr std::size_t buffered_bytes = 64 << 10;

// A secret of the run, not a source of results.
std::string fresh_token() {
  std::random_device entropy;
  std::string token;
  for (int i = 0; i < 32; ++i) token += "0123456789abcdef"[entropy() & 15];
  return token;
}

// One rank's connection: frames come in all the time, so that the end of any process is seen while another one is waited for.
struct Connection : std::enable_shared_from_this<Connection> {
  explicit Connection(tcp::socket s) : socket(std::move(s)) {}

  void receive() {
    asio::async_read(socket, asio::buffer(&header, sizeof(header)), [self = shared_from_this()](boost::system::error_code error, std::size_t) {
      if (error || !self->may_send(self->header)) return self->lose(error ? "" : "does not speak this program's language");
      self->body.resize(self->header.bytes);
      asio::async_read(self->socket, asio::buffer(self->body), [self](boost::system::error_code failed, std::size_t) {
        if (failed) return self->lose("");
        self->inbox.push_back({self->header.kind, std::move(self->body)});
        self->receive();
      });
    });
  }
  // Memory for a frame is taken before it is there, so a stranger gets little.
  bool may_send(const FrameHeader& announced) const {
    if (!announced.valid()) return false;
    return is_rank || (announced.bytes <= FrameHeader::newcomer_bytes_max && inbox.size() < FrameHeader::newcomer_frames_max);
  }
  void lose(const char* why) {
    lost = true;
    reason = why;
    if (is_rank) return;
    boost::system::error_code ignored;
    socket.close(ignored);  // a stranger is kept no longer
  }

  tcp::socket socket;
  FrameHeader header;
  std::vector<std::byte> body, outbox;
  std::deque<Frame> inbox;
  bool is_rank = false;
  bool lost = false;
  std::string reason;
};

}  // namespace

class ProcessDevices::Control {
 public:
  Control(std::unique_ptr<RankLauncher> launcher, const Listening& listening, std::chrono::milliseconds deadline)
      : launcher_(std::move(launcher)),
        acceptor_(context_, tcp::endpoint(listening.on_loopback ? asio::ip::address_v4::loopback() : asio::ip::address_v4::any(), listening.port)),
        token_(listening.token.empty() ? fresh_token() : listening.token),
        deadline_(deadline),
        ranks_expected_(listening.ranks) {
    accept();
  }

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

  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
  const std::vector<Hello>& hellos() const { return hellos_; }

  void provide(std::uint32_t world) {
    const auto first = static_cast<std::uint32_t>(ranks_.size());
    world = std::max(world, ranks_expected_);
    if (world <= first) return;
    try {
      for (std::uint32_t r = first; r < world; ++r) launcher_->start({"127.0.0.1", port(), r, token_});
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

  void post(std::uint32_t rank, FrameKind kind, std::vector<std::byte> body) {
    expects(rank < ranks_.size() && ranks_[rank], "a rank is spoken to that is not there");
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
      boost::system::error_code ignored;
      to.socket.close(ignored);
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
    if (frame.kind == FrameKind::failure) report_failure(frame);
    return frame;
  }

  void know(const Group& group) {
    if (!known_.insert(group).second) return;
    post(group.front(), FrameKind::make_id, {});
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
  void accept() {
    acceptor_.async_accept([this](boost::system::error_code error, tcp::socket socket) {
      if (error) return;
      socket.set_option(tcp::no_delay(true), error);
      newcomers_.push_back(std::make_shared<Connection>(std::move(socket)));
      newcomers_.back()->receive();
      accept();
    });
  }

  // Newcomers become ranks with their hello. One that is none of this run is turned away.
  bool all_there() {
    for (std::size_t i = 0; i < newcomers_.size();) {
      const std::shared_ptr<Connection> one = newcomers_[i];
      if (one->inbox.empty() && !one->lost) {
        ++i;
        continue;
      }
      newcomers_.erase(newcomers_.begin() + static_cast<std::ptrdiff_t>(i));
      if (!one->inbox.empty() && !greet(one)) {
        boost::system::error_code ignored;
        one->socket.close(ignored);
      }
    }
    return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank != nullptr; });
  }

  // Whether it is a rank of this run.
  bool greet(const std::shared_ptr<Connection>& one) {
    const Frame frame = std::move(one->inbox.front());
    one->inbox.pop_front();
    try {
      if (frame.kind == FrameKind::failure) report_failure(frame);
      if (frame.kind != FrameKind::hello) return false;
      Hello hello = Hello::unpacked(frame.body);
      if (hello.token != token_ || hello.rank >= ranks_.size() || ranks_[hello.rank]) return false;
      ranks_[hello.rank] = one;
      one->is_rank = true;
      const std::uint32_t rank = hello.rank;
      hellos_[rank] = std::move(hello);
      return true;
    } catch (const WireError& error) {
      fail(std::nullopt, error.what());
    }
  }

  [[noreturn]] void report_failure(const Frame& frame) {
    Unpacker in(frame.body);
    const auto rank = in.get<std::uint32_t>();
    fail(rank, in.get_text());
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
    if (ranks_[rank] && !ranks_[rank]->inbox.empty() && ranks_[rank]->inbox.back().kind == FrameKind::failure) report_failure(ranks_[rank]->inbox.back());
    if (ranks_[rank] && !ranks_[rank]->lost) return;
    const std::optional<std::string> how = launcher_->ended(rank);
    if (how) {
      hear_last_words();
      fail(rank, "its process " + *how);
    }
    if (ranks_[rank]) fail(rank, ranks_[rank]->reason.empty() ? "its connection is closed" : ranks_[rank]->reason);
  }

  // What a process said before it ended may still be on its way.
  void hear_last_words() {
    for (int tries = 0; tries < 10; ++tries) {
      context_.restart();
      context_.run_one_for(std::chrono::milliseconds(10));
      for (const auto* connections : {&newcomers_, &ranks_})
        for (const std::shared_ptr<Connection>& one : *connections)
          if (one && !one->inbox.empty() && one->inbox.back().kind == FrameKind::failure) report_failure(one->inbox.back());
    }
  }

  asio::io_context context_;
  std::unique_ptr<RankLauncher> launcher_;
  tcp::acceptor acceptor_;
  std::string token_;
  std::chrono::milliseconds deadline_;
  std::uint32_t ranks_expected_;
  std::vector<std::shared_ptr<Connection>> newcomers_, ranks_;
  std::vector<Hello> hellos_;
  std::set<Group> known_;
  bool failed_ = false;
};

ProcessDevices::ProcessDevices(std::unique_ptr<RankLauncher> launcher, const Listening& listening, std::chrono::milliseconds deadline)
    : control_(std::make_unique<Control>(std::move(launcher), listening, deadline)) {}

ProcessDevices::~ProcessDevices() = default;

const std::vector<Hello>& ProcessDevices::ranks() const { return control_->hellos(); }
std::uint16_t ProcessDevices::port() const { return control_->port(); }

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
  control_->post(rank, FrameKind::fetch, Packer().add(stream).add_all(operands).take());
  std::size_t bytes = 0;
  for (const Operand& operand : operands) bytes += fetched_bytes(operand);
  Frame reply = control_->reply(rank);
  if (reply.body.size() != bytes) control_->fail(rank, "sent " + std::to_string(reply.body.size()) + " bytes of " + std::to_string(bytes));
  out = std::move(reply.body);
}

}  // namespace gradledger::gpu
