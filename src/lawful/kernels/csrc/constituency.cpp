// Operators of the constituency trees; the program itself is in constituency.h.
// `arcs` are scores of spans [i, j] with i < j, `root` scores of the words; `single` is not used.
#include "constituency.h"

#include "tree_ops.h"

namespace lawful::trees {
namespace {

double span_work(const int64_t* lengths, int64_t batch, double factor) {
  double work = 0.0;
  for (int64_t b = 0; b < batch; ++b) {
    const double n = static_cast<double>(lengths[b]);
    work += n * n * n / 6.0 * factor + 20.0 * n * n;
  }
  return work;
}

template <class S>
struct SpanLogPartition {
  static constexpr bool centring = true;
  const TreeBatch<S>& b;
  double* result;
  template <class T>
  Outcome run(const Group& g) const {
    SpanChart<T> k(g.length, true);
    load_spans(b, g, k);
    span_inside(k);
    const T z = span_partition(k, b, g);
    for (int l = 0; l < g.used; ++l) result[g.ids[l]] = Number<T>::log(z, l) + k.total[l];
    if (Number<T>::wide) return {};
    const auto peak = span_outside(k, b, g, Number<T>::one(), [](int64_t, int64_t, const T&) {});
    return judge(z, b, g, [&](int l, double v, int64_t n) { return sound(v, peak.of(l), n); });
  }
};

template <class S>
struct SpanMarginals {
  static constexpr bool centring = true;
  const TreeBatch<S>& b;
  S *spans, *leaves;
  template <class T>
  Outcome run(const Group& g) const {
    using N = Number<T>;
    SpanChart<T> k(g.length, true);
    load_spans(b, g, k);
    span_inside(k);
    const T z = span_partition(k, b, g);
    const int used = std::min(g.used, N::lanes);
    const int64_t words = b.words;
    for (int l = 0; l < used; ++l) {
      std::fill(spans + g.ids[l] * words * words, spans + (g.ids[l] + 1) * words * words, S{0});
      std::fill(leaves + g.ids[l] * words, leaves + (g.ids[l] + 1) * words, S{0});
    }
    if (is_zero(z)) return {};
    const auto peak =
        span_outside(k, b, g, N::one() / z, [&](int64_t i, int64_t j, const T& value) {
          for (int l = 0; l < used; ++l) {
            const int64_t id = g.ids[l];
            S* to = i == j ? leaves + id * words + i : spans + (id * words + i) * words + j;
            if (j < b.lengths[id]) *to = static_cast<S>(N::out(value, l) * k.direction_scale[l]);
          }
        });
    return judge(z, b, g, [&](int l, double v, int64_t n) { return sound(v, peak.of(l), n); });
  }
};

// Marks the spans of one tree for each sentence (and sample): (samples, batch, words, words).
template <class S>
struct BestSpans {
  const TreeBatch<S>& b;
  bool* mask;
  S* score;
  template <class T>
  Outcome run(const Group& g) const {
    SpanChart<T> k(g.length, false);
    load_spans(b, g, k);
    span_inside(k);
    const T z = span_partition(k, b, g);
    for (int l = 0; l < g.used; ++l) {
      const int64_t id = g.ids[l], words = b.words, step = sizeof(T) / sizeof(double);
      bool* to = mask + id * words * words;
      std::fill(to, to + words * words, false);
      const double best = Number<T>::value(z, l);
      score[id] = static_cast<S>(best > -kInf ? best + k.total[l] : -kInf);
      if (!(best > -kInf)) continue;
      const auto* a = reinterpret_cast<const double*>(k.a) + l;
      const auto largest = [step](const double* x, const double* y, int64_t n) {
        int64_t best = 0;
        for (int64_t u = 1; u < n; ++u) {
          if (x[u * step] + y[u * step] > x[best * step] + y[best * step]) best = u;
        }
        return best;
      };
      derive_spans(a, k.n, step, b.lengths[id], largest,
                   [&](int64_t i, int64_t j) { to[i * words + j] = true; });
    }
    return {};
  }
};

template <class S>
struct SampleSpans {
  static constexpr bool centring = true;
  const TreeBatch<S>& b;
  const double* uniforms;  // (samples, batch, words)
  int64_t samples;
  bool* mask;
  template <class T>
  Outcome run(const Group& g) const {
    const int64_t id = g.ids[0], length = b.lengths[id], words = b.words;
    SpanChart<T> k(length, true);
    load_spans(b, g, k);
    span_inside(k);
    const T z = span_partition(k, b, g);
    if (!Number<T>::wide) {
      const auto peak = span_outside(k, b, g, Number<T>::one(), [](int64_t, int64_t, const T&) {});
      const Outcome out =
          judge(z, b, g, [&](int l, double v, int64_t n) { return sound(v, peak.of(l), n); });
      if (out.failed) return out;
    }
    for (int64_t s = 0; s < samples; ++s) {
      bool* to = mask + (s * b.batch + id) * words * words;
      std::fill(to, to + words * words, false);
      if (is_zero(z)) continue;
      const double* random = uniforms + (s * b.batch + id) * words;
      derive_spans(k.a, k.n, 1, length,
                   [&](const T* x, const T* y, int64_t n) { return pick(x, y, n, *random++); },
                   [&](int64_t i, int64_t j) { to[i * words + j] = true; });
    }
    return {};
  }
};

Tensor span_log_partition(const Tensor& arcs, const Tensor& root, const Tensor& lengths, bool single) {
  Tensor out = new_like(arcs, {arcs.size(0)}, ScalarType::Double);
  with_scalar(arcs, [&](auto scalar) {
    using S = decltype(scalar);
    const auto b = tree_batch<S>(arcs, root, lengths, single);
    const SpanLogPartition<S> body{b, static_cast<double*>(out.mutable_data_ptr())};
    run_scaled<Plain>(b, span_work(b.lengths, b.batch, 3), body);
  });
  return out;
}

std::tuple<Tensor, Tensor> span_marginals(const Tensor& arcs, const Tensor& root,
                                          const Tensor& lengths, bool single) {
  Tensor spans = torch::stable::empty_like(arcs), leaves = torch::stable::empty_like(root);
  with_scalar(arcs, [&](auto scalar) {
    using S = decltype(scalar);
    const auto b = tree_batch<S>(arcs, root, lengths, single);
    const SpanMarginals<S> body{b, static_cast<S*>(spans.mutable_data_ptr()),
                                static_cast<S*>(leaves.mutable_data_ptr())};
    run_scaled<Plain>(b, span_work(b.lengths, b.batch, 3), body);
  });
  return {spans, leaves};
}

std::tuple<Tensor, Tensor> span_hvp(const Tensor& arcs, const Tensor& root, const Tensor& lengths,
                                    const Tensor& direction_arcs, const Tensor& direction_root,
                                    bool single) {
  Tensor spans = torch::stable::empty_like(arcs), leaves = torch::stable::empty_like(root);
  with_scalar(arcs, [&](auto scalar) {
    using S = decltype(scalar);
    auto b = tree_batch<S>(arcs, root, lengths, single);
    b.direction_arcs = static_cast<const S*>(direction_arcs.const_data_ptr());
    b.direction_root = static_cast<const S*>(direction_root.const_data_ptr());
    const SpanMarginals<S> body{b, static_cast<S*>(spans.mutable_data_ptr()),
                                static_cast<S*>(leaves.mutable_data_ptr())};
    run_scaled<Dual>(b, span_work(b.lengths, b.batch, 9), body);
  });
  return {spans, leaves};
}

std::tuple<Tensor, Tensor> span_argmax(const Tensor& arcs, const Tensor& root,
                                       const Tensor& lengths, bool single) {
  Tensor mask = new_like(arcs, {arcs.size(0), arcs.size(1), arcs.size(1)}, ScalarType::Bool);
  Tensor score = new_like(arcs, {arcs.size(0)});
  with_scalar(arcs, [&](auto scalar) {
    using S = decltype(scalar);
    const auto b = tree_batch<S>(arcs, root, lengths, single);
    const BestSpans<S> body{b, static_cast<bool*>(mask.mutable_data_ptr()),
                            static_cast<S*>(score.mutable_data_ptr())};
    run_lanes<MaxPlus>(b, span_work(b.lengths, b.batch, 1), body, [](int64_t, double) {});
  });
  return {mask, score};
}

Tensor span_sample(const Tensor& arcs, const Tensor& root, const Tensor& lengths,
                   const Tensor& uniforms, bool single) {
  const int64_t n = arcs.size(1), samples = uniforms.size(0);
  Tensor mask = new_like(arcs, {samples, arcs.size(0), n, n}, ScalarType::Bool);
  with_scalar(arcs, [&](auto scalar) {
    using S = decltype(scalar);
    const auto b = tree_batch<S>(arcs, root, lengths, single);
    const SampleSpans<S> body{b, static_cast<const double*>(uniforms.const_data_ptr()), samples,
                              static_cast<bool*>(mask.mutable_data_ptr())};
    for_tasks(b.batch, span_work(b.lengths, b.batch, 3), [&](int64_t id) {
      const Outcome out = body.template run<double>(one_sentence(b.lengths, id));
      if (out.failed) run_again<Plain>(b, body, id, out.log_z[0]);
    });
  });
  return mask;
}

}  // namespace
}  // namespace lawful::trees

