// Binary constituency trees over n words, by the inside-outside program on spans:
//   in(i,i) = leaf(i),   in(i,j) = w(i,j) sum_{u=i}^{j-1} in(i,u) in(u+1,j).
// The square a holds in(i,j) at [i][j] and at [j][i], so that every sum runs over two rows.
#pragma once

#include "trees.h"

namespace lawful::trees {

template <class T>
struct SpanChart {
  SpanChart(int64_t n, bool with_outside)
      : n(n), memory((with_outside ? 3 : 2) * n * n + n), w(memory.get()), a(w + n * n),
        leaf(a + n * n), out(leaf + n) {}
  int64_t n;
  Buffer<T> memory;
  T *w, *a, *leaf, *out;
  double total[8], direction_scale[8];
};

// One constant for all leaves and one for all longer spans centre the range: n and n - 1 of them
// are in every tree. Halfway between the largest and the mean weight, plus half the growth (log 4)
// of the number of trees.
template <class S>
void span_shifts(const TreeBatch<S>& b, int64_t id, double tilt, bool tropical, double* leaf,
                 double* span) {
  const int64_t n = b.lengths[id], words = b.words;
  double top = -kInf, top_leaf = -kInf;
  for (int64_t i = 0; i < n; ++i) {
    top_leaf = std::max(top_leaf, static_cast<double>(b.root[id * words + i]));
    const S* row = b.arcs + (id * words + i) * words;
    for (int64_t j = i + 1; j < n; ++j) top = std::max(top, static_cast<double>(row[j]));
  }
  *leaf = top_leaf > -kInf ? top_leaf : 0.0;
  *span = top > -kInf ? top : 0.0;
  if (tropical || n < 2) return;
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    const S* row = b.arcs + (id * words + i) * words;
    for (int64_t j = i + 1; j < n; ++j) sum += std::exp(static_cast<double>(row[j]) - *span);
  }
  const double pairs = 0.5 * static_cast<double>(n) * static_cast<double>(n - 1);
  *span += 0.5 * (sum > 0.0 ? std::log(4.0 * sum / pairs) : 0.0) + tilt;
}

template <class T, class S>
void load_spans(const TreeBatch<S>& b, const Group& g, SpanChart<T>& k) {
  using N = Number<T>;
  using X = typename N::X;
  constexpr int L = N::lanes;
  const int64_t n = k.n, words = b.words;
  double leaf[L], span[L], inverse[L];
  for (int l = 0; l < L; ++l) {
    const int64_t id = g.ids[l], length = b.lengths[id];
    span_shifts(b, id, g.tilt, N::tropical, leaf + l, span + l);
    k.total[l] = static_cast<double>(length) * leaf[l] + (length ? length - 1.0 : 0.0) * span[l];
    k.direction_scale[l] = 1.0;
    if (N::dual) {
      double size = 0.0;
      for (int64_t i = 0; i < length; ++i) {
        for (int64_t j = i; j < length; ++j) {
          const S v = i == j ? b.direction_root[id * words + i]
                             : b.direction_arcs[(id * words + i) * words + j];
          size = std::max(size, std::fabs(static_cast<double>(v)));
        }
      }
      if (size > 0.0 && size < kInf) k.direction_scale[l] = size;
    }
    inverse[l] = 1.0 / k.direction_scale[l];
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i; j < n; ++j) {
      X x, t{};
      double* px = reinterpret_cast<double*>(&x);
      double* pt = reinterpret_cast<double*>(&t);
      for (int l = 0; l < L; ++l) {
        const int64_t id = g.ids[l];
        const int64_t at = i == j ? id * words + i : (id * words + i) * words + j;
        const bool there = j < b.lengths[id];
        px[l] = there ? static_cast<double>((i == j ? b.root : b.arcs)[at]) - (i == j ? leaf : span)[l]
                      : -kInf;
        if constexpr (N::dual) {
          const S* along = i == j ? b.direction_root : b.direction_arcs;
          pt[l] = there ? static_cast<double>(along[at]) * inverse[l] : 0.0;
        }
      }
      (i == j ? k.leaf[i] : k.w[i * n + j]) = N::weight(x, t);
    }
  }
}

template <class T>
void span_inside(SpanChart<T>& k) {
  const int64_t n = k.n;
  for (int64_t i = n - 1; i >= 0; --i) {
    T* ai = k.a + i * n;
    ai[i] = k.leaf[i];
    for (int64_t j = i + 1; j < n; ++j) {
      T* aj = k.a + j * n;
      ai[j] = aj[i] = k.w[i * n + j] * dot(ai + i, aj + i + 1, j - i);
    }
  }
}

template <class T, class S>
T span_partition(const SpanChart<T>& k, const TreeBatch<S>& b, const Group& g) {
  constexpr int L = Number<T>::lanes;
  if constexpr (L == 1) {
    const int64_t length = b.lengths[g.ids[0]];
    return length ? k.a[length - 1] : Number<T>::one();
  } else {
    constexpr int parts = sizeof(T) / sizeof(double) / L;
    T z = Number<T>::one();
    double* to = reinterpret_cast<double*>(&z);
    for (int l = 0; l < L; ++l) {
      const int64_t length = b.lengths[g.ids[l]];
      if (length == 0) continue;
      const double* from = reinterpret_cast<const double*>(k.a + length - 1);
      for (int p = 0; p < parts; ++p) to[p * L + l] = from[p * L + l];
    }
    return z;
  }
}

// Marginals in(i,j) out(i,j) / Z, handed to put(i, j, value); `out` holds out(i,j) w(i,j) at [i][j]
// and [j][i]. Returns the largest of those and of the outside values.
template <class T, class S, class Put>
Peak<T> span_outside(SpanChart<T>& k, const TreeBatch<S>& b, const Group& g, T inverse_z,
                     const Put& put) {
  const int64_t n = k.n;
  Peak<T> peak;
  for (int64_t i = 0; i < n; ++i) {
    T* oi = k.out + i * n;
    for (int64_t j = n - 1; j >= i; --j) {
      T* oj = k.out + j * n;
      T value = Number<T>::zero();
      if (i == 0) {
        for (int l = 0; l < Number<T>::lanes; ++l) {
          if (b.lengths[g.ids[l]] - 1 == j) set_lane(value, l, 1.0);
        }
      } else {
        value = value + dot(oj, k.a + (i - 1) * n, i);
      }
      if (j + 1 < n) value = value + dot(oi + j + 1, k.a + (j + 1) * n + j + 1, n - 1 - j);
      peak.see(value);
      if (i < j) {
        oi[j] = oj[i] = value * k.w[i * n + j];
        peak.see(oi[j]);
      }
      put(i, j, value * k.a[i * n + j] * inverse_z);
    }
  }
  return peak;
}

// The spans longer than a word of one tree: choose(x, y, count) picks the split of a span.
template <class V, class Choose>
void derive_spans(const V* a, int64_t n, int64_t step, int64_t length, const Choose& choose,
                  const std::function<void(int64_t, int64_t)>& take) {
  std::vector<std::pair<int64_t, int64_t>> stack;
  if (length) stack.push_back({0, length - 1});
  while (!stack.empty()) {
    const auto [i, j] = stack.back();
    stack.pop_back();
    take(i, j);
    if (i == j) continue;
    const int64_t u = i + choose(a + (i * n + i) * step, a + (j * n + i + 1) * step, j - i);
    stack.push_back({i, u});
    stack.push_back({u + 1, j});
  }
}

}  // namespace lawful::trees
