#include "sim/scenario/catalogue.h"

#include <vector>

#include <nlohmann/json.hpp>

#include "sim/scenario/spelling.h"

namespace gradledger {
namespace {

constexpr auto recorded = Evidence::recorded, read = Evidence::read;

// By the number that they have in our collection.
// A row an entry.
// clang-format off
constexpr Entry entries[] = {
    {"zoo-32", "first-micro-batch-reduces-in-place-of-the-last", "the first micro-batch of a window reduces in place of the last", "FunASR#3472", read, {"boundary-leak"}, ""},
    {"zoo-36", "no-sync-around-the-backward-alone", "a no_sync block around the backward alone", "LoongForge#163", read, {"surplus-communication"}, ""},
    {"zoo-37", "no-sync-behind-the-forward", "a no_sync block behind the forward", "LVSM#22", read, {"surplus-communication"}, ""},
    {"zoo-38", "no-sync-not-handed-on", "no_sync is not handed on to inner wrappers", "torchrec#4121", read, {"surplus-communication"}, ""},
    {"zoo-52", "sync-switch-without-effect", "a switch for synchronisation without effect", "cosmos-framework#161", read, {"surplus-communication"}, ""},
    {"zoo-53", "unknown-no-sync-of-a-wrapper", "a wrapper without a block that the library knows", "accelerate#3762", read, {"surplus-communication"}, ""},
    {"zoo-78", "each-request-clears-gradients", "gradients are cleared by every request of a batch", "SkyRL#2008", read, {"discarded-gradient"}, ""},
    {"zoo-81", "reduced-at-every-chunk", "gradients are reduced at the end of every chunk", "NeMo-RL#3660", read, {"duplicated-gradient"}, ""},
    {"zoo-82", "micro-batches-summed-not-averaged", "gradients of micro-batches are summed and not averaged", "NeMo-RL#86", read, {"wrong-scale"}, ""},
    {"zoo-86", "zero-grad-in-the-step-helper", "zero_grad inside the helper for forward and backward", "torchtitan#3575", read, {"discarded-gradient"}, ""},
    {"zoo-94", "one-reduction-asked-for-in-vain", "a flag that asks for one reduction is ignored", "Paddle#62758", read, {"surplus-communication"}, ""},
    {"zoo-106", "tokens-counted-on-each-rank", "tokens are counted on each rank alone", "transformers#34242, transformers#34373", read, {"wrong-scale"}, ""},
    {"zoo-107", "division-left-to-a-loss-without-one", "a trainer leaves the division to a loss that does not divide", "transformers#34263", read, {"wrong-scale"}, ""},
    {"zoo-108", "wrong-condition-for-the-division", "the condition for leaving out the division is wrong", "transformers#35651", read, {"wrong-scale"}, ""},
    {"zoo-109", "loss-scaled-behind-the-backward", "the loss is scaled behind the backward", "transformers#35207", read, {"wrong-scale"}, ""},
    {"zoo-112", "inherited-trainer-does-not-divide", "trainers with a loss of their own inherit a trainer that does not divide", "trl#2617", read, {"wrong-scale"}, ""},
    {"zoo-114", "normaliser-wider-than-the-update", "the normaliser spans a generation batch, the update a part of it", "trl#6024", read, {"wrong-scale"}, ""},
    {"zoo-116", "accumulation-multiplies-loss-and-norm", "accumulation multiplies loss and norm", "axolotl#2262", read, {"wrong-scale"}, ""},
    {"zoo-117", "mean-of-the-micro-batch-for-the-window", "a mean over each micro-batch where the window is meant", "axolotl#3982", read, {"wrong-scale"}, ""},
    {"zoo-118", "window-mean-divided-again", "a loss normalised by the window is divided again", "ms-swift#10116", read, {"wrong-scale"}, ""},
    {"zoo-119", "loss-flag-leaves-out-the-division", "a flag of the loss arguments leaves out the division", "LlamaFactory#9409", read, {"wrong-scale"}, ""},
    {"zoo-121", "loss-not-normalised", "the loss is not normalised before the backward", "verl#3332", read, {"wrong-scale"}, ""},
    {"zoo-122", "division-behind-the-backward", "the division comes behind the backward", "verl#436", read, {"wrong-scale"}, ""},
    {"zoo-123", "token-counter-never-reset", "a token counter is reduced at every micro-batch without a reset", "torchtune#1917", read, {"wrong-scale"}, ""},
    {"zoo-124", "weighed-by-share-of-the-batch", "micro-batches are weighed by their share of the rank's batch", "composer#3273", read, {"wrong-scale"}, ""},
    {"zoo-126", "mean-of-rank-means", "the mean over ranks of each rank's mean", "bergson#432", read, {"wrong-scale"}, ""},
    {"zoo-127", "cached-window-scaled-by-one-batch", "the loss of a cached window is scaled by the current micro-batch", "open_clip#1212", read, {"wrong-scale"}, ""},
    {"zoo-128", "mean-over-ranks-sum-over-micro-batches", "the mean over processes and the sum over micro-batches", "modded-nanogpt#146", read, {"wrong-scale"}, ""},
    {"zoo-129", "step-on-the-sum-of-the-window", "the optimizer steps on the sum of the window", "aprender#2123", read, {"wrong-scale"}, ""},
    {"zoo-131", "sentences-in-place-of-tokens", "normalised by sentences where tokens are asked for", "OpenNMT-py#526", read, {"wrong-scale"}, ""},
    {"zoo-132", "loop-never-divides", "the loop adds up micro-batches and never divides", "guided-diffusion#111", read, {"wrong-scale"}, ""},
    {"zoo-136", "synchronising-means-stepping", "synchronising a micro-batch also means to step", "accelerate#2790", read, {"wrong-skip"}, ""},
    {"zoo-137", "two-counters-cut-a-window-short", "two counters decide on one boundary, and a window is cut short", "accelerate#3552", recorded, {"discarded-gradient"}, ""},
    {"zoo-138", "stage-2-worse-with-accumulation", "stage 2 gets worse with every further accumulation step", "accelerate#3877", recorded, {"discarded-gradient"}, ""},
    {"zoo-139", "two-counters-with-offload", "two counters decide on one boundary, with offload", "lightning#6170", recorded, {"offload-loss", "stale-gradient"}, ""},
    {"zoo-141", "zero-grad-in-the-inner-loop", "zero_grad in the inner loop", "RAE#67", read, {"discarded-gradient"}, ""},
    {"zoo-142", "accumulation-without-effect", "accumulation is a setting without effect", "entrenar#123", read, {"wrong-skip"}, ""},
    {"zoo-143", "gated-step-after-every-backward", "a gated step after every backward: no defect", "diffusers#10553", read, {}, ""},
    {"newer-1", "division-left-to-a-model-without-one", "the engine is asked not to divide, and the model does not", "transformers#45305", read, {"wrong-scale"}, ""},
    {"newer-2", "window-mean-divided-by-the-engine", "the engine divides a loss that is normalised by the window", "transformers#35808", read, {"wrong-scale"}, ""},
    {"newer-11", "partial-window-divided-by-the-whole", "the last partial window is divided by the whole accumulation", "transformers#38837", read, {"wrong-scale"}, ""},
    {"newer-12", "loss-times-ranks-that-share-a-batch", "the loss is multiplied by processes that share a batch", "transformers#39648", read, {"wrong-scale"}, ""},
    {"newer-14", "last-update-of-an-epoch-miscounted", "the last update of an epoch counts its micro-batches wrongly", "transformers#37777", read, {"wrong-skip"}, ""},
    {"newer-16", "pipeline-without-the-tokens-of-all", "a pipeline does not divide by the tokens of all ranks", "torchtitan#2972", read, {"wrong-scale"}, ""},
    {"newer-17", "normalised-on-each-rank", "normalised on each rank and for each micro-batch", "torchtitan#1842", read, {"wrong-scale"}, ""},
    {"newer-27", "epoch-tail-dropped", "the tail of an epoch is dropped by the next one's zero_grad", "Automodel#2257", read, {"discarded-gradient"}, ""},
    {"newer-28", "replicated-gradients-counted-for-each-rank", "replicated gradients are counted once for each rank in the norm", "NeMo-RL#3788", read, {"wrong-group"}, ""},
    {"newer-33", "distillation-mean-of-the-micro-batch", "a distillation loss is a mean over the micro-batch", "verl#7200", read, {"wrong-scale"}, ""},
    {"newer-34", "context-ranks-left-out-of-the-count", "tokens are counted without the ranks that share the context", "verl#6049", read, {"wrong-scale"}, ""},
    {"newer-37", "own-token-count-as-divisor", "each rank divides by its own token count", "prime-rl#2358", read, {"wrong-scale"}, ""},
    {"newer-38", "mean-of-micro-batch-means", "the mean of micro-batch means", "lightning#20350", read, {"wrong-scale"}, ""},
    {"newer-39", "loss-weight-over-the-wrong-group", "the loss weight is reduced over the wrong group", "AReaL#335", read, {"wrong-scale"}, ""},
    {"newer-42", "norm-of-the-ranks-part", "the norm is that of the rank's part", "miles_diffusion#35", read, {"wrong-group"}, ""},
    {"newer-43", "resumed-without-the-window", "a trainer stops in the middle of a window and resumes without its gradients", "OneTrainer#1465", read, {"discarded-gradient"}, ""},
    {"newer-44", "copied-division-behind-the-backward", "division behind the backward, in a copy of a trainer", "DFT#27", read, {"wrong-scale"}, ""},
};
// clang-format on

}  // namespace

std::span<const Entry> loop_defects() { return entries; }

std::string classes_text(const Entry& entry) {
  std::string out;
  for (const std::string_view name : entry.classes)
    if (!name.empty()) out += (out.empty() ? "" : ", ") + std::string(name);
  return out.empty() ? "clean" : out;
}

Result<const Entry*> entry_named(std::string_view id, std::string_view where, std::initializer_list<std::span<const Entry>> among) {
  std::vector<std::string> known;
  for (const std::span<const Entry> entries_of_one : among)
    for (const Entry& e : entries_of_one) {
      if (e.id == id) return &e;
      known.emplace_back(e.id);
    }
  return InputError{std::string(where), "names no entry: " + nlohmann::json(id).dump() + "; expected one of those that \"gradledger list entries\" prints" + suggestion(id, known)};
}

}  // namespace gradledger
