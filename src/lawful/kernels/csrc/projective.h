// Projective dependency trees: the split-head chart program over any number type.
//
// Words are 0..n-1. CR(i,j), head i with all dependents in i+1..j; CL(i,j), head j with all in
// i..j-1; IR(i,j) = S(i,j) w(i,j) and IL(i,j) = S(i,j) w(j,i), the same with the arc just drawn,
//   S(i,j)  = sum_{u=i}^{j-1}  CR(i,u) CL(u+1,j)
//   CL(i,j) = sum_{u=i}^{j-1}  CL(i,u) IL(u,j)
//   CR(i,j) = sum_{u=i+1}^{j}  IR(i,u) CR(u,j).
// The root takes prefixes: R(0) = 1, I(t) = root(t) sum_{u<=t} R(u) CL(u,t) (only u = 0 for a
// single root), R(t+1) = sum_{u<=t} I(u) CR(u,t); the partition function is R(n).
//
// Each square holds two triangles, so that every sum runs over two contiguous rows:
//   a[i][j>=i] = CR(i,j), a[j][i<=j] = CL(i,j);  at is its transpose;
//   c[i][j>i]  = IR(i,j), c[j][i<j]  = IL(i,j);  ct is its transpose.
#pragma once

#include "trees.h"

namespace lawful::trees {

// Half the growth rate (27/4 for each word) of the number of trees: it centres the range.
constexpr double kProjectiveKappa = 0.9547712;

template <class T>
struct Chart {
  explicit Chart(int64_t n, int squares)
      : n(n), memory(squares * n * n + 6 * (n + 1)), a(square(0)), at(square(1)), c(square(2)),
        ct(square(3)), rest(squares > 5 ? square(5) : nullptr) {
    w.n = n;
    w.arc = square(4);
    T* rows = memory.get() + squares * n * n;
    prefix = rows;
    child = rows + (n + 1);
    child_bar = rows + 2 * (n + 1);
    prefix_bar = rows + 3 * (n + 1);
    weighted_bar = rows + 4 * (n + 1);
    w.root = rows + 5 * (n + 1);
  }
  T* square(int k) { return memory.get() + k * n * n; }

