// Linear chains: shared types, the prepared transition, and small dense products.
//
// A chain of N steps and C states scores z by sum_t u_t(z_t) + sum_t T(z_t, z_{t+1}). The kernels
// work with probabilities that are normalised at every step (derivation: kernels/chain/README.md):
//   a_t = e_t * (T' a_{t-1}) / s_t      prefix probabilities, sum_c a_t(c) = 1
//   b_t = T f_{t+1}, f_t = (e_t/s_t) b_t  suffix weights, sum_c a_t(c) b_t(c) = 1
//   P(z_t) = a_t b_t,   P(z_t = i, z_{t+1} = j) = a_t(i) T(i,j) f_{t+1}(j)
// with e_t = exp(u_t - max) and T = exp(transition - max).
#pragma once

#include <vector>

#include "simd.h"

namespace lawful::chain {

template <class T>
struct Range;
template <>
struct Range<float> {
  static constexpr float tiny = 1e-30f;    // smallest step scale that is trusted
  static constexpr float limit = 1e20f;    // largest suffix weight / step scale
  static constexpr float mild = 30.0f;     // spread of transitions that can never lose a path
};
template <>
struct Range<double> {
  static constexpr double tiny = 1e-290;
  static constexpr double limit = 1e180;
  static constexpr double mild = 300.0;
};

// The arguments of one call. `edge`: transitions are (B, N-1, C, C), else (G, C, C) with G | B.
template <class T>
struct Chains {
  const T* unary;
  const T* transition;
  const int64_t* lengths;  // may be null: all N
  int64_t B, N, G;
  int C;
  bool edge;

  int64_t length(int64_t b) const { return lengths ? lengths[b] : N; }
  const T* u(int64_t b, int64_t t) const { return unary + (b * N + t) * C; }
  int64_t group(int64_t b) const { return b / (B / G); }
  // Scores of the step t -> t+1.
  const T* pair(int64_t b, int64_t t) const {
    const int64_t row = edge ? b * (N - 1) + t : group(b);
    return transition + row * C * C;
  }
};

// log of a product of many factors, with few calls of log.
struct LogProduct {
  double sum = 0, product = 1;
  void add(double x) { sum += x; }
  void times(double s) {
    const double next = product * s;
    if (next > 1e-200 && next < 1e200) {
      product = next;
    } else {
      sum += std::log(product) + std::log(s);
      product = 1;
    }
  }
  double value() const { return sum + std::log(product); }
};

inline int padded(int C, int lanes) { return (C + lanes - 1) / lanes * lanes; }

// Scratch memory that is kept between calls of a thread unless it has grown large.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count) {
    static thread_local std::vector<T> kept;
    if (int64_t(kept.size()) < count && count <= kKeep) kept.resize(count);
    if (count <= kKeep) {
      data_ = kept.data();
    } else {
      own_.resize(count);
      data_ = own_.data();
    }
  }
  T* take(int64_t count) {
    T* p = data_ + used_;
    used_ += count;
    return p;
  }

 private:
  static constexpr int64_t kKeep = 1 << 21;
  std::vector<T> own_;
  T* data_;
  int64_t used_ = 0;
};

// exp(transition - max) with rows padded by zeros, and its transpose.
template <class T>
struct Prepared {
  int64_t group = -1;
  int P = 0;
  T top = 0;
  bool mild = false;
  std::vector<T> to, from;  // to[i*P + j], from[j*P + i]

  void prepare(const Chains<T>& in, int64_t g) {
    if (g == group) return;
    group = g;
    const int C = in.C, W = kLanes<T>;
    P = padded(C, W);
    to.assign(int64_t(C) * P, T(0));
    from.assign(int64_t(C) * P, T(0));
    const T* raw = in.transition + g * C * C;
    T low = std::numeric_limits<T>::infinity();
    top = kNegInf<T>;
    for (int k = 0; k < C * C; ++k) {
      top = raw[k] > top ? raw[k] : top;
      low = raw[k] < low ? raw[k] : low;
    }
    mild = top - low <= Range<T>::mild;
    for (int i = 0; i < C; ++i) {
      for (int j = 0; j < C; j += W) {
        const Vec<T> row = load_part(raw + i * C + j, C - j, kNegInf<T>);
        store(&to[i * P + j], vexp(row - top));
      }
      for (int j = 0; j < C; ++j) from[j * P + i] = to[i * P + j];
    }
  }
};

