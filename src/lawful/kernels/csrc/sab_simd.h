// Vectors, exponentials and a small packed matrix product for the recurrent kernels. No torch here.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lawful_sab {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif

template <class T>
struct Simd;

template <>
struct Simd<float> {
  typedef float V __attribute__((vector_size(kBytes)));
  typedef float U __attribute__((vector_size(kBytes), aligned(4), may_alias));
  typedef int32_t I __attribute__((vector_size(kBytes)));
};

template <>
struct Simd<double> {
  typedef double V __attribute__((vector_size(kBytes)));
  typedef double U __attribute__((vector_size(kBytes), aligned(8), may_alias));
  typedef int64_t I __attribute__((vector_size(kBytes)));
};

template <class T>
constexpr int kLanes = kBytes / int(sizeof(T));

template <class T>
using Vec = typename Simd<T>::V;

template <class T>
inline Vec<T> load(const T* p) {
  return *reinterpret_cast<const typename Simd<T>::U*>(p);
}
template <class T>
inline void store(T* p, Vec<T> v) {
  *reinterpret_cast<typename Simd<T>::U*>(p) = v;
}
template <class T>
inline Vec<T> splat(T x) {
  return Vec<T>{} + x;
}
template <class T>
inline T total(Vec<T> v) {
  T sum = 0;
  for (int i = 0; i < kLanes<T>; ++i) sum += v[i];
  return sum;
}
template <class T>
inline Vec<T> clamp(Vec<T> x, T low, T high) {
  const Vec<T> l = splat<T>(low), h = splat<T>(high);
  x = x < l ? l : x;
  return x > h ? h : x;
}

// The largest exponent whose exponential, and that of its negative, are normal numbers.
template <class T>
constexpr T kExpLimit = sizeof(T) == 4 ? T(80) : T(700);

// e^x for |x| <= kExpLimit (clamped): 2^k times a polynomial on [-ln2/2, ln2/2].
inline Vec<float> exponential(Vec<float> x) {
  x = clamp<float>(x, -kExpLimit<float>, kExpLimit<float>);
  const Vec<float> y = x * 1.44269504088896341f;
  const Vec<float> half = y < Vec<float>{} ? splat(-0.5f) : splat(0.5f);
  const Simd<float>::I k = __builtin_convertvector(y + half, Simd<float>::I);
  const Vec<float> kf = __builtin_convertvector(k, Vec<float>);
  const Vec<float> r = (x - kf * 0.693359375f) + kf * 2.12194440e-4f;
  Vec<float> p = splat(1.f / 5040);
  p = p * r + 1.f / 720;
  p = p * r + 1.f / 120;
  p = p * r + 1.f / 24;
  p = p * r + 1.f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.f;
  p = p * r + 1.f;
  const Simd<float>::I bits = (k + 127) << 23;
  return p * reinterpret_cast<const Vec<float>&>(bits);
}

inline Vec<double> exponential(Vec<double> x) {
  x = clamp<double>(x, -kExpLimit<double>, kExpLimit<double>);
  const Vec<double> y = x * 1.44269504088896341;
  const Vec<double> half = y < Vec<double>{} ? splat(-0.5) : splat(0.5);
  const Simd<double>::I k = __builtin_convertvector(y + half, Simd<double>::I);
  const Vec<double> kf = __builtin_convertvector(k, Vec<double>);
  const Vec<double> r = (x - kf * 6.93145751953125e-1) - kf * 1.42860682030941723212e-6;
  constexpr double inverse[] = {1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800,
                                1. / 362880,     1. / 40320,     1. / 5040,     1. / 720,
                                1. / 120,        1. / 24,        1. / 6,        0.5,
                                1.,              1.};
  Vec<double> p = splat(inverse[0]);
  for (int i = 1; i < 14; ++i) p = p * r + inverse[i];
  const Simd<double>::I bits = (k + 1023) << 52;
  return p * reinterpret_cast<const Vec<double>&>(bits);
}

// 1 / x for positive x, to the last bit or two.
inline Vec<double> reciprocal(Vec<double> x) { return 1.0 / x; }
inline Vec<float> reciprocal(Vec<float> x) {
#if defined(__AVX512F__)
  // One Newton step from 14 bits. Infinity gives 0 (the step's NaN is not taken).
  const __m512 a = (__m512)x;
  const __m512 y = _mm512_rcp14_ps(a);
  const __m512 e = _mm512_fnmadd_ps(a, y, _mm512_set1_ps(1.f));
  const __mmask16 finite = _mm512_cmp_ps_mask(a, _mm512_set1_ps(3e38f), _CMP_LT_OQ);
  return (Vec<float>)_mm512_mask_fmadd_ps(y, finite, e, y);
#else
  return 1.0f / x;
#endif
}

