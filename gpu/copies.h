// Many arrays copied or converted by one launch: the tensors of a bucket to their places in a flat buffer, or back. Addresses,
// sizes and the map from blocks to tensors travel in the kernel's arguments.
#pragma once

#include <limits>
#include <span>

#include "gpu/elementwise.h"
#include "gpu/segments.h"
#include "sim/numeric/dispatch_dtype.h"

namespace gradledger::gpu {

// A tensor of a bucket; null where it has no elements.
struct BucketTensor {
  void* data = nullptr;
  std::size_t n = 0;
};

// target[i] = function(source[i]) for i < n, by the blocks from first_block up to the next copy's.
template <class T, class S>
struct Copy {
  T* target;
  const S* source;
  std::uint64_t n;
  std::uint32_t head;  // as in Packing, at most n
  std::uint32_t first_block;
};

// What every device takes as arguments of one kernel.
inline constexpr std::size_t argument_bytes_max = 4096;

template <class T, class S, class Function>
struct Copies {
  static constexpr std::size_t threads = threads_per_block;
  static constexpr unsigned phases = 1;
  static constexpr std::size_t copies_max = (argument_bytes_max - sizeof(std::uint64_t)) / sizeof(Copy<T, S>);
  static constexpr std::uint32_t no_head = ~std::uint32_t{0};

  struct Shared {};

  Copy<T, S> copy[copies_max];
  std::uint64_t count;

  GRADLEDGER_HD void run(unsigned, std::size_t block, std::size_t thread, Shared&) const {
    std::size_t low = 0;
    for (std::size_t high = count; high - low > 1;) {
      const std::size_t middle = (low + high) / 2;
      if (copy[middle].first_block <= block) low = middle;
      else high = middle;
    }
    const std::size_t n = copy[low].n;
    const std::size_t head = copy[low].head;
    using Operation = Map<T, S, Function>;
    const std::size_t packs = head == no_head ? 0 : (n - head) / Operation::width;
    const Packing packing{head == no_head ? n : head, packs, packs + n - packs * Operation::width};
    run_piece(Operation{copy[low].target, copy[low].source, {}}, packing, block - copy[low].first_block, thread);
  }
};

// Collects copies and runs them, as many at once as the arguments of a kernel hold. run(program, blocks) as in tree_sum.
template <class Run, class T, class S, class Function>
class CopyQueue {
 public:
  explicit CopyQueue(const Run& run) : run_(run) {}

  void add(T* target, const S* source, std::size_t n) {
    if (n == 0) return;
    const Map<T, S, Function> operation{target, source, {}};
    const Packing packing = packing_of(operation, n);
    const std::size_t blocks = blocks_of(packing.units);
    expects(blocks <= blocks_limit, "a grid has fewer than 2^31 blocks");
    if (copies_.count == Copies<T, S, Function>::copies_max || blocks_ + blocks > blocks_limit) flush();
    const bool vectors = packing.packs > 0;
    copies_.copy[copies_.count++] = {target, source, n, vectors ? static_cast<std::uint32_t>(packing.head) : Copies<T, S, Function>::no_head, static_cast<std::uint32_t>(blocks_)};
    blocks_ += blocks;
  }
  void flush() {
    if (copies_.count > 0) run_(copies_, blocks_);
    copies_.count = 0;
    blocks_ = 0;
  }

 private:
  static constexpr std::size_t blocks_limit = std::numeric_limits<std::int32_t>::max();

  const Run& run_;
  Copies<T, S, Function> copies_{};
  std::size_t blocks_ = 0;
};

namespace dispatch {

// body(T{}, S{}, function) for the stored types of two gradient dtypes, function converting from S to T.
template <class Body>
void with_conversion(Dtype target_dtype, Dtype source_dtype, Body&& body) {
  const auto pair = [&](auto t, auto s) {
    using T = decltype(t);
    using S = decltype(s);
    if constexpr (std::is_same_v<T, S>) body(t, s, Same<T>{});
    else body(t, s, Converted<T, S>{});
  };
  numeric::with_dtype(target_dtype, [&](auto t) { numeric::with_dtype(source_dtype, [&](auto s) { pair(t, s); }); });
}

// The tensors one after the other to `flat`, in its dtype. A copy between equal dtypes keeps all bits.
template <class Run>
void flatten(Run&& run, Dtype flat_dtype, void* flat, Dtype tensor_dtype, std::span<const BucketTensor> tensors) {
  with_conversion(flat_dtype, tensor_dtype, [&](auto t, auto s, auto function) {
    using T = decltype(t);
    using S = decltype(s);
    CopyQueue<std::remove_reference_t<Run>, T, S, decltype(function)> queue(run);
    T* at = static_cast<T*>(flat);
    for (const BucketTensor& tensor : tensors) {
      queue.add(at, static_cast<const S*>(tensor.data), tensor.n);
      at += tensor.n;
    }
    queue.flush();
  });
}

template <class Run>
void unflatten(Run&& run, Dtype tensor_dtype, std::span<const BucketTensor> tensors, Dtype flat_dtype, const void* flat) {
  with_conversion(tensor_dtype, flat_dtype, [&](auto t, auto s, auto function) {
    using T = decltype(t);
    using S = decltype(s);
    CopyQueue<std::remove_reference_t<Run>, T, S, decltype(function)> queue(run);
    const S* at = static_cast<const S*>(flat);
    for (const BucketTensor& tensor : tensors) {
      queue.add(static_cast<T*>(tensor.data), at, tensor.n);
      at += tensor.n;
    }
    queue.flush();
  });
}

}  // namespace dispatch
}  // namespace gradledger::gpu