// h = x / mu where mu > 0: a mean under the marginal, from the sum it was weighted by.
template <class T>
inline Vec<T> mean_of(Vec<T> x, Vec<T> mu) {
  const IVec<T> alive = mu > T(0);
  return alive ? x / (alive ? mu : splat(T(1))) : Vec<T>{};
}

// y[r] = sum_i x[r][i] * M[i][:], for R rows at once so that M is read once for all of them.
template <class T, int R, int V>
inline void product_tile(const T* const* x, const T* M, int C, int P, T* const* y, int at) {
  constexpr int W = kLanes<T>;
  Vec<T> sum[R][V] = {};
  for (int i = 0; i < C; ++i) {
    Vec<T> m[V];
    for (int v = 0; v < V; ++v) m[v] = load(M + int64_t(i) * P + at + v * W);
    for (int r = 0; r < R; ++r) {
      const Vec<T> s = splat(x[r][i]);
      for (int v = 0; v < V; ++v) sum[r][v] += s * m[v];
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) store(y[r] + at + v * W, sum[r][v]);
  }
}
template <class T, int R>
inline void product(const T* const* x, const T* M, int C, int P, T* const* y) {
  constexpr int W = kLanes<T>;
  int at = 0;
  for (; P - at >= 4 * W; at += 4 * W) product_tile<T, R, 4>(x, M, C, P, y, at);
  if (P - at == 3 * W) product_tile<T, R, 3>(x, M, C, P, y, at);
  else if (P - at == 2 * W) product_tile<T, R, 2>(x, M, C, P, y, at);
  else if (P - at == W) product_tile<T, R, 1>(x, M, C, P, y, at);
}

// sum[i][:] += sum_t x[t][i] * y[t][:]; x, y and sum have rows of P.
template <class T, int I, int V>
inline void outer_tile(T* sum, const T* x, const T* y, int64_t n, int P, int i0, int at) {
  constexpr int W = kLanes<T>;
  Vec<T> s[I][V];
  for (int i = 0; i < I; ++i) {
    for (int v = 0; v < V; ++v) s[i][v] = load(sum + int64_t(i0 + i) * P + at + v * W);
  }
  for (int64_t t = 0; t < n; ++t) {
    Vec<T> row[V];
    for (int v = 0; v < V; ++v) row[v] = load(y + t * P + at + v * W);
    for (int i = 0; i < I; ++i) {
      const Vec<T> f = splat(x[t * P + i0 + i]);
      for (int v = 0; v < V; ++v) s[i][v] += f * row[v];
    }
  }
  for (int i = 0; i < I; ++i) {
    for (int v = 0; v < V; ++v) store(sum + int64_t(i0 + i) * P + at + v * W, s[i][v]);
  }
}
template <class T, int V>
inline void outer_columns(T* sum, const T* x, const T* y, int64_t n, int C, int P, int at) {
  int i = 0;
  for (; C - i >= 8; i += 8) outer_tile<T, 8, V>(sum, x, y, n, P, i, at);
  if (C - i >= 4) {
    outer_tile<T, 4, V>(sum, x, y, n, P, i, at);
    i += 4;
  }
  for (; i < C; ++i) outer_tile<T, 1, V>(sum, x, y, n, P, i, at);
}
template <class T>
inline void outer_sum(T* sum, const T* x, const T* y, int64_t n, int C, int P) {
  constexpr int W = kLanes<T>;
  constexpr int64_t kSteps = 64;  // so that the rows stay in the nearest cache over the tiles
  for (int64_t t = 0; t < n; t += kSteps) {
    const int64_t m = n - t < kSteps ? n - t : kSteps;
    int at = 0;
    for (; P - at >= 2 * W; at += 2 * W) {
      outer_columns<T, 2>(sum, x + t * P, y + t * P, m, C, P, at);
    }
    if (at < P) outer_columns<T, 1>(sum, x + t * P, y + t * P, m, C, P, at);
  }
}

}  // namespace lawful::chain
