// How a call is cut into blocks and spread over threads, and inference block by block. Which kernel
// serves: chain_edge.h for scores of their own per step, chain_lanes.h for few states,
// chain_states.h else; whatever these flag is redone by chain_log.h.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>

#include "chain_edge.h"
#include "chain_lanes.h"
#include "chain_log.h"
#include "chain_states.h"

namespace lawful::chain {

constexpr double kSerialWork = 2e5;  // multiply-adds below which one thread does it all

enum class Form { edge, lanes, states };

template <class T>
struct Plan {
  Form form;
  int P, rows;             // padded states; batch elements per block
  int64_t blocks, chunks;
  std::vector<int64_t> order;

  explicit Plan(const Chains<T>& in, double passes) {
    const int W = kLanes<T>;
    form = in.edge ? Form::edge : in.C <= kLaneStates ? Form::lanes : Form::states;
    P = padded(in.C, W);
    const int64_t threads = torch::stable::get_num_threads();
    if (form == Form::lanes) rows = W;
    else if (form == Form::edge || in.G > 1 || in.B < 2 * threads) rows = 1;
    else rows = in.B < 4 * threads ? 2 : 4;
    blocks = (in.B + rows - 1) / rows;
    const double work = passes * double(in.B) * double(in.N) * in.C * (in.edge ? 4.0 * in.C : in.C);
    chunks = work < kSerialWork ? 1 : std::min(threads, blocks);
    order.resize(in.B);
    for (int64_t b = 0; b < in.B; ++b) order[b] = b;
    if (in.lengths && rows > 1) {
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t x, int64_t y) { return in.lengths[x] > in.lengths[y]; });
    }
  }
  int64_t first(int64_t block) const { return block * rows; }
  int64_t count(const Chains<T>& in, int64_t block) const {
    return std::min<int64_t>(rows, in.B - block * rows);
  }
  // work(block, chunk) for all blocks, in one parallel region.
  template <class F>
  void each(const F& work) const {
    auto chunk = [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        for (int64_t k = c; k < blocks; k += chunks) work(k, c);
      }
    };
    if (chunks <= 1) chunk(0, 1);
    else torch::stable::parallel_for(0, chunks, 1, chunk);
  }
  // Elements of all saved rows a and f; the fake kernel in _ops.py computes the same.
  int64_t saved(const Chains<T>& in) const {
    if (form == Form::edge) return 0;
    return 2 * in.N * (form == Form::lanes ? blocks * rows * in.C : in.B * P);
  }
};

// Results of one call; null pointers are not wanted. `work` holds a and f for the derivative.
template <class T>
struct Results {
  double* log_partition;
  T *unary, *pair, *work;
  uint8_t* flag;
  // Either may have no elements, and then no address.
  bool marginals() const { return unary || pair; }
};

template <class F>
void with_states(int C, const F& f) {
  switch (C) {
    case 1: return f(std::integral_constant<int, 1>());
    case 2: return f(std::integral_constant<int, 2>());
    case 3: return f(std::integral_constant<int, 3>());
    case 4: return f(std::integral_constant<int, 4>());
    case 5: return f(std::integral_constant<int, 5>());
    case 6: return f(std::integral_constant<int, 6>());
    case 7: return f(std::integral_constant<int, 7>());
    default: return f(std::integral_constant<int, 8>());
  }
}

template <class T>
void infer_lanes(const Chains<T>& in, const Plan<T>& plan, const Results<T>& out, int64_t block) {
  constexpr int W = kLanes<T>;
  const int64_t half = in.N * in.C * W;
  LaneBlock<T> lanes;
  lanes.start(in, &plan.order[plan.first(block)], int(plan.count(in, block)));
  bool mild = true;
  for (int k = 0; k < in.C * in.C; ++k) {
    for (int l = 0; l < lanes.count; ++l) mild = mild && lanes.to[k][l] > T(1e-13);
  }
  const bool ring = !out.marginals() && mild;
  Scratch<T> scratch(in.N * W + (out.work || ring ? 0 : 2 * half));
  lanes.inverse = scratch.take(in.N * W);
  if (!ring) {
    lanes.a = out.work ? out.work + block * 2 * half : scratch.take(2 * half);
    lanes.f = lanes.a + half;
  }
  with_states(in.C, [&](auto c) {
    lane_forward<T, c()>(in, lanes, out.log_partition, out.flag, ring);
    if (!ring) lane_backward<T, c()>(in, lanes, out.unary, out.pair, out.flag);
  });
}

template <class T, int R>
void infer_states(const Chains<T>& in, const Prepared<T>& tr, StateRows<T>* rows, T* q, bool ring,
                  T* sum) {
  forward_block<T, R>(in, tr, rows, q, ring);
  if (ring) return;
  backward_block<T, R>(in, tr, rows, q);
  for (int r = 0; r < R; ++r) {
    if (rows[r].pair) expected_pairs(in, tr, rows[r], sum);
  }
}

