// Collectives between the ranks of a wrapper, in NCCL's order of summation. Whoever runs the ranks brings one: in a test, gradledger's in one process;
// in processes of their own, the command. Ranks that make calls that do not fit together are refused, each with all the others' calls, instead of waiting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// gradledger::Scenario is this interface's in your program. gradledger's own sources have other things of the same names, and say gradledger::api.
#ifdef GRADLEDGER_INSIDE
#define GRADLEDGER_API api
#else
#define GRADLEDGER_API inline api
#endif

namespace gradledger::GRADLEDGER_API {

enum class Dtype : std::uint8_t { fp32, bf16, fp16, fp64 };
enum class Reduction : std::uint8_t { none, sum, avg, max, min, product };

constexpr std::size_t size_of(Dtype dtype) { return dtype == Dtype::fp64 ? 8 : dtype == Dtype::fp32 ? 4 : 2; }

// A collective that cannot take place: calls that do not fit each other, or ranks that wait for ever. Let it leave the wrapper: it is in the report.
class CollectiveError : public std::runtime_error {
 public:
  CollectiveError(std::string type, const std::string& text) : std::runtime_error(text), type_(std::move(type)) {}
  const std::string& type() const { return type_; }  // "CollectiveMismatch", "CollectiveDeadlock", "CollectiveRefused"

 private:
  std::string type_;
};

struct Collective {
  std::string kind;  // of the driver protocol: "all_reduce", "reduce", "reduce_scatter", "all_gather", "broadcast", "barrier"
  Reduction reduction = Reduction::none;
  Dtype dtype = Dtype::fp32;
  std::uint64_t numel = 0;  // of the input
  std::uint32_t root = 0;
  std::vector<std::uint32_t> group;  // ranks, sorted
  std::string site;                  // in reports: where it was called
  std::span<const std::byte> data;
};

// One rank's. It is called by the thread that calls the wrapper, while it does, and by no other. The wrapper's destructor makes no collectives: what they throw cannot leave
// it, and would end the program. In a test a run that is broken off leaves collectives that wait by an exception that is no std::exception: let it pass, too.
class Communicator {
 public:
  using Site = std::source_location;

  Communicator(std::uint32_t rank, std::uint32_t world_size) : rank_(rank), world_size_(world_size) {
    for (std::uint32_t r = 0; r < world_size; ++r) all_.push_back(r);
  }
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  std::uint32_t rank() const { return rank_; }
  std::uint32_t world_size() const { return world_size_; }

  // The bytes of the result. Waits for the other ranks. Throws CollectiveError.
  virtual std::vector<std::byte> call(const Collective& collective) = 0;

  void all_reduce(std::span<float> values, Reduction reduction = Reduction::sum, const Site& site = Site::current()) {
    take(in_fp32("all_reduce", reduction, values, 0, site), values);
  }
  // The result is the root's; the others keep what they have.
  void reduce(std::span<float> values, std::uint32_t root, Reduction reduction = Reduction::sum, const Site& site = Site::current()) {
    const std::vector<std::byte> result = in_fp32("reduce", reduction, values, root, site);
    if (rank_ == root) take(result, values);
  }
  // `out` is this rank's part of the sum: as many elements of `in`, which has them for all ranks, in their order.
  void reduce_scatter(std::span<const float> in, std::span<float> out, Reduction reduction = Reduction::sum, const Site& site = Site::current()) {
    take(in_fp32("reduce_scatter", reduction, in, 0, site), out);
  }
  void all_gather(std::span<const float> in, std::span<float> out, const Site& site = Site::current()) { take(in_fp32("all_gather", Reduction::none, in, 0, site), out); }
  void broadcast(std::span<float> values, std::uint32_t root, const Site& site = Site::current()) {
    const std::span<const float> data = rank_ == root ? values : std::span<float>();
    const std::span<const std::byte> bytes = std::as_bytes(data);
    take(call({"broadcast", Reduction::none, Dtype::fp32, values.size(), root, all_, text_of(site), bytes}), values);
  }
  void barrier(const Site& site = Site::current()) { call({"barrier", Reduction::none, Dtype::fp32, 0, 0, all_, text_of(site), {}}); }

 private:
  std::vector<std::byte> in_fp32(const char* kind, Reduction reduction, std::span<const float> values, std::uint32_t root, const Site& site) {
    return call({kind, reduction, Dtype::fp32, values.size(), root, all_, text_of(site), std::as_bytes(values)});
  }
  static void take(const std::vector<std::byte>& result, std::span<float> out) {
    if (result.size() != out.size_bytes())
      throw CollectiveError("CollectiveRefused", "the result has " + std::to_string(result.size()) + " bytes, and there is room for " + std::to_string(out.size_bytes()));
    std::memcpy(out.data(), result.data(), result.size());
  }
  static std::string text_of(const Site& site) {
    const std::string file = site.file_name();
    return file.substr(file.rfind('/') + 1) + ":" + std::to_string(site.line()) + " " + site.function_name();
  }

  std::uint32_t rank_, world_size_;
  std::vector<std::uint32_t> all_;
};

}  // namespace gradledger::GRADLEDGER_API
