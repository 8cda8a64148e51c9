// Numbers that the tree programs are written over. One template, instantiated for
//   double, v4d, v8d   the scaled probability domain; the lanes of a vector are sentences;
//   Wide               a double with a 64-bit exponent: never under- or overflows, scalar, slow;
//   Dual<V>            a value with its directional derivative, for Hessian-vector products;
//   MaxPlus<V>         the (max, +) semiring, for best structures.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are only passed between inlined functions
#endif

namespace lawful::trees {

constexpr double kInf = std::numeric_limits<double>::infinity();

typedef double v8d __attribute__((vector_size(64)));
typedef double v4d __attribute__((vector_size(32)));
typedef int64_t v8i __attribute__((vector_size(64)));
typedef int64_t v4i __attribute__((vector_size(32)));

// ---- exponentials --------------------------------------------------------------------------

inline double exp_of(double x) { return std::exp(x); }

// Lane-wise exp to about 2e-14 relative; below exp(-707) it gives 0, above exp(707) it saturates
// (callers check the range of their results), and NaN stays NaN.
template <class V, class I>
inline V exp_lanes(V x) {
  const V low = V{} - 707.0, high = V{} + 707.0;
  V c = x < low ? low : x;
  c = c > high ? high : c;
  const V scaled = c * 1.4426950408889634;
  const I k = __builtin_convertvector(scaled + (scaled < 0.0 ? V{} - 0.5 : V{} + 0.5), I);
  const V kf = __builtin_convertvector(k, V);
  const V r = c - kf * 0.6931471805599453;
  V p = V{} + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const V power = (V)((k + 1023) << 52);  // the same bits, seen as doubles
  V y = x < low ? V{} : p * power;
  return x == x ? y : x;
}

inline v8d exp_of(v8d x) { return exp_lanes<v8d, v8i>(x); }
inline v4d exp_of(v4d x) { return exp_lanes<v4d, v4i>(x); }

// ---- wide range ----------------------------------------------------------------------------

// m * 2^(512 e) with |m| in [2^-256, 2^256) or m = 0. Sums drop a term 2^-512 below the other.
struct Wide {
  double m;
  int64_t e;
};

constexpr int64_t kZeroExponent = std::numeric_limits<int64_t>::min() / 8;
constexpr double kWideLog = 512 * 0.6931471805599453;  // 512 log 2, and what rounding left out
constexpr double kWideLogRest = 512 * 2.3190468138462996e-17;

inline Wide wide(double m, int64_t e) {
  const double size = std::fabs(m);
  if (!(size > 0.0)) return {m, m == m ? kZeroExponent : e};
  if (size >= 0x1p256) return {m * 0x1p-512, e + 1};
  if (size < 0x1p-256) return {m * 0x1p512, e - 1};
  return {m, e};
}

inline Wide operator*(Wide a, Wide b) { return wide(a.m * b.m, a.e + b.e); }
inline Wide operator/(Wide a, Wide b) { return wide(a.m / b.m, a.e - b.e); }
inline Wide operator-(Wide a) { return {-a.m, a.e}; }
inline Wide operator+(Wide a, Wide b) {
  const int64_t gap = a.e - b.e;
  if (gap == 0) return wide(a.m + b.m, a.e);
  if (gap == 1) return wide(a.m + b.m * 0x1p-512, a.e);
  if (gap == -1) return wide(a.m * 0x1p-512 + b.m, b.e);
  return gap > 0 ? a : b;
}
inline Wide operator-(Wide a, Wide b) { return a + (-b); }

inline Wide wide_exp(double x) {
  if (x == -kInf) return {0.0, kZeroExponent};
  const double q = std::floor(x / kWideLog + 0.5);
  const double r = std::fma(-q, kWideLogRest, std::fma(-q, kWideLog, x));
  return wide(std::exp(r), static_cast<int64_t>(q));
}

inline double to_double(Wide a) {
  if (a.e == 0) return a.m;
  if (a.e == -1) return a.m * 0x1p-512;
  if (a.e < 0) return a.m == a.m ? 0.0 : a.m;
  return a.m * kInf;
}

// ---- values with a tangent -----------------------------------------------------------------

template <class V>
struct Dual {
  V v, d;
};

template <class V>
inline Dual<V> operator+(Dual<V> a, Dual<V> b) { return {a.v + b.v, a.d + b.d}; }
template <class V>
inline Dual<V> operator-(Dual<V> a, Dual<V> b) { return {a.v - b.v, a.d - b.d}; }
template <class V>
inline Dual<V> operator*(Dual<V> a, Dual<V> b) { return {a.v * b.v, a.d * b.v + a.v * b.d}; }
template <class V>
inline Dual<V> operator/(Dual<V> a, Dual<V> b) {
  const V q = a.v / b.v;
  return {q, (a.d - q * b.d) / b.v};
}

// ---- best structures -----------------------------------------------------------------------

template <class V>
struct MaxPlus {
  V v;
};

template <class V>
inline MaxPlus<V> operator*(MaxPlus<V> a, MaxPlus<V> b) { return {a.v + b.v}; }
template <class V>
inline MaxPlus<V> operator+(MaxPlus<V> a, MaxPlus<V> b) { return {a.v > b.v ? a.v : b.v}; }

// ---- what the programs ask of a number -------------------------------------------------------

// Number<T>: lanes, the type X that holds scores, zero and one, a weight from a score (and the
// score's tangent), and what to write out of a lane (the tangent of a Dual).
template <class T>
struct Number;

template <class V, int W>
struct PlainNumber {
  using X = V;
  static constexpr int lanes = W;
  static constexpr bool dual = false, wide = false, tropical = false;
  static V zero() { return V{}; }
  static V one() { return V{} + 1.0; }
  static V weight(X x, X) { return exp_of(x); }
  static double value(const V& a, int lane) { return reinterpret_cast<const double*>(&a)[lane]; }
  static double out(const V& a, int lane) { return value(a, lane); }
  static double log(const V& a, int lane) { return std::log(value(a, lane)); }
};
template <>
struct Number<double> : PlainNumber<double, 1> {};
template <>
struct Number<v4d> : PlainNumber<v4d, 4> {};
template <>
struct Number<v8d> : PlainNumber<v8d, 8> {};

template <>
struct Number<Wide> {
  using X = double;
  static constexpr int lanes = 1;
  static constexpr bool dual = false, wide = true, tropical = false;
  static Wide zero() { return {0.0, kZeroExponent}; }
  static Wide one() { return {1.0, 0}; }
  static Wide weight(X x, X) { return wide_exp(x); }
  static double value(const Wide& a, int) { return to_double(a); }
  static double out(const Wide& a, int) { return to_double(a); }
  static double log(const Wide& a, int) {
    return a.m == 0.0 ? -kInf : std::log(a.m) + static_cast<double>(a.e) * kWideLog;
  }
};

template <class V>
struct Number<Dual<V>> {
  using N = Number<V>;
  using X = typename N::X;
  static constexpr int lanes = N::lanes;
  static constexpr bool dual = true, wide = N::wide, tropical = false;
  static Dual<V> zero() { return {N::zero(), N::zero()}; }
  static Dual<V> one() { return {N::one(), N::zero()}; }
  static Dual<V> weight(X x, X t) {
    const V v = N::weight(x, t);
    if constexpr (N::wide) {
      if (v.m == 0.0) return {v, v};  // a part that cannot be chosen has no gradient, even for t=inf
      return {v, v * trees::wide(t, 0)};
    } else {
      return {v, v == 0.0 ? V{} : v * t};
    }
  }
  static double value(const Dual<V>& a, int lane) { return N::value(a.v, lane); }
  static double out(const Dual<V>& a, int lane) { return N::value(a.d, lane); }
  static double log(const Dual<V>& a, int lane) { return N::log(a.v, lane); }
};

template <class V>
struct Number<MaxPlus<V>> {
  using X = V;
  static constexpr int lanes = Number<V>::lanes;
  static constexpr bool dual = false, wide = false, tropical = true;
  static MaxPlus<V> zero() { return {V{} - kInf}; }
  static MaxPlus<V> one() { return {V{}}; }
  static MaxPlus<V> weight(X x, X) { return {x}; }
  static double value(const MaxPlus<V>& a, int lane) { return Number<V>::value(a.v, lane); }
  static double out(const MaxPlus<V>& a, int lane) { return value(a, lane); }
  static double log(const MaxPlus<V>& a, int lane) { return value(a, lane); }
};

// ---- inner products --------------------------------------------------------------------------

template <class T>
inline T dot(const T* a, const T* b, int64_t n) {
  const T z = Number<T>::zero();
  T s0 = z, s1 = z, s2 = z, s3 = z;
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    s0 = s0 + a[i] * b[i];
    s1 = s1 + a[i + 1] * b[i + 1];
    s2 = s2 + a[i + 2] * b[i + 2];
    s3 = s3 + a[i + 3] * b[i + 3];
  }
  for (; i < n; ++i) s0 = s0 + a[i] * b[i];
  return (s0 + s1) + (s2 + s3);
}

