// Binds spectral.h: see kernels/spectral/README.md.
#include "spectral.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Tiles per task, so that a task is worth waking a thread for (about 30 us of arithmetic).
int64_t grain(int64_t batch, int64_t c_out, int64_t c_in) {
  const int64_t work = batch * c_out * c_in * lawful::kTile * 8;
  return 1 + (1 << 21) / (work + 1);
}

template <typename T>
void run_apply(const Tensor& u, const Tensor& x, Tensor& y, bool adjoint) {
  const int64_t tiles = u.size(0), batch = x.size(0), c_in = x.size(1), count = x.size(2);
  const int64_t c_out = y.size(1);
  const T* up = static_cast<const T*>(u.data_ptr());
  const T* xp = static_cast<const T*>(x.data_ptr());
  T* yp = static_cast<T*>(y.data_ptr());
  torch::stable::parallel_for(0, tiles, grain(batch, c_out, c_in), [&](int64_t lo, int64_t hi) {
    if (adjoint) {
      lawful::spectral_apply_tiles<T, true>(up, xp, yp, batch, c_out, c_in, count, lo, hi);
    } else {
      lawful::spectral_apply_tiles<T, false>(up, xp, yp, batch, c_out, c_in, count, lo, hi);
    }
  });
}

template <typename T>
void run_outer(const Tensor& g, const Tensor& x, Tensor& out) {
  const int64_t tiles = out.size(0), batch = x.size(0), count = x.size(2);
  const int64_t c_out = g.size(1), c_in = x.size(1);
  const T* gp = static_cast<const T*>(g.data_ptr());
  const T* xp = static_cast<const T*>(x.data_ptr());
  T* op = static_cast<T*>(out.data_ptr());
  torch::stable::parallel_for(0, tiles, grain(batch, c_out, c_in), [&](int64_t lo, int64_t hi) {
    lawful::spectral_outer_tiles<T>(gp, xp, op, batch, c_out, c_in, count, lo, hi);
  });
}

Tensor spectral_apply(Tensor u, Tensor x, bool adjoint) {
  const int64_t c_out = adjoint ? u.size(2) : u.size(1);
  Tensor y = torch::stable::new_empty(x, {x.size(0), c_out, x.size(2), 2});
  u = torch::stable::contiguous(u);
  x = torch::stable::contiguous(x);
  if (x.scalar_type() == ScalarType::Double) {
    run_apply<double>(u, x, y, adjoint);
  } else {
    run_apply<float>(u, x, y, adjoint);
  }
  return y;
}

Tensor spectral_outer(Tensor g, Tensor x) {
  const int64_t tiles = (x.size(2) + lawful::kTile - 1) / lawful::kTile;
  Tensor out = torch::stable::new_empty(x, {tiles, g.size(1), x.size(1), 2, lawful::kTile});
  g = torch::stable::contiguous(g);
  x = torch::stable::contiguous(x);
  if (x.scalar_type() == ScalarType::Double) {
    run_outer<double>(g, x, out);
  } else {
    run_outer<float>(g, x, out);
  }
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(lawful, m) {
  m.def("spectral_apply(Tensor u, Tensor x, bool adjoint) -> Tensor");
  m.def("spectral_outer(Tensor g, Tensor x) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(lawful, CPU, m) {
  m.impl("spectral_apply", TORCH_BOX(&spectral_apply));
  m.impl("spectral_outer", TORCH_BOX(&spectral_outer));
}
