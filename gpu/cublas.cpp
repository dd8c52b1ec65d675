#include "gpu/cublas.h"

#include <dlfcn.h>

#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <utility>

#include "gpu/python_packages.h"

namespace gradledger::gpu {
namespace {

namespace fs = std::filesystem;

// Values of the documented ABI, the same in CUDA 12 and 13.
constexpr int status_success = 0;
constexpr int operation_none = 0, operation_transpose = 1;
constexpr int pedantic_math = 2;

constexpr const char* library_names[] = {"libcublas.so.13", "libcublas.so.12"};
constexpr const char* wheel_folders[] = {"nvidia/cu13/lib", "nvidia/cublas/lib"};

int as_int(std::size_t n) {
  expects(n <= static_cast<std::size_t>(std::numeric_limits<int>::max()), "cuBLAS counts in int");
  return static_cast<int>(n);
}

}  // namespace

struct Cublas::Functions {
  int (*create)(void** handle);
  int (*destroy)(void* handle);
  int (*set_stream)(void* handle, cudaStream_t stream);
  int (*set_math_mode)(void* handle, int mode);
  int (*sgemm)(void* handle, int operation_a, int operation_b, int m, int n, int k, const float* alpha, const float* a, int lda, const float* b, int ldb, const float* beta,
               float* c, int ldc);

  // The name of a function that the library lacks; null: none.
  const char* load(void* library) {
    const std::pair<const char*, void**> table[] = {{"cublasCreate_v2", reinterpret_cast<void**>(&create)},
                                                    {"cublasDestroy_v2", reinterpret_cast<void**>(&destroy)},
                                                    {"cublasSetStream_v2", reinterpret_cast<void**>(&set_stream)},
                                                    {"cublasSetMathMode", reinterpret_cast<void**>(&set_math_mode)},
                                                    {"cublasSgemm_v2", reinterpret_cast<void**>(&sgemm)}};
    for (const auto& [name, into] : table)
      if (!(*into = dlsym(library, name))) return name;
    return nullptr;
  }
};

std::vector<std::string> cublas_candidates(const char* given, const std::vector<fs::path>& package_folders) {
  if (given && *given) return {given};
  std::vector<std::string> out(std::begin(library_names), std::end(library_names));
  for (const fs::path& packages : package_folders)
    for (const char* wheel : wheel_folders)
      for (const char* name : library_names)
        if (std::error_code ignored; fs::exists(packages / wheel / name, ignored)) out.push_back((packages / wheel / name).string());
  return out;
}

Result<std::unique_ptr<Cublas>> Cublas::open(cudaStream_t stream) {
  const char* given = std::getenv("GRADLEDGER_CUBLAS");
  if (given && *given && *given != '/') return InputError{"GRADLEDGER_CUBLAS", std::string("is \"") + given + "\"; expected the absolute path of a library, or nothing"};
  std::string tried;
  for (const std::string& candidate : cublas_candidates(given, package_folders())) {
    // Its companion lies beside it, where the loader need not look.
    if (const fs::path path(candidate); path.has_parent_path()) dlopen((path.parent_path() / ("libcublasLt" + path.extension().string())).c_str(), RTLD_NOW | RTLD_GLOBAL);
    void* library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      tried += (tried.empty() ? "" : "; ") + std::string(dlerror());
      continue;
    }
    std::unique_ptr<Cublas> out(new Cublas);
    out->library_ = candidate;
    out->functions_ = std::make_unique<Functions>();
    if (const char* missing = out->functions_->load(library)) return InputError{candidate, std::string("lacks ") + missing + "; expected cuBLAS 12 or 13"};
    const Functions& f = *out->functions_;
    int status = f.create(&out->handle_);
    if (status == status_success) status = f.set_stream(out->handle_, stream);
    if (status == status_success) status = f.set_math_mode(out->handle_, pedantic_math);
    if (status != status_success) return InputError{candidate, "refuses a handle with status " + std::to_string(status) + "; expected a GPU and its driver", true};
    return out;
  }
  return InputError{"gpu", "no cuBLAS was found (" + tried + "); install it, or let GRADLEDGER_CUBLAS name the library", true};
}

// The library stays loaded: its threads and the driver's may still need it.
Cublas::~Cublas() {
  if (handle_) functions_->destroy(handle_);
}

void Cublas::gemm(const GemmCall& call) const {
  const float one = 1, zero = 0;
  const auto operation = [](bool transpose) { return transpose ? operation_transpose : operation_none; };
  const int status = functions_->sgemm(handle_, operation(call.transpose_a), operation(call.transpose_b), as_int(call.m), as_int(call.n), as_int(call.k), &one, call.a,
                                       as_int(call.lda), call.b, as_int(call.ldb), &zero, call.c, as_int(call.ldc));
  if (status != status_success) throw std::runtime_error("cublasSgemm failed with status " + std::to_string(status));
}

}  // namespace gradledger::gpu
