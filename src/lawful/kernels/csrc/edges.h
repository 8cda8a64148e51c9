// Attention over the edges of a graph, forward and back, one head of one node at a time.
// Torch-free; kernels/edges/README.md derives it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "energy.h"
#include "simd.h"

namespace lawful {
namespace edges {

using chain::hmax;
using chain::hsum;
using chain::kLanes;
using chain::kNegInf;
using chain::load;
using chain::load_part;
using chain::splat;
using chain::store;
using chain::store_part;
using chain::Vec;
using chain::vmax;

constexpr int64_t kMaxVectors = 8;  // accumulators held in registers at a time

// Edges sorted by target, and the places of those sorted by source.
struct Graph {
  const int64_t *source, *into, *slot, *sink, *out_of;
  int64_t nodes, edges;
};

// Weights (edges, columns), columns 1 or the number of heads; null when all are 1.
template <typename T>
struct Weights {
  const T* at;
  int64_t columns;
  bool multiply;
  T of(int64_t edge, int64_t head) const { return at[edge * columns + (columns > 1 ? head : 0)]; }
};

// Uninitialised memory. Rows are picked from all over a table, so large ones ask for large pages.
struct Freed {
  void operator()(void* p) const { std::free(p); }
};
template <typename T>
using Block = std::unique_ptr<T, Freed>;

template <typename T>
Block<T> block(int64_t count) {
  constexpr size_t page = size_t(1) << 21;
  const size_t bytes = sizeof(T) * size_t(count) + 1, unit = bytes < 2 * page ? 64 : page;
  const size_t whole = (bytes + unit - 1) / unit * unit;
  void* found = std::aligned_alloc(unit, whole);
  if (!found) throw std::bad_alloc();
#if defined(__linux__)
  if (unit == page) madvise(found, whole, MADV_HUGEPAGE);
#endif
  return Block<T>(static_cast<T*>(found));
}

// Rows (heads, nodes, parts, lanes): what belongs to a node and a head lies together, each part
// padded with zeros to whole vectors.
template <typename T>
struct Table {
  int64_t nodes, width, lanes, parts;
  Block<T> memory;

  Table(int64_t heads, int64_t nodes_, int64_t width_, int64_t parts_)
      : nodes(nodes_), width(width_), lanes(energy::padded(width_, kLanes<T>)), parts(parts_),
        memory(block<T>(heads * nodes_ * parts_ * lanes)) {}
  const T* head(int64_t h) const { return memory.get() + h * nodes * stride(); }
  int64_t stride() const { return parts * lanes; }
  void fill(int64_t h, int64_t node, int64_t part, const T* from) {
    T* to = memory.get() + (h * nodes + node) * stride() + part * lanes;
    std::memcpy(to, from, width * sizeof(T));
    std::memset(to + width, 0, (lanes - width) * sizeof(T));
  }
};

// Sums of the lanes of four vectors.
template <typename T>
inline void sum_four(const Vec<T>* v, T* to) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    const __m512 a = (__m512)v[0], b = (__m512)v[1], c = (__m512)v[2], d = (__m512)v[3];
    const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512 all =
        _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
    return;
  }
#endif
  for (int i = 0; i < 4; ++i) to[i] = hsum<T>(v[i]);
}

// Products of one row with the rows of a table that `index` lists.
template <typename T>
inline void dots(const T* row, const T* table, int64_t lanes, int64_t stride, const int64_t* index,
                 int64_t count, T* to) {
  constexpr int W = kLanes<T>;
  int64_t e = 0;
  for (; e + 4 <= count; e += 4) {
    const T* at[4];
    for (int i = 0; i < 4; ++i) at[i] = table + index[e + i] * stride;
    Vec<T> sum[4] = {};
    for (int64_t j = 0; j < lanes; j += W) {
      const Vec<T> one = load(row + j);
      for (int i = 0; i < 4; ++i) sum[i] += one * load(at[i] + j);
    }
    sum_four<T>(sum, to + e);
  }
  for (; e < count; ++e) {
    const T* at = table + index[e] * stride;
    Vec<T> sum{};
    for (int64_t j = 0; j < lanes; j += W) sum += load(row + j) * load(at + j);
    to[e] = hsum<T>(sum);
  }
}

