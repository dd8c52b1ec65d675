#include "sim/scenario/catalogue.h"

#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/scenario/spelling.h"

namespace gradledger {
namespace {

constexpr auto recorded = Evidence::recorded, read = Evidence::read;

// Fixed by a change; then live at head; then reports of users and of other projects, by the number that they have in our collection.
constexpr Entry entries[] = {
    {"catalogue-1", "host accumulator left unused at gradient_accumulation_steps 1", "DeepSpeed#7981", recorded, {"offload-loss"}, ""},
    {"catalogue-2", "host accumulator stored by the first micro-batch alone", "DeepSpeed#7967", recorded, {"offload-loss"}, ""},
    {"catalogue-3", "the counter's new start and the store condition that came with it", "DeepSpeed#6550", recorded, {"offload-loss"}, ""},
    {"catalogue-4", "BF16_Optimizer reduces before it accumulates", "DeepSpeed#7985", recorded, {"boundary-leak"}, ""},
    {"catalogue-5", "stages 1 and 2 test the wrong list for emptiness", "DeepSpeed#7509, DeepSpeed#7665", recorded, {"discarded-gradient", "engine-error"}, ""},
    {"catalogue-6", "a coalesced block reduces once and loses nothing, and its flush finds the counter where the window began", "DeepSpeed#7992", recorded, {"stale-gradient"}, ""},
    {"catalogue-7", "scale_wrt_gas false is ignored by the output hook", "DeepSpeed#7724", recorded, {"wrong-scale"}, ""},
    {"catalogue-8", "every pipeline stage divides by gradient_accumulation_steps", "DeepSpeed#8154", recorded, {"wrong-scale"}, ""},
    {"catalogue-9", "stage 0 bf16 does not zero its gradients, and divides by a scale that was never applied", "DeepSpeed#7839", recorded, {"stale-gradient", "wrong-scale"}, ""},
    {"catalogue-10", "the low-precision gradients are reduced, the fp32 buffer is stepped", "DeepSpeed#5170", read, {"missing-reduction"}, ""},
    {"catalogue-11", "FP16_Optimizer returns before the update whether there is an overflow or not", "DeepSpeed#7645", read, {"wrong-skip"}, ""},
    {"catalogue-12", "stage 1 keeps the overflow flag to the rank that saw it", "DeepSpeed#7580", recorded, {"wrong-skip"}, ""},
    {"catalogue-13", "bf16 gradients are not searched for infinities", "DeepSpeed#6976, DeepSpeed#8035", recorded, {"nonfinite-missed"}, ""},
    {"catalogue-14", "the reported norm is unscaled with the loss scale of the next step", "DeepSpeed#2695", read, {"wrong-norm"}, ""},
    {"catalogue-15", "masking an infinite norm makes it NaN", "DeepSpeed#7171", read, {"nonfinite-missed"}, ""},
    {"catalogue-16", "clipping has no effect in bf16", "DeepSpeed#3166, DeepSpeed#3790", read, {"wrong-norm"}, ""},
    {"catalogue-17", "the clip coefficient is bounded from the wrong side", "DeepSpeed#5150", read, {"wrong-norm"}, ""},
    {"catalogue-18", "a gradient that the user replaced keeps its old norm", "DeepSpeed#7302", read, {"wrong-norm"}, ""},
    {"catalogue-19", "a missing gradient shifts what follows it in the flat partition", "DeepSpeed#545", read, {"misplaced-shard"}, ""},
    {"catalogue-20", "parameters without a gradient are pushed to the bucket", "DeepSpeed#1273", read, {"engine-error"}, ""},
    {"catalogue-21", "an unused parameter has no norm to add up", "DeepSpeed#861, DeepSpeed#1039", read, {"engine-error"}, ""},
    {"catalogue-22", "the pipeline engine does not tell the optimizer of the boundary", "DeepSpeed#1264", read, {"missing-reduction"}, ""},
    {"catalogue-23", "stage 1 with fp32 accumulation buckets param.grad, which is gone", "DeepSpeed#4084", read, {"engine-error"}, ""},
    {"catalogue-24", "bf16 defaults to an accumulation dtype that ZeRO refuses", "DeepSpeed#2512, DeepSpeed#2566", read, {"engine-error"}, ""},
    {"catalogue-25", "BF16_Optimizer gives the masters their gradient once, not at every step", "DeepSpeed#6485", read, {"wrong-skip"}, ""},
    {"catalogue-26", "the whole bucket buffer is averaged, filled or not", "DeepSpeed#5268", read, {}, ""},
    {"catalogue-27", "expert gradients are divided twice, or by the wrong group", "DeepSpeed#4957, DeepSpeed#5259, DeepSpeed#6546", read, {"wrong-scale"}, ""},
    {"catalogue-28", "stage 0 with sequence parallelism divides by the whole world", "DeepSpeed#5555", read, {"wrong-scale"}, ""},
    {"catalogue-29", "stage 3 multiplies by a predivide factor of 1, without effect on any figure", "DeepSpeed#3630", read, {}, ""},
    {"catalogue-30", "clearing a bucket resets the index of the buffer in flight", "DeepSpeed#7371, DeepSpeed#7805", read, {"stream-race"}, ""},
    {"catalogue-31", "the bucket is refilled while its reduction still reads it", "DeepSpeed#5606", read, {"stream-race"}, ""},
    {"catalogue-32", "the reduction waits for one of several producing streams", "DeepSpeed#8080", read, {"stream-race"}, ""},
    {"catalogue-33", "stage 3 waits for the default stream instead of the current one", "DeepSpeed#7898", read, {"stream-race"}, ""},
    {"catalogue-34", "loss.backward() with re-entrant checkpointing ends after the first phase", "DeepSpeed#7780", recorded, {"discarded-gradient"}, ""},
    {"catalogue-35", "an extra-large parameter is recorded under the wrong dtype", "DeepSpeed#7660", recorded, {"engine-error"}, ""},
    {"catalogue-36", "a tied parameter is pushed once for each of its uses", "DeepSpeed#7534", read, {"duplicated-gradient"}, ""},
    {"catalogue-37", "parameters without elements take part in buckets", "DeepSpeed#5868, DeepSpeed#7789, DeepSpeed#8280", recorded, {"engine-error"}, ""},
    {"catalogue-38", "stage 3 rounds to the model dtype before it accumulates in fp32", "DeepSpeed#8056", recorded, {"rounding-excess"}, ""},
    {"catalogue-39", "the norm is summed over the world a second time", "DeepSpeed#551", read, {"wrong-norm"}, ""},
    {"catalogue-40", "no division by gradient_accumulation_steps inside no_sync", "DeepSpeed#6675, DeepSpeed#7665", recorded, {"duplicated-gradient", "wrong-scale"}, ""},
    {"catalogue-41", "unmanaged accumulation with offload and parameters that a window leaves out", "DeepSpeed#8184, DeepSpeed#8203, DeepSpeed#8217, DeepSpeed#8225", recorded,
     {"stale-gradient"}, ""},
    {"catalogue-42", "low-precision gradients are cleared in the hook, without effect on any figure", "DeepSpeed#5328, DeepSpeed#6508", read, {}, ""},
    {"catalogue-43", "a pipeline sums over its micro-batches", "DeepSpeed#6675, DeepSpeed#7665, DeepSpeed#7773", recorded, {"wrong-scale"}, ""},
    {"catalogue-44", "the backward of a pipeline's earlier stages is taken for one of the user's and refused", "DeepSpeed#7665, DeepSpeed#7787", recorded,
     {"deadlock", "engine-error"}, ""},
    {"catalogue-45", "a forward of the model inside the engine, beside one of the engine, is not divided by gradient_accumulation_steps", "DeepSpeed#8224, DeepSpeed#8245", recorded,
     {"wrong-scale"}, ""},
    {"catalogue-46", "stage 3 goes on counting what a bucket has reduced, and reduces every further parameter alone", "DeepSpeed#6993, DeepSpeed#7418", recorded, {}, ""},
    {"catalogue-47", "stage 3 without reduce_scatter cuts a bucket from its beginning, behind which it was filled", "DeepSpeed#6993, DeepSpeed#7418", recorded,
     {"discarded-gradient", "stale-gradient"}, ""},
    {"catalogue-48", "loss.backward() is neither divided, reduced nor refused", "DeepSpeed#7665", recorded, {"missing-reduction", "engine-error"}, ""},
    {"catalogue-49", "a full bucket is looked up under the parameter's dtype instead of the communication's", "DeepSpeed#6993, DeepSpeed#7636", recorded, {"engine-error"}, ""},
    {"catalogue-50", "a rank that owns no parameter does not get through a boundary", "DeepSpeed#7509, DeepSpeed#7700", recorded, {"engine-error", "deadlock"}, ""},

    {"live-1", "fp16 at stage 0: the step divides by a loss scale that was never applied", "DeepSpeed#8393", recorded, {"wrong-scale"}, ""},
    {"live-2", "stage 1 with an accumulation dtype of its own throws the reduced values away, up to 0.19.7", "", recorded, {"missing-reduction"}, ""},
    {"live-3", "stage 1 with overlap never reduces a parameter that the boundary backward leaves out", "", recorded, {"missing-reduction"}, ""},
    {"live-4", "a second boundary backward with offload loses the first and adds earlier windows", "open-instruct#1498", recorded, {"offload-loss", "stale-gradient"}, ""},
    {"live-5", "stages 1 and 2 with offload keep the slices of parameters that a window leaves out", "", recorded, {"stale-gradient"}, ""},
    {"live-5b", "stage 3 keeps the partitions of parameters that a window leaves out", "", recorded, {"stale-gradient"}, ""},
    {"live-6", "stage 3 without reduce_scatter divides twice where the predivide factor is the world size", "", recorded, {"wrong-scale"}, ""},
    {"live-7", "stage 3: of two backwards without a forward between them the second overwrites the first", "DeepSpeed#7780", recorded, {"discarded-gradient", "offload-loss"}, ""},
    {"live-8", "BF16_Optimizer counts a graph's first backward twice when the graph is run again", "", recorded, {"duplicated-gradient"}, ""},
    {"live-9", "a step that doubles the loss scale divides its own gradient by the new one", "", recorded, {"wrong-scale"}, ""},
    {"live-10", "two forwards, then two direct backwards: the second is never reduced", "", recorded, {"engine-error", "offload-loss"}, ""},
    {"live-11", "stage 2 accumulates in the model dtype whatever grad_accum_dtype says, up to 0.19.7", "", recorded, {"rounding-excess"}, ""},
    {"live-12", "nested outputs are divided by gradient_accumulation_steps once each, paths around them never; since 0.19.6 by loss.backward() alone", "DeepSpeed#8245", recorded,
     {"wrong-scale"}, ""},
    {"live-13", "reduction by sum multiplies what was reduced before at every further boundary", "", recorded, {"duplicated-gradient"}, ""},
    {"live-14", "a coalesced block that an exception ends; a second step with offload applies the first again", "", recorded, {"deadlock", "stale-gradient"}, ""},
    {"live-15", "FP16_UnfusedOptimizer reports the norm with the loss scale in it", "DeepSpeed#8588", recorded, {"wrong-norm"}, ""},
    {"live-16", "boundary set to true, false, true in one window at stages 1 and 2", "", recorded, {"discarded-gradient", "offload-loss", "stale-gradient"}, ""},
    {"live-17", "two coalesced blocks, or one and a boundary backward, before one step at stages 1 and 2", "", recorded,
     {"discarded-gradient", "offload-loss", "stale-gradient"}, ""},
    {"live-18", "a coalesced block without a boundary: the step is skipped and says nothing", "", recorded, {"discarded-gradient"}, ""},
    {"live-19", "stage 1: boundary backwards inside no_sync with overlap push a parameter twice", "", recorded, {"engine-error"}, ""},
    {"live-20", "unmanaged accumulation: a second step raises, and so does everything after it", "", recorded, {"engine-error"}, ""},
    {"live-21", "a gradient set as a whole keeps the norm that offload recorded", "", recorded, {"wrong-norm"}, ""},
    {"live-22", "BF16_Optimizer: a gradient that is set goes to param.grad, and the step uses the accumulator", "", recorded, {"wrong-scale"}, ""},
    {"live-23", "stage 3: a whole gradient cannot be set where the last partition is padded", "", recorded, {"engine-error", "deadlock"}, ""},
    {"live-24", "fp32 at stage 0 clips by the mean of the norms of ranks that hold different experts", "DeepSpeed#8475", read, {"wrong-norm"}, ""},
    {"live-25", "FP16_UnfusedOptimizer leaves the experts out of the norm", "DeepSpeed#8613", read, {"wrong-norm"}, ""},
    {"live-26", "FP16_Optimizer puts the experts' master weights into the norm of the gradient", "", read, {"wrong-norm"}, ""},
    {"live-27", "fp32 at stage 0 in a pipeline clips by the norm of the first stage", "", read, {"wrong-norm"}, ""},
    {"live-28", "with offload, what a parameter accumulated is lost where the boundary backward leaves it out", "", recorded, {"offload-loss"}, ""},
    {"live-29", "stage 3 divides by every rank of a sequence in its reduce-scatter", "tmax#9", recorded, {"wrong-scale"}, ""},
    {"live-30", "stage 0 divides a loss that is an output of the model, though scale_wrt_gas is false", "DeepSpeed#8245", recorded, {"wrong-scale"}, ""},
    {"live-31", "stage 3: the step of a sub-group of one parameter divides the fp32 accumulator itself", "", recorded, {"stale-gradient"}, ""},
    {"live-32", "fp16 with a static loss scale: the step of loss.backward() divides by a scale that was never applied", "", recorded, {"wrong-scale"}, ""},
    {"live-33", "stages 1 and 2 with offload, accumulating in fp32: a skipped step keeps the infinity, and no later step updates; since 0.19.8", "", recorded,
     {"stale-gradient", "wrong-skip"}, ""},

    {"zoo-seed", "one set of reductions for several backwards", "DeepSpeed#7992", recorded, {}, ""},
    {"zoo-1", "stage 2 with offload keeps the last of several backwards", "DeepSpeed#7981", recorded, {"offload-loss"}, ""},
    {"zoo-2", "the boundary micro-batch of BF16_Optimizer stays on its rank", "DeepSpeed#7985", recorded, {"boundary-leak"}, ""},
    {"zoo-3", "manual accumulation at gradient_accumulation_steps 1 keeps the last backward", "open-instruct#1498", recorded, {"discarded-gradient"}, ""},
    {"zoo-4", "stage 2 with offload: first and last micro-batch alone, by the counter's new start", "DeepSpeed#6550", recorded, {"offload-loss"}, ""},
    {"zoo-6", "parameters without a gradient leave holes in the flat partition", "DeepSpeed#545", read, {"misplaced-shard"}, ""},
    {"zoo-7", "stage 0 bf16: gradients are reduced after they were moved elsewhere", "DeepSpeed#5170", read, {"missing-reduction"}, ""},
    {"zoo-8", "stage 0 bf16: every backward clears what the one before left", "DeepSpeed#5154", read, {"missing-reduction"}, ""},
    {"zoo-9", "stage 0 bf16: gradients are carried over from step to step", "DeepSpeed#7839", recorded, {"stale-gradient", "wrong-scale"}, ""},
    {"zoo-11", "the pipeline's boundary does not reach the optimizer", "DeepSpeed#1264", read, {"missing-reduction"}, ""},
    {"zoo-12", "the compute stream does not wait for the reduction of the bucket that it refills", "DeepSpeed#5606", read, {"stream-race"}, ""},
    {"zoo-13", "the next bucket is written over the one in flight", "DeepSpeed#5545", read, {"stream-race"}, ""},
    {"zoo-14", "two runs of one script with overlap disagree", "DeepSpeed#5523", read, {"stream-race"}, ""},
    {"zoo-16", "the index of the two bucket buffers is reset with a reduction in flight", "DeepSpeed#7805", read, {"stream-race"}, ""},
    {"zoo-17", "communication buffers are released while a collective uses them", "DeepSpeed#7965", read, {"stream-race"}, ""},
    {"zoo-18", "hooks write from several streams, and the reduction waits for one", "DeepSpeed#8080", read, {"stream-race"}, ""},
    {"zoo-19", "the default stream is waited for, another one produces", "DeepSpeed#7898", read, {"stream-race"}, ""},
    {"zoo-21", "expert gradients are averaged over the wrong group", "DeepSpeed#5618", read, {"wrong-scale"}, ""},
    {"zoo-22", "an optimizer that needs whole matrices gets its slice of the reduced gradient", "DeepSpeed#7878", read, {"missing-reduction"},
     "the slices that ranks own are right; it shows in an optimizer that reads whole matrices, and none such is modelled"},
    {"zoo-23", "unmanaged accumulation with a boundary that is set by hand", "DeepSpeed#8184", recorded, {"discarded-gradient", "engine-error"}, ""},
    {"zoo-32", "the first micro-batch of a window reduces in place of the last", "FunASR#3472", read, {"boundary-leak"}, ""},
    {"zoo-36", "a no_sync block around the backward alone", "LoongForge#163", read, {"surplus-communication"}, ""},
    {"zoo-37", "a no_sync block behind the forward", "LVSM#22", read, {"surplus-communication"}, ""},
    {"zoo-38", "no_sync is not handed on to inner wrappers", "torchrec#4121", read, {"surplus-communication"}, ""},
    {"zoo-52", "a switch for synchronisation without effect", "cosmos-framework#161", read, {"surplus-communication"}, ""},
    {"zoo-53", "a wrapper without a block that the library knows", "accelerate#3762", read, {"surplus-communication"}, ""},
    {"zoo-78", "gradients are cleared by every request of a batch", "SkyRL#2008", read, {"discarded-gradient"}, ""},
    {"zoo-81", "gradients are reduced at the end of every chunk", "NeMo-RL#3660", read, {"duplicated-gradient"}, ""},
    {"zoo-82", "gradients of micro-batches are summed and not averaged", "NeMo-RL#86", read, {"wrong-scale"}, ""},
    {"zoo-86", "zero_grad inside the helper for forward and backward", "torchtitan#3575", read, {"discarded-gradient"}, ""},
    {"zoo-94", "a flag that asks for one reduction is ignored", "Paddle#62758", read, {"surplus-communication"}, ""},
    {"zoo-106", "tokens are counted on each rank alone", "transformers#34242, transformers#34373", read, {"wrong-scale"}, ""},
    {"zoo-107", "a trainer leaves the division to a loss that does not divide", "transformers#34263", read, {"wrong-scale"}, ""},
    {"zoo-108", "the condition for leaving out the division is wrong", "transformers#35651", read, {"wrong-scale"}, ""},
    {"zoo-109", "the loss is scaled behind the backward", "transformers#35207", read, {"wrong-scale"}, ""},
    {"zoo-112", "trainers with a loss of their own inherit a trainer that does not divide", "trl#2617", read, {"wrong-scale"}, ""},
    {"zoo-114", "the normaliser spans a generation batch, the update a part of it", "trl#6024", read, {"wrong-scale"}, ""},
    {"zoo-116", "accumulation multiplies loss and norm", "axolotl#2262", read, {"wrong-scale"}, ""},
    {"zoo-117", "a mean over each micro-batch where the window is meant", "axolotl#3982", read, {"wrong-scale"}, ""},
    {"zoo-118", "a loss normalised by the window is divided again", "ms-swift#10116", read, {"wrong-scale"}, ""},
    {"zoo-119", "a flag of the loss arguments leaves out the division", "LlamaFactory#9409", read, {"wrong-scale"}, ""},
    {"zoo-121", "the loss is not normalised before the backward", "verl#3332", read, {"wrong-scale"}, ""},
    {"zoo-122", "the division comes behind the backward", "verl#436", read, {"wrong-scale"}, ""},
    {"zoo-123", "a token counter is reduced at every micro-batch without a reset", "torchtune#1917", read, {"wrong-scale"}, ""},
    {"zoo-124", "micro-batches are weighed by their share of the rank's batch", "composer#3273", read, {"wrong-scale"}, ""},
    {"zoo-126", "the mean over ranks of each rank's mean", "bergson#432", read, {"wrong-scale"}, ""},
    {"zoo-127", "the loss of a cached window is scaled by the current micro-batch", "open_clip#1212", read, {"wrong-scale"}, ""},
    {"zoo-128", "the mean over processes and the sum over micro-batches", "modded-nanogpt#146", read, {"wrong-scale"}, ""},
    {"zoo-129", "the optimizer steps on the sum of the window", "aprender#2123", read, {"wrong-scale"}, ""},
    {"zoo-131", "normalised by sentences where tokens are asked for", "OpenNMT-py#526", read, {"wrong-scale"}, ""},
    {"zoo-132", "the loop adds up micro-batches and never divides", "guided-diffusion#111", read, {"wrong-scale"}, ""},
    {"zoo-136", "synchronising a micro-batch also means to step", "accelerate#2790", read, {"wrong-skip"}, ""},
    {"zoo-137", "two counters decide on one boundary, and a window is cut short", "accelerate#3552", recorded, {"discarded-gradient"}, ""},
    {"zoo-138", "stage 2 gets worse with every further accumulation step", "accelerate#3877", recorded, {"discarded-gradient"}, ""},
    {"zoo-139", "two counters decide on one boundary, with offload", "lightning#6170", recorded, {"offload-loss", "stale-gradient"}, ""},
    {"zoo-141", "zero_grad in the inner loop", "RAE#67", read, {"discarded-gradient"}, ""},
    {"zoo-142", "accumulation is a setting without effect", "entrenar#123", read, {"wrong-skip"}, ""},
    {"zoo-143", "a gated step after every backward: no defect", "diffusers#10553", read, {}, ""},
    {"newer-1", "the engine is asked not to divide, and the model does not", "transformers#45305", read, {"wrong-scale"}, ""},
    {"newer-2", "the engine divides a loss that is normalised by the window", "transformers#35808", read, {"wrong-scale"}, ""},
    {"newer-11", "the last partial window is divided by the whole accumulation", "transformers#38837", read, {"wrong-scale"}, ""},
    {"newer-12", "the loss is multiplied by processes that share a batch", "transformers#39648", read, {"wrong-scale"}, ""},
    {"newer-14", "the last update of an epoch counts its micro-batches wrongly", "transformers#37777", read, {"wrong-skip"}, ""},
    {"newer-16", "a pipeline does not divide by the tokens of all ranks", "torchtitan#2972", read, {"wrong-scale"}, ""},
    {"newer-17", "normalised on each rank and for each micro-batch", "torchtitan#1842", read, {"wrong-scale"}, ""},
    {"newer-27", "the tail of an epoch is dropped by the next one's zero_grad", "Automodel#2257", read, {"discarded-gradient"}, ""},
    {"newer-28", "replicated gradients are counted once for each rank in the norm", "NeMo-RL#3788", read, {"wrong-group"}, ""},
    {"newer-33", "a distillation loss is a mean over the micro-batch", "verl#7200", read, {"wrong-scale"}, ""},
    {"newer-34", "tokens are counted without the ranks that share the context", "verl#6049", read, {"wrong-scale"}, ""},
    {"newer-37", "each rank divides by its own token count", "prime-rl#2358", read, {"wrong-scale"}, ""},
    {"newer-38", "the mean of micro-batch means", "lightning#20350", read, {"wrong-scale"}, ""},
    {"newer-39", "the loss weight is reduced over the wrong group", "AReaL#335", read, {"wrong-scale"}, ""},
    {"newer-42", "the norm is that of the rank's part", "miles_diffusion#35", read, {"wrong-group"}, ""},
    {"newer-43", "a trainer stops in the middle of a window and resumes without its gradients", "OneTrainer#1465", read, {"discarded-gradient"}, ""},
    {"newer-44", "division behind the backward, in a copy of a trainer", "DFT#27", read, {"wrong-scale"}, ""},
};

}  // namespace

std::span<const Entry> catalogue() { return entries; }

std::string classes_text(const Entry& entry) {
  std::string out;
  for (const std::string_view name : entry.classes)
    if (!name.empty()) out += (out.empty() ? "" : ", ") + std::string(name);
  return out.empty() ? "clean" : out;
}

Result<const Entry*> entry_named(std::string_view id, std::string_view where) {
  const auto found = std::find_if(std::begin(entries), std::end(entries), [&](const Entry& e) { return e.id == id; });
  if (found != std::end(entries)) return &*found;
  std::vector<std::string> known;
  for (const Entry& e : entries) known.emplace_back(e.id);
  return InputError{std::string(where), "names no entry: " + nlohmann::json(id).dump() + "; expected one of those that \"gradledger list entries\" prints" +
                                            suggestion(id, known)};
}

}  // namespace gradledger
