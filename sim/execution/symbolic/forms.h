// Linear forms over contributions, with exact weights: what one element of a buffer is, as a sum. Equal forms have one number, so that what
// ranks, buffers and micro-batches have in common is worked out once.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/base/hash_index.h"
#include "sim/base/rational.h"
#include "sim/trace/weights.h"

namespace gradledger {

using FormId = std::uint32_t;

class LinearForms {
 public:
  // Memory that nobody wrote; a value that is no sum of contributions or whose weights do not fit; nothing at all.
  static constexpr FormId poison = 0, untold = 1, zero = 2;

  LinearForms();

  // A backward's contribution with weight 1, of whichever rank holds the form.
  FormId contribution(std::uint32_t backward);
  FormId number(double value);

  FormId scaled(FormId form, const Rational& factor);
  FormId shifted(FormId form, std::int64_t by);
  FormId sum(FormId a, FormId b);
  // What a rank holds, as another rank would say it.
  FormId on_rank(FormId form, std::uint32_t rank);
  // The sum of what each of these ranks holds, who all hold this form. Precondition: sorted.
  FormId over_ranks(FormId form, const std::vector<std::uint32_t>& ranks);

  // Of the contributions of backwards [begin, end), and nothing else; of those before one, with what is no contribution; of backwards that are so much later.
  FormId of_backwards(FormId form, std::uint32_t begin, std::uint32_t end);
  FormId before(FormId form, std::uint32_t backward);
  FormId later(FormId form, std::int64_t by);
  // With `more` rounds of `size` backwards put in before backward `at`, each as the one that begins at `like`; what was there up to `end` is later by
  // so much. Precondition: `like` is at most `at`.
  struct RoundsPutIn {
    std::uint32_t like = 0, at = 0, end = 0, size = 0;
  };
  FormId with_rounds(FormId form, const RoundsPutIn& rounds, std::uint64_t more);

  // Poison or untold: no sum of contributions.
  bool told_apart(FormId form) const { return special(form); }
  bool has_terms(FormId form) const { return !special(form) && !forms_[form].terms.empty(); }
  // Whether another rank that holds the form holds other contributions.
  bool says_own(FormId form) const;
  double constant(FormId form) const { return forms_[form].constant; }
  std::int64_t first_shift(FormId form) const { return forms_[form].terms.front().shift; }
  // Precondition: of a form from on_rank() or over_ranks(). Valid as long as this lives.
  std::span<const WeightTerm> terms(FormId form);
  // Whether it takes in a backward of a rank, held by `holder`, from as many elements away as `where` says yes to.
  bool holds(FormId form, std::uint32_t holder, std::uint32_t backward, std::uint32_t rank, const std::function<bool(std::int64_t shift)>& where) const;

 private:
  using ProfileId = std::uint32_t;

  // [begin, end), and what is the same in all of it.
  template <class Value>
  struct Run {
    std::uint32_t begin = 0, end = 0;
    Value value{};
    bool operator==(const Run&) const = default;
  };
  // One backward's contributions by rank. own: of the rank that holds the form.
  struct Profile {
    Rational own = 0;
    std::vector<Run<Rational>> ranks;  // sorted, apart, not zero
    bool operator==(const Profile&) const = default;
  };
  struct Term {
    std::int64_t shift = 0;
    std::uint32_t begin = 0, end = 0;  // backwards
    ProfileId profile = 0;
    bool operator==(const Term&) const = default;
  };
  struct Form {
    double constant = 0;
    std::vector<Term> terms;  // by shift, then backward; apart within a shift
    bool operator==(const Form&) const = default;
  };

  using Key = std::pair<std::uint64_t, std::uint64_t>;
  using Memo = std::map<Key, std::uint32_t>;

  // All of a kind, each once.
  template <class T>
  class Pool {
   public:
    std::uint32_t id_of(T item);
    const T& operator[](std::uint32_t id) const { return items_[id]; }

   private:
    std::deque<T> items_;
    HashIndex by_hash_;
  };

  static std::uint64_t hash_of(const Profile& profile);
  static std::uint64_t hash_of(const Form& form);
  template <class Value, class Add>
  static bool add_runs(std::span<const Run<Value>> a, std::span<const Run<Value>> b, std::vector<Run<Value>>& out, Add&& add);

  static bool special(FormId form) { return form <= untold; }
  FormId within(FormId form, std::uint32_t begin, std::uint32_t end, double constant);
  std::optional<ProfileId> sum_of_profiles(ProfileId a, ProfileId b);
  std::optional<ProfileId> scaled_profile(ProfileId profile, const Rational& factor);
  std::optional<ProfileId> profile_on(ProfileId profile, std::uint32_t rank);
  std::optional<ProfileId> profile_over(ProfileId profile, const std::vector<std::uint32_t>& ranks);
  template <class Change>
  FormId with_profiles(FormId form, double constant, Change&& change);
  std::optional<Form> sum_of(const Form& a, const Form& b);

  Pool<Profile> profiles_;
  Pool<Form> forms_;
  Memo sums_, profile_sums_, shifts_, ranks_, scales_, groups_;
  std::vector<Rational> factors_;                       // numbered for the memo of scales
  std::vector<std::vector<std::uint32_t>> rank_lists_;  // likewise, of groups
  std::map<FormId, std::vector<WeightTerm>> listed_;
};

}  // namespace gradledger
