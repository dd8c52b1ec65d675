#include "tools/gradledger/mpi.h"

#ifdef GRADLEDGER_HAS_MPI
#include <mpi.h>
#endif

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/gradledger/interruption.h"

namespace gradledger::tool {

#ifdef GRADLEDGER_HAS_MPI

namespace {

using search::Bytes;
using search::ProcessesLost;
using Clock = std::chrono::steady_clock;

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw ProcessesLost({}, fmt::format("{} failed: {}", what, std::string(text, static_cast<std::size_t>(length))));
}

// No call waits inside of MPI: where a process is gone, that would be for ever.
class MpiExchange final : public search::Exchange {
 public:
  explicit MpiExchange(std::chrono::seconds deadline) : deadline_(deadline) {
    check(MPI_Init(nullptr, nullptr), "MPI_Init");
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(MPI_COMM_WORLD, &number_), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  }
  // It waits for all, so that whoever leaves for another reason leaves without it.
  ~MpiExchange() override {
    if (!lost_ && std::uncaught_exceptions() == 0) MPI_Finalize();
  }

  std::uint32_t number() const override { return static_cast<std::uint32_t>(number_); }
  std::uint32_t size() const override { return static_cast<std::uint32_t>(size_); }

  std::vector<Bytes> exchange(std::vector<Bytes> to) override {
    const std::vector<std::uint64_t> lengths = lengths_of_all(to);
    std::vector<Bytes> from(to.size());
    for (std::size_t p = 0; p < from.size(); ++p) from[p].resize(lengths[p * 2]);
    std::uint64_t longest = 0;
    for (std::size_t p = 0; p < to.size(); ++p) longest = std::max(longest, lengths[p * 2 + 1]);
    for (std::uint64_t at = 0; at < longest; at += chunk) send_chunk(to, from, at);
    return from;
  }

 private:
  static constexpr int notice = 1;                        // the tag of a message of who is lost
  static constexpr std::uint64_t chunk = 1u << 16;        // bytes from each to each at a time
  static constexpr std::chrono::milliseconds grace{200};  // mpirun ends what is left a second after its signal

  // From each: how much it has for this one, and the most that it has for anybody. In pairs, so that it is known who does not answer.
  std::vector<std::uint64_t> lengths_of_all(const std::vector<Bytes>& to) {
    std::uint64_t longest = 0;
    for (const Bytes& message : to) longest = std::max<std::uint64_t>(longest, message.size());
    std::vector<std::uint64_t> out(2 * to.size()), mine(2 * to.size());
    for (std::size_t p = 0; p < to.size(); ++p) {
      mine[2 * p] = to[p].size();
      mine[2 * p + 1] = longest;
    }
    std::vector<MPI_Request> requests(2 * to.size());
    for (int p = 0; p < size_; ++p)
      check(MPI_Irecv(&out[static_cast<std::size_t>(2 * p)], 2, MPI_UINT64_T, p, 0, MPI_COMM_WORLD, &requests[static_cast<std::size_t>(p)]), "MPI_Irecv");
    for (int p = 0; p < size_; ++p)
      check(MPI_Isend(&mine[static_cast<std::size_t>(2 * p)], 2, MPI_UINT64_T, p, 0, MPI_COMM_WORLD, &requests[static_cast<std::size_t>(size_ + p)]), "MPI_Isend");
    wait(requests);
    return out;
  }

  // In pairs too. Who has nothing left sends that: silence always means that somebody is gone.
  void send_chunk(const std::vector<Bytes>& to, std::vector<Bytes>& from, std::uint64_t at) {
    const auto rest = [at](const Bytes& message) { return static_cast<int>(std::min(chunk, message.size() - std::min<std::uint64_t>(at, message.size()))); };
    const auto begin = [at](auto& message) { return message.data() + std::min<std::uint64_t>(at, message.size()); };
    std::vector<MPI_Request> requests(2 * to.size());
    for (int p = 0; p < size_; ++p) {
      Bytes& message = from[static_cast<std::size_t>(p)];
      check(MPI_Irecv(begin(message), rest(message), MPI_BYTE, p, 0, MPI_COMM_WORLD, &requests[static_cast<std::size_t>(p)]), "MPI_Irecv");
    }
    for (int p = 0; p < size_; ++p) {
      const Bytes& message = to[static_cast<std::size_t>(p)];
      check(MPI_Isend(begin(message), rest(message), MPI_BYTE, p, 0, MPI_COMM_WORLD, &requests[static_cast<std::size_t>(size_ + p)]), "MPI_Isend");
    }
    wait(requests);
  }

