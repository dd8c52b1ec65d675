#include "gpu/ranks/nccl_rank.h"

#include <stdlib.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "sim/base/contract.h"
#include "sim/numeric/kernels.h"

namespace gradledger::gpu {

NcclRank::~NcclRank() {
  for (const auto& [group, comm] : comms_) library_.comm_destroy(comm);
}

NcclUniqueId NcclRank::make_id() const {
  NcclUniqueId id;
  library_.check(library_.get_unique_id(&id), "ncclGetUniqueId");
  return id;
}

namespace {

// The operator of one call: an operator may go once its collective was enqueued. Nothing where the call has another one.
class PremultipliedSum {
 public:
  PremultipliedSum(const NcclLibrary& library, NcclComm comm, const Command& c, int type) : library_(library), comm_(comm), made_(c.op == ReduceOp::premultiplied_sum) {
    if (!made_) return;
    alignas(double) std::byte factor[sizeof(double)];
    const double given = c.scalar;
    const auto single = static_cast<float>(given);
    if (c.source.dtype == Dtype::float64) std::memcpy(factor, &given, sizeof given);
    else numeric::convert(c.source.dtype, factor, Dtype::float32, &single, 1);
    library_.check(library_.make_premultiplied_sum(&op_, factor, type, nccl_factor_on_host, comm), "ncclRedOpCreatePreMulSum", comm);
  }
  ~PremultipliedSum() {
    if (made_) library_.destroy_op(op_, comm_);
  }
  PremultipliedSum(const PremultipliedSum&) = delete;
  PremultipliedSum& operator=(const PremultipliedSum&) = delete;

  int op() const { return op_; }

 private:
  const NcclLibrary& library_;
  NcclComm comm_;
  bool made_;
  int op_ = 0;
};

}  // namespace

void NcclRank::join(const Group& group, const NcclUniqueId& id, std::uint32_t rank) {
  const auto place = std::lower_bound(group.begin(), group.end(), rank);
  expects(place != group.end() && *place == rank, "a rank joins a group that it is no member of");
  NcclComm comm = nullptr;
  library_.check(library_.comm_init_rank(&comm, static_cast<int>(group.size()), id, static_cast<int>(place - group.begin())), "ncclCommInitRank");
  comms_[group] = comm;
}

void NcclRank::enqueue(const Group& group, const Command& c, const void* input, void* output, StreamHandle stream) {
  const NcclComm comm = comms_.at(group);
  const int type = nccl_type(c.source.dtype), root = static_cast<int>(c.root);
  if (c.source.numel == 0) return;
  const auto checked = [&](int code, const char* what) { library_.check(code, what, comm); };
  const PremultipliedSum made(library_, comm, c, type);
  const int op = c.op == ReduceOp::premultiplied_sum ? made.op() : nccl_op(c.op);
  switch (c.collective) {
    case CollectiveKind::all_reduce: return checked(library_.all_reduce(input, output, c.source.numel, type, op, comm, stream), "ncclAllReduce");
    case CollectiveKind::reduce: return checked(library_.reduce(input, output, c.source.numel, type, op, root, comm, stream), "ncclReduce");
    case CollectiveKind::broadcast: return checked(library_.broadcast(input, output, c.source.numel, type, root, comm, stream), "ncclBroadcast");
    case CollectiveKind::all_gather: return checked(library_.all_gather(input, output, c.source.numel, type, comm, stream), "ncclAllGather");
    case CollectiveKind::reduce_scatter: return checked(library_.reduce_scatter(input, output, c.source.numel / group.size(), type, op, comm, stream), "ncclReduceScatter");
  }
}

void freeze_host_name(const NcclLibrary& library, std::uint32_t rank) {
  setenv("NCCL_HOSTID", ("vr" + std::to_string(rank)).c_str(), 1);
  NcclUniqueId id;
  library.check(library.get_unique_id(&id), "ncclGetUniqueId");
  NcclComm comm = nullptr;
  library.check(library.comm_init_rank(&comm, 1, id, 0), "ncclCommInitRank of one rank");
  library.check(library.comm_destroy(comm), "ncclCommDestroy");
}

}  // namespace gradledger::gpu