template <class T>
inline Vec<T> sigmoid(Vec<T> x) {
  return reciprocal(1 + exponential(-x));
}
template <class T>
inline Vec<T> tanh(Vec<T> x) {
  return 1 - 2 * reciprocal(1 + exponential(2 * x));
}

// Heap array on a cache line, zero at first.
template <class T>
class Array {
 public:
  explicit Array(size_t size = 0) : size_(size) {
    const size_t bytes = (size * sizeof(T) + 127) / 64 * 64;
    data_ = static_cast<T*>(std::aligned_alloc(64, bytes));
    if (data_ == nullptr) throw std::bad_alloc();
    std::memset(data_, 0, bytes);
  }
  ~Array() { std::free(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  T* get() { return data_; }
  const T* get() const { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  size_t size() const { return size_; }

 private:
  size_t size_;
  T* data_;
};

// A matrix (K, N) in panels of kPanel columns, each with its rows one after the other.
template <class T>
class Packed {
 public:
  static constexpr int kPanel = 2 * kLanes<T>;

  // at(k, n) gives the entries.
  template <class F>
  Packed(int rows, int columns, F at)
      : rows_(rows), panels_((columns + kPanel - 1) / kPanel),
        data_(size_t(panels_) * kPanel * rows) {
    for (int p = 0; p < panels_; ++p)
      for (int j = 0; j < kPanel; ++j) {
        const int column = p * kPanel + j;
        if (column >= columns) continue;
        T* to = data_.get() + size_t(p) * rows * kPanel + j;
        for (int k = 0; k < rows; ++k) to[size_t(k) * kPanel] = at(k, column);
      }
  }
  // Columns with padding: the row length of results.
  int width() const { return panels_ * kPanel; }

  // C (M, width) = A (M, K) B + bias; lda, ldc are row lengths; bias has `width` entries or is null.
  void multiply(int M, const T* A, int lda, T* C, int ldc, const T* bias = nullptr) const {
    for (int p = 0; p < panels_; ++p) {
      const T* b = data_.get() + size_t(p) * rows_ * kPanel;
      const T* add = bias == nullptr ? nullptr : bias + p * kPanel;
      int m = 0;
      for (; m + 8 <= M; m += 8) tile<8>(A + size_t(m) * lda, lda, b, C + size_t(m) * ldc, ldc, p, add);
      if (m + 4 <= M) {
        tile<4>(A + size_t(m) * lda, lda, b, C + size_t(m) * ldc, ldc, p, add);
        m += 4;
      }
      if (m + 2 <= M) {
        tile<2>(A + size_t(m) * lda, lda, b, C + size_t(m) * ldc, ldc, p, add);
        m += 2;
      }
      if (m < M) tile<1>(A + size_t(m) * lda, lda, b, C + size_t(m) * ldc, ldc, p, add);
    }
  }

 private:
  template <int M>
  void tile(const T* A, int lda, const T* b, T* C, int ldc, int panel, const T* add) const {
    constexpr int L = kLanes<T>;
    Vec<T> low[M], high[M];
    for (int m = 0; m < M; ++m) {
      low[m] = add == nullptr ? Vec<T>{} : load(add);
      high[m] = add == nullptr ? Vec<T>{} : load(add + L);
    }
    for (int k = 0; k < rows_; ++k) {
      const Vec<T> x = load(b + size_t(k) * kPanel), y = load(b + size_t(k) * kPanel + L);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        const T a = A[size_t(m) * lda + k];
        low[m] += a * x;
        high[m] += a * y;
      }
    }
    for (int m = 0; m < M; ++m) {
      store(C + size_t(m) * ldc + panel * kPanel, low[m]);
      store(C + size_t(m) * ldc + panel * kPanel + L, high[m]);
    }
  }

  int rows_, panels_;
  Array<T> data_;
};

// Denormals are flushed while this lives: vanishing gradients would otherwise cost 20 times more.
class FlushDenormals {
#if defined(__x86_64__)
 public:
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040u); }
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#endif
};

}  // namespace lawful_sab