  // Until all are done. The first requests are receives from each process: those that stay open name who is gone.
  void wait(std::vector<MPI_Request>& requests) {
    const auto began = Clock::now();
    std::optional<Clock::time_point> signalled;
    for (std::uint64_t asked = 0;; ++asked) {
      heed();
      int done = 0;
      check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
      if (done) return;
      // Several processes may share a core, and the one that is waited for should have it.
      if (asked < 64) std::this_thread::yield();
      else std::this_thread::sleep_for(std::chrono::microseconds(asked < 1024 ? 50 : 1000));
      const auto now = Clock::now();
      if (Interruption::signal() != 0 && !signalled) signalled = now;
      if (signalled && now - *signalled > grace) give_up(requests, fmt::format("{} came", Interruption::name()));
      if (now - began > deadline_) give_up(requests, fmt::format("{} seconds passed", deadline_.count()));
    }
  }

  [[noreturn]] void give_up(std::vector<MPI_Request>& requests, const std::string& why) {
    std::vector<std::uint32_t> silent;
    for (int p = 0; p < size_; ++p) {
      int done = 0;
      MPI_Test(&requests[static_cast<std::size_t>(p)], &done, MPI_STATUS_IGNORE);
      if (!done) silent.push_back(static_cast<std::uint32_t>(p));
    }
    tell(silent);
    lose(silent, why);
  }

  [[noreturn]] void lose(const std::vector<std::uint32_t>& silent, const std::string& why) {
    lost_ = true;
    if (silent.empty()) throw ProcessesLost({}, "a process does not go on with the others, and " + why);
    throw ProcessesLost(silent, fmt::format("{} {} of {} does not answer, and {}", silent.size() == 1 ? "process" : "each of the processes", fmt::join(silent, ", "), size_, why));
  }

  // Whoever waits longer would take this process for lost too, once it has left, and so would one that was stopped and goes on.
  void tell(const std::vector<std::uint32_t>& silent) {
    std::vector<MPI_Request> requests;
    for (int p = 0; p < size_; ++p) {
      if (p == number_) continue;
      MPI_Isend(silent.data(), static_cast<int>(silent.size()), MPI_UINT32_T, p, notice, MPI_COMM_WORLD, &requests.emplace_back());
    }
    const auto began = Clock::now();
    for (int done = 0; !done && Clock::now() - began < grace;) {
      if (MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) return;
      std::this_thread::yield();
    }
  }

  // What another one said of those that are lost.
  void heed() {
    int there = 0, count = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, notice, MPI_COMM_WORLD, &there, &status), "MPI_Iprobe");
    if (!there) return;
    check(MPI_Get_count(&status, MPI_UINT32_T, &count), "MPI_Get_count");
    std::vector<std::uint32_t> silent(static_cast<std::size_t>(std::max(count, 0)));
    check(MPI_Recv(silent.data(), count, MPI_UINT32_T, status.MPI_SOURCE, notice, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "MPI_Recv");
    lose(silent, fmt::format("process {} gave up", status.MPI_SOURCE));
  }

  const std::chrono::seconds deadline_;
  int number_ = 0, size_ = 1;
  bool lost_ = false;
};

}  // namespace

bool has_mpi() { return true; }

Result<std::unique_ptr<search::Exchange>> join_mpi(std::chrono::seconds deadline) { return std::unique_ptr<search::Exchange>(std::make_unique<MpiExchange>(deadline)); }

#else

bool has_mpi() { return false; }

Result<std::unique_ptr<search::Exchange>> join_mpi(std::chrono::seconds) {
  return InputError{"--mpi", "this gradledger was built without MPI; expected a build where CMake found it (Debian: libopenmpi-dev), or explore without --mpi", true};
}

#endif

}  // namespace gradledger::tool