// VECTORS vectors of the sum of rows of a table, each PARTS parts with a factor each:
// `factors(e, PARTS numbers)` gives those of edge e.
template <typename T, int VECTORS, int PARTS, class Factors>
inline void mix_some(const T* table, int64_t lanes, const int64_t* index, int64_t count,
                     int64_t room, const Factors& factors, T* to) {
  constexpr int W = kLanes<T>;
  Vec<T> sum[VECTORS] = {};
  for (int64_t e = 0; e < count; ++e) {
    const T* row = table + index[e] * PARTS * lanes;
    T by[PARTS];
    factors(e, by);
    for (int part = 0; part < PARTS; ++part)
      for (int v = 0; v < VECTORS; ++v) sum[v] += by[part] * load(row + part * lanes + v * W);
  }
  for (int v = 0; v < VECTORS && v * W < room; ++v)
    store_part(to + v * W, int(room - v * W < W ? room - v * W : W), sum[v]);
}

template <typename T, int PARTS, class Factors>
inline void mix(const T* table, int64_t lanes, const int64_t* index, int64_t count, int64_t width,
                const Factors& factors, T* to) {
  constexpr int W = kLanes<T>;
  for (int64_t at = 0; at < lanes; at += kMaxVectors * W) {
    const int64_t vectors = (lanes - at) / W, room = width - at;
    const T* from = table + at;
#define LAWFUL_MIX(V) mix_some<T, V, PARTS>(from, lanes, index, count, room, factors, to + at)
    switch (vectors < kMaxVectors ? vectors : kMaxVectors) {
      case 1: LAWFUL_MIX(1); break;
      case 2: LAWFUL_MIX(2); break;
      case 3: LAWFUL_MIX(3); break;
      case 4: LAWFUL_MIX(4); break;
      case 5: LAWFUL_MIX(5); break;
      case 6: LAWFUL_MIX(6); break;
      case 7: LAWFUL_MIX(7); break;
      default: LAWFUL_MIX(8); break;
    }
#undef LAWFUL_MIX
  }
}

// Products of queries and keys to logits, in place; edges that do not count get -inf.
template <typename T>
inline void weigh(const Weights<T>& weights, int64_t first, int64_t count, int64_t head, T beta,
                  T* s) {
  if (!weights.at) {
    for (int64_t e = 0; e < count; ++e) s[e] *= beta;
    return;
  }
  for (int64_t e = 0; e < count; ++e) {
    const T w = weights.of(first + e, head);
    if (weights.multiply) {
      s[e] = w == T(0) ? kNegInf<T> : s[e] * beta * w;
    } else {
      s[e] = w == kNegInf<T> ? w : s[e] * beta + w;
    }
  }
}

// Softmax in place; returns the log-sum-exp. Both are 0 when nothing counts.
template <typename T>
inline double softmax(T* s, int64_t count) {
  constexpr int W = kLanes<T>;
  Vec<T> most = splat(kNegInf<T>);
  for (int64_t e = 0; e < count; e += W)
    most = vmax<T>(load_part(s + e, int(count - e < W ? count - e : W), kNegInf<T>), most);
  const T top = hmax<T>(most), shift = top == kNegInf<T> ? T(0) : top;
  double mass = 0;
  for (int64_t start = 0; start < count; start += 64 * W) {  // in two levels, against rounding
    const int64_t stop = start + 64 * W < count ? start + 64 * W : count;
    Vec<T> some{};
    for (int64_t e = start; e < stop; e += W) {
      const int part = int(stop - e < W ? stop - e : W);
      const Vec<T> v = energy::exp_negative<T>(load_part(s + e, part, kNegInf<T>) - shift);
      some += v;
      store_part(s + e, part, v);
    }
    mass += double(hsum<T>(some));
  }
  const T inverse = mass == 0 ? T(0) : T(1 / mass);
  for (int64_t e = 0; e < count; ++e) s[e] *= inverse;
  return mass == 0 ? 0.0 : double(shift) + std::log(mass);
}

// One head: P of the edges into a node, its log-sum-exp (returned), and Σ P̃ K.
template <typename T>
double push_target(const Graph& g, const Table<T>& queries, const Table<T>& keys,
                   const Weights<T>& weights, int64_t head, int64_t node, T beta, T* prob, T* to) {
  const int64_t first = g.into[node], count = g.into[node + 1] - first;
  const int64_t *from = g.source + first, lanes = keys.lanes;
  T* p = prob + first;
  const T* table = keys.head(head);
  dots(queries.head(head) + node * lanes, table, lanes, lanes, from, count, p);
  weigh(weights, first, count, head, beta, p);
  const double lse = softmax(p, count);
  const bool scaled = weights.at && weights.multiply;
  const auto factors = [&](int64_t e, T* by) {
    by[0] = scaled ? p[e] * weights.of(first + e, head) : p[e];
  };
  mix<T, 1>(table, lanes, from, count, keys.width, factors, to);
  return lse;
}

