// Operators of the non-projective trees; the programs are in spanning.h and edmonds.h.
#include "spanning.h"

#include "edmonds.h"
#include "tree_ops.h"

namespace lawful::trees {
namespace {

double spanning_work(const int64_t* lengths, int64_t batch, double factor) {
  double work = 0.0;
  for (int64_t b = 0; b < batch; ++b) {
    const double n = static_cast<double>(lengths[b]);
    work += n * n * n / 3.0 * factor + 20.0 * n * n;
  }
  return work;
}

template <class T>
double pivot_value(const T& d, int lane) {
  if constexpr (Number<T>::dual) {
    return pivot_value(d.v, lane);
  } else {
    return Number<T>::value(d, lane);
  }
}

// What underflows is below 1e-308, so that next to pivots above 1e-200 it does not count.
template <class T, class S>
Outcome judge_pivots(const Elimination<T>& e, const TreeBatch<S>& b, const Group& g) {
  Outcome out;
  if constexpr (!Number<T>::wide) {
    for (int l = 0; l < g.used; ++l) {
      for (int64_t k = 0; k < b.lengths[g.ids[l]]; ++k) {
        const double d = pivot_value(e.d[k], l);
        if (!(d > 1e-200 && d < kInf)) out.failed |= 1u << l;
      }
    }
  }
  return out;
}

template <class S>
struct SpanningLogPartition {
  static constexpr bool centring = false;
  const TreeBatch<S>& b;
  double* out;
  template <class T>
  Outcome run(const Group& g) const {
    Elimination<T> e(g.length, false);
    prepare(e, b, g);
    const bool possible = eliminate(e);
    for (int l = 0; l < g.used; ++l) {
      double sum = e.w0.total[l];
      if (!possible) sum = -kInf;
      for (int64_t k = 0; k < b.lengths[g.ids[l]] && possible; ++k) sum += Number<T>::log(e.d[k], l);
      out[g.ids[l]] = sum;
    }
    return judge_pivots(e, b, g);
  }
};

template <class S>
struct SpanningMarginals {
  static constexpr bool centring = false;
  const TreeBatch<S>& b;
  S *arcs, *root;
  template <class T>
  Outcome run(const Group& g) const {
    using N = Number<T>;
    Elimination<T> e(g.length, true);
    prepare(e, b, g);
    const bool possible = eliminate(e);
    const int64_t n = e.n, words = b.words;
    if (possible) adjoint(e);
    for (int l = 0; l < g.used; ++l) {
      const int64_t id = g.ids[l], length = b.lengths[id];
      S *to_arcs = arcs + id * words * words, *to_root = root + id * words;
      if (length < words || !possible) {
        std::fill(to_arcs, to_arcs + words * words, S{0});
        std::fill(to_root, to_root + words, S{0});
      }
      if (!possible) continue;
      const double scale = e.w0.direction_scale[l];
      for (int64_t i = 0; i < length; ++i) {
        const int64_t h = e.order[static_cast<size_t>(i)];
        for (int64_t j = 0; j < length; ++j) {
          const int64_t m = e.order[static_cast<size_t>(j)];
          to_arcs[h * words + m] = static_cast<S>(arc(e.w0.arc[h * n + m], e.g[i * n + j], l) * scale);
        }
        to_arcs[h * words + h] = S{0};
        to_root[h] = static_cast<S>(arc(e.w0.root[h], e.rho[i], l) * scale);
      }
    }
    return judge_pivots(e, b, g);
  }
  // Rounding may leave a marginal of 0 at -1e-17.
  template <class T>
  static double arc(const T& w, const T& g, int lane) {
    const double x = Number<T>::out(w * g, lane);
    return Number<T>::dual || x != x || x > 0.0 ? x : 0.0;
  }
};

template <class S>
void best_tree(const TreeBatch<S>& b, int64_t id, int64_t* heads, S* score) {
  const int64_t n = b.lengths[id], words = b.words;
  std::fill(heads, heads + words, kPad);
  Edmonds graph(n);
  std::vector<double> bests(static_cast<size_t>(n));
  column_bests(b, id, n, bests.data(), 1);
  for (int64_t m = 0; m < n; ++m) {
    const double best = bests[static_cast<size_t>(m)];
    for (int64_t h = 0; h <= n; ++h) {
      const S raw = h == n ? b.root[id * words + m] : b.arcs[(id * words + h) * words + m];
      const double x = static_cast<double>(raw);
      const bool possible = x > -kInf && h != m;
      const int64_t cost = (possible ? 0 : n + 2) + (h == n && b.single_root ? 1 : 0);
      graph.set(h, m, {cost, possible ? x - best : 0.0});
    }
  }
  graph.solve(heads);
  int64_t roots = 0;
  for (int64_t m = 0; m < n; ++m) {
    if (heads[m] == n) heads[m] = kRoot;
    roots += heads[m] == kRoot;
  }
  const double total = tree_score(b, id, heads);
  const bool possible = total > -kInf && (!b.single_root || roots <= 1);
  if (!possible) std::fill(heads, heads + words, kPad);
  *score = static_cast<S>(possible ? total : -kInf);
}

template <class S>
struct Walks {
  const TreeBatch<S>& b;
  const double* root_marginals;  // (batch, words), read for a single root only
  const int64_t* seeds;          // (samples, batch)
  int64_t samples;
  int64_t* heads;
  bool* finished;  // (samples, batch)
  void run(int64_t id) const {
    const int64_t n = b.lengths[id], words = b.words;
    std::vector<double> steps(static_cast<size_t>(n * (n + 1)));
    std::vector<double> bests(static_cast<size_t>(n));
    column_bests(b, id, n, bests.data(), 1);
    for (int64_t m = 0; m < n; ++m) {
      const double best = bests[static_cast<size_t>(m)];
      double sum = 0.0;
      for (int64_t h = 0; h <= n; ++h) {
        const S raw = h == n ? b.root[id * words + m] : b.arcs[(id * words + h) * words + m];
        if (h != m) sum += std::exp(static_cast<double>(raw) - best);
        steps[static_cast<size_t>(m * (n + 1) + h)] = sum;
      }
    }
    for (int64_t s = 0; s < samples; ++s) {
      Random random{static_cast<uint64_t>(seeds[s * b.batch + id])};
      int64_t* tree = heads + (s * b.batch + id) * words;
      std::fill(tree, tree + words, kPad);
      const int64_t top = b.single_root ? pick_top(id, n, random) : -1;
      finished[s * b.batch + id] = wilson(steps.data(), n, top, random, 20 * n * n + 1000, tree);
    }
  }
  int64_t pick_top(int64_t id, int64_t n, Random& random) const {
    const double* p = root_marginals + id * b.words;
    double total = 0.0;
    for (int64_t m = 0; m < n; ++m) total += p[m];
    double at = random.uniform() * total;
    int64_t last = -1;
    for (int64_t m = 0; m < n; ++m) {
      if (!(p[m] > 0.0)) continue;
      last = m;
      at -= p[m];
      if (at < 0.0) break;
    }
    return last;
  }
};

Tensor spanning_log_partition(const Tensor& arcs, const Tensor& root, const Tensor& lengths,
                              bool single) {
  Tensor out = new_like(arcs, {arcs.size(0)}, ScalarType::Double);
  with_scalar(arcs, [&](auto scalar) {
    using S = decltype(scalar);
    const auto b = tree_batch<S>(arcs, root, lengths, single);
    const SpanningLogPartition<S> body{b, static_cast<double*>(out.mutable_data_ptr())};
    run_scaled<Plain>(b, spanning_work(b.lengths, b.batch, 1), body);
  });
  return out;
}

std::tuple<Tensor, Tensor> spanning_marginals(const Tensor& arcs, const Tensor& root,
                                              const Tensor& lengths, bool single) {
  Tensor out_arcs = torch::stable::empty_like(arcs), out_root = torch::stable::empty_like(root);
  with_scalar(arcs, [&](auto scalar) {
    using S = decltype(scalar);
    const auto b = tree_batch<S>(arcs, root, lengths, single);
    const SpanningMarginals<S> body{b, static_cast<S*>(out_arcs.mutable_data_ptr()),
                                    static_cast<S*>(out_root.mutable_data_ptr())};
    run_scaled<Plain>(b, spanning_work(b.lengths, b.batch, 3), body);
  });
  return {out_arcs, out_root};
}

std::tuple<Tensor, Tensor> spanning_hvp(const Tensor& arcs, const Tensor& root,
                                        const Tensor& lengths, const Tensor& direction_arcs,
                                        const Tensor& direction_root, bool single) {
  Tensor out_arcs = torch::stable::empty_like(arcs), out_root = torch::stable::empty_like(root);
  with_scalar(arcs, [&](auto scalar) {
    using S = decltype(scalar);
    auto b = tree_batch<S>(arcs, root, lengths, single);
    b.direction_arcs = static_cast<const S*>(direction_arcs.const_data_ptr());
    b.direction_root = static_cast<const S*>(direction_root.const_data_ptr());
    const SpanningMarginals<S> body{b, static_cast<S*>(out_arcs.mutable_data_ptr()),
                                    static_cast<S*>(out_root.mutable_data_ptr())};
    run_scaled<Dual>(b, spanning_work(b.lengths, b.batch, 9), body);
  });
  return {out_arcs, out_root};
}

std::tuple<Tensor, Tensor> spanning_argmax(const Tensor& arcs, const Tensor& root,
                                           const Tensor& lengths, bool single) {
  Tensor heads = new_like(arcs, {arcs.size(0), arcs.size(1)}, ScalarType::Long);
  Tensor score = new_like(arcs, {arcs.size(0)});
  with_scalar(arcs, [&](auto scalar) {
    using S = decltype(scalar);
    const auto b = tree_batch<S>(arcs, root, lengths, single);
    auto* to = static_cast<int64_t*>(heads.mutable_data_ptr());
    auto* value = static_cast<S*>(score.mutable_data_ptr());
    for_tasks(b.batch, spanning_work(b.lengths, b.batch, 0.1), [&](int64_t id) {
      best_tree(b, id, to + id * b.words, value + id);
    });
  });
  return {heads, score};
}

std::tuple<Tensor, Tensor> spanning_walks(const Tensor& arcs, const Tensor& root,
                                          const Tensor& lengths, const Tensor& root_marginals,
                                          const Tensor& seeds, bool single) {
  const int64_t samples = seeds.size(0);
  Tensor heads = new_like(arcs, {samples, arcs.size(0), arcs.size(1)}, ScalarType::Long);
  Tensor finished = new_like(arcs, {samples, arcs.size(0)}, ScalarType::Bool);
  with_scalar(arcs, [&](auto scalar) {
    using S = decltype(scalar);
    const auto b = tree_batch<S>(arcs, root, lengths, single);
    const Walks<S> walks{b,
                         static_cast<const double*>(root_marginals.const_data_ptr()),
                         static_cast<const int64_t*>(seeds.const_data_ptr()),
                         samples,
                         static_cast<int64_t*>(heads.mutable_data_ptr()),
                         static_cast<bool*>(finished.mutable_data_ptr())};
    for_tasks(b.batch, 1e5, [&](int64_t id) { walks.run(id); });
  });
  return {heads, finished};
}

}  // namespace
}  // namespace lawful::trees

