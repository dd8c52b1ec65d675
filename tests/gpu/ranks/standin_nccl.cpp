// A library with NCCL's C interface for stand-in streams: ranks meet over loopback sockets, the first of a group computes. Like the real
// one it knows hosts by NCCL_HOSTID, read once for each loaded copy, and refuses two ranks of one host. NCCL_STANDIN_FAULT makes it fail.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "sim/execution/collectives.h"
#include "sim/numeric/kernels.h"
#include "tests/gpu/ranks/standin_device.h"

namespace {

using namespace gradledger;

struct UniqueId {
  char internal[128];
};

constexpr int own_ops = 5;  // ncclNumOps: from here on they were made
constexpr int success = 0, system_error = 2, invalid_argument = 4, invalid_usage = 5;
std::string last_error;

bool fault(const char* which) {
  const char* set = std::getenv("NCCL_STANDIN_FAULT");
  return set && std::strcmp(set, which) == 0;
}

const std::string& host_id() {
  static const std::string id = [] {
    const char* set = std::getenv("NCCL_HOSTID");
    return std::string(set ? set : "this host");
  }();
  return id;
}

bool send_all(int socket, const void* bytes, std::size_t n) {
  for (const char* at = static_cast<const char*>(bytes); n > 0;) {
    const ssize_t sent = send(socket, at, n, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    n -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, void* bytes, std::size_t n) {
  for (char* at = static_cast<char*>(bytes); n > 0;) {
    const ssize_t received = recv(socket, at, n, 0);
    if (received <= 0) return false;
    at += received;
    n -= static_cast<std::size_t>(received);
  }
  return true;
}

// As NCCL does: a collective whose peer is gone does not end by itself, so it never answers with what was not reduced.
[[noreturn]] void wait_to_be_ended() {
  for (;;) pause();
}

struct Hello {
  std::uint32_t rank;
  char host[60];
};

struct Comm {
  std::uint32_t rank = 0, ranks = 1;
  std::vector<int> peers;  // the first rank's: a socket for each other one; another's: the first
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<double> factors;           // of premultiplied sums, in the order in which they were made
  std::uint64_t enqueued = 0, done = 0;  // collectives of one communicator take place in the order in which they were called

  ~Comm() {
    for (int peer : peers)
      if (peer >= 0) close(peer);
  }
};

struct Call {
  Comm* comm;
  std::uint64_t number;
  CollectiveKind kind;
  int op, type, root;
  double factor;      // of a premultiplied sum
  std::size_t count;  // of the input
  const std::byte* input;
  std::byte* output;
};

Dtype dtype_of(int type) {
  switch (type) {
    case 1: return Dtype::uint8;
    case 2: return Dtype::int32;
    case 6: return Dtype::float16;
    case 7: return Dtype::float32;
    case 8: return Dtype::float64;
    default: return Dtype::bfloat16;
  }
}

void compute(const Call& call, const std::vector<std::byte>& own, std::size_t input_bytes, std::size_t output_bytes) {
  Comm& comm = *call.comm;
  std::vector<std::vector<std::byte>> inputs(comm.ranks), outputs(comm.ranks);
  inputs[0] = own;
  std::vector<CollectiveBuffers> buffers;
  for (std::uint32_t r = 0; r < comm.ranks; ++r) {
    if (r > 0) {
      inputs[r].resize(input_bytes);
      if (!receive_all(comm.peers[r], inputs[r].data(), input_bytes)) wait_to_be_ended();
    }
    outputs[r].resize(output_bytes);
    buffers.push_back({inputs[r].data(), outputs[r].data()});
  }
  const ReduceOp op = call.op >= own_ops ? ReduceOp::premultiplied_sum : call.op == 0 ? ReduceOp::sum : call.op == 2 ? ReduceOp::max : ReduceOp::avg;
  run_collective(call.kind, op, dtype_of(call.type), static_cast<std::uint32_t>(call.count), static_cast<std::uint32_t>(call.root), CollectiveArithmetic::nccl_ring, buffers,
                 call.factor);
  for (std::uint32_t r = 1; r < comm.ranks; ++r) send_all(comm.peers[r], outputs[r].data(), output_bytes);
  if (call.kind != CollectiveKind::reduce || call.root == 0) std::memcpy(call.output, outputs[0].data(), output_bytes);
}

void perform(const Call& call) {
  Comm& comm = *call.comm;
  const std::size_t input_bytes = call.count * size_of(dtype_of(call.type));
  const std::size_t output_bytes = call.kind == CollectiveKind::all_gather       ? input_bytes * comm.ranks
                                   : call.kind == CollectiveKind::reduce_scatter ? input_bytes / comm.ranks
                                                                                 : input_bytes;
  const std::vector<std::byte> own(call.input, call.input + input_bytes);
  if (comm.rank == 0) return compute(call, own, input_bytes, output_bytes);
  std::vector<std::byte> output(output_bytes);
  if (!send_all(comm.peers[0], own.data(), input_bytes) || !receive_all(comm.peers[0], output.data(), output_bytes)) wait_to_be_ended();
  if (call.kind != CollectiveKind::reduce || call.root == static_cast<int>(comm.rank)) std::memcpy(call.output, output.data(), output_bytes);
}

int enqueue(CollectiveKind kind, const void* input, void* output, std::size_t count, int type, int op, int root, void* handle, void* stream) {
  auto* comm = static_cast<Comm*>(handle);
  if (fault("collective")) {
    last_error = "the stand-in was told to fail";
    return system_error;
  }
  const double factor = op >= own_ops ? comm->factors.at(static_cast<std::size_t>(op - own_ops)) : 1;
  auto* call = new Call{comm, 0, kind, op, type, root, factor, count, static_cast<const std::byte*>(input), static_cast<std::byte*>(output)};
  {
    const std::lock_guard lock(comm->mutex);
    call->number = comm->enqueued++;
  }
  const auto run = [](void* argument) {
    const Call& c = *static_cast<Call*>(argument);
    {
      std::unique_lock lock(c.comm->mutex);
      c.comm->changed.wait(lock, [&] { return c.comm->done == c.number; });
    }
    if (fault("hang")) wait_to_be_ended();
    perform(c);
    {
      const std::lock_guard lock(c.comm->mutex);
      ++c.comm->done;
    }
    c.comm->changed.notify_all();
    delete &c;
  };
  static_cast<testing::StreamHeader*>(stream)->enqueue(stream, run, call);
  return success;
}

int refuse(const char* why) {
  last_error = why;
  return invalid_usage;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = 22809;
  return success;
}

// The id names the port at which the first rank waits; it holds the listening socket until all have come.
int ncclGetUniqueId(UniqueId* id) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener, 64) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return system_error;
  std::memset(id, 0, sizeof(*id));
  std::memcpy(id->internal, &address.sin_port, sizeof(address.sin_port));
  std::memcpy(id->internal + 8, &listener, sizeof(listener));
  return success;
}

int ncclCommInitRank(void** out, int ranks, UniqueId id, int rank) {
  if (ranks < 1 || rank < 0 || rank >= ranks) return invalid_argument;
  auto* comm = new Comm;
  comm->rank = static_cast<std::uint32_t>(rank);
  comm->ranks = static_cast<std::uint32_t>(ranks);
  *out = comm;
  Hello hello{comm->rank, {}};
  std::strncpy(hello.host, host_id().c_str(), sizeof(hello.host) - 1);
  if (rank > 0) {
    comm->peers.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::memcpy(&address.sin_port, id.internal, sizeof(address.sin_port));
    char accepted = 0;
    if (connect(comm->peers[0], reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 || !send_all(comm->peers[0], &hello, sizeof(hello)) ||
        !receive_all(comm->peers[0], &accepted, 1))
      return system_error;
    return accepted ? success : refuse("Duplicate GPU detected");
  }
  int listener = -1;
  std::memcpy(&listener, id.internal + 8, sizeof(listener));
  comm->peers.assign(comm->ranks, -1);
  std::vector<std::string> hosts{hello.host};
  char accepted = 1;
  for (std::uint32_t i = 1; i < comm->ranks; ++i) {
    const int peer = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    Hello other{};
    if (peer < 0 || !receive_all(peer, &other, sizeof(other)) || other.rank >= comm->ranks) return system_error;
    comm->peers[other.rank] = peer;
    for (const std::string& host : hosts) accepted = accepted && host != other.host;
    hosts.emplace_back(other.host);
  }
  close(listener);
  for (std::uint32_t i = 1; i < comm->ranks; ++i) send_all(comm->peers[i], &accepted, 1);
  return accepted ? success : refuse("Duplicate GPU detected");
}

int ncclCommDestroy(void* comm) {
  delete static_cast<Comm*>(comm);
  return success;
}
const char* ncclGetErrorString(int code) { return code == system_error ? "unhandled system error" : code == invalid_usage ? "invalid usage" : "invalid argument"; }
const char* ncclGetLastError(void*) { return last_error.c_str(); }

int ncclAllReduce(const void* in, void* out, std::size_t n, int type, int op, void* comm, void* stream) {
  return enqueue(CollectiveKind::all_reduce, in, out, n, type, op, 0, comm, stream);
}
int ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, void* handle) {
  if (residence != 1) return invalid_argument;
  auto* comm = static_cast<Comm*>(handle);
  float factor = 0;
  numeric::convert(Dtype::float32, &factor, dtype_of(type), scalar, 1);
  *op = own_ops + static_cast<int>(comm->factors.size());
  comm->factors.push_back(factor);
  return success;
}
int ncclRedOpDestroy(int op, void*) { return op >= own_ops ? success : invalid_argument; }

int ncclReduce(const void* in, void* out, std::size_t n, int type, int op, int root, void* comm, void* stream) {
  return enqueue(CollectiveKind::reduce, in, out, n, type, op, root, comm, stream);
}
int ncclBroadcast(const void* in, void* out, std::size_t n, int type, int root, void* comm, void* stream) {
  return enqueue(CollectiveKind::broadcast, in, out, n, type, 0, root, comm, stream);
}
int ncclAllGather(const void* in, void* out, std::size_t n, int type, void* comm, void* stream) {
  return enqueue(CollectiveKind::all_gather, in, out, n, type, 0, 0, comm, stream);
}
int ncclReduceScatter(const void* in, void* out, std::size_t n, int type, int op, void* comm, void* stream) {
  return enqueue(CollectiveKind::reduce_scatter, in, out, n * static_cast<Comm*>(comm)->ranks, type, op, 0, comm, stream);
}

}  // extern "C"
