// What faults are made of: when they strike, which operations they hit, and what becomes of these.
#pragma once

#include <functional>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "search/mutants/mutant.h"
#include "sim/engine/buffers.h"
#include "sim/frameworks/search_space.h"

namespace gradledger::search {

using When = std::function<bool(const Moment&)>;
using Which = std::function<bool(const Tape&, const Op&)>;
using Change = std::function<void(Tape&, std::size_t at, const Moment&)>;
using TapeEdit = std::function<void(Tape&, const Moment&)>;

enum class Take : std::uint8_t { each, first, last };

// Of what a call wrote at such a moment, the change of each, the first or the last operation that fits.
TapeEdit edit(When when, Take take, Which which, Change change);
TapeEdit both_edits(TapeEdit one, TapeEdit then);
// Swaps what two operations have in common in kind: the first that fits, and the next that fits with it.
TapeEdit swap_first(When when, Which which, std::function<bool(const Op&, const Op&)> fits, std::function<void(Op&, Op&)> swap);

// ---- when
bool always(const Moment&);
bool at_start(const Moment&);  // the engine is made
bool at_backward(const Moment&);
bool at_boundary(const Moment&);  // a backward that is documented to be one, or where nobody counts the last of its window
bool at_first_micro_batch(const Moment&);
bool at_later_micro_batch(const Moment&);
bool at_inner_micro_batch(const Moment&);  // a backward that is no boundary
bool at_step(const Moment&);               // one that updates
bool after_first_window(const Moment&);
When on_rank(std::uint32_t rank, When when = always);
When both(When one, When other);

// ---- which
Which of_kind(std::initializer_list<OpKind> kinds);
bool deposits(const Tape&, const Op&);  // of gradients
bool updates(const Tape&, const Op&);   // of the base optimizer
bool updates_with_moments(const Tape&, const Op&);
Which collectives(Purpose purpose);
bool reductions(const Tape&, const Op&);  // of gradients
bool divisions(const Tape&, const Op&);   // of what is reduced, whether it is divided or multiplied
Which writes(BufferPurpose purpose, std::initializer_list<OpKind> kinds);
Which reads(BufferPurpose purpose, std::initializer_list<OpKind> kinds);
Which from_to(BufferPurpose source, BufferPurpose target, std::initializer_list<OpKind> kinds);
Which from_space(MemorySpace source, MemorySpace target, std::initializer_list<OpKind> kinds);
Which on_stream(Stream stream, Which which);
Which waits_on(Stream stream);
Which named(std::string_view start, Which which);  // of those, that write a buffer whose name begins so
Which either(Which one, Which other);
Which that(Which one, Which other);  // both hold

// ---- what becomes of them
void dropped(Tape&, std::size_t at, const Moment&);
void repeated(Tape&, std::size_t at, const Moment&);
void zeroed(Tape&, std::size_t at, const Moment&);                    // what is added or set is 0
void overwriting(Tape&, std::size_t at, const Moment&);               // sets instead of adding
void adding(Tape&, std::size_t at, const Moment&);                    // adds instead of setting
void shortened(Tape&, std::size_t at, const Moment&);                 // the last element is left out
void target_shifted(Tape&, std::size_t at, const Moment&);            // by an element
void source_slid(Tape&, std::size_t at, const Moment&);               // from one element further, and one less of them
void target_slid(Tape&, std::size_t at, const Moment&);               // to one element further, likewise
void before_what_comes_before(Tape&, std::size_t at, const Moment&);  // on its stream
void after_what_comes_next(Tape&, std::size_t at, const Moment&);     // on its stream
void to_the_front(Tape&, std::size_t at, const Moment&);
void to_the_end(Tape&, std::size_t at, const Moment&);
void before_its_last_use(Tape&, std::size_t at, const Moment&);  // a release, or a read of what was just written
void through_bf16(Tape&, std::size_t at, const Moment&);         // what was written is rounded to bf16
Change scaled(double factor);
Change scaled_by(std::function<double(const Moment&)> factor);
Change on_the(Stream stream);
Change called(std::function<void(CollectiveCall&, const Moment&)> change);
Change updated(std::function<void(UpdateCall&, const Moment&)> change);

// ---- what a case must have
void several_ranks(Scenario& scenario);
void several_micro_batches(Scenario& scenario);  // and ranks, in several windows, by the flag
void counted_micro_batches(Scenario& scenario);  // likewise, by the counter
void three_of_each(Scenario& scenario);          // three ranks and three counted micro-batches
void clipped(Scenario& scenario);                // to less than any norm, in fp32 arithmetic
void with_moments(Scenario& scenario);
void half_precision(Scenario& scenario);    // fp16 with a static loss scale
void planted_overflow(Scenario& scenario);  // fp16 with a dynamic loss scale, an infinity in the second of several windows
void overlapping(Scenario& scenario);
void wide_accumulation(Scenario& scenario);  // bf16 model, accumulation and communication in fp32

bool reduces_every_backward(const Scenario& scenario);  // by its contract

// ---- what the engine takes the run for: one with a defect that the framework has a switch or an option for
std::function<void(Scenario&, EngineContext&)> has_defect(std::string_view fault);

// ---- engines, by what they do with gradients
std::vector<std::string_view> engines_that(bool (*fit)(const EngineTraits&));
std::vector<std::string_view> loop_engines_that(bool (*fit)(const EngineTraits&));  // of frameworks whose loops own their windows
extern const std::vector<std::string_view> every_variant, offload_variants, device_variants, owner_variants, owners_on_the_device,
    bucket_variants,                                                                       // gradients end on the rank that steps them; bucket: and its weights are gathered
    flat_variants, sharded_weights,                                                        // weights are gathered after a step, or never whole
    plain_variants, replicating_variants,                                                  // every rank holds every averaged gradient; plain: in param.grad
    whole_accumulators, wide_accumulators, host_accumulators, all_but_whole_accumulators;  // of the engine's own; whole: of every element

}  // namespace gradledger::search
