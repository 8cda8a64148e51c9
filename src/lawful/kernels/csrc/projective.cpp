// Operators of the projective trees; the program itself is in projective.h.
#include "projective.h"

#include "tree_ops.h"

namespace lawful::trees {
namespace {

double work_of(const int64_t* lengths, int64_t batch, double factor) {
  double work = 0.0;
  for (int64_t b = 0; b < batch; ++b) {
    const double n = static_cast<double>(lengths[b]);
    work += n * n * n / 6.0 * factor + 20.0 * n * n;
  }
  return work;
}

template <class S>
struct LogPartition {
  static constexpr bool centring = true;
  const TreeBatch<S>& b;
  double* out;
  template <class T>
  Outcome run(const Group& g) const {
    Chart<T> k(g.length, g.second ? 8 : 5);
    load_weights(b, g, kProjectiveKappa, k.w);
    inside(k, b.single_root);
    const T z = partition(k, b, g);
    for (int l = 0; l < g.used; ++l) out[g.ids[l]] = Number<T>::log(z, l) + k.w.total[l];
    if (!g.second || Number<T>::wide) {
      return judge(z, b, g, [&](int l, double v, int64_t length) {
        return surely_sound(v, g, length) || (sound(v, 0.0, length) && nothing_tiny(k, l, length));
      });
    }
    const auto peak =
        outside(k, b, g, Number<T>::one(), [](int64_t, int64_t, const T&) {});
    return judge(z, b, g, [&](int l, double v, int64_t length) {
      return sound(v, peak.of(l), length);
    });
  }
};

// Marginals, or with a Dual number type their derivative along the direction.
template <class S>
struct Marginals {
  const TreeBatch<S>& b;
  S *arcs, *root;
  static constexpr bool centring = true;
  template <class T>
  Outcome run(const Group& g) const {
    using N = Number<T>;
    Chart<T> k(g.length, 8);
    load_weights(b, g, kProjectiveKappa, k.w);
    inside(k, b.single_root);
    const T z = partition(k, b, g);
    if (is_zero(z)) {
      clear(g);
      return {};
    }
    S *out_arcs[N::lanes], *out_root[N::lanes];
    for (int l = 0; l < N::lanes; ++l) {
      out_arcs[l] = arcs + g.ids[l] * b.words * b.words;
      out_root[l] = root + g.ids[l] * b.words;
    }
    const int used = std::min(g.used, N::lanes);
    const auto peak = outside(k, b, g, N::one() / z, [&](int64_t h, int64_t m, const T& value) {
      for (int l = 0; l < used; ++l) {
        S* to = h < 0 ? out_root[l] + m : out_arcs[l] + h * b.words + m;
        *to = static_cast<S>(N::out(value, l) * k.w.direction_scale[l]);
      }
    });
    finish(g);
    return judge(z, b, g, [&](int l, double v, int64_t length) {
      return sound(v, peak.of(l), length);
    });
  }
  // Zeros at self-arcs and in the padding: the rest has been written.
  void finish(const Group& g) const {
    const int64_t n = b.words;
    for (int l = 0; l < g.used; ++l) {
      const int64_t id = g.ids[l], length = b.lengths[id];
      for (int64_t h = 0; h < n; ++h) {
        S* row = arcs + (id * n + h) * n;
        if (h < length) row[h] = S{0};
        std::fill(row + (h < length ? length : 0), row + n, S{0});
      }
      std::fill(root + id * n + length, root + (id + 1) * n, S{0});
    }
  }
  void clear(const Group& g) const {
    const int64_t n = b.words;
    for (int l = 0; l < g.used; ++l) {
      std::fill(arcs + g.ids[l] * n * n, arcs + (g.ids[l] + 1) * n * n, S{0});
      std::fill(root + g.ids[l] * n, root + (g.ids[l] + 1) * n, S{0});
    }
  }
};

template <class S>
struct Argmax {
  const TreeBatch<S>& b;
  int64_t* heads;
  S* score;
  template <class T>
  Outcome run(const Group& g) const {
    Chart<T> k(g.length, 5);
    load_weights(b, g, 0.0, k.w);
    inside(k, b.single_root);
    for (int l = 0; l < g.used; ++l) {
      const int64_t id = g.ids[l], length = b.lengths[id];
      int64_t* tree = heads + id * b.words;
      std::fill(tree, tree + b.words, kPad);
      const auto view = ChartView<T, double>::of(k, l);
      if (!(view.prefix[length * view.step] > -kInf)) {
        score[id] = static_cast<S>(-kInf);
        continue;
      }
      derive(view, length, b.single_root, tree, [&](const double* x, const double* y, int64_t n) {
        int64_t best = 0;
        for (int64_t u = 1; u < n; ++u) {
          const int64_t at = u * view.step, was = best * view.step;
          if (x[at] + y[at] > x[was] + y[was]) best = u;
        }
        return best;
      });
      score[id] = static_cast<S>(tree_score(b, id, tree));
    }
    return {};
  }
};

template <class S>
struct Sample {
  const TreeBatch<S>& b;
  const double* uniforms;  // (samples, batch, 2 words)
  int64_t samples;
  int64_t* heads;  // (samples, batch, words)
  static constexpr bool centring = true;
  template <class T>
  Outcome run(const Group& g) const {
    const int64_t id = g.ids[0], length = b.lengths[id], words = b.words;
    Chart<T> k(length, 5);
    load_weights(b, g, kProjectiveKappa, k.w);
    inside(k, b.single_root);
    const Outcome out = judge(k.prefix[length], b, g, [&](int l, double v, int64_t size) {
      return surely_sound(v, g, size) || (sound(v, 0.0, size) && nothing_tiny(k, l, size));
    });
    if (out.failed) return out;
    const bool possible = !is_zero(k.prefix[length]);
    const auto view = ChartView<T, T>::of(k, 0);
    for (int64_t s = 0; s < samples; ++s) {
      int64_t* tree = heads + (s * b.batch + id) * words;
      std::fill(tree, tree + words, kPad);
      if (!possible) continue;
      const double* random = uniforms + (s * b.batch + id) * 2 * words;
      derive(view, length, b.single_root, tree, [&](const T* x, const T* y, int64_t n) {
        return pick(x, y, n, *random++);
      });
    }
    return {};
  }
};

Tensor log_partition(const Tensor& arcs, const Tensor& root, const Tensor& lengths, bool single) {
  Tensor out = new_like(arcs, {arcs.size(0)}, ScalarType::Double);
  with_scalar(arcs, [&](auto scalar) {
    using S = decltype(scalar);
    const auto b = tree_batch<S>(arcs, root, lengths, single);
    const LogPartition<S> body{b, static_cast<double*>(out.mutable_data_ptr())};
    run_scaled<Plain>(b, work_of(b.lengths, b.batch, 3), body);
  });
  return out;
}

std::tuple<Tensor, Tensor> marginals(const Tensor& arcs, const Tensor& root, const Tensor& lengths,
                                     bool single) {
  Tensor out_arcs = torch::stable::empty_like(arcs), out_root = torch::stable::empty_like(root);
  with_scalar(arcs, [&](auto scalar) {
    using S = decltype(scalar);
    const auto b = tree_batch<S>(arcs, root, lengths, single);
    const Marginals<S> body{b, static_cast<S*>(out_arcs.mutable_data_ptr()),
                            static_cast<S*>(out_root.mutable_data_ptr())};
    run_scaled<Plain>(b, work_of(b.lengths, b.batch, 9), body);
  });
  return {out_arcs, out_root};
}

std::tuple<Tensor, Tensor> hvp(const Tensor& arcs, const Tensor& root, const Tensor& lengths,
                               const Tensor& direction_arcs, const Tensor& direction_root,
                               bool single) {
  Tensor out_arcs = torch::stable::empty_like(arcs), out_root = torch::stable::empty_like(root);
  with_scalar(arcs, [&](auto scalar) {
    using S = decltype(scalar);
    auto b = tree_batch<S>(arcs, root, lengths, single);
    b.direction_arcs = static_cast<const S*>(direction_arcs.const_data_ptr());
    b.direction_root = static_cast<const S*>(direction_root.const_data_ptr());
    const Marginals<S> body{b, static_cast<S*>(out_arcs.mutable_data_ptr()),
                            static_cast<S*>(out_root.mutable_data_ptr())};
    run_scaled<Dual>(b, work_of(b.lengths, b.batch, 27), body);
  });
  return {out_arcs, out_root};
}

std::tuple<Tensor, Tensor> argmax(const Tensor& arcs, const Tensor& root, const Tensor& lengths,
                                  bool single) {
  Tensor heads = new_like(arcs, {arcs.size(0), arcs.size(1)}, ScalarType::Long);
  Tensor score = new_like(arcs, {arcs.size(0)});
  with_scalar(arcs, [&](auto scalar) {
    using S = decltype(scalar);
    const auto b = tree_batch<S>(arcs, root, lengths, single);
    const Argmax<S> body{b, static_cast<int64_t*>(heads.mutable_data_ptr()),
                         static_cast<S*>(score.mutable_data_ptr())};
    run_lanes<MaxPlus>(b, work_of(b.lengths, b.batch, 3), body, [](int64_t, double) {});
  });
  return {heads, score};
}

Tensor sample(const Tensor& arcs, const Tensor& root, const Tensor& lengths, const Tensor& uniforms,
              bool single) {
  Tensor heads =
      new_like(arcs, {uniforms.size(0), arcs.size(0), arcs.size(1)}, ScalarType::Long);
  with_scalar(arcs, [&](auto scalar) {
    using S = decltype(scalar);
    const auto b = tree_batch<S>(arcs, root, lengths, single);
    const Sample<S> body{b, static_cast<const double*>(uniforms.const_data_ptr()),
                         uniforms.size(0), static_cast<int64_t*>(heads.mutable_data_ptr())};
    for_tasks(b.batch, work_of(b.lengths, b.batch, 3), [&](int64_t id) {
      const Outcome out = body.template run<double>(one_sentence(b.lengths, id));
      if (out.failed) run_again<Plain>(b, body, id, out.log_z[0]);
    });
  });
  return heads;
}

}  // namespace
}  // namespace lawful::trees

