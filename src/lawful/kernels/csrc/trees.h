// What the two families of dependency trees share: the batch, groups of sentences in the lanes of
// a vector, and their weights, shifted for each word by its best head.
#pragma once

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "tree_numbers.h"

namespace lawful::trees {

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

// The best head of each word, root included; best[m step] for m below length.
template <class S>
void column_bests(const TreeBatch<S>& b, int64_t id, int64_t length, double* best, int64_t step) {
  for (int64_t m = 0; m < length; ++m) best[m * step] = static_cast<double>(b.root[id * b.words + m]);
  for (int64_t h = 0; h < length; ++h) {
    const S* row = b.arcs + (id * b.words + h) * b.words;
    const double self = best[h * step];
    for (int64_t m = 0; m < length; ++m) {
      const double s = static_cast<double>(row[m]);
      best[m * step] = s > best[m * step] ? s : best[m * step];
    }
    best[h * step] = self;
  }
  for (int64_t m = 0; m < length; ++m) {
    if (!(best[m * step] > -kInf)) best[m * step] = 0.0;
  }
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

// Shifts of the words of each lane (shifts[m L + l]), and what else belongs to a lane.
template <class T, class S>
void load_shifts(const TreeBatch<S>& b, const Group& g, double kappa, Weights<T>& w,
                 double* shifts) {
  constexpr int L = Number<T>::lanes;
  for (int l = 0; l < L; ++l) {
    const int64_t id = g.ids[l], length = b.lengths[id];
    column_bests(b, id, length, shifts + l, L);
    double total = 0.0;
    for (int64_t m = 0; m < length; ++m) {
      double& shift = shifts[m * L + l];
      const double best = shift;
      shift += kappa + g.tilt;
      // For long sentences the best head alone predicts the size of the sum too badly.
      if (kappa > 0.0 && length > 128) shift += 0.5 * column_spread(b, id, length, m, best);
      total += shift;
    }
    w.total[l] = total;
    w.direction_scale[l] = Number<T>::dual ? direction_size(b, id, length) : 1.0;
  }
}

// Transposes one row (h = -1: the root's) of every lane into to[m L + l], scaled and shifted.
template <int L, class S>
void gather_row(const TreeBatch<S>& b, const Group& g, const S* arcs, const S* root, int64_t h,
                const double* shifts, const double* scale, double outside, int64_t n, double* to) {
  for (int l = 0; l < L; ++l) {
    const int64_t id = g.ids[l], words = b.words;
    const int64_t length = h < b.lengths[id] ? b.lengths[id] : 0;
    const S* row = h < 0 ? root + id * words : arcs + (id * words + h) * words;
    for (int64_t m = 0; m < length; ++m) {
      to[m * L + l] = static_cast<double>(row[m]) * scale[l] - (shifts ? shifts[m * L + l] : 0.0);
    }
    for (int64_t m = length; m < n; ++m) to[m * L + l] = outside;
    if (h >= 0) to[h * L + l] = outside;
  }
}

template <class T, class S>
void load_weights(const TreeBatch<S>& b, const Group& g, double kappa, Weights<T>& w) {
  using N = Number<T>;
  using X = typename N::X;
  constexpr int L = N::lanes;
  const int64_t n = w.n;
  Buffer<double> shifts(n * L);
  Buffer<X> scores(n), tangents(N::dual ? n : 0);
  auto* const x = reinterpret_cast<double*>(scores.get());
  auto* const t = reinterpret_cast<double*>(tangents.get());
  load_shifts(b, g, kappa, w, shifts.get());
  double one[L], inverse[L];
  for (int l = 0; l < L; ++l) {
    one[l] = 1.0;
    inverse[l] = 1.0 / w.direction_scale[l];
  }
  for (int64_t h = -1; h < n; ++h) {
    gather_row<L>(b, g, b.arcs, b.root, h, shifts.get(), one, -kInf, n, x);
    if constexpr (N::dual) {
      gather_row<L>(b, g, b.direction_arcs, b.direction_root, h, nullptr, inverse, 0.0, n, t);
    }
    T* to = h < 0 ? w.root : w.arc + h * n;
    for (int64_t m = 0; m < n; ++m) {
      to[m] = N::weight(scores.get()[m], N::dual ? tangents.get()[m] : X{});
    }
  }
}

// ---- lanes, ranges, choices ------------------------------------------------------------------

template <class T>
void set_lane(T& x, int lane, double value) {
  if constexpr (Number<T>::lanes == 1) {
    x = value == 0.0 ? Number<T>::zero() : Number<T>::one();
  } else {
    reinterpret_cast<double*>(&x)[lane] = value;
  }
}

// The largest of the values seen, in each lane.
template <class T>
struct Peak {
  T top = Number<T>::zero();
  void see(const T& x) { top = x > top ? x : top; }
  double of(int lane) const { return Number<T>::value(top, lane); }
};
template <class V>
struct Peak<Dual<V>> : Peak<V> {
  void see(const Dual<V>& x) { Peak<V>::see(x.v); }
};
template <>
struct Peak<Wide> {
  void see(const Wide&) {}
  double of(int) const { return 0.0; }
};

// A result in the scaled domain is sound if what underflowed (below 1e-308) cannot weigh in, that
// is, times the largest outside value and the number of items it stays below 1e-17 of the whole.
inline bool sound(double z, double peak, int64_t length) {
  const double items = 4.0 * static_cast<double>(length * length + 1);
  return z > 1e-290 && z < 1e300 && peak * items < z * 1e290;
}

// The value part of a number of the scaled domain.
template <class T>
double value_of(const T& z, int lane) {
  if constexpr (Number<T>::dual) {
    return value_of(z.v, lane);
  } else {
    return Number<T>::value(z, lane);
  }
}

// Marks the lanes for which ok(lane, z, length) does not hold; wide numbers never fail.
template <class T, class S, class Check>
Outcome judge(const T& z, const TreeBatch<S>& b, const Group& g, const Check& ok) {
  Outcome out;
  if constexpr (!Number<T>::wide) {
    for (int l = 0; l < g.used; ++l) {
      out.log_z[l] = Number<T>::log(z, l);
      if (!ok(l, value_of(z, l), b.lengths[g.ids[l]])) out.failed |= 1u << l;
    }
  }
  return out;
}

template <class T>
bool is_zero(const T& z) {
  if constexpr (Number<T>::dual) {
    return is_zero(z.v);
  } else if constexpr (Number<T>::wide) {
    return z.m == 0.0;
  } else {
    return false;
  }
}

// A term of a sum of products, with probability in proportion, from a number uniform in [0, 1).
template <class T>
int64_t pick(const T* x, const T* y, int64_t n, double random) {
  const T total = dot(x, y, n);
  double sum = 0.0;
  int64_t last = 0;
  for (int64_t u = 0; u < n; ++u) {
    const double part = Number<T>::value(x[u] * y[u] / total, 0);
    if (!(part > 0.0)) continue;
    sum += part;
    last = u;
    if (random < sum) break;
  }
  return last;
}

}  // namespace lawful::trees
