// The Hessian product, block by block; the recursions are in the kernels' own headers.
#pragma once

#include "chain_infer.h"

namespace lawful::chain {

template <class T>
struct Tangents {
  const T *unary, *pair, *work, *v_unary, *v_pair;
  const uint8_t* flag;
  T *g_unary, *partial;  // partial: (chunks or B) sums over pairs, (C, P) each
};

template <class T>
void tangent_lanes(const Chains<T>& in, const Plan<T>& plan, const Tangents<T>& x, int64_t block) {
  constexpr int W = kLanes<T>;
  const int64_t half = in.N * in.C * W;
  LaneBlock<T> lanes;
  lanes.start(in, &plan.order[plan.first(block)], int(plan.count(in, block)));
  lanes.a = const_cast<T*>(x.work) + block * 2 * half;
  lanes.f = lanes.a + half;
  Scratch<T> scratch(half);
  with_states(in.C, [&](auto c) {
    lane_tangent<T, c()>(in, lanes, x.unary, x.pair, x.v_unary, x.v_pair, x.g_unary, x.partial,
                         scratch.take(half));
  });
}

template <class T, int R>
void tangent_states(const Prepared<T>& tr, StateTangent<T>* rows, int C, T* q, T* sum) {
  int64_t longest = 0;
  for (int r = 0; r < R; ++r) longest = std::max(longest, rows[r].length);
  tangent_forward<T, R>(tr, rows, C, longest, q);
  tangent_backward<T, R>(tr, rows, C, longest, q);
  for (int r = 0; r < R; ++r) {
    if (rows[r].length) tangent_pairs(tr, rows[r], C, sum);
  }
}

template <class T>
void tangent_states(const Chains<T>& in, const Plan<T>& plan, const Tangents<T>& x, int64_t block,
                    int64_t chunk, Prepared<T>& tr) {
  const int P = plan.P, C = in.C;
  const int64_t n = plan.count(in, block), K = int64_t(C) * P;
  tr.prepare(in, in.group(plan.order[plan.first(block)]));
  Scratch<T> scratch(n * (2 * in.N * P + (x.v_pair ? 2 * K : 0)) + (n + 1) * P + K);
  StateTangent<T> rows[4];
  for (int64_t r = 0; r < n; ++r) {
    const int64_t b = plan.order[plan.first(block) + r];
    StateTangent<T>& row = rows[r];
    row.length = x.flag[b] ? 0 : in.length(b);
    row.a = x.work + b * 2 * in.N * P;
    row.f = row.a + in.N * P;
    row.unary = x.unary + b * in.N * C;
    row.pair = x.pair + b * C * C;
    row.v_unary = x.v_unary ? x.v_unary + b * in.N * C : nullptr;
    row.v_pair = x.v_pair ? x.v_pair + b * C * C : nullptr;
    row.g_unary = x.g_unary + b * in.N * C;
    row.g_pair = x.partial + (in.G == 1 ? chunk : b) * K;
    row.left = scratch.take(in.N * P);
    row.right = scratch.take(in.N * P);
    if (x.v_pair) {
      row.weighted = scratch.take(K);
      row.weighted_back = scratch.take(K);
      weigh_pairs(tr, row, C);
    }
  }
  T *q = scratch.take((n + 1) * P), *sum = scratch.take(K);
  int64_t r = 0;
  if (n == 4) tangent_states<T, 4>(tr, rows, C, q, sum), r = 4;
  if (n - r >= 2) tangent_states<T, 2>(tr, rows + r, C, q, sum), r += 2;
  if (n - r >= 1) tangent_states<T, 1>(tr, rows + r, C, q, sum);
}

template <class T>
void finish_tangent(const Chains<T>& in, const Plan<T>& plan, const Tangents<T>& x, int64_t b,
                    T* pair, int stride) {
  const int64_t n = in.length(b), C = in.C;
  T* out = x.g_unary + b * in.N * C;
  std::fill(out + (x.flag[b] ? 0 : n) * C, out + in.N * C, T(0));
  if (!x.flag[b]) return;
  std::vector<double> sum(C * C, 0.0);
  LogChain<T> exact(in, b);
  exact.tangent(x.v_unary ? x.v_unary + b * in.N * C : nullptr,
                x.v_pair ? x.v_pair + b * C * C : nullptr, out, sum.data());
  const bool alone = plan.form == Form::lanes;  // its own slot, which holds nothing of value
  for (int64_t i = 0; i < C; ++i) {
    for (int64_t j = 0; j < C; ++j) {
      T& slot = pair[i * stride + j];
      slot = (alone ? T(0) : slot) + T(sum[i * C + j]);
    }
  }
}

// Sums the partial results into (G, C, C).
template <class T>
void reduce_pairs(const Chains<T>& in, const T* partial, int64_t count, int stride, T* out) {
  const int64_t C = in.C, each = count / in.G;
  std::fill(out, out + in.G * C * C, T(0));
  for (int64_t k = 0; k < count; ++k) {
    T* to = out + (k / each) * C * C;
    const T* from = partial + k * C * stride;
    for (int64_t i = 0; i < C; ++i) {
      for (int64_t j = 0; j < C; ++j) to[i * C + j] += from[i * stride + j];
    }
  }
}

template <class T>
void tangent_shared(const Chains<T>& in, const Plan<T>& plan, Tangents<T>& x, T* g_pair) {
  const bool alone = plan.form == Form::lanes || in.G > 1;
  const int stride = plan.form == Form::lanes ? in.C : plan.P;
  const int64_t count = alone ? in.B : std::max<int64_t>(plan.chunks, 1);
  std::vector<T> partial(count * in.C * stride, T(0));
  x.partial = partial.data();
  std::vector<Prepared<T>> prepared(std::max<int64_t>(plan.chunks, 1));
  plan.each([&](int64_t block, int64_t chunk) {
    if (plan.form == Form::lanes) tangent_lanes(in, plan, x, block);
    else tangent_states(in, plan, x, block, chunk, prepared[chunk]);
    for (int64_t r = 0; r < plan.count(in, block); ++r) {
      const int64_t b = plan.order[plan.first(block) + r];
      finish_tangent(in, plan, x, b, x.partial + (alone ? b : chunk) * in.C * stride, stride);
    }
  });
  reduce_pairs(in, partial.data(), count, stride, g_pair);
}

template <class T>
void tangent_edge(const Chains<T>& in, const Plan<T>& plan, const Tangents<T>& x, T* g_pair) {
  const int64_t C = in.C, steps = std::max<int64_t>(in.N - 1, 0), K = steps * C * C;
  plan.each([&](int64_t b, int64_t) {
    const int64_t n = in.length(b);
    Scratch<T> scratch(in.N * C + 2 * C);
    T *h = scratch.take(in.N * C), *g = scratch.take(2 * C);
    T* out = x.g_unary + b * in.N * C;
    edge_tangent(n, in.C, x.unary + b * in.N * C, x.pair + b * K,
                 x.v_unary ? x.v_unary + b * in.N * C : nullptr,
                 x.v_pair ? x.v_pair + b * K : nullptr, out, g_pair + b * K, h, g);
    std::fill(out + n * C, out + in.N * C, T(0));
    std::fill(g_pair + b * K + std::max<int64_t>(n - 1, 0) * C * C, g_pair + (b + 1) * K, T(0));
  });
}

}  // namespace lawful::chain
