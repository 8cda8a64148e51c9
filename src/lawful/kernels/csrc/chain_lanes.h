// Chains of few states with a shared transition: one batch element per lane of a vector.
#pragma once

#include "chain.h"

namespace lawful::chain {

constexpr int kLaneStates = 8;  // up to here the batch goes into the lanes

// One group of up to W batch elements. Rows of a and f are [t][c][lane].
template <class T>
struct LaneBlock {
  static constexpr int W = kLanes<T>;
  int count = 0;
  int64_t id[W];
  int64_t length[W];
  int64_t longest = 0;
  Vec<T> to[kLaneStates * kLaneStates];  // exp(transition - max), [i*C + j]
  T top[W];
  T *a = nullptr, *f = nullptr;
  T* inverse = nullptr;  // [t][lane]

  void start(const Chains<T>& in, const int64_t* order, int n) {
    count = n;
    longest = 0;
    for (int l = 0; l < W; ++l) {
      id[l] = order[l < n ? l : n - 1];
      length[l] = l < n ? in.length(id[l]) : 0;
      longest = length[l] > longest ? length[l] : longest;
    }
    const int C = in.C;
    T raw[W];
    Vec<T> peak = splat(kNegInf<T>);
    for (int k = 0; k < C * C; ++k) {
      for (int l = 0; l < W; ++l) raw[l] = in.pair(id[l], 0)[k];
      to[k] = load(raw);
      peak = vmax<T>(peak, to[k]);
    }
    for (int k = 0; k < C * C; ++k) to[k] = vexp(to[k] - peak);
    store(top, peak);
  }

