#include "sim/scenario/catalogue.h"

#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/scenario/served.h"
#include "sim/scenario/spelling.h"

namespace gradledger {
namespace {

constexpr auto recorded = Evidence::recorded, read = Evidence::read;

// By the number that they have in our collection.
// A row an entry.
// clang-format off
constexpr Entry entries[] = {
    {"zoo-24", "kernel-overwrites-what-others-add",
     "the kernel of one layer writes over a gradient that every other layer adds to", "caffe#3254", read, {"discarded-gradient"}, ""},
    {"zoo-26", "use-map-not-kept-inside-no-sync",
     "which parameters were used is not noted inside no_sync: one that the last backward leaves out is not reduced", "pytorch#124193, pytorch#69031", read, {"missing-reduction"},
     ""},
    {"zoo-32", "first-micro-batch-reduces-in-place-of-the-last", "the first micro-batch of a window reduces in place of the last", "FunASR#3472", read, {"boundary-leak"}, ""},
    {"zoo-33", "master-gradients-outside-the-reduction",
     "gradients of earlier micro-batches stand in master copies that the reduction does not see", "apex#708", read, {"missing-reduction"}, ""},
    {"zoo-34", "helper-stops-at-a-plain-module",
     "the helper that defers reductions stops at the first module that is no wrapper", "speechbrain#2010", read, {"surplus-communication"}, ""},
    {"zoo-36", "no-sync-around-the-backward-alone", "a no_sync block around the backward alone", "LoongForge#163", read, {"surplus-communication"}, ""},
    {"zoo-37", "no-sync-behind-the-forward", "a no_sync block behind the forward", "LVSM#22", read, {"surplus-communication"}, ""},
    {"zoo-38", "no-sync-not-handed-on", "no_sync is not handed on to inner wrappers", "torchrec#4121", read, {"surplus-communication"}, ""},
    {"zoo-39", "rebuilt-bucket-loses-the-old-view",
     "buckets are rebuilt behind the first backward, and what the old views held is lost", "InfiniTrain#183", read, {"discarded-gradient"}, ""},
    {"zoo-49", "copy-to-the-host-not-waited-for",
     "gradients are copied to the host, and nobody waits for it", "fairscale#496", read, {"stream-race"},
     "no engine of fairscale; its author could not reproduce it, and the report has no cause"},
    {"zoo-51", "copy-ordered-by-the-wrong-stream",
     "a backend's copy to the host is ordered by a stream that the reduction is not on", "Torch-FL#62", read, {"stream-race"},
     "no engine of this backend; fully_shard asks for the right order, and the backend's own copy does not keep it"},
    {"zoo-52", "sync-switch-without-effect", "a switch for synchronisation without effect", "cosmos-framework#161", read, {"surplus-communication"}, ""},
    {"zoo-53", "unknown-no-sync-of-a-wrapper", "a wrapper without a block that the library knows", "accelerate#3762", read, {"surplus-communication"}, ""},
    {"zoo-56", "boundary-by-a-wrong-modulus",
     "the batch whose number is a multiple of the window updates, in place of the one before it", "fsdp_qlora#6", read, {"wrong-skip"}, ""},
    {"zoo-58", "buffer-of-one-rank-added-to-itself",
     "a gradient buffer whose group is one rank is added to itself with every micro-batch", "Megatron-LM#6660", read, {"duplicated-gradient"}, ""},
    {"zoo-59", "every-micro-batch-taken-for-the-last",
     "no_sync does nothing: every backward finalises the buffer, and the next one clears it", "Megatron-LM#7186", read, {"discarded-gradient"}, ""},
    {"zoo-64", "columns-of-experts-in-the-dense-average",
     "the flag that keeps experts divided by columns out of the dense reduction is not set", "Megatron-LM#6080", read, {"misplaced-shard"}, ""},
    {"zoo-66", "experts-over-data-parallel-ranks",
     "without expert parallelism experts divided by columns are reduced over the data-parallel ranks", "Megatron-LM#1628", read, {"misplaced-shard"}, ""},
    {"zoo-68", "parts-taken-for-replicas",
     "parts of a gradient are taken for whole ones, and are not added up along an axis", "Megatron-LM#7452", read, {"discarded-gradient"}, ""},
    {"zoo-74", "outer-reduction-deferred-wrongly",
     "the outer reduction of a mesh is deferred, and gradients differ", "Megatron-LM#5972", read, {},
     "a change under review whose tests failed, without a stated cause"},
    {"zoo-78", "each-request-clears-gradients", "gradients are cleared by every request of a batch", "SkyRL#2008", read, {"discarded-gradient"}, ""},
    {"zoo-81", "reduced-at-every-chunk", "gradients are reduced at the end of every chunk", "NeMo-RL#3660", read, {"duplicated-gradient"}, ""},
    {"zoo-82", "micro-batches-summed-not-averaged", "gradients of micro-batches are summed and not averaged", "NeMo-RL#86", read, {"wrong-scale"}, ""},
    {"zoo-83", "norm-metric-summed-over-micro-batches",
     "the reported norm is summed over micro-batches as other metrics are", "NeMo-RL#1426", read, {},
     "gradients, norm and clipping are right; what a loop writes into its log is no part of a scenario"},
    {"zoo-84", "ratio-of-losses-by-micro-batch", "the weight of a distillation loss beside the other one follows each micro-batch", "NeMo-RL#4172", read, {"wrong-scale"}, ""},
    {"zoo-86", "zero-grad-in-the-step-helper", "zero_grad inside the helper for forward and backward", "torchtitan#3575", read, {"discarded-gradient"}, ""},
    {"zoo-87", "whole-gradients-summed-over-experts-ranks",
     "gradients that are whole are added up over the expert-parallel ranks", "pytorch#160285", read, {"wrong-scale"}, ""},
    {"zoo-88", "copied-in-place-of-added",
     "a shared gradient buffer is copied into the rank's part where it should be added", "Fast-LLM#550", read, {"discarded-gradient"}, ""},
    {"zoo-89", "stage-without-cooldown-never-reduces",
     "synchronisation is switched on in the cooldown of a pipeline, which the last stage does not have", "picotron#5", read, {"missing-reduction"}, ""},
    {"zoo-91", "running-sum-divided-each-time", "the running sum is divided by the ranks behind each micro-batch", "Paddle#59142", read, {"wrong-scale"}, ""},
    {"zoo-92", "alias-of-the-shard-buffer-lost",
     "an accumulation that is not in place leaves the shard buffer behind", "Paddle#56049", read, {"discarded-gradient"},
     "no engine of Paddle, and no event of a loop gives a gradient other memory"},
    {"zoo-93", "norm-weights-not-summed-over-a-sequence",
     "the norm's gradients of parts of a sequence are not added up", "PaddleNLP#7610", read, {"missing-reduction"}, ""},
    {"zoo-94", "one-reduction-asked-for-in-vain", "a flag that asks for one reduction is ignored", "Paddle#62758", read, {"surplus-communication"}, ""},
    {"zoo-96", "chunk-memory-used-again",
     "the memory of a chunk is used again while gradients accumulate in it", "ColossalAI#2496", read, {"discarded-gradient"}, "no engine of ColossalAI, whose chunks share memory"},
    {"zoo-97", "norm-over-the-wrong-buffer",
     "with accumulation the norm is taken over a buffer that the gradients are not in", "ColossalAI#5002", read, {"wrong-norm"}, "no engine of ColossalAI"},
    {"zoo-98", "unstable-on-a-shared-device",
     "gradients are unstable while another process uses the device", "ColossalAI#4402", read, {"stream-race"}, "no engine of ColossalAI, and the report has no cause"},
    {"zoo-99", "skipped-all-reduce-is-guessed",
     "which all-reduce accumulation may skip is guessed, and a shared embedding's is skipped for good", "tensorflow-alpa#129", read, {"missing-reduction"}, ""},
    {"zoo-101", "step-counter-counts-passes",
     "the global step advances with every backward pass", "horovod#1676", read, {},
     "no engine of Horovod; the counter is the loop's own, and no gradient follows from it"},
    {"zoo-102", "step-counter-with-local-aggregation",
     "the global step is updated wrongly while gradients are aggregated locally", "horovod#2715", read, {},
     "no engine of Horovod; the counter is the loop's own, and no gradient follows from it"},
    {"zoo-103", "one-pass-more-than-declared", "the tail of an epoch has more backward passes than the optimizer was told", "horovod#2466", read, {"engine-error"}, ""},
    {"zoo-104", "inner-transform-without-parameters",
     "an accumulating wrapper does not hand the parameters to the optimizer inside", "optax#145", read, {"engine-error"},
     "no engine of optax; it raises, or leaves out weight decay, and gradients are right"},
    {"zoo-106", "tokens-counted-on-each-rank", "tokens are counted on each rank alone", "transformers#34242, transformers#34373", read, {"wrong-scale"}, ""},
    {"zoo-107", "division-left-to-a-loss-without-one", "a trainer leaves the division to a loss that does not divide", "transformers#34263", read, {"wrong-scale"}, ""},
    {"zoo-108", "wrong-condition-for-the-division", "the condition for leaving out the division is wrong", "transformers#35651", read, {"wrong-scale"}, ""},
    {"zoo-109", "loss-scaled-behind-the-backward", "the loss is scaled behind the backward", "transformers#35207", read, {"wrong-scale"}, ""},
    {"zoo-111", "tokens-averaged-across-devices", "the option that counts tokens across devices", "transformers#34373", read, {"wrong-scale"}, ""},
    {"zoo-112", "inherited-trainer-does-not-divide", "trainers with a loss of their own inherit a trainer that does not divide", "trl#2617", read, {"wrong-scale"}, ""},
    {"zoo-113", "preference-trainer-does-not-divide", "a trainer with a loss of its own, and a loss that grows with the micro-batches", "trl#3716", read, {"wrong-scale"}, ""},
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
    {"zoo-133", "rounds-of-a-batch-added-up", "a batch cut into rounds is added up and never divided; disputed", "stylegan3#184", read, {"wrong-scale"}, ""},
    {"zoo-134", "accumulation-count-without-nodes",
     "the number of micro-batches leaves out the nodes: windows are too long", "litgpt#1947", read, {"discarded-gradient", "stale-gradient", "wrong-scale"}, ""},
    {"zoo-136", "synchronising-means-stepping", "synchronising a micro-batch also means to step", "accelerate#2790", read, {"wrong-skip"}, ""},
    {"zoo-137", "two-counters-cut-a-window-short", "two counters decide on one boundary, and a window is cut short", "accelerate#3552", recorded, {"discarded-gradient"}, ""},
    {"zoo-138", "stage-2-worse-with-accumulation", "stage 2 gets worse with every further accumulation step", "accelerate#3877", recorded, {"discarded-gradient"}, ""},
    {"zoo-139", "two-counters-with-offload", "two counters decide on one boundary, with offload", "lightning#6170", recorded, {"offload-loss", "stale-gradient"}, ""},
    {"zoo-141", "zero-grad-in-the-inner-loop", "zero_grad in the inner loop", "RAE#67", read, {"discarded-gradient"}, ""},
    {"zoo-142", "accumulation-without-effect", "accumulation is a setting without effect", "entrenar#123", read, {"wrong-skip"}, ""},
    {"zoo-143", "gated-step-after-every-backward", "a gated step after every backward: no defect", "diffusers#10553", read, {}, ""},
    {"zoo-144", "gated-step-with-every-micro-batch", "zero_grad and step with every micro-batch, behind a gate: no defect", "Qwen3-TTS#326", read, {}, ""},
    {"zoo-146", "data-of-the-window-skipped", "of a window's micro-batches one is run, and divided by all of them", "Otter#304", read, {"wrong-scale"}, ""},
    {"zoo-147", "unused-parameter-inside-no-sync", "a parameter that micro-batches inside no_sync alone use is not reduced", "pytorch#42793", read, {"missing-reduction"}, ""},
    {"newer-1", "division-left-to-a-model-without-one", "the engine is asked not to divide, and the model does not", "transformers#45305", read, {"wrong-scale"}, ""},
    {"newer-2", "window-mean-divided-by-the-engine", "the engine divides a loss that is normalised by the window", "transformers#35808", read, {"wrong-scale"}, ""},
    {"newer-11", "partial-window-divided-by-the-whole", "the last partial window is divided by the whole accumulation", "transformers#38837", read, {"wrong-scale"}, ""},
    {"newer-12", "loss-times-ranks-that-share-a-batch", "the loss is multiplied by processes that share a batch", "transformers#39648", read, {"wrong-scale"}, ""},
    {"newer-13", "router-keeps-its-experts-part",
     "the router's gradient on a rank is the part of that rank's experts", "transformers#48205", read, {"missing-reduction"}, ""},
    {"newer-14", "last-update-of-an-epoch-miscounted", "the last update of an epoch counts its micro-batches wrongly", "transformers#37777", read, {"wrong-skip"}, ""},
    {"newer-16", "pipeline-without-the-tokens-of-all", "a pipeline does not divide by the tokens of all ranks", "torchtitan#2972", read, {"wrong-scale"}, ""},
    {"newer-17", "normalised-on-each-rank", "normalised on each rank and for each micro-batch", "torchtitan#1842", read, {"wrong-scale"}, ""},
    {"newer-18", "local-tensor-without-placement",
     "a local tensor whose gradient is a part is taken for a whole one", "torchtitan#1805", read, {"discarded-gradient"}, ""},
    {"newer-19", "share-of-one-rank-below-experts",
     "without expert parallelism one rank's share is left below the experts", "torchtitan#4054", read, {"discarded-gradient"}, ""},
    {"newer-23", "weight-gradient-behind-the-scaling",
     "gradients are scaled before the last backward of the weights", "pytorch#164777", read, {"duplicated-gradient"}, ""},
    {"newer-24", "stage-set-up-inside-a-window",
     "setting a pipeline stage up again clears gradients in the middle of a window", "Automodel#3530", read, {"discarded-gradient"}, ""},
    {"newer-26", "auxiliary-loss-not-divided", "an auxiliary loss is not divided by the micro-batches", "Automodel#3359", read, {"wrong-scale"}, ""},
    {"newer-27", "epoch-tail-dropped", "the tail of an epoch is dropped by the next one's zero_grad", "Automodel#2257", read, {"discarded-gradient"}, ""},
    {"newer-28", "replicated-gradients-counted-for-each-rank", "replicated gradients are counted once for each rank in the norm", "NeMo-RL#3788", read, {"wrong-group"}, ""},
    {"newer-31", "experts-divided-by-their-own-holders",
     "an expert's gradient is divided by the ranks that hold it, and not by the expert-parallel ones", "Megatron-LM#5956", read, {"wrong-scale"}, ""},
    {"newer-32", "gradients-bad-from-time-to-time",
     "gradients are bad in some runs", "Megatron-LM#7400", read, {"stream-race"}, "the report has no cause yet"},
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

// Of Caffe, apex, fairscale, Megatron-FSDP, DTensor, pipelines of PyTorch, Fast-LLM, Paddle, ColossalAI, Alpa, Horovod and others; and of releases of PyTorch before 2.4.
constexpr std::array<std::string_view, 32> not_served{"zoo-24",  "zoo-29",  "zoo-33",  "zoo-39",   "zoo-41",   "zoo-49",   "zoo-51",   "zoo-58",   "zoo-59",   "zoo-73",  "zoo-74",
                                                      "zoo-76",  "zoo-87",  "zoo-88",  "zoo-91",   "zoo-92",   "zoo-93",   "zoo-96",   "zoo-97",   "zoo-98",   "zoo-99",  "zoo-101",
                                                      "zoo-102", "zoo-103", "zoo-104", "newer-13", "newer-18", "newer-19", "newer-23", "newer-24", "newer-31", "newer-32"};

}  // namespace

bool is_served(const Entry& entry) { return std::find(not_served.begin(), not_served.end(), entry.id) == not_served.end(); }

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
