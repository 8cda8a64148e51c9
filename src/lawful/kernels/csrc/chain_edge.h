// Chains with scores of their own for every step: the edge form, (N-1, C, C) for each element.
#pragma once

#include "chain_states.h"

namespace lawful::chain {

// exp(pair scores - their max), rows padded by zeros; returns the max and widens `spread`.
template <class T>
inline T prepare_step(const T* raw, int C, int P, T* out, T* spread) {
  constexpr int W = kLanes<T>;
  Vec<T> high = splat(kNegInf<T>), low = splat(-kNegInf<T>);
  for (int k = 0; k < C * C; k += W) {
    const int rest = C * C - k;
    const Vec<T> x = load_part(raw + k, rest, kNegInf<T>);
    high = vmax<T>(high, x);
    if (spread) {
      const Vec<T> y = load_part(raw + k, rest, -kNegInf<T>);
      low = y < low ? y : low;
    }
  }
  const T top = hmax<T>(high);
  if (spread) {
    T least = low[0];
    for (int i = 1; i < W; ++i) least = low[i] < least ? low[i] : least;
    const T wide = top - least;
    if (!(wide <= *spread)) *spread = wide;
  }
  for (int i = 0; i < C; ++i) {
    for (int j = 0; j < P; j += W) {
      store(out + i * P + j, vexp(load_part(raw + i * C + j, C - j, kNegInf<T>) - top));
    }
  }
  return top;
}

template <class T>
struct EdgeRows {
  T *a, *f, *inverse;  // (N, P), (N, P), (N); `ring` keeps two rows
  T *step, *q;         // scratch (C, P), (P)
  T *unary, *pair;     // results (N, C), (N-1, C, C), may be null
  double* log_partition;
  uint8_t* flag;
  int64_t id, length;
};

// The forward pass; flags the element if a path could have been lost.
template <class T>
void edge_forward(const Chains<T>& in, EdgeRows<T>& row, int P, bool ring) {
  LogProduct log;
  StateRows<T> state;
  state.a = row.a;
  state.f = row.f;
  state.inverse = row.inverse;
  state.flag = row.flag;
  state.id = row.id;
  T spread = 0;
  for (int64_t t = 0; t < row.length; ++t) {
    const int64_t at = ring ? t & 1 : t, before = ring ? at ^ 1 : t - 1;
    if (t) {
      log.add(prepare_step(in.pair(row.id, t - 1), in.C, P, row.step, ring ? &spread : nullptr));
      const T* x = row.a + before * P;
      product<T, 1>(&x, row.step, in.C, P, &row.q);
    }
    forward_step(in, state, log, t, at, row.q, P);
  }
  if (ring && !(spread <= Range<T>::mild)) *row.flag = 1;
  *row.log_partition = log.value();
}

template <class T>
void edge_backward(const Chains<T>& in, EdgeRows<T>& row, int P) {
  constexpr int W = kLanes<T>;
  const int C = in.C;
  Vec<T> largest = {};
  for (int64_t t = row.length - 1; t >= 0; --t) {
    T *a = row.a + t * P, *f = row.f + t * P, *b = row.q;
    const bool inner = t + 1 < row.length;
    for (int j = 0; j < P; j += W) store(b + j, inner ? Vec<T>{} : splat(T(1)));
    if (inner) {
      prepare_step(in.pair(row.id, t), C, P, row.step, (T*)nullptr);
      for (int i = 0; i < C; ++i) {
        Vec<T> sum = {};
        for (int j = 0; j < P; j += W) {
          const Vec<T> x = load(row.step + i * P + j) * load(f + P + j);
          store(row.step + i * P + j, x);
          sum += x;
        }
        b[i] = hsum<T>(sum);
      }
    }
    Vec<T> total = {};
    for (int j = 0; j < P; j += W) total += load(a + j) * load(b + j);
    const T z = hsum<T>(total);
    if (!(z > Range<T>::tiny && z < Range<T>::limit)) *row.flag = 1;
    const T scale = 1 / z;
    for (int j = 0; j < P; j += W) {
      const Vec<T> weight = load(b + j) * scale;
      largest = vmax<T>(largest, weight * row.inverse[t]);
      store(f + j, load(f + j) * weight);
      if (row.unary && j < C) store_part(row.unary + t * C + j, C - j, load(a + j) * weight);
    }
    if (!row.pair || !inner) continue;
    T* out = row.pair + t * C * C;
    for (int i = 0; i < C; ++i) {
      const T factor = a[i] * scale;
      for (int j = 0; j < C; j += W) {
        store_part(out + i * C + j, C - j, load(row.step + i * P + j) * factor);
      }
    }
  }
  if (!(hmax<T>(largest) <= Range<T>::limit)) *row.flag = 1;
}

// The Hessian product from the marginals alone: the posterior is itself a Markov chain, with
// P(i | j) = pair(i,j) / mu(j). No exponential, no log-space case.
template <class T>
void edge_tangent(int64_t N, int C, const T* mu, const T* pair, const T* v_unary, const T* v_pair,
                  T* g_unary, T* g_pair, T* h, T* g) {
  const int64_t K = int64_t(C) * C;
  auto v = [&](int64_t t, int c) { return v_unary ? v_unary[t * C + c] : T(0); };
  auto centre = [&](T* x, int64_t t) {
    T mean = 0;
    for (int c = 0; c < C; ++c) mean += mu[t * C + c] * x[c];
    for (int c = 0; c < C; ++c) x[c] -= mean;
  };
  for (int64_t t = 0; t < N; ++t) {
    T *now = h + t * C, *sum = g;
    for (int j = 0; j < C; ++j) sum[j] = 0;
    for (int i = 0; t && i < C; ++i) {
      const T *p = pair + (t - 1) * K + i * C, last = now[i - C];
      const T* w = v_pair ? v_pair + (t - 1) * K + i * C : nullptr;
      if (w) {
        for (int j = 0; j < C; ++j) sum[j] += p[j] * (last + w[j]);
      } else {
        for (int j = 0; j < C; ++j) sum[j] += p[j] * last;
      }
    }
    for (int j = 0; j < C; ++j) {
      const T m = mu[t * C + j];
      now[j] = v(t, j) + (m > 0 ? sum[j] / m : T(0));
    }
    centre(now, t);
  }
  T *after = g, *now = g + C;
  for (int j = 0; j < C; ++j) now[j] = 0;
  for (int64_t t = N - 1; t >= 0; --t) {
    if (t + 1 < N) {
      // after_j = v_{t+1}(j) + g_{t+1}(j); the whole of the pair, then its mean, then Cov.
      for (int j = 0; j < C; ++j) after[j] = now[j] + v(t + 1, j);
      T total = 0;
      for (int i = 0; i < C; ++i) {
        const T* p = pair + t * K + i * C;
        const T* w = v_pair ? v_pair + t * K + i * C : nullptr;
        T* out = g_pair + t * K + i * C;
        T sum = 0;
        for (int j = 0; j < C; ++j) {
          const T x = p[j] * (after[j] + (w ? w[j] : T(0)));
          out[j] = x;
          sum += x;
        }
        const T m = mu[t * C + i];
        now[i] = m > 0 ? sum / m : T(0);
        total += sum + m * h[t * C + i];
      }
      for (int i = 0; i < C; ++i) {
        const T* p = pair + t * K + i * C;
        const T add = h[t * C + i] - total;
        T* out = g_pair + t * K + i * C;
        for (int j = 0; j < C; ++j) out[j] += p[j] * add;
      }
    }
    centre(now, t);
    for (int c = 0; c < C; ++c) g_unary[t * C + c] = mu[t * C + c] * (h[t * C + c] + now[c]);
  }
}

}  // namespace lawful::chain