STABLE_TORCH_LIBRARY_FRAGMENT(lawful, m) {
  m.def("projective_log_partition(Tensor arcs, Tensor root, Tensor lengths, bool single) -> Tensor");
  m.def("projective_marginals(Tensor arcs, Tensor root, Tensor lengths, bool single)"
        " -> (Tensor, Tensor)");
  m.def("projective_hvp(Tensor arcs, Tensor root, Tensor lengths, Tensor direction_arcs,"
        " Tensor direction_root, bool single) -> (Tensor, Tensor)");
  m.def("projective_argmax(Tensor arcs, Tensor root, Tensor lengths, bool single)"
        " -> (Tensor, Tensor)");
  m.def("projective_sample(Tensor arcs, Tensor root, Tensor lengths, Tensor uniforms, bool single)"
        " -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(lawful, CPU, m) {
  m.impl("projective_log_partition", TORCH_BOX(&lawful::trees::log_partition));
  m.impl("projective_marginals", TORCH_BOX(&lawful::trees::marginals));
  m.impl("projective_hvp", TORCH_BOX(&lawful::trees::hvp));
  m.impl("projective_argmax", TORCH_BOX(&lawful::trees::argmax));
  m.impl("projective_sample", TORCH_BOX(&lawful::trees::sample));
}
