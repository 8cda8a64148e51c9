// z / sqrt(1 + |z|^2) on interleaved complex numbers, and its gradient; see kernels/softnorm.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cmath>
#include <cstdint>

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr int64_t kGrain = 1 << 14;

template <typename T>
void forward(const T* __restrict v, T* __restrict y, int64_t begin, int64_t end) {
  for (int64_t j = begin; j < end; ++j) {
    const T a = v[2 * j], b = v[2 * j + 1];
    const T f = T(1) / std::sqrt(T(1) + a * a + b * b);
    y[2 * j] = a * f;
    y[2 * j + 1] = b * f;
  }
}

template <typename T>
void backward(const T* __restrict v, const T* __restrict g, T* __restrict out, int64_t begin,
              int64_t end) {
  for (int64_t j = begin; j < end; ++j) {
    const T a = v[2 * j], b = v[2 * j + 1], p = g[2 * j], q = g[2 * j + 1];
    const T s = T(1) / (T(1) + a * a + b * b);
    const T f = std::sqrt(s);
    const T along = s * (a * p + b * q);
    out[2 * j] = f * (p - a * along);
    out[2 * j + 1] = f * (q - b * along);
  }
}

Tensor softnorm(Tensor v) {
  v = torch::stable::contiguous(v);
  Tensor y = torch::stable::empty_like(v);
  const bool twice = v.scalar_type() == ScalarType::Double;
  const void* from = v.data_ptr();
  void* to = y.data_ptr();
  torch::stable::parallel_for(0, v.numel() / 2, kGrain, [&](int64_t lo, int64_t hi) {
    if (twice) {
      forward(static_cast<const double*>(from), static_cast<double*>(to), lo, hi);
    } else {
      forward(static_cast<const float*>(from), static_cast<float*>(to), lo, hi);
    }
  });
  return y;
}

Tensor softnorm_backward(Tensor v, Tensor g) {
  v = torch::stable::contiguous(v);
  g = torch::stable::contiguous(g);
  Tensor out = torch::stable::empty_like(v);
  const bool twice = v.scalar_type() == ScalarType::Double;
  const void* vp = v.data_ptr();
  const void* gp = g.data_ptr();
  void* to = out.data_ptr();
  torch::stable::parallel_for(0, v.numel() / 2, kGrain, [&](int64_t lo, int64_t hi) {
    if (twice) {
      backward(static_cast<const double*>(vp), static_cast<const double*>(gp),
               static_cast<double*>(to), lo, hi);
    } else {
      backward(static_cast<const float*>(vp), static_cast<const float*>(gp),
               static_cast<float*>(to), lo, hi);
    }
  });
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(lawful, m) {
  m.def("softnorm(Tensor v) -> Tensor");
  m.def("softnorm_backward(Tensor v, Tensor g) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(lawful, CPU, m) {
  m.impl("softnorm", TORCH_BOX(&softnorm));
  m.impl("softnorm_backward", TORCH_BOX(&softnorm_backward));
}
