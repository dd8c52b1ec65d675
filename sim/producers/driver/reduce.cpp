#include "sim/producers/driver/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <type_traits>

#include "sim/base/contract.h"
#include "sim/execution/collectives.h"
#include "sim/numeric/scalar.h"

namespace gradledger::driver {
namespace {

using numeric::Bf16;
using numeric::Fp16;
using Bytes = std::vector<std::uint8_t>;

struct Bool {
  std::uint8_t byte;  // as it came: any but 0 is true
};

// ---- one pair of elements -----------------------------------------------------------------------------------------------------------------

double wide(double x) { return x; }
double wide(float x) { return x; }
double wide(Bf16 x) { return numeric::widen(x); }
double wide(Fp16 x) { return numeric::widen(x); }

template <class T>
T not_a_number() {
  if constexpr (std::is_same_v<T, double>) return std::bit_cast<double>(0x7FFFFFFFFFFFFFFFull);
  else return numeric::narrow<T>(std::bit_cast<float>(0x7FFFFFFFu));
}

// As a GPU's min and max: of a number and a NaN the number, and -0 is below +0.
template <class T>
T lesser_float(T a, T b, bool greater) {
  const double x = wide(a), y = wide(b);
  if (std::isnan(x) && std::isnan(y)) return not_a_number<T>();
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) ? b : a;
  const bool below = x < y || (x == y && std::signbit(x) && !std::signbit(y));
  return below != greater ? a : b;
}

template <class T>
T combine_floats(GroupOperator op, T a, T b) {
  if (op == GroupOperator::max || op == GroupOperator::min) return lesser_float(a, b, op == GroupOperator::max);
  expects(op == GroupOperator::product, "sums of floats are those of the ring");
  if constexpr (std::is_same_v<T, double>) return a * b;
  else return numeric::mul(a, b);
}

// Wraps around, as the unsigned arithmetic of 64 bits that is cut to the type does.
template <class T>
T combine_integers(GroupOperator op, T a, T b) {
  const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
  switch (op) {
    case GroupOperator::sum: return static_cast<T>(x + y);
    case GroupOperator::avg: return static_cast<T>(x + y);
    case GroupOperator::product: return static_cast<T>(x * y);
    case GroupOperator::max: return std::max(a, b);
    case GroupOperator::min: return std::min(a, b);
    case GroupOperator::band: return static_cast<T>(x & y);
    case GroupOperator::bor: return static_cast<T>(x | y);
    case GroupOperator::bxor: return static_cast<T>(x ^ y);
    case GroupOperator::none: break;
  }
  return a;
}

// PyTorch sums bools by NCCL's max: a sum is true where one is.
Bool combine_bools(GroupOperator op, Bool a, Bool b) {
  const bool x = a.byte != 0, y = b.byte != 0;
  const bool both = op == GroupOperator::product || op == GroupOperator::min || op == GroupOperator::band;
  return {static_cast<std::uint8_t>(both ? x && y : op == GroupOperator::bxor ? x != y : x || y)};
}

template <class T>
T combine(GroupOperator op, T a, T b) {
  if constexpr (std::is_same_v<T, Bool>) return combine_bools(op, a, b);
  else if constexpr (std::is_integral_v<T>) return combine_integers(op, a, b);
  else return combine_floats(op, a, b);
}

// NCCL divides the sum of integers, towards zero.
template <class T>
T finish(GroupOperator op, T x, std::uint32_t world) {
  if constexpr (std::is_same_v<T, Bool>) return {static_cast<std::uint8_t>(x.byte != 0)};
  else if constexpr (std::is_integral_v<T>) return op == GroupOperator::avg ? static_cast<T>(static_cast<std::int64_t>(x) / static_cast<std::int64_t>(world)) : x;
  else return x;
}

// ---- all of them --------------------------------------------------------------------------------------------------------------------------

std::optional<Dtype> float_of(GroupDtype dtype) {
  switch (dtype) {
    case GroupDtype::fp32: return Dtype::float32;
    case GroupDtype::bf16: return Dtype::bfloat16;
    case GroupDtype::fp16: return Dtype::float16;
    case GroupDtype::fp64: return Dtype::float64;
    default: return std::nullopt;
  }
}

bool scales(const GroupRequest& call) { return call.op == GroupOperator::avg || call.factor != 1; }

class Reduction {
 public:
  explicit Reduction(std::span<const GroupRequest* const> members) : members_(members), call_(*members.front()), world_(static_cast<std::uint32_t>(members.size())) {}

  // All elements, reduced.
  Bytes all() const {
    switch (call_.dtype) {
      case GroupDtype::fp32: return along_chains<float>();
      case GroupDtype::bf16: return along_chains<Bf16>();
      case GroupDtype::fp16: return along_chains<Fp16>();
      case GroupDtype::fp64: return scales(call_) ? scaled() : along_chains<double>();
      case GroupDtype::int8: return along_chains<std::int8_t>();
      case GroupDtype::uint8: return along_chains<std::uint8_t>();
      case GroupDtype::int16: return along_chains<std::int16_t>();
      case GroupDtype::int32: return along_chains<std::int32_t>();
      case GroupDtype::int64: return along_chains<std::int64_t>();
      case GroupDtype::boolean: return along_chains<Bool>();
      case GroupDtype::bytes: break;
    }
    expects(false, "bytes are reduced");
    return {};
  }

