// Scores, selection and sparse weights of one row at one step, and their derivative. No torch here.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "sab_simd.h"

namespace lawful_sab {

enum class Mode : int8_t { none, excess, softmax, raw };
enum class Small : int8_t { shift, softmax, raw };

template <class T>
struct Rules {
  int k_top;
  T margin;         // added to each excess
  bool exclusive;   // the (k_top+1)-th score is the threshold, not the k_top-th
  bool softmax;     // over the k_top best, instead of the normalised excess
  Small small;      // rule while there are at most k_top memories
};

// What was selected: slots relative to the first memory, weights, and who is tied with the threshold.
template <class T>
struct Picked {
  Mode mode = Mode::none;
  T sum = 0;  // of the excesses
  std::vector<int> slot;
  std::vector<T> weight;
  std::vector<char> tied;

  void clear() {
    mode = Mode::none;
    slot.clear();
    weight.clear();
    tied.clear();
  }
  void add(int s, T w, bool t) {
    slot.push_back(s);
    weight.push_back(w);
    tied.push_back(t);
  }
  int count() const { return int(slot.size()); }
};

#if defined(__AVX512F__)
inline float sum_lanes(Vec<float> v) { return _mm512_reduce_add_ps((__m512)v); }
inline double sum_lanes(Vec<double> v) { return _mm512_reduce_add_pd((__m512d)v); }
#else
template <class V>
inline auto sum_lanes(V v) {
  auto sum = v[0];
  for (int i = 1; i < int(sizeof(v) / sizeof(sum)); ++i) sum += v[i];
  return sum;
}
#endif

// score·tanh(P + Q) for `count` memories, up to a constant, from E = e^{2P} and G = e^{2Q}:
// tanh(P + Q) = 1 - 2 / (1 + E G). `offset` adds the constant back.
template <class T>
void score_memories(const T* E, int64_t stride, const T* G, const T* score, int count, int width,
                    T offset, T* out) {
  constexpr int L = kLanes<T>, U = 4;
  int i = 0;
  for (; i + U <= count; i += U, E += U * stride) {
    Vec<T> sum[U] = {};
    for (int c = 0; c < width; c += L) {
      const Vec<T> g = load(G + c), w = load(score + c);
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) sum[u] += w * reciprocal(1 + load(E + u * stride + c) * g);
    }
    for (int u = 0; u < U; ++u) out[i + u] = offset - 2 * sum_lanes(sum[u]);
  }
  for (; i < count; ++i, E += stride) {
    Vec<T> sum = {};
    for (int c = 0; c < width; c += L)
      sum += load(score + c) * reciprocal(1 + load(E + c) * load(G + c));
    out[i] = offset - 2 * sum_lanes(sum);
  }
}

template <class T>
T kth_largest(const T* a, int count, int k, std::vector<T>& best) {
  if (k >= count) return *std::min_element(a, a + count);
  if (k > 32) {
    best.assign(a, a + count);
    std::nth_element(best.begin(), best.begin() + (k - 1), best.end(), std::greater<T>());
    return best[k - 1];
  }
  best.assign(a, a + k);
  std::sort(best.begin(), best.end(), std::greater<T>());
  for (int i = k; i < count; ++i) {
    if (!(a[i] > best[k - 1])) continue;
    int at = k - 1;
    for (; at > 0 && best[at - 1] < a[i]; --at) best[at] = best[at - 1];
    best[at] = a[i];
  }
  return best[k - 1];
}

template <class T>
int count_above(const T* a, int count, T least) {
  int n = 0;
  for (int i = 0; i < count; ++i) n += a[i] > least;
  return n;
}

// Never more than k_top: of those that equal the least, the first take the places left free.
template <class T>
void pick_softmax(const T* a, int count, T least, int k_top, Picked<T>& out) {
  out.mode = Mode::softmax;
  const T top = *std::max_element(a, a + count);
  int free = k_top - count_above(a, count, least);
  T sum = 0;
  for (int i = 0; i < count; ++i)
    if (a[i] > least || (a[i] == least && free-- > 0)) {
      out.add(i, std::exp(a[i] - top), false);
      sum += out.weight.back();
    }
  for (T& w : out.weight) w /= sum;
}

template <class T>
void pick(const T* a, int count, const Rules<T>& rules, std::vector<T>& scratch, Picked<T>& out) {
  out.clear();
  if (count == 0) return;
  const bool small = count <= rules.k_top;
  if (small && rules.small == Small::raw) {
    out.mode = Mode::raw;
    for (int i = 0; i < count; ++i) out.add(i, a[i], false);
    return;
  }
  if (rules.softmax || (small && rules.small == Small::softmax))
    return pick_softmax(a, count, kth_largest(a, count, rules.k_top, scratch), rules.k_top, out);
  const T tau = kth_largest(a, count, rules.k_top + (rules.exclusive ? 1 : 0), scratch);
  const T margin = rules.exclusive ? rules.margin : -rules.margin;
  int free = rules.exclusive ? rules.k_top - count_above(a, count, tau) : 0;
  T sum = 0;
  for (int i = 0; i < count; ++i) {
    if (a[i] < tau) continue;
    const T gap = a[i] - tau;
    const bool tied = a[i] == tau;  // it has a share in the threshold's derivative, weight or not
    T excess = gap + margin;
    if (excess < 0 || (tied && free-- <= 0)) excess = 0;
    if (!(excess > 0) && !tied) continue;
    out.add(i, excess, tied);
    sum += excess;
  }
  out.mode = Mode::excess;
  out.sum = rules.exclusive ? sum : sum + rules.margin;
  for (T& w : out.weight) w /= out.sum;
}

// From the derivative by weights to that by scores, in place. The threshold's share is divided among
// those tied with it.
template <class T>
void weights_backward(const Picked<T>& p, T* grad) {
  const int count = p.count();
  if (p.mode == Mode::raw) return;
  T mean = 0;
  for (int j = 0; j < count; ++j) mean += p.weight[j] * grad[j];
  if (p.mode == Mode::softmax) {
    for (int j = 0; j < count; ++j) grad[j] = p.weight[j] * (grad[j] - mean);
    return;
  }
  T all = 0;
  int ties = 0;
  for (int j = 0; j < count; ++j) {
    grad[j] = p.weight[j] > 0 ? (grad[j] - mean) / p.sum : T(0);
    all += grad[j];
    ties += p.tied[j];
  }
  if (ties > 0)
    for (int j = 0; j < count; ++j)
      if (p.tied[j]) grad[j] -= all / T(ties);
}

}  // namespace lawful_sab
