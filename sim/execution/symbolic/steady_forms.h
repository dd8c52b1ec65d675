// What linear forms become where the same program runs again and again, each time on a new backward: by arithmetic on the numbers of backwards.
//
// One round's program takes what is held, x, to A x + B e, with e the round's contributions. So what a contribution weighs depends on its age in
// rounds alone: B, A B, A^2 B. Once two ages in a row weigh alike, A leaves them as they are, and all later ages weigh the same.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/execution/symbolic/forms.h"

namespace gradledger {

// Three rounds that ran, one after the other, of `size` backwards each; the first begins at `first`. What is older is older than all three.
struct ThreeRounds {
  std::uint32_t first = 0, size = 0;

  std::uint32_t second() const { return first + size; }
  std::uint32_t third() const { return first + 2 * size; }
  std::uint32_t end() const { return first + 3 * size; }
};

class SteadyForms {
 public:
  SteadyForms(LinearForms& forms, ThreeRounds rounds) : forms_(forms), rounds_(rounds) {}

  // Whether the first round weighs as much as the second does.
  bool settled(FormId form) {
    if (forms_.told_apart(form)) return true;
    std::uint8_t& known = of(settled_, form);
    if (known != 0) return known == 1;
    const FormId first = forms_.of_backwards(form, rounds_.first, rounds_.second());
    const bool is = forms_.later(first, rounds_.size) == forms_.of_backwards(form, rounds_.second(), rounds_.third());
    known = is ? 1 : 2;
    return is;
  }

  // What is held `more` rounds after the third, of what is held behind it. Precondition: settled.
  FormId held_after(FormId form, std::uint64_t more) {
    if (more != held_more_) held_.clear();
    held_more_ = more;
    FormId& known = of(held_, form);
    if (known == LinearForms::poison) known = after(form, more, rounds_.second());
    return known;
  }

  // Likewise of a snapshot in the third round, in which the second is yet to age: the first alone tells what lasts.
  FormId shown_after(FormId form, std::uint64_t more) { return after(form, more, rounds_.first); }

 private:
  // `lasting`: the round that weighs what every older one will.
  FormId after(FormId form, std::uint64_t more, std::uint32_t lasting) {
    if (more == 0 || forms_.told_apart(form)) return form;
    return forms_.with_rounds(form, {lasting, rounds_.second(), rounds_.end(), rounds_.size}, more);
  }

  template <class T>
  static T& of(std::vector<T>& by_form, FormId form) {
    if (by_form.size() <= form) by_form.resize(form + 1, T{});
    return by_form[form];
  }

  LinearForms& forms_;
  const ThreeRounds rounds_;
  std::vector<std::uint8_t> settled_;  // by form; 0: not asked
  std::vector<FormId> held_;           // by form, so many rounds later; poison: not worked out
  std::uint64_t held_more_ = 0;
};

}  // namespace gradledger