// One sentence: the compiler vectorises along the span.
template <>
inline double dot<double>(const double* a, const double* b, int64_t n) {
  double s = 0.0;
  for (int64_t i = 0; i < n; ++i) s += a[i] * b[i];
  return s;
}

template <>
inline Dual<double> dot<Dual<double>>(const Dual<double>* a, const Dual<double>* b, int64_t n) {
  double v = 0.0, d = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    v += a[i].v * b[i].v;
    d += a[i].d * b[i].v + a[i].v * b[i].d;
  }
  return {v, d};
}

// ---- memory ----------------------------------------------------------------------------------

// Each thread keeps its last large block (up to 16 MiB): fresh pages cost more than small charts.
struct Spare {
  void* data = nullptr;
  size_t bytes = 0;
  ~Spare() { std::free(data); }
};

inline Spare& spare() {
  static thread_local Spare block;
  return block;
}

// Uninitialised, aligned to a cache line.
template <class T>
class Buffer {
 public:
  explicit Buffer(int64_t count)
      : bytes_((static_cast<size_t>(count > 0 ? count : 1) * sizeof(T) + 63) & ~size_t{63}) {
    Spare& kept = spare();
    if (bytes_ >= kLarge && kept.bytes >= bytes_) {
      data_ = static_cast<T*>(kept.data);
      bytes_ = kept.bytes;
      kept.data = nullptr;
      kept.bytes = 0;
    } else {
      data_ = static_cast<T*>(std::aligned_alloc(64, bytes_));
      if (!data_) throw std::bad_alloc();
    }
  }
  ~Buffer() {
    Spare& kept = spare();
    if (bytes_ < kLarge || bytes_ > kMost || bytes_ <= kept.bytes) {
      std::free(data_);
      return;
    }
    std::free(kept.data);
    kept.data = data_;
    kept.bytes = bytes_;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  T* get() const { return data_; }

 private:
  static constexpr size_t kLarge = size_t{64} << 10, kMost = size_t{16} << 20;
  size_t bytes_;
  T* data_;
};

}  // namespace lawful::trees