  int64_t n;
  Buffer<T> memory;
  T *a, *at, *c, *ct, *rest;
  T *prefix, *child, *child_bar, *prefix_bar, *weighted_bar;
  Weights<T> w;
};

template <class T>
void inside(Chart<T>& k, bool single_root) {
  const int64_t n = k.n;
  const T one = Number<T>::one();
  for (int64_t i = n - 1; i >= 0; --i) {
    T *ai = k.a + i * n, *ti = k.at + i * n, *ci = k.c + i * n, *cti = k.ct + i * n;
    ai[i] = ti[i] = one;
    ci[i] = cti[i] = Number<T>::zero();
    for (int64_t j = i + 1; j < n; ++j) {
      T *aj = k.a + j * n, *tj = k.at + j * n, *cj = k.c + j * n, *ctj = k.ct + j * n;
      const T s = dot(ai + i, aj + i + 1, j - i);
      ci[j] = ctj[i] = s * k.w.arc[i * n + j];
      cj[i] = cti[j] = s * k.w.arc[j * n + i];
      aj[i] = ti[j] = dot(ti + i, cj + i, j - i);
      ai[j] = tj[i] = dot(ci + i + 1, tj + i + 1, j - i);
    }
  }
  k.prefix[0] = one;
  for (int64_t t = 0; t < n; ++t) {
    k.child[t] = k.w.root[t] * dot(k.prefix, k.a + t * n, single_root ? 1 : t + 1);
    k.prefix[t + 1] = dot(k.child, k.at + t * n, t + 1);
  }
}

// The partition function of every lane, each at its own length.
template <class T, class S>
T partition(const Chart<T>& k, const TreeBatch<S>& b, const Group& g) {
  T z = Number<T>::zero();
  if constexpr (Number<T>::lanes == 1) {
    z = k.prefix[b.lengths[g.ids[0]]];
  } else {
    constexpr int L = Number<T>::lanes;
    constexpr int parts = sizeof(T) / sizeof(double) / L;  // value, and tangent if there is one
    double* to = reinterpret_cast<double*>(&z);
    for (int l = 0; l < L; ++l) {
      const double* from = reinterpret_cast<const double*>(k.prefix + b.lengths[g.ids[l]]);
      for (int p = 0; p < parts; ++p) to[p * L + l] = from[p * L + l];
    }
  }
  return z;
}

// Outside values (a bar marks them), and the marginals IRbar IR / Z, ILbar IL / Z, handed to
// put(h, m, value) with h = kRoot for the root.
//   p[i][j] = CRbar(i,j), p[j][i] = CLbar(i,j), pt its transpose; g = Sbar, symmetric.
// Returns the largest outside value.
template <class T, class S, class Put>
Peak<T> outside(Chart<T>& k, const TreeBatch<S>& b, const Group& group, T inverse_z, const Put& put) {
  const int64_t n = k.n;
  const T zero = Number<T>::zero(), one = Number<T>::one();
  T *p = k.rest, *pt = p + n * n, *g = pt + n * n;
  Peak<T> peak;
  for (int64_t t = 0; t <= n; ++t) k.prefix_bar[t] = zero;
  for (int l = 0; l < Number<T>::lanes; ++l) {
    T& last = k.prefix_bar[b.lengths[group.ids[l]]];
    if constexpr (Number<T>::lanes == 1) {
      last = one;
    } else {
      reinterpret_cast<double*>(&last)[l] = 1.0;  // the tangent part stays 0
    }
  }
  for (int64_t t = n - 1; t >= 0; --t) {
    k.child_bar[t] = dot(k.a + t * n + t, k.prefix_bar + t + 1, n - t);
    k.weighted_bar[t] = k.child_bar[t] * k.w.root[t];
    put(kRoot, t, k.child_bar[t] * k.child[t] * inverse_z);
    if (!b.single_root || t == 0) {
      const T more = dot(k.at + t * n + t, k.weighted_bar + t, n - t);
      k.prefix_bar[t] = k.prefix_bar[t] + more;
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    T *ai = k.a + i * n, *ci = k.c + i * n, *cti = k.ct + i * n;
    T *pi = p + i * n, *pti = pt + i * n, *gi = g + i * n;
    for (int64_t j = n - 1; j > i; --j) {
      T *aj = k.a + j * n, *cj = k.c + j * n, *ctj = k.ct + j * n;
      T *pj = p + j * n, *ptj = pt + j * n, *gj = g + j * n;
      T right = k.child[i] * k.prefix_bar[j + 1] + dot(cti, ptj, i);
      if (j + 1 < n) right = right + dot(gi + j + 1, k.at + (j + 1) * n + j + 1, n - 1 - j);
      T left = dot(pti + j + 1, ctj + j + 1, n - 1 - j);
      if (!b.single_root || i == 0) left = left + k.prefix[i] * k.weighted_bar[j];
      if (i > 0) left = left + dot(gj, k.at + (i - 1) * n, i);
      pi[j] = ptj[i] = right;
      pj[i] = pti[j] = left;
      const T drawn_left = dot(ai, pj, i + 1), drawn_right = dot(pi + j, aj + j, n - j);
      gi[j] = gj[i] = drawn_right * k.w.arc[i * n + j] + drawn_left * k.w.arc[j * n + i];
      peak.see(right);
      peak.see(left);
      peak.see(gi[j]);
      put(i, j, drawn_right * ci[j] * inverse_z);
      put(j, i, drawn_left * cj[i] * inverse_z);
    }
  }
  return peak;
}

// Without outside values: with weights below exp(-kappa) they are below exp(kappa n) ...
inline bool surely_sound(double z, const Group& g, int64_t length) {
  if (length > 128 || g.second) return false;
  return sound(z, std::exp(kProjectiveKappa * static_cast<double>(length)), length);
}

// ... or nothing has underflowed.
template <class T>
bool nothing_tiny(const Chart<T>& k, int lane, int64_t length) {
  for (int64_t i = 0; i < length; ++i) {
    for (int64_t j = 0; j < length; ++j) {
      if (!(Number<T>::value(k.a[i * k.n + j], lane) > 1e-290)) return false;
      if (i != j && !(Number<T>::value(k.c[i * k.n + j], lane) > 1e-290)) return false;
    }
  }
  return true;
}

// ---- one structure ---------------------------------------------------------------------------

// One lane of a chart seen as a chart of its own.
template <class T, class V>
struct ChartView {
  const V *a, *at, *c, *prefix, *child, *root;
  int64_t n, step;
  static ChartView of(const Chart<T>& k, int lane) {
    const auto at = [&](const T* p) { return reinterpret_cast<const V*>(p) + lane; };
    return {at(k.a), at(k.at), at(k.c), at(k.prefix), at(k.child), at(k.w.root), k.n,
            static_cast<int64_t>(sizeof(T) / sizeof(V))};
  }
};

struct Span {
  int64_t i, j;
  int kind;  // 0: CR, 1: CL, 2: S
};

// Walks one derivation from the top: choose(x, y, count) picks the split of a sum of products.
template <class View, class Choose>
void derive(const View& k, int64_t length, bool single_root, int64_t* heads, const Choose& choose) {
  std::vector<Span> stack;
  const auto row = [&](auto* square, int64_t i, int64_t j) { return square + (i * k.n + j) * k.step; };
  for (int64_t t = length; t > 0;) {
    const int64_t u = choose(k.child, row(k.at, t - 1, 0), t);
    heads[u] = kRoot;
    stack.push_back({u, t - 1, 0});
    const int64_t start = single_root ? 0 : choose(k.prefix, row(k.a, u, 0), u + 1);
    stack.push_back({start, u, 1});
    t = start;
  }
  while (!stack.empty()) {
    const Span s = stack.back();
    stack.pop_back();
    const int64_t i = s.i, j = s.j, width = j - i;
    if (width == 0) continue;
    if (s.kind == 0) {
      const int64_t u = i + 1 + choose(row(k.c, i, i + 1), row(k.at, j, i + 1), width);
      heads[u] = i;
      stack.push_back({i, u, 2});
      stack.push_back({u, j, 0});
    } else if (s.kind == 1) {
      const int64_t u = i + choose(row(k.at, i, i), row(k.c, j, i), width);
      heads[u] = j;
      stack.push_back({i, u, 1});
      stack.push_back({u, j, 2});
    } else {
      const int64_t u = i + choose(row(k.a, i, i), row(k.a, j, i + 1), width);
      stack.push_back({i, u, 0});
      stack.push_back({u + 1, j, 1});
    }
  }
}

}  // namespace lawful::trees
