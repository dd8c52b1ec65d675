// Weights of contributions from one run's values: what every element holds is a sum of known gradients, each times a weight that is asked for. An
// element in which one weight alone is unknown tells it; a weight that is never alone in that way stays open.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace gradledger::ref {

// One contribution. Its data may be those of another one: then the sum of both weights is all that values show.
struct Candidate {
  double due = 0;                // what it must weigh here
  double own = 0, averaged = 0;  // what contributions like it weigh in some buffer
  bool in_window = false;        // that the snapshot answers for
  double seen_before = 0;        // weight of one of an earlier window, where an earlier snapshot of this window told it apart
};

struct Weight {
  double value = 0;
  bool open = false;               // values do not tell it; `value` is what is due
  std::vector<std::size_t> alike;  // candidates with equal data, any of which may have what is wrong of it
};

class Decoder {
 public:
  // rounding: what a lone contribution's weight may be off by on its way, relative; addition: what each further term of a sum adds to that.
  Decoder(std::vector<Candidate> candidates, double rounding, double addition) : candidates_(std::move(candidates)), rounding_(rounding), addition_(addition) {}

  // An element: every candidate's gradient, what is held, and what that may be off by for reasons of its own. All finite.
  void add(std::vector<double> gradients, double held, double error);

  // The weights of all candidates. None where no weights explain every element.
  std::optional<std::vector<Weight>> weights() const;

 private:
  // Candidates with equal data.
  struct Group {
    std::vector<std::size_t> members;
    bool known = false;
    double sum = 0, error = 0;  // of their weights
  };
  struct Element {
    std::vector<double> gradients;
    double held = 0, error = 0;
  };

  std::vector<Group> groups() const;
  void solve(std::vector<Group>& groups) const;
  double bound(const Element& element, const std::vector<Group>& groups) const;
  bool explained(const std::vector<Group>& groups) const;
  void settle(Group& group, std::vector<Weight>& out) const;
  double simplest(const Group& group) const;

  std::vector<Candidate> candidates_;
  double rounding_, addition_;
  std::vector<Element> elements_;
};

}  // namespace gradledger::ref