STABLE_TORCH_LIBRARY_FRAGMENT(lawful, m) {
  m.def("constituency_log_partition(Tensor arcs, Tensor root, Tensor lengths, bool single)"
        " -> Tensor");
  m.def("constituency_marginals(Tensor arcs, Tensor root, Tensor lengths, bool single)"
        " -> (Tensor, Tensor)");
  m.def("constituency_hvp(Tensor arcs, Tensor root, Tensor lengths, Tensor direction_arcs,"
        " Tensor direction_root, bool single) -> (Tensor, Tensor)");
  m.def("constituency_argmax(Tensor arcs, Tensor root, Tensor lengths, bool single)"
        " -> (Tensor, Tensor)");
  m.def("constituency_sample(Tensor arcs, Tensor root, Tensor lengths, Tensor uniforms,"
        " bool single) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(lawful, CPU, m) {
  m.impl("constituency_log_partition", TORCH_BOX(&lawful::trees::span_log_partition));
  m.impl("constituency_marginals", TORCH_BOX(&lawful::trees::span_marginals));
  m.impl("constituency_hvp", TORCH_BOX(&lawful::trees::span_hvp));
  m.impl("constituency_argmax", TORCH_BOX(&lawful::trees::span_argmax));
  m.impl("constituency_sample", TORCH_BOX(&lawful::trees::span_sample));
}