 private:
  template <class T>
  T element(std::uint32_t member, std::uint64_t i) const {
    T x;
    std::memcpy(&x, members_[member % world_]->data.data() + i * sizeof(T), sizeof(T));
    return x;
  }

  // The member at which the chain of an element begins: the one after its owner.
  std::uint32_t start(std::uint64_t i) const {
    const std::optional<Dtype> dtype = float_of(call_.dtype);
    if (!dtype) return 0;  // any order gives the same
    if (call_.kind == GroupCall::reduce) return call_.index_of(call_.root) + 1;
    if (call_.kind == GroupCall::reduce_scatter) return static_cast<std::uint32_t>(i / (call_.numel / world_)) + 1;
    return all_reduce_owner(i, call_.numel, world_, *dtype) + 1;
  }

  template <class T>
  Bytes along_chains() const {
    Bytes out(call_.numel * sizeof(T));
    for (std::uint64_t i = 0; i < call_.numel; ++i) {
      const std::uint32_t first = start(i);
      T x = element<T>(first, i);
      for (std::uint32_t hop = 1; hop < world_; ++hop) x = combine(call_.op, x, element<T>(first + hop, i));
      x = finish(call_.op, x, world_);
      std::memcpy(out.data() + i * sizeof(T), &x, sizeof(T));
    }
    return out;
  }

  // Of fp64: the formula that docs/arithmetic.md has for averages and premultiplied sums, which the ring has for the narrower formats.
  Bytes scaled() const {
    const double scalar = call_.op == GroupOperator::avg ? 1.0 / world_ : call_.factor;
    Bytes out(call_.numel * sizeof(double));
    for (std::uint64_t i = 0; i < call_.numel; ++i) {
      const std::uint32_t first = start(i);
      double x = element<double>(first, i) * scalar;
      for (std::uint32_t hop = 1; hop < world_; ++hop) x = std::fma(element<double>(first + hop, i), scalar, x);
      std::memcpy(out.data() + i * sizeof(double), &x, sizeof(double));
    }
    return out;
  }

  std::span<const GroupRequest* const> members_;
  const GroupRequest& call_;
  std::uint32_t world_;
};

bool ring_has(const GroupRequest& call) {
  return float_of(call.dtype) && (call.op == GroupOperator::sum || call.op == GroupOperator::avg) && !(scales(call) && call.dtype == GroupDtype::fp64);
}

ReduceOp ring_op(const GroupRequest& call) { return call.op == GroupOperator::avg ? ReduceOp::avg : call.factor != 1 ? ReduceOp::premultiplied_sum : ReduceOp::sum; }

CollectiveKind reduction_kind(GroupCall call) {
  return call == GroupCall::reduce ? CollectiveKind::reduce : call == GroupCall::reduce_scatter ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce;
}

}  // namespace

bool is_reduction(GroupOperator op, GroupDtype dtype) {
  const bool of_bits = op == GroupOperator::band || op == GroupOperator::bor || op == GroupOperator::bxor;
  if (op == GroupOperator::none || dtype == GroupDtype::bytes) return false;
  if (dtype == GroupDtype::boolean) return op != GroupOperator::avg;
  return !of_bits || !float_of(dtype);
}

std::vector<Bytes> run_reduction(std::span<const GroupRequest* const> members) {
  const GroupRequest& call = *members.front();
  const auto world = static_cast<std::uint32_t>(members.size());
  const std::uint32_t root = call.kind == GroupCall::reduce ? call.index_of(call.root) : 0;
  const std::size_t bytes = call.numel * size_of(call.dtype) / (call.kind == GroupCall::reduce_scatter ? world : 1);
  std::vector<Bytes> out(world);
  if (call.numel == 0) return out;
  if (ring_has(call)) {
    std::vector<CollectiveBuffers> buffers(world);
    for (std::uint32_t i = 0; i < world; ++i) {
      if (call.kind != GroupCall::reduce || i == root) out[i].resize(bytes);
      buffers[i] = {reinterpret_cast<const std::byte*>(members[i]->data.data()), reinterpret_cast<std::byte*>(out[i].data())};
    }
    run_collective(reduction_kind(call.kind), ring_op(call), *float_of(call.dtype), static_cast<std::uint32_t>(call.numel), root, CollectiveArithmetic::nccl_ring, buffers,
                   call.factor);
    return out;
  }
  const Bytes all = Reduction(members).all();
  for (std::uint32_t i = 0; i < world; ++i) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(call.kind == GroupCall::reduce_scatter ? i * bytes : 0);
    if (call.kind != GroupCall::reduce || i == root) out[i].assign(from, from + static_cast<std::ptrdiff_t>(bytes));
  }
  return out;
}

}  // namespace gradledger::driver
