// Binds edges.h: see kernels/edges/README.md.
#include "edges.h"

#include <algorithm>
#include <optional>

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

namespace {

using lawful::edges::Graph;
using lawful::edges::Pull;
using lawful::edges::Table;
using lawful::edges::Weights;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Maybe = std::optional<Tensor>;

enum Activation : int64_t { kNone = 0, kRelu = 1, kSoftmax = 2 };

template <typename T>
const T* data(const Tensor& t) {
  return static_cast<const T*>(t.const_data_ptr());
}
template <typename T>
const T* data(const Maybe& t) {
  return t ? data<T>(*t) : nullptr;
}
template <typename T>
T* out(Tensor& t) {
  return static_cast<T*>(t.mutable_data_ptr());
}

template <typename T>
struct Stage {
  Graph graph;
  Weights<T> weights;
  const T *z, *beta, *keep;
  T memory_beta;
  int64_t rows, heads, width, memories, activation;

  int64_t span() const { return heads * width; }
  const T* row(int64_t node) const { return z + node * rows; }
};

template <typename T>
Stage<T> stage(const Tensor& z, const Tensor& beta, const Maybe& memory_beta, const Maybe& weight,
               const Maybe& keep, const Tensor& source, const Tensor& into, const Tensor& slot,
               const Tensor& sink, const Tensor& out_of, int64_t heads, int64_t width,
               bool multiply, int64_t activation) {
  const Graph graph{data<int64_t>(source), data<int64_t>(into), data<int64_t>(slot),
                    data<int64_t>(sink),   data<int64_t>(out_of), z.size(0), source.size(0)};
  const Weights<T> weights{data<T>(weight), weight ? weight->size(1) : 1, multiply};
  const T at = memory_beta ? *data<T>(*memory_beta) : T(1);
  const int64_t rows = z.size(1);
  return {graph, weights, data<T>(z), data<T>(beta), data<T>(keep), at,
          rows,  heads,   width,      rows - 2 * heads * width, activation};
}

// Runs of nodes with about the same work each, by where their edges start.
struct Shares {
  std::vector<int64_t> bounds;
  Shares(const int64_t* starts, int64_t nodes, int64_t per_edge) {
    const int64_t work = starts[nodes] + nodes;
    const int64_t count = std::min<int64_t>(256, 1 + work * per_edge / (1 << 17));
    bounds.assign(1, 0);
    for (int64_t i = 1; i < count; ++i) {
      int64_t low = bounds.back(), high = nodes;
      while (low < high) {
        const int64_t mid = (low + high) / 2;
        if (starts[mid] + mid < work / count * i) low = mid + 1;
        else high = mid;
      }
      bounds.push_back(low);
    }
    bounds.push_back(nodes);
  }
  // Calls f(first, last) for each run; runs are spread over threads.
  template <class F>
  void each(const F& f) const {
    torch::stable::parallel_for(0, int64_t(bounds.size()) - 1, 1, [&](int64_t lo, int64_t hi) {
      for (int64_t i = lo; i < hi; ++i) f(bounds[i], bounds[i + 1]);
    });
  }
};

// Columns [at, at + span) of z (and of c, as second part), head by head.
template <typename T>
Table<T> pack(const Stage<T>& s, const T* c, int64_t at) {
  Table<T> table(s.heads, s.graph.nodes, s.width, c ? 2 : 1);
  const int64_t grain = 1 + (1 << 15) / (s.span() + 1);
  torch::stable::parallel_for(0, s.graph.nodes, grain, [&](int64_t lo, int64_t hi) {
    for (int64_t n = lo; n < hi; ++n)
      for (int64_t h = 0; h < s.heads; ++h) {
        const int64_t column = at + h * s.width;
        table.fill(h, n, 0, s.row(n) + column);
        if (c) table.fill(h, n, 1, c + n * s.rows + column);
      }
  });
  return table;
}

template <typename T, class F>
void each_memory(const Stage<T>& s, const F& f) {
  const int64_t grain = 1 + (1 << 17) / (s.memories + 1);
  torch::stable::parallel_for(0, s.graph.nodes, grain, [&](int64_t lo, int64_t hi) {
    for (int64_t n = lo; n < hi; ++n) f(n);
  });
}

template <typename T>
void push(const Stage<T>& s, T* to, double* energy, T* prob, T* lse) {
  const Graph& g = s.graph;
  const int64_t span = s.span(), per_edge = span + 8 * s.heads;
  const Table<T> queries = pack<T>(s, nullptr, 0), keys = pack<T>(s, nullptr, span);
  std::fill(energy, energy + g.nodes, 0.0);
  Shares(g.into, g.nodes, per_edge).each([&](int64_t lo, int64_t hi) {
    for (int64_t h = 0; h < s.heads; ++h)
      for (int64_t n = lo; n < hi; ++n) {
        T* row = to + n * s.rows + h * s.width;
        const double found = lawful::edges::push_target(g, queries, keys, s.weights, h, n,
                                                        s.beta[h], prob + h * g.edges, row);
        lse[h * g.nodes + n] = T(found);
        energy[n] -= found / double(s.beta[h]);
      }
  });
  Shares(g.out_of, g.nodes, per_edge).each([&](int64_t lo, int64_t hi) {
    for (int64_t h = 0; h < s.heads; ++h)
      for (int64_t n = lo; n < hi; ++n)
        lawful::edges::push_source(g, queries, s.weights, h, n, prob + h * g.edges,
                                   to + n * s.rows + span + h * s.width);
  });
  each_memory(s, [&](int64_t n) {
    const T *from = s.row(n) + 2 * span, *keep = s.keep ? s.keep + n * s.memories : nullptr;
    T* at = to + n * s.rows + 2 * span;
    if (s.activation == kRelu) energy[n] += lawful::edges::push_relu(from, keep, at, s.memories);
    if (s.activation == kSoftmax)
      energy[n] += lawful::energy::push_softmax(from, at, s.memories, s.memory_beta);
  });
}

template <typename T>
struct Back {
  const T *c, *ebar, *prob, *lse;
  T *dz, *dweight;
  double *dbeta, *dmemory_beta;
  bool slopes;
};

template <typename T>
void pull(const Stage<T>& s, const Back<T>& b) {
  const Graph& g = s.graph;
  const int64_t span = s.span(), per_edge = 2 * span + 8 * s.heads;
  const Table<T> queries = pack<T>(s, b.c, 0), keys = pack<T>(s, b.c, span);
  const auto links = lawful::edges::block<T>(2 * s.heads * g.edges);
  Shares(g.into, g.nodes, per_edge).each([&](int64_t lo, int64_t hi) {
    std::vector<T> scratch;
    for (int64_t h = 0; h < s.heads; ++h) {
      Pull<T> at{s.beta[h],  T(0),     b.prob + h * g.edges, links.get() + 2 * h * g.edges,
                 b.dweight, b.slopes};
      for (int64_t n = lo; n < hi; ++n) {
        at.ebar = b.ebar ? b.ebar[n] : T(0);
        double bend = lawful::edges::pull_target(g, queries, keys, s.weights, at, h, n, scratch,
                                                 b.dz + n * s.rows + h * s.width);
        if (b.slopes)
          b.dbeta[h * g.nodes + n] = bend + double(at.ebar) * double(b.lse[h * g.nodes + n]) /
                                                (double(s.beta[h]) * double(s.beta[h]));
      }
    }
  });
  Shares(g.out_of, g.nodes, per_edge).each([&](int64_t lo, int64_t hi) {
    for (int64_t h = 0; h < s.heads; ++h)
      for (int64_t n = lo; n < hi; ++n)
        lawful::edges::pull_source(g, queries, h, n, links.get() + 2 * h * g.edges,
                                   b.dz + n * s.rows + span + h * s.width);
  });
  const int64_t m = s.memories;
  torch::stable::parallel_for(0, g.nodes, 1 + (1 << 17) / (m + 1), [&](int64_t lo, int64_t hi) {
    std::vector<T> scratch(s.activation == kSoftmax ? m : 0);
    for (int64_t n = lo; n < hi; ++n) {
      const int64_t at = n * s.rows + 2 * span;
      const T ebar = b.ebar ? b.ebar[n] : T(0), *keep = s.keep ? s.keep + n * m : nullptr;
      if (s.activation == kRelu)
        lawful::edges::pull_relu(s.z + at, b.c + at, keep, ebar, b.dz + at, m);
      if (s.activation == kSoftmax)
        b.dmemory_beta[n] = lawful::energy::pull_softmax(
            s.z + at, b.c + at, double(ebar), b.dz + at, scratch.data(), m, s.memory_beta);
    }
  });
}

void edges_push(Tensor z, Tensor to, Tensor energy, Tensor prob, Tensor lse, Tensor beta,
                Maybe memory_beta, Maybe weight, Maybe keep, Tensor source, Tensor into,
                Tensor slot, Tensor sink, Tensor out_of, int64_t heads, int64_t width,
                bool multiply, int64_t activation) {
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    push(stage<T>(z, beta, memory_beta, weight, keep, source, into, slot, sink, out_of, heads,
                  width, multiply, activation),
         out<T>(to), out<double>(energy), out<T>(prob), out<T>(lse));
  };
  if (z.scalar_type() == ScalarType::Double) run(double{});
  else run(float{});
}

