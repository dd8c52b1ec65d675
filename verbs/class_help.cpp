#include "verbs/class_help.h"

#include <array>

namespace gradledger::verbs {
namespace {

using enum ref::FindingClass;

constexpr std::array table{
    ClassHelp{discarded_gradient, "The step follows only a part of the batch that was paid for. The loss still falls, on noisier gradients, and no number in a log shows it.",
              "Several backwards before one step() where the framework reduces or copies at each of them; a boundary flag that the loop never sets; a no_sync that ends too late.",
              "Compare the micro-batches of the window with those that the ledger has. Tell the framework which backward is the last of the window, or call step() after each "
              "backward where "
              "it counts those calls."},
    ClassHelp{offload_loss,
              "As with discarded-gradient, and only in runs that keep the optimizer on the CPU: the same loop without offload is right, so that comparing loss curves misleads.",
              "The accumulator in the memory of the host is written instead of added to, or read before the last copy has arrived.",
              "Take a release in which the entry that the report names is fixed, or keep the optimizer on the device until then."},
    ClassHelp{boundary_leak,
              "Each rank applies its own last micro-batch and not those of the others. Weights that must be equal on all ranks drift apart, or every shard follows other data.",
              "Gradients are reduced over ranks first, and the last micro-batch of the window is added afterwards.",
              "Reduce after the last addition. The entry that the report names says which release does."},
    ClassHelp{stale_gradient, "A step applies gradients of weights that are no longer there, or of micro-batches that were thrown away on purpose.",
              "A buffer that is not cleared: after a skipped step, behind an exception, by zero_grad() that sees other tensors than the optimizer uses.",
              "Look at the event at which the books stop balancing: the clearing that should stand before it is missing."},
    ClassHelp{duplicated_gradient,
              "Some micro-batches pull harder than others. With an optimizer that divides by the gradient's size this changes the direction, not only the length.",
              "A backward that is run twice on one graph, a hook that is registered twice, a bucket that is reduced again before it is emptied.",
              "The ledger says how often each micro-batch counts: a factor of two mostly means two hooks or two reductions."},
    ClassHelp{missing_reduction, "Every rank trains a model of its own for this window. Replicated weights drift apart; sharded ones follow the data of one rank alone.",
              "The last backward of the window runs inside no_sync, or a reduction stands before the gradients that it should carry.",
              "Leave no_sync for the last forward and backward of the window."},
    ClassHelp{
        wrong_scale,
        "The direction of the step is right and its length is not. SGD takes another learning rate, clipping and the loss scale act at other thresholds; Adam hides most of it.",
        "The loss is divided by the number of micro-batches in two places or in none; the last window of an epoch is shorter; losses are means over different numbers of tokens.",
        "The ledger shows observed weight and due weight as fractions: their quotient mostly names the divisor that is there twice or not at all."},
    ClassHelp{wrong_group, "Gradients are averaged over ranks that hold other weights, or not over all that hold the same.",
              "Experts, tensor or sequence parallel ranks that are handed the data-parallel group; a norm that counts replicas.",
              "Compare the ranks in the finding with the process group that the configuration means."},
    ClassHelp{misplaced_shard, "Parameters are moved by the gradients of other parameters.",
              "An offset into a flat buffer that ignores padding or alignment, or ranks that put parameters into it in different orders.",
              "The elements in the finding say where the places shift: look at the padding before them."},
    ClassHelp{rank_divergence, "Weights that must be the same on several ranks differ. From here on the ranks train different models.",
              "A reduction that some ranks do not take part in, an update from values that are not the same everywhere, an order of summing that differs by rank.",
              "Look for the first event at which the bits differ; what ran between it and the last equal one is the cause."},
    ClassHelp{rounding_excess, "All contributions are there with their weights, and the sum is less exact than the formats promise.",
              "A sum that is kept in a narrower format than the configuration says, or is rounded once more on the way.",
              "Compare the dtype of the accumulator in the report with that of the configuration."},
    ClassHelp{wrong_skip, "A step is lost, or one that should be lost is taken, or ranks disagree and wait for each other later.",
              "The check for infinities looks at other gradients than those that are applied, or its result is not shared between ranks.",
              "Look at which ranks report an overflow, and at the window that the infinity came from."},
    ClassHelp{wrong_norm, "Clipping acts where it should not, or not where it should.", "The norm counts replicas twice, leaves shards out, or is of scaled gradients.",
              "The finding has both norms: their quotient mostly is the loss scale or the square root of a number of ranks."},
    ClassHelp{nonfinite_missed, "An infinity or NaN is in the weights, and the run is lost from there on.",
              "The check for infinities is off in this configuration, or looks at a buffer before the last gradient is in it.",
              "Start again from a checkpoint before the event that the finding names, with the check turned on."},
    ClassHelp{deadlock, "The job stands still until the watchdog ends it.",
              "Ranks call collectives in different orders, or one of them leaves a call out, for example after an exception.",
              "The finding names what each rank waits in: look at what differs between their scripts."},
    ClassHelp{collective_mismatch, "NCCL hangs, or mixes elements that do not belong together, without an error.",
              "Ranks disagree about which parameters have gradients, about padding, or about the dtype of a buffer.",
              "Compare the two calls in the finding: size, dtype and operator."},
    ClassHelp{unwritten_memory, "Values that nobody computed are used. What they are depends on the allocator, so that the run looks right until it does not.",
              "A buffer is read before the copy or the collective that fills it has been waited for, or after its memory was released.",
              "Wait for the handle, or for the stream, that the finding names."},
    ClassHelp{engine_error, "The framework raises. Nothing is silent here; the finding keeps the text and the place.",
              "A call that this release or this configuration does not take.", "Read the text of the exception; `whose` says whether the script left what is documented."},
    ClassHelp{stream_race, "What is computed depends on timing: mostly right, now and then wrong, and never the same twice.",
              "A side stream that reads or writes a buffer without an event between it and the stream that uses the buffer too.",
              "Put the wait that the finding names between the two operations; the command in the report shows the wrong values."},
    ClassHelp{surplus_communication, "Gradients are right and the run is slower than it has to be.", "A reduction at every micro-batch, where one at the boundary is enough.",
              "Use no_sync, or the framework's own accumulation, for all but the last backward."},
};

}  // namespace

std::span<const ClassHelp> class_help() { return table; }

}  // namespace gradledger::verbs
