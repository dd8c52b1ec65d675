#include "report/weighed_blocks.h"

#include <bit>
#include <map>
#include <tuple>

namespace gradledger::report {
namespace {

// What two contributions of a block have in common. Weights by their bits: one that is not a number is equal to itself.
auto shared_of(const Weighed& w) {
  return std::tuple(w.contribution.step, std::bit_cast<std::uint64_t>(w.expected), std::bit_cast<std::uint64_t>(w.observed), w.misplaced, w.open);
}

}  // namespace

std::vector<WeighedBlock> blocks_of(const std::vector<Weighed>& all) {
  std::vector<WeighedBlock> blocks;
  std::map<std::tuple<decltype(shared_of({})), std::uint32_t, std::uint32_t>, std::size_t> latest;  // block by what it shares, its first rank and its last
  for (std::size_t i = 0; i < all.size();) {
    std::size_t end = i + 1;  // of a row: ranks that follow each other, of one micro-batch
    const Contribution first = all[i].contribution;
    const auto shared = shared_of(all[i]);
    while (end < all.size() && all[end].contribution == Contribution{first.step, first.rank + static_cast<std::uint32_t>(end - i), first.micro_batch} &&
           shared_of(all[end]) == shared)
      ++end;
    const std::uint32_t last_rank = all[end - 1].contribution.rank;
    const auto [at, fresh] = latest.try_emplace({shared, first.rank, last_rank}, blocks.size());
    if (!fresh && blocks[at->second].last_micro_batch + 1 == first.micro_batch) {
      ++blocks[at->second].last_micro_batch;
    } else {
      at->second = blocks.size();
      blocks.push_back({last_rank, first.micro_batch, all[i]});
    }
    i = end;
  }
  return blocks;
}

}  // namespace gradledger::report