// One head: Σ P̃ Q over the edges out of a node.
template <typename T>
void push_source(const Graph& g, const Table<T>& queries, const Weights<T>& weights, int64_t head,
                 int64_t node, const T* prob, T* to) {
  const int64_t first = g.out_of[node], count = g.out_of[node + 1] - first;
  const int64_t* slot = g.slot + first;
  const bool scaled = weights.at && weights.multiply;
  const auto factors = [&](int64_t e, T* by) {
    by[0] = prob[slot[e]];
    if (scaled) by[0] *= weights.of(slot[e], head);
  };
  mix<T, 1>(queries.head(head), queries.lanes, g.sink + first, count, queries.width, factors, to);
}

// What the way back needs and gives for one head of one node's edges.
template <typename T>
struct Pull {
  T beta, ebar;
  const T* prob;  // of this head, (edges)
  T* link;        // (edges, 2): dr and P̃, for the sweep over sources
  T* dweight;     // null unless wanted
  bool slopes;    // whether the derivatives of beta or the weights are wanted
};

// One head: dQ of a node, and the links of the edges into it; returns Σ ds ∂s/∂β, if wanted.
// Tables hold [q a] and [k b]: `keys` rows of two parts, `queries` likewise.
template <typename T>
double pull_target(const Graph& g, const Table<T>& queries, const Table<T>& keys,
                   const Weights<T>& weights, const Pull<T>& at, int64_t head, int64_t node,
                   std::vector<T>& scratch, T* to) {
  const int64_t first = g.into[node], count = g.into[node + 1] - first;
  const int64_t *from = g.source + first, lanes = keys.lanes;
  if (int64_t(scratch.size()) < 2 * lanes + 2 * count) scratch.resize(2 * lanes + 2 * count);
  T *turned = scratch.data(), *d = turned + 2 * lanes, *raw = d + count;
  const T *own = queries.head(head) + node * 2 * lanes, *table = keys.head(head);
  std::memcpy(turned, own + lanes, lanes * sizeof(T));  // [a q] · [k b] = a·k + q·b
  std::memcpy(turned + lanes, own, lanes * sizeof(T));
  dots(turned, table, 2 * lanes, 2 * lanes, from, count, d);
  if (at.slopes) dots(own, table, lanes, 2 * lanes, from, count, raw);
  const T* p = at.prob + first;
  T* link = at.link + 2 * first;
  const bool scaled = weights.at && weights.multiply;
  double centre = double(at.ebar) / double(at.beta), bend = 0;
  for (int64_t e = 0; e < count; ++e)
    centre += double(p[e]) * double(scaled ? d[e] * weights.of(first + e, head) : d[e]);
  for (int64_t e = 0; e < count; ++e) {
    const T w = scaled ? weights.of(first + e, head) : T(1);
    const T ds = p[e] * (w * d[e] - T(centre));
    link[2 * e] = at.beta * w * ds;
    link[2 * e + 1] = p[e] * w;
    if (!at.slopes) continue;
    bend += double(ds) * double(w * raw[e]);
    if (at.dweight)
      at.dweight[(first + e) * weights.columns + (weights.columns > 1 ? head : 0)] +=
          weights.multiply ? p[e] * d[e] + at.beta * ds * raw[e] : ds;
  }
  const auto factors = [&](int64_t e, T* by) { by[0] = link[2 * e], by[1] = link[2 * e + 1]; };
  mix<T, 2>(table, lanes, from, count, keys.width, factors, to);
  return bend;
}

// One head: dK of a node.
template <typename T>
void pull_source(const Graph& g, const Table<T>& queries, int64_t head, int64_t node,
                 const T* link, T* to) {
  const int64_t first = g.out_of[node], count = g.out_of[node + 1] - first;
  const int64_t* slot = g.slot + first;
  const auto factors = [&](int64_t e, T* by) {
    by[0] = link[2 * slot[e]], by[1] = link[2 * slot[e] + 1];
  };
  mix<T, 2>(queries.head(head), queries.lanes, g.sink + first, count, queries.width, factors, to);
}

// ReLU memories of one node, each counted `keep` times (null: once).
template <typename T>
double push_relu(const T* z, const T* keep, T* out, int64_t m) {
  if (!keep) return energy::push_relu(z, out, m);
  double sum = 0;
  for (int64_t j = 0; j < m; ++j) {
    const T a = z[j] < 0 ? T(0) : z[j];
    out[j] = keep[j] * a;
    sum += double(out[j]) * double(a);
  }
  return -0.5 * sum;
}

template <typename T>
void pull_relu(const T* z, const T* c, const T* keep, T ebar, T* dz, int64_t m) {
  for (int64_t j = 0; j < m; ++j) {
    const T d = z[j] > 0 ? c[j] - ebar * z[j] : T(0);
    dz[j] = keep ? keep[j] * d : d;
  }
}

}  // namespace edges
}  // namespace lawful