STABLE_TORCH_LIBRARY_FRAGMENT(lawful, m) {
  m.def("spanning_log_partition(Tensor arcs, Tensor root, Tensor lengths, bool single) -> Tensor");
  m.def("spanning_marginals(Tensor arcs, Tensor root, Tensor lengths, bool single)"
        " -> (Tensor, Tensor)");
  m.def("spanning_hvp(Tensor arcs, Tensor root, Tensor lengths, Tensor direction_arcs,"
        " Tensor direction_root, bool single) -> (Tensor, Tensor)");
  m.def("spanning_argmax(Tensor arcs, Tensor root, Tensor lengths, bool single)"
        " -> (Tensor, Tensor)");
  m.def("spanning_walks(Tensor arcs, Tensor root, Tensor lengths, Tensor root_marginals,"
        " Tensor seeds, bool single) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(lawful, CPU, m) {
  m.impl("spanning_log_partition", TORCH_BOX(&lawful::trees::spanning_log_partition));
  m.impl("spanning_marginals", TORCH_BOX(&lawful::trees::spanning_marginals));
  m.impl("spanning_hvp", TORCH_BOX(&lawful::trees::spanning_hvp));
  m.impl("spanning_argmax", TORCH_BOX(&lawful::trees::spanning_argmax));
  m.impl("spanning_walks", TORCH_BOX(&lawful::trees::spanning_walks));
}
