// Operators of linear chains: tensors in, tensors out. The work is in chain_infer.h and
// chain_tangent.h.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <optional>
#include <tuple>

#include "chain_tangent.h"

namespace lawful::chain {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using MaybeTensor = std::optional<Tensor>;

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