void edges_pull(Tensor z, Tensor c, Maybe ebar, Tensor prob, Tensor lse, Tensor dz, Tensor dbeta,
                Tensor dmemory_beta, Maybe dweight, bool slopes, Tensor beta, Maybe memory_beta,
                Maybe weight, Maybe keep, Tensor source, Tensor into, Tensor slot, Tensor sink,
                Tensor out_of, int64_t heads, int64_t width, bool multiply, int64_t activation) {
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    const Back<T> back{data<T>(c),
                       data<T>(ebar),
                       data<T>(prob),
                       data<T>(lse),
                       out<T>(dz),
                       dweight ? out<T>(*dweight) : nullptr,
                       out<double>(dbeta),
                       out<double>(dmemory_beta),
                       slopes};
    pull(stage<T>(z, beta, memory_beta, weight, keep, source, into, slot, sink, out_of, heads,
                  width, multiply, activation),
         back);
  };
  if (z.scalar_type() == ScalarType::Double) run(double{});
  else run(float{});
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(lawful, m) {
  m.def(
      "edges_push(Tensor z, Tensor(a!) out, Tensor(b!) energy, Tensor(c!) prob, Tensor(d!) lse, "
      "Tensor beta, Tensor? memory_beta, Tensor? weight, Tensor? keep, Tensor source, Tensor into, "
      "Tensor slot, Tensor sink, Tensor out_of, int heads, int width, bool multiply, "
      "int activation) -> ()");
  m.def(
      "edges_pull(Tensor z, Tensor c, Tensor? ebar, Tensor prob, Tensor lse, Tensor(a!) dz, "
      "Tensor(b!) dbeta, Tensor(c!) dmemory_beta, Tensor(d!)? dweight, bool slopes, Tensor beta, "
      "Tensor? memory_beta, Tensor? weight, Tensor? keep, Tensor source, Tensor into, Tensor slot, "
      "Tensor sink, Tensor out_of, int heads, int width, bool multiply, int activation) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(lawful, CPU, m) {
  m.impl("edges_push", TORCH_BOX(&edges_push));
  m.impl("edges_pull", TORCH_BOX(&edges_pull));
}
