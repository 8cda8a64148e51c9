// Torch's side of the tree operators: shapes, scalar types, threads.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "trees.h"

namespace lawful::trees {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

inline Tensor new_like(const Tensor& like, std::vector<int64_t> shape) {
  return torch::stable::new_empty(like, shape);
}
inline Tensor new_like(const Tensor& like, std::vector<int64_t> shape, ScalarType type) {
  return torch::stable::new_empty(like, shape, type);
}

template <class S>
TreeBatch<S> tree_batch(const Tensor& arcs, const Tensor& root, const Tensor& lengths, bool single) {
  return {static_cast<const S*>(arcs.const_data_ptr()), static_cast<const S*>(root.const_data_ptr()),
          static_cast<const int64_t*>(lengths.const_data_ptr()), arcs.size(0), arcs.size(1), single};
}

// Calls f with a value of the scalar type of `t` (float or double).
template <class F>
void with_scalar(const Tensor& t, const F& f) {
  if (t.scalar_type() == ScalarType::Double) {
    f(double{});
  } else {
    f(float{});
  }
}

// f(task) for each task, on torch's threads unless `work` (multiply-adds in all) is small.
template <class F>
void for_tasks(int64_t count, double work, const F& f) {
  const int64_t grain = work < 4e4 ? std::max<int64_t>(count, 1) : 1;
  torch::stable::parallel_for(0, count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) f(task);
  });
}

inline int64_t threads() { return static_cast<int64_t>(torch::stable::get_num_threads()); }

// Runs body.run<T>(group), which returns an Outcome, with sentences in the lanes of a vector;
// `again(id, log_z)` then takes the sentences out of range.
template <template <class> class Kind, class S, class Body, class Again>
void run_lanes(const TreeBatch<S>& b, double work, const Body& body, const Again& again) {
  const int lanes = choose_lanes(b.batch, threads());
  const auto groups = make_groups(b.lengths, b.batch, lanes);
  for_tasks(static_cast<int64_t>(groups.size()), work, [&](int64_t task) {
    const Group& g = groups[static_cast<size_t>(task)];
    Outcome out;
    if (lanes == 8) {
      out = body.template run<Kind<v8d>>(g);
    } else if (lanes == 4) {
      out = body.template run<Kind<v4d>>(g);
    } else {
      out = body.template run<Kind<double>>(g);
    }
    for (int l = 0; l < g.used; ++l) {
      if (out.failed >> l & 1u) again(g.ids[l], out.log_z[l]);
    }
  });
}

// One sentence again: centred by what the first try found, and failing that, in the wide numbers.
template <template <class> class Kind, class S, class Body>
void run_again(const TreeBatch<S>& b, const Body& body, int64_t id, double log_z) {
  Group g = one_sentence(b.lengths, id);
  g.second = true;
  if (body.centring && log_z > -690.0 && log_z < 690.0) {
    g.tilt = log_z / static_cast<double>(g.length);
    if (!body.template run<Kind<double>>(g).failed) return;
  }
  g.tilt = 0.0;
  body.template run<Kind<Wide>>(g);
}

template <template <class> class Kind, class S, class Body>
void run_scaled(const TreeBatch<S>& b, double work, const Body& body) {
  run_lanes<Kind>(b, work, body, [&](int64_t id, double log_z) {
    run_again<Kind>(b, body, id, log_z);
  });
}

template <class V>
using Plain = V;

}  // namespace lawful::trees
