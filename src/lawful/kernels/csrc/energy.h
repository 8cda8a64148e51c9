// What lies between the two matmuls of an energy step: attention of one head of one sample, and the
// memories of one token; values and derivatives. Torch-free; kernels/energy/README.md derives it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace lawful {
namespace energy {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif

template <typename T>
struct Lane;
template <>
struct Lane<float> {
  typedef float vec __attribute__((vector_size(kBytes)));
  typedef int32_t ivec __attribute__((vector_size(kBytes)));
  static constexpr int width = kBytes / 4, mantissa = 23, bias = 127, terms = 7;
  static constexpr float lowest = -87.0f;
};
template <>
struct Lane<double> {
  typedef double vec __attribute__((vector_size(kBytes)));
  typedef int64_t ivec __attribute__((vector_size(kBytes)));
  static constexpr int width = kBytes / 8, mantissa = 52, bias = 1023, terms = 13;
  static constexpr double lowest = -708.0;
};

template <typename T>
using Vec = typename Lane<T>::vec;
template <typename T>
constexpr int kWidth = Lane<T>::width;

template <typename T>
inline Vec<T> load(const T* p) {
  Vec<T> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <typename T>
inline void store(T* p, Vec<T> v) {
  std::memcpy(p, &v, sizeof v);
}
template <typename T>
inline Vec<T> splat(T x) {
  return Vec<T>{} + x;
}
template <typename T>
inline double total(Vec<T> v) {
  double sum = 0;
  for (int i = 0; i < kWidth<T>; ++i) sum += v[i];
  return sum;
}
inline int64_t padded(int64_t n, int width) { return (n + width - 1) / width * width; }

// exp for arguments that are not positive (but for rounding); 0 below `lowest`, NaN stays NaN.
template <typename T>
inline Vec<T> exp_negative(Vec<T> x) {
  using IVec = typename Lane<T>::ivec;
  const Vec<T> least = splat<T>(Lane<T>::lowest);
  const Vec<T> y = x < least ? least : x;
  // Truncation toward zero of a number below one half rounds to nearest.
  const IVec n = __builtin_convertvector(y * T(1.4426950408889634074) - T(0.5), IVec);
  const Vec<T> r = y - __builtin_convertvector(n, Vec<T>) * T(0.69314718055994530942);
  Vec<T> sum = splat<T>(1);
  for (int k = Lane<T>::terms; k > 0; --k) sum = sum * (r * T(1.0 / k)) + T(1);
  const IVec scale = (n + Lane<T>::bias) << Lane<T>::mantissa;
  Vec<T> power;
  std::memcpy(&power, &scale, sizeof power);
  return x < least ? Vec<T>{} : sum * power;
}

// C (m x n) += or = A (m x k) B (k x n); A by strides, n a multiple of the vector width.
template <typename T, int ROWS, int VECS>
inline void tile(int64_t k, const T* a, int64_t ars, int64_t acs, const T* b, int64_t ldb, T* c,
                 int64_t ldc, bool add) {
  constexpr int W = kWidth<T>;
  Vec<T> sum[ROWS][VECS];
  for (int i = 0; i < ROWS; ++i)
    for (int j = 0; j < VECS; ++j) sum[i][j] = add ? load(c + i * ldc + j * W) : Vec<T>{};
  for (int64_t p = 0; p < k; ++p) {
    Vec<T> row[VECS];
    for (int j = 0; j < VECS; ++j) row[j] = load(b + p * ldb + j * W);
    for (int i = 0; i < ROWS; ++i) {
      const T factor = a[i * ars + p * acs];
      for (int j = 0; j < VECS; ++j) sum[i][j] += factor * row[j];
    }
  }
  for (int i = 0; i < ROWS; ++i)
    for (int j = 0; j < VECS; ++j) store(c + i * ldc + j * W, sum[i][j]);
}

template <typename T, int VECS>
inline void band(int64_t m, int64_t k, const T* a, int64_t ars, int64_t acs, const T* b,
                 int64_t ldb, T* c, int64_t ldc, bool add) {
  int64_t i = 0;
  for (; i + 6 <= m; i += 6)
    tile<T, 6, VECS>(k, a + i * ars, ars, acs, b, ldb, c + i * ldc, ldc, add);
  for (; i + 2 <= m; i += 2)
    tile<T, 2, VECS>(k, a + i * ars, ars, acs, b, ldb, c + i * ldc, ldc, add);
  for (; i < m; ++i) tile<T, 1, VECS>(k, a + i * ars, ars, acs, b, ldb, c + i * ldc, ldc, add);
}

template <typename T>
inline void multiply(int64_t m, int64_t n, int64_t k, const T* a, int64_t ars, int64_t acs,
                     const T* b, int64_t ldb, T* c, int64_t ldc, bool add) {
  constexpr int W = kWidth<T>;
  int64_t j = 0;
  for (; j + 4 * W <= n; j += 4 * W) band<T, 4>(m, k, a, ars, acs, b + j, ldb, c + j, ldc, add);
  for (; j + 2 * W <= n; j += 2 * W) band<T, 2>(m, k, a, ars, acs, b + j, ldb, c + j, ldc, add);
  for (; j < n; j += W) band<T, 1>(m, k, a, ars, acs, b + j, ldb, c + j, ldc, add);
}

// One head of one sample. `tokens` lists its real tokens; rows of z lie `stride` apart.
template <typename T>
struct Head {
  const T* z;
  int64_t stride, query_at, key_at, width;
  const int64_t* tokens;
  int64_t n;
  T beta;
  bool self, causal;
  const bool* allowed;  // at [query * allowed_stride + key], or null
  int64_t allowed_stride;
};

constexpr int64_t kQueries = 48;  // queries taken at a time: a multiple of the tile's rows

template <typename T>
struct Scratch {
  std::vector<T> memory;
  T* take(int64_t count) {
    T* found = memory.data() + used;
    used += padded(count, kWidth<T>);
    return found;
  }
  void reserve(int64_t count) {
    if (int64_t(memory.size()) < count) memory.resize(count);
    used = 0;
  }
  int64_t used = 0;
};

template <typename T>
inline void gather(const Head<T>& h, const T* from, int64_t at, int64_t ld, T* to) {
  for (int64_t i = 0; i < h.n; ++i) {
    const T* row = from + h.tokens[i] * h.stride + at;
    std::memcpy(to + i * ld, row, h.width * sizeof(T));
    for (int64_t y = h.width; y < ld; ++y) to[i * ld + y] = 0;
  }
}

template <typename T>
inline void scatter(const Head<T>& h, const T* from, int64_t ld, T* to, int64_t at) {
  for (int64_t i = 0; i < h.n; ++i)
    std::memcpy(to + h.tokens[i] * h.stride + at, from + i * ld, h.width * sizeof(T));
}

// (n x ld) to (width x np), zero beyond n.
template <typename T>
inline void transpose(const Head<T>& h, const T* from, int64_t ld, T* to, int64_t np) {
  for (int64_t y = 0; y < h.width; ++y) {
    T* row = to + y * np;
    for (int64_t i = 0; i < h.n; ++i) row[i] = from[i * ld + y];
    for (int64_t i = h.n; i < np; ++i) row[i] = 0;
  }
}

// Softmax of one query's scores s (np) into p (np; may be s); returns the log-sum-exp, 0 and a zero
// row when the query has no key.
template <typename T>
inline double softmax_row(const Head<T>& h, int64_t c, int64_t np, const T* s, T* p) {
  constexpr int W = kWidth<T>;
  const T none = -std::numeric_limits<T>::infinity();
  if (p != s) std::memcpy(p, s, np * sizeof(T));
  for (int64_t j = h.n; j < np; ++j) p[j] = none;
  if (!h.self) p[c] = none;
  if (h.causal)
    for (int64_t j = c + 1; j < h.n; ++j) p[j] = none;
  if (h.allowed) {
    const bool* row = h.allowed + h.tokens[c] * h.allowed_stride;
    for (int64_t j = 0; j < h.n; ++j)
      if (!row[h.tokens[j]]) p[j] = none;
  }
  Vec<T> top = splat<T>(none);
  for (int64_t j = 0; j < np; j += W) {
    const Vec<T> v = load(p + j);
    top = v > top ? v : top;
  }
  T most = none;
  for (int i = 0; i < W; ++i) most = top[i] > most ? top[i] : most;
  if (most == none) {
    // No key, or nothing but NaN, which must come out again.
    bool sick = false;
    for (int64_t j = 0; j < h.n; ++j) sick |= p[j] != p[j];
    const T fill = sick ? std::numeric_limits<T>::quiet_NaN() : T(0);
    for (int64_t j = 0; j < np; ++j) p[j] = j < h.n ? fill : T(0);
    return fill;
  }
  Vec<T> sum{};
  for (int64_t j = 0; j < np; j += W) {
    const Vec<T> e = exp_negative<T>((load(p + j) - most) * h.beta);
    store(p + j, e);
    sum += e;
  }
  const double mass = total<T>(sum);
  const T inverse = T(1 / mass);
  for (int64_t j = 0; j < np; j += W) store(p + j, load(p + j) * inverse);
  return double(h.beta) * double(most) + std::log(mass);
}

// Writes P K to the query columns of `out` and Pᵀ Q (0 if causal) to its key columns; lse (n) by
// token. Returns the energy. `out` may be z.
template <typename T>
double push_head(const Head<T>& h, T* out, T* lse, Scratch<T>& scratch) {
  constexpr int W = kWidth<T>;
  const int64_t n = h.n, np = padded(n, W), ld = padded(h.width, W);
  scratch.reserve(4 * n * ld + (h.width + kQueries) * np + 8 * W);
  T *q = scratch.take(n * ld), *k = scratch.take(n * ld), *kt = scratch.take(h.width * np);
  T *s = scratch.take(kQueries * np), *forth = scratch.take(n * ld), *back = scratch.take(n * ld);
  gather(h, h.z, h.query_at, ld, q);
  gather(h, h.z, h.key_at, ld, k);
  transpose(h, k, ld, kt, np);
  std::memset(back, 0, n * ld * sizeof(T));
  double energy = 0;
  for (int64_t i = 0; i < n; i += kQueries) {
    const int64_t rows = n - i < kQueries ? n - i : kQueries;
    multiply(rows, np, h.width, q + i * ld, ld, 1, kt, np, s, np, false);
    for (int64_t c = 0; c < rows; ++c) {
      const double value = softmax_row(h, i + c, np, s + c * np, s + c * np);
      lse[h.tokens[i + c]] = T(value);
      energy -= value;
    }
    multiply(rows, ld, n, s, np, 1, k, ld, forth + i * ld, ld, false);
    if (!h.causal) multiply(n, ld, rows, s, 1, np, q + i * ld, ld, back, ld, true);
  }
  scatter(h, forth, ld, out, h.query_at);
  scatter(h, back, ld, out, h.key_at);
  return energy / double(h.beta);
}

// Derivative of <c, activations(z)> + ebar * energy(z) with respect to z (into dz) and to β
// (returned), and the activations again (into out). c, dz and out are laid out like z.
template <typename T>
double pull_head(const Head<T>& h, const T* cotangent, double ebar, T* dz, T* out,
                 Scratch<T>& scratch) {
  constexpr int W = kWidth<T>;
  const int64_t n = h.n, np = padded(n, W), ld = padded(h.width, W), plane = n * ld;
  scratch.reserve(8 * plane + (2 * h.width + 3 * kQueries) * np + 13 * W);
  T *q = scratch.take(plane), *k = scratch.take(plane), *a = scratch.take(plane);
  T *b = scratch.take(plane), *dq = scratch.take(plane), *dk = scratch.take(plane);
  T *forth = scratch.take(plane), *back = scratch.take(plane);
  T *kt = scratch.take(h.width * np), *bt = scratch.take(h.width * np);
  T *s = scratch.take(kQueries * np), *p = scratch.take(kQueries * np);
  T* d = scratch.take(kQueries * np);
  gather(h, h.z, h.query_at, ld, q);
  gather(h, h.z, h.key_at, ld, k);
  gather(h, cotangent, h.query_at, ld, a);
  gather(h, cotangent, h.key_at, ld, b);
  transpose(h, k, ld, kt, np);
  if (!h.causal) transpose(h, b, ld, bt, np);
  std::memset(dk, 0, plane * sizeof(T));
  std::memset(back, 0, plane * sizeof(T));
  double dbeta = 0;
  const T share = T(ebar / double(h.beta));
  for (int64_t i = 0; i < n; i += kQueries) {
    const int64_t rows = n - i < kQueries ? n - i : kQueries;
    multiply(rows, np, h.width, q + i * ld, ld, 1, kt, np, s, np, false);
    multiply(rows, np, h.width, a + i * ld, ld, 1, kt, np, d, np, false);
    if (!h.causal) multiply(rows, np, h.width, q + i * ld, ld, 1, bt, np, d, np, true);
    for (int64_t c = 0; c < rows; ++c) {
      T *prob = p + c * np, *slope = d + c * np, *score = s + c * np;
      const double lse = softmax_row(h, i + c, np, score, prob);
      Vec<T> sum{};
      for (int64_t j = 0; j < np; j += W) sum += load(prob + j) * load(slope + j);
      const T centre = T(total<T>(sum)) + share;
      Vec<T> bend{};
      for (int64_t j = 0; j < np; j += W) {
        const Vec<T> ds = load(prob + j) * (load(slope + j) - centre);
        bend += ds * load(score + j);
        store(slope + j, ds * h.beta);
      }
      dbeta += total<T>(bend) + ebar * lse / (double(h.beta) * double(h.beta));
    }
    multiply(rows, ld, n, p, np, 1, k, ld, forth + i * ld, ld, false);
    multiply(rows, ld, n, d, np, 1, k, ld, dq + i * ld, ld, false);
    multiply(n, ld, rows, d, 1, np, q + i * ld, ld, dk, ld, true);
    multiply(n, ld, rows, p, 1, np, a + i * ld, ld, dk, ld, true);
    if (!h.causal) {
      multiply(rows, ld, n, p, np, 1, b, ld, dq + i * ld, ld, true);
      multiply(n, ld, rows, p, 1, np, q + i * ld, ld, back, ld, true);
    }
  }
  scatter(h, dq, ld, dz, h.query_at);
  scatter(h, dk, ld, dz, h.key_at);
  scatter(h, forth, ld, out, h.query_at);
  scatter(h, back, ld, out, h.key_at);
  return dbeta;
}

// ReLU memories of one token: activations, and their energy -½ Σ relu².
template <typename T>
double push_relu(const T* z, T* out, int64_t m) {
  constexpr int W = kWidth<T>;
  Vec<T> sum{};
  int64_t j = 0;
  for (; j + W <= m; j += W) {
    const Vec<T> v = load(z + j);
    const Vec<T> a = v < Vec<T>{} ? Vec<T>{} : v;
    sum += a * a;
    store(out + j, a);
  }
  double rest = 0;
  for (; j < m; ++j) {
    const T a = z[j] < 0 ? T(0) : z[j];
    rest += double(a) * a;
    out[j] = a;
  }
  return -0.5 * (total<T>(sum) + rest);
}

template <typename T>
void pull_relu(const T* z, const T* c, T ebar, T* dz, T* out, int64_t m) {
  constexpr int W = kWidth<T>;
  const Vec<T> zero{};
  int64_t j = 0;
  for (; j + W <= m; j += W) {
    const Vec<T> v = load(z + j);
    store(dz + j, v > zero ? load(c + j) - ebar * v : zero);
    store(out + j, v < zero ? zero : v);
  }
  for (; j < m; ++j) {
    const T v = z[j];
    dz[j] = v > 0 ? c[j] - ebar * v : T(0);
    out[j] = v < 0 ? T(0) : v;
  }
}

// Softmax memories of one token, with the row in `row` (m, padded).
template <typename T>
double push_softmax(const T* z, T* out, int64_t m, T beta, Scratch<T>& scratch) {
  if (m == 0) return 0;
  const int64_t zero = 0, mp = padded(m, kWidth<T>);
  scratch.reserve(mp + kWidth<T>);
  T* row = scratch.take(mp);
  std::memcpy(row, z, m * sizeof(T));
  Head<T> h{};
  h.tokens = &zero, h.n = m, h.beta = beta, h.self = true;
  const double lse = softmax_row(h, 0, mp, row, row);
  std::memcpy(out, row, m * sizeof(T));
  return -lse / double(beta);
}

// Returns the derivative with respect to β.
template <typename T>
double pull_softmax(const T* z, const T* c, double ebar, T* dz, T* out, int64_t m, T beta,
                    Scratch<T>& scratch) {
  if (m == 0) return 0;
  const double energy = push_softmax(z, out, m, beta, scratch);
  double centre = 0, slope = 0, mean = 0;
  for (int64_t j = 0; j < m; ++j) centre += double(out[j]) * c[j], mean += double(out[j]) * z[j];
  for (int64_t j = 0; j < m; ++j) {
    const T bent = T(out[j] * (c[j] - centre));
    slope += double(bent) * z[j];
    dz[j] = T(beta * bent - ebar * out[j]);
  }
  return slope - ebar * (energy + mean) / double(beta);
}

}  // namespace energy
}  // namespace lawful
