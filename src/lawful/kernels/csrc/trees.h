// What the two families of dependency trees share: the batch, groups of sentences in the lanes of
// a vector, and their weights, shifted for each word by its best head.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "numbers.h"

namespace lawful {

constexpr int64_t kRoot = -1;  // head of a child of the root
constexpr int64_t kPad = -2;   // head of a word in the padding

// Scores arcs[b][h][m] and root[b][m] of words below lengths[b]; nothing else is read.
// direction_*: the vector a Hessian-vector product is taken with, or null.
template <class S>
struct TreeBatch {
  const S *arcs, *root;
  const int64_t* lengths;
  int64_t batch, words;
  bool single_root;
  const S *direction_arcs = nullptr, *direction_root = nullptr;
};

// The sentences that one task works on; a group shorter than its lanes repeats the first one.
struct Group {
  int64_t ids[8];
  int used;
  int64_t length;         // the longest
  double tilt = 0.0;      // added to the shift of every word
  bool second = false;    // a second try, of one sentence
};

// What became of a group: a bit for each lane out of range, and the lanes' scaled log-partitions.
struct Outcome {
  unsigned failed = 0;
  double log_z[8] = {};
};

// Longest first, so that the lanes of a group have similar lengths.
inline std::vector<int64_t> by_length(const int64_t* lengths, int64_t batch) {
  std::vector<int64_t> order(static_cast<size_t>(batch));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });
  return order;
}

inline std::vector<Group> make_groups(const int64_t* lengths, int64_t batch, int lanes) {
  const auto order = by_length(lengths, batch);
  std::vector<Group> groups;
  for (int64_t start = 0; start < batch; start += lanes) {
    Group g;
    g.used = static_cast<int>(std::min<int64_t>(lanes, batch - start));
    for (int l = 0; l < 8; ++l) g.ids[l] = order[start + (l < g.used ? l : 0)];
    g.length = lengths[g.ids[0]];
    groups.push_back(g);
  }
  return groups;
}

inline Group one_sentence(const int64_t* lengths, int64_t id) {
  Group g;
  g.used = 1;
  std::fill(g.ids, g.ids + 8, id);
  g.length = lengths[id];
  return g;
}

template <class S>
double tree_score(const TreeBatch<S>& b, int64_t id, const int64_t* heads) {
  double score = 0.0;
  for (int64_t m = 0; m < b.lengths[id]; ++m) {
    const S* from = heads[m] == kRoot ? b.root + id * b.words
                                      : b.arcs + (id * b.words + heads[m]) * b.words;
    score += static_cast<double>(from[m]);
  }
  return score;
}

// How many sentences to put in a vector: all lanes when that leaves work for each thread.
inline int choose_lanes(int64_t batch, int64_t threads) {
  if (batch >= 8 * threads || batch >= 24) return 8;
  return batch >= 3 ? 4 : 1;
}

// Weights of one group: arc[h n + m] and root[m] are exp(score - shift[m]), zero where the sentence
// of a lane has ended; `total` is what the shifts took from each log-partition.
template <class T>
struct Weights {
  int64_t n;
  T *arc, *root;
  double total[8];
  double direction_scale[8];
};

template <class S>
double column_best(const TreeBatch<S>& b, int64_t id, int64_t length, int64_t m) {
  const S* column = b.arcs + id * b.words * b.words + m;
  double best = static_cast<double>(b.root[id * b.words + m]);
  for (int64_t h = 0; h < length; ++h) {
    const double s = static_cast<double>(column[h * b.words]);
    if (h != m && s > best) best = s;
  }
  return best;
}

// log of the mean of exp(score - best) over the heads of m.
template <class S>
double column_spread(const TreeBatch<S>& b, int64_t id, int64_t length, int64_t m, double best) {
  const S* column = b.arcs + id * b.words * b.words + m;
  double sum = std::exp(static_cast<double>(b.root[id * b.words + m]) - best);
  for (int64_t h = 0; h < length; ++h) {
    if (h != m) sum += std::exp(static_cast<double>(column[h * b.words]) - best);
  }
  return std::log(sum / static_cast<double>(length));
}

// Directions are scaled to at most 1, so that a tangent has the range of its value.
template <class S>
double direction_size(const TreeBatch<S>& b, int64_t id, int64_t length) {
  double size = 0.0;
  for (int64_t h = 0; h < length; ++h) {
    const S* row = b.direction_arcs + (id * b.words + h) * b.words;
    for (int64_t m = 0; m < length; ++m) {
      const double v = m == h ? 0.0 : std::fabs(static_cast<double>(row[m]));
      size = v > size ? v : size;
    }
  }
  for (int64_t m = 0; m < length; ++m) {
    const double v = std::fabs(static_cast<double>(b.direction_root[id * b.words + m]));
    size = v > size ? v : size;
  }
  return size > 0.0 && size < kInf ? size : 1.0;
}

template <class T, class S>
void load_weights(const TreeBatch<S>& b, const Group& g, double kappa, Weights<T>& w) {
  using N = Number<T>;
  using X = typename N::X;
  constexpr int L = N::lanes;
  const int64_t n = w.n, words = b.words;
  Buffer<double> shifts(n * L);
  int64_t lengths[L];
  double inverse[L];
  for (int l = 0; l < L; ++l) {
    const int64_t id = g.ids[l];
    lengths[l] = b.lengths[id];
    double total = 0.0;
    for (int64_t m = 0; m < n; ++m) {
      double best = m < lengths[l] ? column_best(b, id, lengths[l], m) : 0.0;
      if (!(best > -kInf)) best = 0.0;
      double shift = best + kappa + g.tilt;
      // For long sentences the best head alone predicts the size of the sum too badly.
      if (kappa > 0.0 && m < lengths[l] && lengths[l] > 128) {
        shift += 0.5 * column_spread(b, id, lengths[l], m, best);
      }
      shifts.get()[m * L + l] = shift;
      if (m < lengths[l]) total += shift;
    }
    w.total[l] = total;
    w.direction_scale[l] = N::dual ? direction_size(b, id, lengths[l]) : 1.0;
    inverse[l] = 1.0 / w.direction_scale[l];
  }
  for (int64_t h = -1; h < n; ++h) {  // h = -1 is the root
    for (int64_t m = 0; m < n; ++m) {
      X x, t{};
      double* px = reinterpret_cast<double*>(&x);
      double* pt = reinterpret_cast<double*>(&t);
      for (int l = 0; l < L; ++l) {
        const int64_t id = g.ids[l];
        const bool there = m < lengths[l] && h < lengths[l] && h != m;
        const int64_t at = h < 0 ? id * words + m : (id * words + h) * words + m;
        const S* from = h < 0 ? b.root : b.arcs;
        px[l] = there ? static_cast<double>(from[at]) - shifts.get()[m * L + l] : -kInf;
        if constexpr (N::dual) {
          const S* along = h < 0 ? b.direction_root : b.direction_arcs;
          pt[l] = there ? static_cast<double>(along[at]) * inverse[l] : 0.0;
        }
      }
      (h < 0 ? w.root[m] : w.arc[h * n + m]) = N::weight(x, t);
    }
  }
}

}  // namespace lawful
