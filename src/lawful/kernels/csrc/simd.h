// Vectors of the widest register this build has, with the few operations the kernels need.
// Plain GCC/Clang vector extensions, so that the same source serves SSE, AVX, AVX-512 and NEON.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace lawful::chain {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <class T>
struct Lane;
template <>
struct Lane<float> {
  typedef float vec __attribute__((vector_size(kVectorBytes)));
  typedef int32_t ivec __attribute__((vector_size(kVectorBytes)));
};
template <>
struct Lane<double> {
  typedef double vec __attribute__((vector_size(kVectorBytes)));
  typedef int64_t ivec __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vec = typename Lane<T>::vec;
template <class T>
using IVec = typename Lane<T>::ivec;
template <class T>
constexpr int kLanes = kVectorBytes / int(sizeof(T));

template <class T>
constexpr T kNegInf = -std::numeric_limits<T>::infinity();

template <class T>
inline Vec<T> splat(T x) {
  return x - Vec<T>{};
}
template <class T>
inline Vec<T> load(const T* p) {
  Vec<T> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
inline void store(T* p, Vec<T> v) {
  std::memcpy(p, &v, sizeof v);
}

// The first `count` lanes from memory, `rest` in the others; nothing beyond `count` is touched.
template <class T>
inline Vec<T> load_part(const T* p, int count, T rest) {
  if (count >= kLanes<T>) return load(p);
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    return (Vec<T>)_mm512_mask_loadu_ps((__m512)splat<T>(rest), __mmask16((1u << count) - 1), p);
  } else {
    return (Vec<T>)_mm512_mask_loadu_pd((__m512d)splat<T>(rest), __mmask8((1u << count) - 1), p);
  }
#else
  Vec<T> v = splat<T>(rest);
  for (int i = 0; i < count; ++i) v[i] = p[i];
  return v;
#endif
}
template <class T>
inline void store_part(T* p, int count, Vec<T> v) {
  if (count >= kLanes<T>) return store(p, v);
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    _mm512_mask_storeu_ps(p, __mmask16((1u << count) - 1), (__m512)v);
  } else {
    _mm512_mask_storeu_pd(p, __mmask8((1u << count) - 1), (__m512d)v);
  }
#else
  for (int i = 0; i < count; ++i) p[i] = v[i];
#endif
}

template <class T>
inline Vec<T> vmax(Vec<T> a, Vec<T> b) {
  return a > b ? a : b;
}

template <class T>
inline T hsum(Vec<T> v) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) return _mm512_reduce_add_ps((__m512)v);
  else return _mm512_reduce_add_pd((__m512d)v);
#else
  T s = 0;
  for (int i = 0; i < kLanes<T>; ++i) s += v[i];
  return s;
#endif
}
template <class T>
inline T hmax(Vec<T> v) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) return _mm512_reduce_max_ps((__m512)v);
  else return _mm512_reduce_max_pd((__m512d)v);
#else
  T s = v[0];
  for (int i = 1; i < kLanes<T>; ++i) s = v[i] > s ? v[i] : s;
  return s;
#endif
}

// Keeps the compiler from merging the two halves of the range reduction below, which
// -fassociative-math would allow and which would cost the low bits.
template <class V>
inline void opaque(V& v) {
#if defined(__x86_64__)
  asm("" : "+v"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#else
  asm("" : "+m"(v));
#endif
}

// exp for arguments <= 0 (and a little above): relative error below 2 ulp, exactly 0 below the
// smallest normal number and for -inf and NaN.
inline Vec<float> vexp(Vec<float> x) {
  const Vec<float> low = splat(-87.0f);
  const IVec<float> alive = x > low;
  x = alive ? x : low;
  const IVec<float> n = __builtin_convertvector(x * 1.44269504f - 0.5f, IVec<float>);
  const Vec<float> fn = __builtin_convertvector(n, Vec<float>);
  Vec<float> r = x - fn * 0.693359375f;
  opaque(r);
  r = r + fn * 2.12194440e-4f;
  Vec<float> p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const Vec<float> power = (Vec<float>)((n + 127) << 23);
  return alive ? p * power : splat(0.0f);
}
inline Vec<double> vexp(Vec<double> x) {
  const Vec<double> low = splat(-708.0);
  const IVec<double> alive = x > low;
  x = alive ? x : low;
  const IVec<double> n = __builtin_convertvector(x * 1.4426950408889634 - 0.5, IVec<double>);
  const Vec<double> fn = __builtin_convertvector(n, Vec<double>);
  Vec<double> r = x - fn * 0.693145751953125;
  opaque(r);
  r = r - fn * 1.42860682030941723212e-6;
  Vec<double> p = splat(1.0 / 6227020800.0);
  p = p * r + 1.0 / 479001600.0;
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
  p = p * (r * r) + r + 1.0;
  const Vec<double> power = (Vec<double>)((n + 1023) << 52);
  return alive ? p * power : splat(0.0);
}

}  // namespace lawful::chain
