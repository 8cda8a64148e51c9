// Operators of linear chains. Which kernel serves: chain_edge.h for scores of their own per step,
// chain_lanes.h for few states, chain_states.h else; whatever these flag goes to chain_log.h.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "chain_edge.h"
#include "chain_lanes.h"
#include "chain_log.h"
#include "chain_states.h"

namespace lawful::chain {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using MaybeTensor = std::optional<Tensor>;

constexpr double kSerialWork = 2e5;  // multiply-adds below which one thread does it all

template <class T>
T* data(const Tensor& x) {
  return static_cast<T*>(x.data_ptr());
}
template <class T>
const T* data(const MaybeTensor& x) {
  return x ? static_cast<const T*>(x->data_ptr()) : nullptr;
}
Tensor make(const Tensor& like, std::initializer_list<int64_t> size,
            std::optional<ScalarType> type = std::nullopt) {
  return torch::stable::new_empty(like, {size.begin(), size.size()}, type);
}

template <class T>
Chains<T> chains(const Tensor& unary, const Tensor& transition, const MaybeTensor& lengths) {
  STD_TORCH_CHECK(unary.dim() == 3 && unary.is_contiguous() && transition.is_contiguous(),
                  "chain: unary must be a contiguous (B, N, C) tensor");
  Chains<T> in;
  in.unary = static_cast<const T*>(unary.data_ptr());
  in.transition = static_cast<const T*>(transition.data_ptr());
  in.lengths = data<int64_t>(lengths);
  in.B = unary.size(0);
  in.N = unary.size(1);
  in.C = int(unary.size(2));
  in.edge = transition.dim() == 4;
  in.G = in.edge ? in.B : std::max<int64_t>(transition.size(0), 1);
  STD_TORCH_CHECK(in.edge || in.B % in.G == 0, "chain: transition groups must divide the batch");
  STD_TORCH_CHECK(!lengths || lengths->is_contiguous(), "chain: lengths must be contiguous");
  return in;
}

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
  const bool ring = !out.unary && mild;
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
  const bool ring = !out.unary && tr.mild;
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
  const bool ring = !out.unary;
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

// ---- the Hessian product ------------------------------------------------------------------------

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

// ---- operators ----------------------------------------------------------------------------------

template <class F>
auto dispatch(const Tensor& x, const F& f) {
  if (x.scalar_type() == ScalarType::Double) return f(double());
  STD_TORCH_CHECK(x.scalar_type() == ScalarType::Float, "chain: float32 or float64 expected");
  return f(float());
}

Tensor log_partition(Tensor unary, Tensor transition, MaybeTensor lengths) {
  return dispatch(unary, [&](auto kind) {
    using T = decltype(kind);
    const auto in = chains<T>(unary, transition, lengths);
    Tensor result = make(unary, {in.B}, ScalarType::Double);
    std::vector<uint8_t> flag(in.B);
    infer<T>(in, Plan<T>(in, 1), {data<double>(result), nullptr, nullptr, nullptr, flag.data()});
    return result;
  });
}

using Five = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

Five marginals(Tensor unary, Tensor transition, MaybeTensor lengths) {
  return dispatch(unary, [&](auto kind) -> Five {
    using T = decltype(kind);
    const auto in = chains<T>(unary, transition, lengths);
    const Plan<T> plan(in, 3);
    const int64_t C = in.C, steps = std::max<int64_t>(in.N - 1, 0);
    Tensor log_z = make(unary, {in.B}, ScalarType::Double);
    Tensor mu = make(unary, {in.B, in.N, C});
    Tensor pair = in.edge ? make(unary, {in.B, steps, C, C}) : make(unary, {in.B, C, C});
    Tensor work = make(unary, {plan.saved(in)});
    Tensor flag = make(unary, {in.B}, ScalarType::Byte);
    T* saved = plan.form == Form::edge ? nullptr : data<T>(work);
    infer<T>(in, plan, {data<double>(log_z), data<T>(mu), data<T>(pair), saved,
                        data<uint8_t>(flag)});
    return {log_z, mu, pair, work, flag};
  });
}

std::tuple<Tensor, Tensor> tangent(Tensor unary, Tensor transition, MaybeTensor lengths, Tensor mu,
                                   Tensor pair, Tensor work, Tensor flag, MaybeTensor v_unary,
                                   MaybeTensor v_pair) {
  return dispatch(unary, [&](auto kind) -> std::tuple<Tensor, Tensor> {
    using T = decltype(kind);
    const auto in = chains<T>(unary, transition, lengths);
    const Plan<T> plan(in, 3);
    Tensor g_unary = make(unary, {in.B, in.N, int64_t(in.C)});
    Tensor g_pair = torch::stable::empty_like(transition);
    Tangents<T> x{data<T>(mu),         data<T>(pair),       data<T>(work),
                  data<T>(v_unary),    data<T>(v_pair),     data<uint8_t>(flag),
                  data<T>(g_unary),    nullptr};
    if (in.edge) tangent_edge(in, plan, x, data<T>(g_pair));
    else tangent_shared(in, plan, x, data<T>(g_pair));
    return {g_unary, g_pair};
  });
}

Tensor best(Tensor unary, Tensor transition, MaybeTensor lengths) {
  return dispatch(unary, [&](auto kind) {
    using T = decltype(kind);
    const auto in = chains<T>(unary, transition, lengths);
    const Plan<T> plan(in, 4);
    Tensor states = make(unary, {in.B, in.N}, ScalarType::Long);
    plan.each([&](int64_t block, int64_t) {
      for (int64_t r = 0; r < plan.count(in, block); ++r) {
        const int64_t b = plan.order[plan.first(block) + r];
        int64_t* out = data<int64_t>(states) + b * in.N;
        LogChain<T> exact(in, b);
        exact.best();
        exact.trace(out, [&](const double* score, int64_t) {
          return int(std::max_element(score, score + in.C) - score);
        });
        std::fill(out + in.length(b), out + in.N, int64_t(-1));
      }
    });
    return states;
  });
}

// Backward sampling; `uniform` (S, B, N) in [0, 1) decides, so that any generator may be used.
Tensor sample(Tensor unary, Tensor transition, MaybeTensor lengths, Tensor uniform) {
  return dispatch(unary, [&](auto kind) {
    using T = decltype(kind);
    const auto in = chains<T>(unary, transition, lengths);
    const int64_t S = uniform.size(0);
    const Plan<T> plan(in, 20);
    Tensor states = make(unary, {S, in.B, in.N}, ScalarType::Long);
    plan.each([&](int64_t block, int64_t) {
      for (int64_t r = 0; r < plan.count(in, block); ++r) {
        const int64_t b = plan.order[plan.first(block) + r];
        LogChain<T> exact(in, b);
        exact.forward();
        for (int64_t s = 0; s < S; ++s) {
          const int64_t row = (s * in.B + b) * in.N;
          const double* dice = data<double>(uniform) + row;
          int64_t* out = data<int64_t>(states) + row;
          exact.trace(out, [&](double* score, int64_t t) {
            const double top = *std::max_element(score, score + in.C);
            double total = 0;
            for (int c = 0; c < in.C; ++c) total += score[c] = std::exp(score[c] - top);
            double left = dice[t] * total;
            int choice = 0;
            for (int c = 0; c < in.C; ++c) {
              if (!(score[c] > 0)) continue;
              choice = c;
              left -= score[c];
              if (left < 0) break;
            }
            return choice;
          });
          std::fill(out + in.length(b), out + in.N, int64_t(-1));
        }
      }
    });
    return states;
  });
}

int64_t vector_bytes() { return kVectorBytes; }

}  // namespace
}  // namespace lawful::chain

