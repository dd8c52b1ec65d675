// Faults of order: streams that do not wait, memory that is let go of or read at the wrong time.
#include "search/mutants/blocks.h"
#include "search/mutants/catalogue.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::search {
namespace {

using enum ref::FindingClass;
using enum OpKind;

void contiguous_overlap(Scenario& s) {
  overlapping(s);
  tuning_of(s).fill_flat_buckets(s);
}

void two_small_buckets(Scenario& s) {
  contiguous_overlap(s);
  std::uint64_t largest = 0;
  for (const Parameter& p : s.parameters) largest = std::max<std::uint64_t>(largest, p.numel);
  tuning_of(s).limit_buckets(s, largest);
  while (s.parameters.size() < 4) s.parameters.push_back({"more" + std::to_string(s.parameters.size()), s.parameters.front().numel, std::nullopt});
  s.engine.param_groups.clear();
}

void one_stream(Scenario& s) {
  several_micro_batches(s);
  tuning_of(s).overlap(s, false);
}

void pinned_memory(Scenario& s) {
  one_stream(s);
  tuning_of(s).pin_host_memory(s);
}

void clipped_on_the_device(Scenario& s) {
  one_stream(s);
  clipped(s);
}

void two_autograd_streams(Scenario& s) {
  one_stream(s);
  s.parameters.back().on_side_stream = true;
}

// What is reduced at every backward is looked at as a whole in fp16 alone.
void padded(Scenario& s) {
  if (reduces_every_backward(s)) half_precision(s);
  several_micro_batches(s);
  for (Parameter& p : s.parameters) p.numel = 2 * s.world_size + 1;
}

// A row a mutant.
// clang-format off
std::vector<Mutant> of_waits() {
  return {
      {"reduction-does-not-wait", "the communication stream reduces before it waits for what fills the bucket", {stream_race}, owner_variants,
       {.edit = edit(at_backward, Take::each, waits_on(Stream::communication), dropped)}, contiguous_overlap},
      {"waits-one-operation-late", "the communication stream waits after the operation that needed it", {stream_race}, owner_variants,
       {.edit = edit(at_backward, Take::each, waits_on(Stream::communication), after_what_comes_next)}, contiguous_overlap},
      {"recorded-too-early", "an event is recorded before the operation that it stands for", {stream_race}, owner_variants,
       {.edit = edit(at_backward, Take::each, on_stream(Stream::compute, of_kind({record})), before_what_comes_before)}, contiguous_overlap},
      {"reductions-not-awaited", "a backward ends without waiting for its reductions", {stream_race}, owners_on_the_device,
       {.edit = edit(at_backward, Take::each, either(of_kind({synchronize}), waits_on(Stream::host)), dropped)}, contiguous_overlap},
      {"bucket-reused-too-early", "a bucket is filled again while it is still being reduced", {stream_race},
       engines_that([](const EngineTraits& t) { return t.reduces_to_owners && t.gathers_weights && !t.offloads; }),
       {.edit = edit(at_backward, Take::each, waits_on(Stream::compute), dropped)}, two_small_buckets},
      {"host-step-does-not-wait", "the CPU steps before the copies to the host are over", {stream_race},
       engines_that([](const EngineTraits& t) { return t.offloads && t.gathers_weights; }),
       {.edit = edit(at_step, Take::each, waits_on(Stream::host), dropped)}, pinned_memory},
      {"norm-read-too-early", "the host reads the norm before the device has computed it", {stream_race}, device_variants,
       {.edit = edit(at_step, Take::each, waits_on(Stream::host), dropped)}, clipped_on_the_device},
      {"streams-not-joined", "the stream that calls backward does not wait for autograd's other one", {stream_race}, every_variant,
       {.edit = edit(at_backward, Take::each, waits_on(Stream::compute), dropped)}, two_autograd_streams},
  };
}
// clang-format on

// A row a mutant.
// clang-format off
std::vector<Mutant> of_streams() {
  return {
      {"copies-on-a-stream-of-their-own", "copies to the host run on a stream that waits for nothing", {stream_race}, offload_variants,
       {.edit = edit(at_backward, Take::each, from_space(MemorySpace::device, MemorySpace::host, {copy}), on_the(Stream::copy))}, one_stream},
      {"reduction-on-a-stream-of-its-own", "reductions run on a stream that waits for nothing", {stream_race}, every_variant,
       {.edit = edit(always, Take::each, reductions, on_the(Stream::communication))}, one_stream},
      {"gradient-on-a-stream-of-its-own", "autograd writes a gradient on a stream that nothing waits for", {stream_race}, every_variant,
       {.edit = edit(at_backward, Take::last, deposits, on_the(Stream::side))}, one_stream},
      {"update-on-a-stream-of-its-own", "the optimizer runs on a stream that waits for nothing", {stream_race}, device_variants,
       {.edit = edit(at_step, Take::each, updates, on_the(Stream::copy))}, one_stream},
  };
}
// clang-format on

// A row a mutant.
// clang-format off
std::vector<Mutant> of_memory() {
  return {
      {"bucket-released-too-early", "a bucket's memory is let go of before its last use", {unwritten_memory, stream_race}, every_variant,
       {.edit = edit(always, Take::each, writes(BufferPurpose::buckets, {release}), before_its_last_use)}, several_micro_batches},
      {"gradient-released-too-early", "param.grad is let go of before its last use", {unwritten_memory, stream_race},
       engines_that([](const EngineTraits& t) { return (t.reduces_to_owners || !t.accumulates_itself) && !(t.offloads && t.gathers_weights); }),
       {.edit = edit(always, Take::each, writes(BufferPurpose::gradients, {release}), before_its_last_use)}, several_micro_batches},
      {"step-before-its-gradient", "the gradient that a step uses is written after the step", {unwritten_memory}, owners_on_the_device,
       {.edit = edit(at_step, Take::each, writes(BufferPurpose::master_gradients, {copy}), to_the_end)}, several_micro_batches},
      {"padding-not-written", "what a fresh buffer must hold at the start is left unwritten", {unwritten_memory}, wide_accumulators,
       {.edit = edit(at_start, Take::each, writes(BufferPurpose::accumulators, {fill}), dropped)}, padded},
  };
}
// clang-format on

}  // namespace

std::vector<Mutant> order_mutants() {
  std::vector<Mutant> out = of_waits();
  for (const auto part : {of_streams, of_memory})
    for (Mutant& mutant : part()) out.push_back(std::move(mutant));
  return out;
}

}  // namespace gradledger::search