  // Row t of a (B, N, C) array, [c][lane]; 0 where a lane has ended.
  void gather(const T* data, int64_t N, int C, int64_t t, Vec<T>* out) const {
    T raw[kLaneStates * W];
    for (int l = 0; l < W; ++l) {
      if (t < length[l]) {
        const T* p = data + (id[l] * N + t) * C;
        for (int c = 0; c < C; ++c) raw[c * W + l] = p[c];
      } else {
        for (int c = 0; c < C; ++c) raw[c * W + l] = T(0);
      }
    }
    for (int c = 0; c < C; ++c) out[c] = load(raw + c * W);
  }
  void scatter(T* data, int64_t N, int C, int64_t t, const Vec<T>* x) const {
    T raw[kLaneStates * W];
    for (int c = 0; c < C; ++c) store(raw + c * W, x[c]);
    for (int l = 0; l < count; ++l) {
      if (t < length[l]) {
        T* p = data + (id[l] * N + t) * C;
        for (int c = 0; c < C; ++c) p[c] = raw[c * W + l];
      }
    }
  }
  // All ones (as T) where `t` is before the end, for use as a factor.
  Vec<T> alive(int64_t t) const {
    T raw[W];
    for (int l = 0; l < W; ++l) raw[l] = t < length[l] ? T(1) : T(0);
    return load(raw);
  }
};

template <class T, int C>
void lane_forward(const Chains<T>& in, LaneBlock<T>& block, double* log_partition, uint8_t* flag,
                  bool ring) {
  constexpr int W = kLanes<T>;
  LogProduct log[W];
  Vec<T> a[C], e[C], x[C];
  for (int64_t t = 0; t < block.longest; ++t) {
    block.gather(in.unary, in.N, C, t, e);
    Vec<T> peak = e[0];
    for (int c = 1; c < C; ++c) peak = vmax<T>(peak, e[c]);
    Vec<T> sum = {};
    for (int c = 0; c < C; ++c) {
      e[c] = vexp(e[c] - peak);
      x[c] = e[c];
      if (t) {
        Vec<T> q = block.to[c] * a[0];
        for (int i = 1; i < C; ++i) q += block.to[i * C + c] * a[i];
        x[c] = e[c] * q;
      }
      sum += x[c];
    }
    const IVec<T> good = sum > Range<T>::tiny;
    const Vec<T> scale = good ? sum : splat(T(1));
    const Vec<T> inverse = T(1) / scale;
    for (int c = 0; c < C; ++c) {
      a[c] = x[c] * inverse;
      if (!ring) {
        store(block.a + (t * C + c) * W, a[c]);
        store(block.f + (t * C + c) * W, e[c] * inverse);
      }
    }
    if (!ring) store(block.inverse + t * W, inverse);
    for (int l = 0; l < block.count; ++l) {
      if (t >= block.length[l]) continue;
      log[l].add(peak[l]);
      log[l].times(scale[l]);
      if (!good[l]) flag[block.id[l]] = 1;
    }
  }
  for (int l = 0; l < block.count; ++l) {
    const int64_t n = block.length[l];
    log_partition[block.id[l]] = log[l].value() + (n > 1 ? double(n - 1) * block.top[l] : 0.0);
  }
}

// Marginals (B, N, C) and expected transitions (B, C, C); both null for the range check alone.
template <class T, int C>
void lane_backward(const Chains<T>& in, LaneBlock<T>& block, T* unary, T* pair, uint8_t* flag) {
  constexpr int W = kLanes<T>;
  Vec<T> b[C], f[C], mu[C], pairs[C * C] = {}, largest = {};
  Vec<T> worst = splat(T(1)), least = splat(T(1));
  for (int64_t t = block.longest - 1; t >= 0; --t) {
    const Vec<T> alive = block.alive(t);
    const Vec<T> inner = block.alive(t + 1);
    for (int i = 0; i < C; ++i) {
      Vec<T> s = T(1) - inner;
      if (t + 1 < block.longest) {
        for (int j = 0; j < C; ++j) s += block.to[i * C + j] * f[j];
      }
      b[i] = s;
    }
    Vec<T> a[C], z = {};
    for (int c = 0; c < C; ++c) {
      a[c] = load(block.a + (t * C + c) * W);
      z += a[c] * b[c];
    }
    z = alive > T(0) ? z : splat(T(1));
    worst = vmax<T>(worst, z);
    least = z < least ? z : least;
    if (pair) {
      for (int i = 0; i < C; ++i) {
        for (int j = 0; j < C; ++j) {
          if (t + 1 < block.longest) pairs[i * C + j] += a[i] * f[j];
        }
      }
    }
    const Vec<T> scale = T(1) / z, inverse = load(block.inverse + t * W);
    for (int c = 0; c < C; ++c) {
      b[c] *= scale;
      largest = vmax<T>(largest, alive > T(0) ? b[c] * inverse : Vec<T>{});
      mu[c] = a[c] * b[c];
      T* row = block.f + (t * C + c) * W;
      f[c] = alive > T(0) ? load(row) * b[c] : Vec<T>{};
      store(row, f[c]);
    }
    if (unary) block.scatter(unary, in.N, C, t, mu);
  }
  for (int l = 0; l < block.count; ++l) {
    const bool fine = largest[l] <= Range<T>::limit && worst[l] < Range<T>::limit &&
                      least[l] > Range<T>::tiny;
    if (!fine) flag[block.id[l]] = 1;
    if (!pair) continue;
    T* out = pair + block.id[l] * C * C;
    for (int k = 0; k < C * C; ++k) out[k] = pairs[k][l] * block.to[k][l];
  }
}

// The Hessian product; see chain_states.h for the recursion. `g_pair` is (B, C, C).
template <class T, int C>
void lane_tangent(const Chains<T>& in, LaneBlock<T>& block, const T* unary, const T* pair,
                  const T* v_unary, const T* v_pair, T* g_unary, T* g_pair, T* scratch) {
  constexpr int W = kLanes<T>;
  constexpr int K = C * C;
  Vec<T> weighted[K] = {}, tangent[K] = {}, count[K] = {}, pairs[K] = {};
  T raw[W];
  if (v_pair) {
    for (int k = 0; k < K; ++k) {
      for (int l = 0; l < W; ++l) raw[l] = v_pair[block.id[l] * K + k];
      tangent[k] = load(raw);
      for (int l = 0; l < W; ++l) raw[l] = pair[block.id[l] * K + k];
      count[k] = load(raw);
      weighted[k] = block.to[k] > T(0) ? block.to[k] * tangent[k] : Vec<T>{};
    }
  }
  Vec<T> mu[C], v[C], x[C], a[C], f[C], left[C] = {}, before[C] = {};
  for (int64_t t = 0; t < block.longest; ++t) {
    block.gather(unary, in.N, C, t, mu);
    if (v_unary) block.gather(v_unary, in.N, C, t, v);
    Vec<T> total = {}, shift = {};
    for (int j = 0; j < C; ++j) {
      x[j] = v_unary ? mu[j] * v[j] : Vec<T>{};
      f[j] = load(block.f + (t * C + j) * W);
      a[j] = load(block.a + (t * C + j) * W);
      if (t) {
        Vec<T> s = {};
        for (int i = 0; i < C; ++i) s += block.to[i * C + j] * left[i];
        if (v_pair) {
          Vec<T> w = {};
          for (int i = 0; i < C; ++i) w += weighted[i * C + j] * before[i];
          shift += f[j] * w;
          s += w;
        }
        x[j] += f[j] * s;
      }
      total += x[j];
    }
    for (int i = 0; i < C; ++i) {
      for (int j = 0; j < C; ++j) pairs[i * C + j] += (left[i] - before[i] * shift) * f[j];
    }
    for (int j = 0; j < C; ++j) {
      x[j] -= mu[j] * total;
      left[j] = a[j] * mean_of<T>(x[j], mu[j]);
      before[j] = a[j];
      store(scratch + (t * C + j) * W, x[j]);
    }
  }
  Vec<T> right[C] = {}, after[C] = {};
  for (int64_t t = block.longest - 1; t >= 0; --t) {
    block.gather(unary, in.N, C, t, mu);
    if (v_unary) block.gather(v_unary, in.N, C, t, v);
    const Vec<T> alive = block.alive(t);
    Vec<T> total = {}, mean_v = {};
    for (int i = 0; i < C; ++i) {
      a[i] = load(block.a + (t * C + i) * W);
      Vec<T> s = {};
      for (int j = 0; j < C; ++j) {
        s += block.to[i * C + j] * right[j] + weighted[i * C + j] * after[j];
        pairs[i * C + j] += a[i] * right[j];
      }
      x[i] = a[i] * s;
      total += x[i];
      if (v_unary) mean_v += mu[i] * v[i];
    }
    for (int i = 0; i < C; ++i) {
      x[i] -= mu[i] * total;
      Vec<T> w = mean_of<T>(x[i], mu[i]);
      if (v_unary) w += v[i] - mean_v;
      after[i] = alive > T(0) ? load(block.f + (t * C + i) * W) : Vec<T>{};
      right[i] = after[i] * w;
      x[i] += load(scratch + (t * C + i) * W);
    }
    block.scatter(g_unary, in.N, C, t, x);
  }
  for (int l = 0; l < block.count; ++l) {
    T* out = g_pair + block.id[l] * K;
    for (int k = 0; k < K; ++k) {
      out[k] = pairs[k][l] * block.to[k][l] + tangent[k][l] * count[k][l];
    }
  }
}

}  // namespace lawful::chain
