// Non-projective dependency trees: the partition function by elimination without subtraction.
//
// A word m points to head h with weight w(h,m), to the root with r(m). By the matrix-tree theorem
// the sum over all trees is a determinant; eliminating word k from the graph of pointers,
//   d(k) = sum_{h>k} w(h,k) + r(k),
//   w(h,m) += w(k,m) w(h,k) / d(k),   r(m) += w(k,m) r(k) / d(k)   (pointers through k),
// gives it as the product of the d, each a sum of non-negative terms, so that every one has full
// relative accuracy however ill-conditioned the Laplacian. A single root is the first order in r:
// r(k) counts in d(k) only for the word eliminated last.
//
// Marginals are w dlogZ/dw, by the adjoint of the same steps; they come with full absolute accuracy.
#pragma once

#include "trees.h"

namespace lawful::trees {

template <class T>
struct Elimination {
  explicit Elimination(int64_t n, bool with_adjoint)
      : n(n), memory((with_adjoint ? 3 : 2) * n * n + 9 * (n + 1)), order(static_cast<size_t>(n)) {
    w0.n = n;
    w0.arc = memory.get();
    w = w0.arc + n * n;
    T* rows = w + n * n;
    w0.root = rows;
    r = rows + (n + 1);
    d = rows + 2 * (n + 1);
    takes_root = rows + 3 * (n + 1);
    padding = rows + 4 * (n + 1);
    column = rows + 5 * (n + 1);
    rho = rows + 6 * (n + 1);
    a = rows + 7 * (n + 1);
    inverse = rows + 8 * (n + 1);
    g = rows + 9 * (n + 1);
  }
  int64_t n;
  Buffer<T> memory;
  std::vector<int64_t> order;  // which word is eliminated k-th
  Weights<T> w0;
  T *w, *r, *d, *takes_root, *padding, *column, *rho, *a, *inverse, *g;
};

template <class T, class S>
void prepare(Elimination<T>& e, const TreeBatch<S>& b, const Group& group) {
  const int64_t n = e.n;
  load_weights(b, group, 0.0, e.w0);
  std::copy(e.w0.arc, e.w0.arc + n * n, e.w);
  std::copy(e.w0.root, e.w0.root + n, e.r);
  std::iota(e.order.begin(), e.order.end(), int64_t{0});
  for (int64_t k = 0; k < n; ++k) {
    e.takes_root[k] = e.padding[k] = Number<T>::zero();
    for (int l = 0; l < Number<T>::lanes; ++l) {
      const int64_t length = b.lengths[group.ids[l]];
      if (k >= length) set_lane(e.padding[k], l, 1.0);
      if (!b.single_root || k == length - 1) set_lane(e.takes_root[k], l, 1.0);
    }
  }
}

template <class T>
void swap_words(Elimination<T>& e, int64_t i, int64_t j) {
  for (int64_t x = 0; x < e.n; ++x) std::swap(e.w[i * e.n + x], e.w[j * e.n + x]);
  for (int64_t x = 0; x < e.n; ++x) std::swap(e.w[x * e.n + i], e.w[x * e.n + j]);
  std::swap(e.r[i], e.r[j]);
  std::swap(e.order[static_cast<size_t>(i)], e.order[static_cast<size_t>(j)]);
}

template <class T>
T pivot(const Elimination<T>& e, int64_t k) {
  T d = e.padding[k] + e.takes_root[k] * e.r[k];
  for (int64_t h = k + 1; h < e.n; ++h) d = d + e.w[h * e.n + k];
  return d;
}

template <class T>
bool vanishes(const T& x) {
  if constexpr (Number<T>::dual) {
    return vanishes(x.v);
  } else {
    return x.m == 0.0;
  }
}

// Fills d. In the wide numbers (one sentence, length n) a word that points to no remaining word
// must be the last, next to a single root; returns false if there is no tree at all.
template <class T>
bool eliminate(Elimination<T>& e) {
  const int64_t n = e.n;
  bool last_is_set = false;
  for (int64_t k = 0; k < n; ++k) {
    e.d[k] = pivot(e, k);
    if constexpr (Number<T>::wide) {
      if (vanishes(e.d[k])) {
        if (k == n - 1 || last_is_set) return false;
        last_is_set = true;
        swap_words(e, k, n - 1);
        e.d[k] = pivot(e, k);
        if (vanishes(e.d[k])) return false;
      }
    }
    e.inverse[k] = Number<T>::one() / e.d[k];
    const T* from = e.w + k * n;
    for (int64_t h = k + 1; h < n; ++h) {
      T* row = e.w + h * n;
      const T share = row[k] * e.inverse[k];
      for (int64_t m = k + 1; m < n; ++m) row[m] = row[m] + share * from[m];
    }
    const T share = e.r[k] * e.inverse[k];
    for (int64_t m = k + 1; m < n; ++m) e.r[m] = e.r[m] + share * from[m];
  }
  return true;
}

// g(h,m) = dlogZ/dw(h,m) and rho(m) = dlogZ/dr(m), by undoing the steps.
template <class T>
void adjoint(Elimination<T>& e) {
  const int64_t n = e.n;
  const T zero = Number<T>::zero(), one = Number<T>::one();
  for (int64_t k = n - 1; k >= 0; --k) {
    const T* row = e.w + k * n;
    const int64_t rest = n - k - 1;
    for (int64_t m = k + 1; m < n; ++m) e.a[m] = e.rho[m] * e.r[k];
    for (int64_t h = k + 1; h < n; ++h) {
      const T weight = e.w[h * n + k];
      const T* gh = e.g + h * n;
      for (int64_t m = k + 1; m < n; ++m) e.a[m] = e.a[m] + weight * gh[m];
    }
    for (int64_t m = k + 1; m < n; ++m) e.a[m] = e.a[m] * e.inverse[k];
    const T children = dot(row + k + 1, e.a + k + 1, rest);
    const T direct = one - children;
    e.rho[k] = (e.takes_root[k] * direct + dot(e.rho + k + 1, row + k + 1, rest)) * e.inverse[k];
    for (int64_t h = k + 1; h < n; ++h) {
      T* gh = e.g + h * n;
      gh[k] = (direct + dot(gh + k + 1, row + k + 1, rest)) * e.inverse[k];
    }
    e.g[k * n + k] = zero;
    for (int64_t m = k + 1; m < n; ++m) e.g[k * n + m] = e.a[m];
  }
}

// ---- random trees ------------------------------------------------------------------------------

// SplitMix64: each sample has its own stream, seeded from the caller's generator.
struct Random {
  uint64_t state;
  double uniform() {
    state += 0x9e3779b97f4a7c15u;
    uint64_t x = state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
  }
};

// Wilson's loop-erased walks towards the root (or towards `top`, the only child of the root).
// steps[m n + h] are cumulative weights of m's heads, `steps` of size n (n + 1), the root last.
// Returns false when the walk is longer than `patience`; how long it takes is independent of the
// tree, so that drawing such a tree in another way leaves the distribution as it is.
inline bool wilson(const double* steps, int64_t n, int64_t top, Random& random, int64_t patience,
                   int64_t* heads) {
  std::vector<char> done(static_cast<size_t>(n), 0);
  if (top >= 0) {
    heads[top] = kRoot;
    done[static_cast<size_t>(top)] = 1;
  }
  const int64_t choices = top >= 0 ? n : n + 1;
  for (int64_t start = 0; start < n; ++start) {
    for (int64_t m = start; m != n && !done[static_cast<size_t>(m)];) {
      if (--patience < 0) return false;
      const double* row = steps + m * (n + 1);
      const double at = random.uniform() * row[choices - 1];
      int64_t h = std::upper_bound(row, row + choices, at) - row;
      heads[m] = h == n ? kRoot : h;
      m = h;
    }
    for (int64_t m = start; m >= 0 && !done[static_cast<size_t>(m)]; m = heads[m]) {
      done[static_cast<size_t>(m)] = 1;
    }
  }
  return true;
}

}  // namespace lawful::trees
