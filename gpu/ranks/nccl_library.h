// NCCL, loaded at run time: a library of some hundred MiB that comes with PyTorch or with the system, of any version from 2.10 on.
// Its part of the C interface that is used here is declared here, so that nothing of it is needed to build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "sim/base/result.h"
#include "sim/trace/observation.h"

namespace gradledger::gpu {

struct NcclUniqueId {
  char internal[128];
};
using NcclComm = void*;

// ncclResult_t, ncclDataType_t and ncclRedOp_t as numbers of the C interface.
inline constexpr int nccl_success = 0;
inline constexpr int nccl_factor_on_host = 1;  // ncclScalarHostImmediate
int nccl_type(Dtype dtype);
int nccl_op(ReduceOp op);  // -1 for a premultiplied sum, which each communicator makes for itself, and for what NCCL has not

// The version whose arithmetic the host executor predicts (docs/arithmetic.md); 22809 is 2.28.9.
inline constexpr int nccl_version_modelled = 22809;

// Where the library is looked for, in this order: $GRADLEDGER_NCCL; below each folder of $PYTHONPATH and of the system's and the user's
// Python, as the wheels nvidia-nccl-cu13 and -cu12 install it; by its name, libnccl.so.2, where the system's loader looks.
std::vector<std::string> nccl_candidates();

// Sets the variables that pin algorithm, protocol, channels and transport, so that sums are formed in the order that is modelled. A
// variable that is set already keeps its value only if it has the pinned one: the error names the first that has not.
// Call before the library is loaded and before there are threads.
std::optional<InputError> pin_nccl_environment();

// One loaded copy of the library. Two copies share no state, so each can take part as a host of its own.
class NcclLibrary {
 public:
  // The first candidate that loads and has all functions. $GRADLEDGER_NCCL with a relative path is an error: which file that is depends on
  // where one stands.
  static Result<NcclLibrary> load();
  // A private copy of a library: of another file, since the loader knows files by their inode. The file of the copy is gone once it is loaded.
  static Result<NcclLibrary> load_copy(const std::filesystem::path& library);

  const std::string& path() const { return path_; }  // of the file, as the loader found it
  int version() const { return version_; }

  int (*get_unique_id)(NcclUniqueId*) = nullptr;
  int (*comm_init_rank)(NcclComm*, int ranks, NcclUniqueId, int rank) = nullptr;
  int (*comm_destroy)(NcclComm) = nullptr;
  const char* (*get_error_string)(int) = nullptr;
  const char* (*get_last_error)(NcclComm) = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int type, int op, NcclComm, void* stream) = nullptr;
  int (*reduce)(const void*, void*, std::size_t, int type, int op, int root, NcclComm, void* stream) = nullptr;
  int (*broadcast)(const void*, void*, std::size_t, int type, int root, NcclComm, void* stream) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t send_count, int type, NcclComm, void* stream) = nullptr;
  int (*make_premultiplied_sum)(int* op, const void* factor, int type, int residence, NcclComm) = nullptr;
  int (*destroy_op)(int op, NcclComm) = nullptr;
  int (*reduce_scatter)(const void*, void*, std::size_t receive_count, int type, int op, NcclComm, void* stream) = nullptr;

  // Throws std::runtime_error with NCCL's own words where the code is no success.
  void check(int code, const char* what, NcclComm comm = nullptr) const;

 private:
  static Result<NcclLibrary> open(const std::string& path);
  bool resolve(void* handle, std::string& missing);

  std::string path_;
  int version_ = 0;
};

}  // namespace gradledger::gpu