STABLE_TORCH_LIBRARY_FRAGMENT(lawful, m) {
  m.def("vector_bytes() -> int");
  m.def("chain_log_partition(Tensor unary, Tensor transition, Tensor? lengths) -> Tensor");
  m.def(
      "chain_marginals(Tensor unary, Tensor transition, Tensor? lengths)"
      " -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "chain_tangent(Tensor unary, Tensor transition, Tensor? lengths, Tensor mu, Tensor pair,"
      " Tensor work, Tensor flag, Tensor? v_unary, Tensor? v_pair) -> (Tensor, Tensor)");
  m.def("chain_best(Tensor unary, Tensor transition, Tensor? lengths) -> Tensor");
  m.def(
      "chain_sample(Tensor unary, Tensor transition, Tensor? lengths, Tensor uniform) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(lawful, CPU, m) {
  m.impl("chain_log_partition", TORCH_BOX(&lawful::chain::log_partition));
  m.impl("chain_marginals", TORCH_BOX(&lawful::chain::marginals));
  m.impl("chain_tangent", TORCH_BOX(&lawful::chain::tangent));
  m.impl("chain_best", TORCH_BOX(&lawful::chain::best));
  m.impl("chain_sample", TORCH_BOX(&lawful::chain::sample));
}

STABLE_TORCH_LIBRARY_IMPL(lawful, CompositeExplicitAutograd, m) {
  m.impl("vector_bytes", TORCH_BOX(&lawful::chain::vector_bytes));
}