template <class T>
void infer_states(const Chains<T>& in, const Plan<T>& plan, const Results<T>& out, int64_t block,
                  Prepared<T>& tr) {
  const int P = plan.P, C = in.C;
  const int64_t n = plan.count(in, block);
  tr.prepare(in, in.group(plan.order[plan.first(block)]));
  const bool ring = !out.marginals() && tr.mild;
  const int64_t own = out.work ? 0 : ring ? 4 * P : 2 * in.N * P;
  Scratch<T> scratch(n * (own + in.N + P) + int64_t(C) * P);
  StateRows<T> rows[4];
  for (int64_t r = 0; r < n; ++r) {
    const int64_t b = plan.order[plan.first(block) + r];
    StateRows<T>& row = rows[r];
    row.id = b;
    row.length = in.length(b);
    row.a = out.work ? out.work + b * 2 * in.N * P : scratch.take(own);
    row.f = row.a + (ring ? 2 : in.N) * P;
    row.inverse = scratch.take(in.N);
    row.unary = out.unary ? out.unary + b * in.N * C : nullptr;
    row.pair = out.pair ? out.pair + b * C * C : nullptr;
    row.log_partition = out.log_partition + b;
    row.flag = out.flag + b;
  }
  T *q = scratch.take(n * P), *sum = scratch.take(int64_t(C) * P);
  int64_t r = 0;
  if (n == 4) infer_states<T, 4>(in, tr, rows, q, ring, sum), r = 4;
  if (n - r >= 2) infer_states<T, 2>(in, tr, rows + r, q, ring, sum), r += 2;
  if (n - r >= 1) infer_states<T, 1>(in, tr, rows + r, q, ring, sum);
}

template <class T>
void infer_edge(const Chains<T>& in, const Plan<T>& plan, const Results<T>& out, int64_t b) {
  const int P = plan.P;
  const bool ring = !out.marginals();
  const int64_t rows = ring ? 2 : in.N;
  Scratch<T> scratch(2 * rows * P + in.N + int64_t(in.C + 1) * P);
  EdgeRows<T> row;
  row.a = scratch.take(rows * P);
  row.f = scratch.take(rows * P);
  row.inverse = scratch.take(in.N);
  row.step = scratch.take(int64_t(in.C) * P);
  row.q = scratch.take(P);
  row.unary = out.unary ? out.unary + b * in.N * in.C : nullptr;
  row.pair = out.pair ? out.pair + b * (in.N - 1) * in.C * in.C : nullptr;
  row.log_partition = out.log_partition + b;
  row.flag = out.flag + b;
  row.id = b;
  row.length = in.length(b);
  edge_forward(in, row, P, ring);
  if (!ring) edge_backward(in, row, P);
}

// Zeroes what lies after the end, and redoes in log space what was flagged.
template <class T>
void finish(const Chains<T>& in, const Results<T>& out, int64_t b) {
  const int64_t n = in.length(b), C = in.C, K = C * C;
  T* unary = out.unary ? out.unary + b * in.N * C : nullptr;
  const int64_t pairs = in.edge ? std::max<int64_t>(in.N - 1, 0) : 1;
  T* pair = out.pair ? out.pair + b * pairs * K : nullptr;
  const bool redo = out.flag[b];
  const int64_t from = redo ? 0 : n, pair_from = redo ? 0 : std::max<int64_t>(n - 1, 0);
  if (unary) std::fill(unary + from * C, unary + in.N * C, T(0));
  if (pair && in.edge) std::fill(pair + std::min(pair_from, pairs) * K, pair + pairs * K, T(0));
  if (pair && !in.edge && redo) std::fill(pair, pair + K, T(0));
  if (!redo) return;
  LogChain<T> exact(in, b);
  if (unary || pair) exact.marginals(unary, pair, in.edge);
  else exact.forward();
  out.log_partition[b] = exact.log_partition;
}

template <class T>
void infer(const Chains<T>& in, const Plan<T>& plan, const Results<T>& out) {
  std::fill(out.flag, out.flag + in.B, uint8_t(0));
  std::vector<Prepared<T>> prepared(plan.chunks > 0 ? plan.chunks : 1);
  plan.each([&](int64_t block, int64_t chunk) {
    if (plan.form == Form::edge) infer_edge(in, plan, out, block);
    else if (plan.form == Form::lanes) infer_lanes(in, plan, out, block);
    else infer_states(in, plan, out, block, prepared[chunk]);
    for (int64_t r = 0; r < plan.count(in, block); ++r) {
      finish(in, out, plan.order[plan.first(block) + r]);
    }
  });
}

}  // namespace lawful::chain
