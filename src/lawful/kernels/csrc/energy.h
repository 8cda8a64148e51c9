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

constexpr double kInverseFactorial[] = {
    1.0,           1.0,            1.0 / 2,         1.0 / 6,          1.0 / 24,
    1.0 / 120,     1.0 / 720,      1.0 / 5040,      1.0 / 40320,      1.0 / 362880,
    1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800,
};

// exp for arguments that are not positive (but for rounding); 0 below `lowest`, NaN stays NaN.
template <typename T>
inline Vec<T> exp_negative(Vec<T> x) {
  using IVec = typename Lane<T>::ivec;
  const Vec<T> least = splat<T>(Lane<T>::lowest);
  const Vec<T> y = x < least ? least : x;
  // Truncation toward zero of a number below one half rounds to nearest.
  const IVec n = __builtin_convertvector(y * T(1.4426950408889634074) - T(0.5), IVec);
  const Vec<T> r = y - __builtin_convertvector(n, Vec<T>) * T(0.69314718055994530942);
  Vec<T> sum = splat<T>(T(kInverseFactorial[Lane<T>::terms]));
  for (int k = Lane<T>::terms - 1; k >= 0; --k) sum = sum * r + T(kInverseFactorial[k]);
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

// Queries taken at a time, side by side in vectors; scores lie as [key][query].
template <typename T>
constexpr int64_t kQueries = 4 * kWidth<T>;

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

// Sets to -inf what the queries from `first` on may not look at.
template <typename T>
inline void exclude(const Head<T>& h, int64_t first, int64_t rows, T* s, int64_t ld) {
  const T none = -std::numeric_limits<T>::infinity();
  if (!h.self)
    for (int64_t c = 0; c < rows; ++c) s[(first + c) * ld + c] = none;
  if (h.causal)
    for (int64_t c = 0; c < rows; ++c)
      for (int64_t j = first + c + 1; j < h.n; ++j) s[j * ld + c] = none;
  if (h.allowed)
    for (int64_t c = 0; c < rows; ++c) {
      const bool* row = h.allowed + h.tokens[first + c] * h.allowed_stride;
      for (int64_t j = 0; j < h.n; ++j)
        if (!row[h.tokens[j]]) s[j * ld + c] = none;
    }
}

// Softmax over the n keys, in place, of one vector of queries; ld between keys. Writes the
// log-sum-exp; it is 0, and the weights are, for a query without any key.
template <typename T>
inline Vec<T> softmax(int64_t n, T beta, T* s, int64_t ld) {
  const Vec<T> none = splat<T>(-std::numeric_limits<T>::infinity()), zero{};
  Vec<T> top = none;
  for (int64_t j = 0; j < n; ++j) {
    const Vec<T> v = load(s + j * ld);
    top = v > top ? v : top;
  }
  const Vec<T> shift = top > none ? top : zero;
  Vec<T> sum{};
  for (int64_t start = 0; start < n; start += 32) {  // in two levels, against rounding
    const int64_t stop = start + 32 < n ? start + 32 : n;
    Vec<T> some{};
    for (int64_t j = start; j < stop; ++j) {
      const Vec<T> e = exp_negative<T>((load(s + j * ld) - shift) * beta);
      store(s + j * ld, e);
      some += e;
    }
    sum += some;
  }
  const Vec<T> inverse = sum == zero ? zero : T(1) / sum;
  for (int64_t j = 0; j < n; ++j) store(s + j * ld, load(s + j * ld) * inverse);
  Vec<T> lse;
  for (int i = 0; i < kWidth<T>; ++i)
    lse[i] = sum[i] == 0 ? T(0) : shift[i] * beta + T(std::log(sum[i]));
  return lse;
}

// Writes P K to the query columns of `out` and Pᵀ Q (0 if causal) to its key columns. Returns the
// energy. `out` may be z.
template <typename T>
double push_head(const Head<T>& h, T* out, Scratch<T>& scratch) {
  constexpr int W = kWidth<T>;
  const int64_t n = h.n, np = padded(n, W), ld = padded(h.width, W), plane = n * ld;
  scratch.reserve(4 * plane + h.width * np + n * kQueries<T> + 6 * W);
  T *q = scratch.take(plane), *k = scratch.take(plane), *qt = scratch.take(h.width * np);
  T *s = scratch.take(n * kQueries<T>), *forth = scratch.take(plane), *back = scratch.take(plane);
  gather(h, h.z, h.query_at, ld, q);
  gather(h, h.z, h.key_at, ld, k);
  transpose(h, q, ld, qt, np);
  std::memset(back, 0, plane * sizeof(T));
  double energy = 0;
  for (int64_t i = 0; i < n; i += kQueries<T>) {
    const int64_t rows = n - i < kQueries<T> ? n - i : kQueries<T>, lanes = padded(rows, W);
    multiply(n, lanes, h.width, k, ld, 1, qt + i, np, s, lanes, false);
    exclude(h, i, rows, s, lanes);
    for (int64_t c = 0; c < rows; c += W) {
      const Vec<T> lse = softmax(n, h.beta, s + c, lanes);
      for (int64_t lane = 0; lane < W && c + lane < rows; ++lane) energy -= lse[lane];
    }
    multiply(rows, ld, n, s, 1, lanes, k, ld, forth + i * ld, ld, false);
    if (!h.causal) multiply(n, ld, rows, s, lanes, 1, q + i * ld, ld, back, ld, true);
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
  const int64_t scores = n * kQueries<T>;
  scratch.reserve(8 * plane + 2 * h.width * np + 3 * scores + 13 * W);
  T *q = scratch.take(plane), *k = scratch.take(plane), *a = scratch.take(plane);
  T *b = scratch.take(plane), *dq = scratch.take(plane), *dk = scratch.take(plane);
  T *forth = scratch.take(plane), *back = scratch.take(plane);
  T *qt = scratch.take(h.width * np), *at = scratch.take(h.width * np);
  T *s = scratch.take(scores), *p = scratch.take(scores), *d = scratch.take(scores);
  gather(h, h.z, h.query_at, ld, q);
  gather(h, h.z, h.key_at, ld, k);
  gather(h, cotangent, h.query_at, ld, a);
  gather(h, cotangent, h.key_at, ld, b);
  transpose(h, q, ld, qt, np);
  transpose(h, a, ld, at, np);
  std::memset(dk, 0, plane * sizeof(T));
  std::memset(back, 0, plane * sizeof(T));
  double dbeta = 0, logs = 0;
  const Vec<T> share = splat<T>(T(ebar / double(h.beta)));
  for (int64_t i = 0; i < n; i += kQueries<T>) {
    const int64_t rows = n - i < kQueries<T> ? n - i : kQueries<T>, lanes = padded(rows, W);
    multiply(n, lanes, h.width, k, ld, 1, qt + i, np, s, lanes, false);
    multiply(n, lanes, h.width, k, ld, 1, at + i, np, d, lanes, false);
    if (!h.causal) multiply(n, lanes, h.width, b, ld, 1, qt + i, np, d, lanes, true);
    std::memcpy(p, s, n * lanes * sizeof(T));
    exclude(h, i, rows, p, lanes);
    for (int64_t c = 0; c < rows; c += W) {
      const Vec<T> lse = softmax(n, h.beta, p + c, lanes);
      Vec<T> centre{}, bend{};
      for (int64_t j = 0; j < n; ++j) centre += load(p + j * lanes + c) * load(d + j * lanes + c);
      centre += share;
      for (int64_t j = 0; j < n; ++j) {
        const int64_t at_score = j * lanes + c;
        const Vec<T> ds = load(p + at_score) * (load(d + at_score) - centre);
        bend += ds * load(s + at_score);
        store(d + at_score, ds * h.beta);
      }
      for (int64_t lane = 0; lane < W && c + lane < rows; ++lane)
        dbeta += bend[lane], logs += lse[lane];
    }
    multiply(rows, ld, n, p, 1, lanes, k, ld, forth + i * ld, ld, false);
    multiply(rows, ld, n, d, 1, lanes, k, ld, dq + i * ld, ld, false);
    multiply(n, ld, rows, d, lanes, 1, q + i * ld, ld, dk, ld, true);
    multiply(n, ld, rows, p, lanes, 1, a + i * ld, ld, dk, ld, true);
    if (!h.causal) {
      multiply(rows, ld, n, p, 1, lanes, b, ld, dq + i * ld, ld, true);
      multiply(n, ld, rows, p, lanes, 1, q + i * ld, ld, back, ld, true);
    }
  }
  scatter(h, dq, ld, dz, h.query_at);
  scatter(h, dk, ld, dz, h.key_at);
  scatter(h, forth, ld, out, h.query_at);
  scatter(h, back, ld, out, h.key_at);
  return dbeta + ebar * logs / (double(h.beta) * double(h.beta));
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

// Softmax memories of one token.
template <typename T>
double push_softmax(const T* z, T* out, int64_t m, T beta) {
  constexpr int W = kWidth<T>;
  if (m == 0) return 0;
  T top = z[0];
  for (int64_t j = 1; j < m; ++j) top = z[j] > top ? z[j] : top;
  Vec<T> sum{};
  int64_t j = 0;
  for (; j + W <= m; j += W) {
    const Vec<T> e = exp_negative<T>((load(z + j) - top) * beta);
    sum += e;
    store(out + j, e);
  }
  T tail[W];
  for (int64_t i = 0; i < W; ++i) tail[i] = i < m - j ? z[j + i] : top;
  store(tail, exp_negative<T>((load(tail) - top) * beta));
  double mass = total<T>(sum);
  for (int64_t i = 0; i < m - j; ++i) mass += out[j + i] = tail[i];
  const T inverse = T(1 / mass);
  for (j = 0; j < m; ++j) out[j] *= inverse;
  return -(double(beta) * double(top) + std::log(mass)) / double(beta);
}

// Returns the derivative with respect to β.
template <typename T>
double pull_softmax(const T* z, const T* c, double ebar, T* dz, T* out, int64_t m, T beta) {
  if (m == 0) return 0;
  const double energy = push_softmax(z, out, m, beta);
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
