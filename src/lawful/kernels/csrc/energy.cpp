// Binds energy.h: see kernels/energy/README.md.
#include "energy.h"

#include <optional>

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

namespace {

using lawful::energy::Head;
using lawful::energy::Scratch;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;

enum Activation : int64_t { kNone = 0, kRelu = 1, kSoftmax = 2 };

// The real tokens of each sample, one list after another.
struct Tokens {
  std::vector<int64_t> index, count;
  Tokens(const std::optional<Tensor>& mask, int64_t batch, int64_t n)
      : index(batch * n), count(batch) {
    const bool* real = mask ? static_cast<const bool*>(mask->const_data_ptr()) : nullptr;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < n; ++i)
        if (!real || real[b * n + i]) index[b * n + count[b]++] = i;
  }
};

struct Shape {
  int64_t batch, n, rows, heads, width, memories;
  bool self, causal;
  int64_t activation;
};

template <typename T>
struct Stage {
  Shape shape;
  Tokens tokens;
  const T *z, *beta;
  const bool* allowed;
  int64_t allowed_batch, allowed_head;
  T memory_beta;

  Head<T> head(int64_t task) const {
    const int64_t b = task / shape.heads, h = task % shape.heads;
    const int64_t span = shape.heads * shape.width, n = shape.n;
    Head<T> found{};
    found.z = z + b * n * shape.rows;
    found.stride = shape.rows, found.width = shape.width;
    found.query_at = h * shape.width, found.key_at = span + h * shape.width;
    found.tokens = tokens.index.data() + b * n, found.n = tokens.count[b];
    found.beta = beta[h], found.self = shape.self, found.causal = shape.causal;
    if (allowed) found.allowed = allowed + b * allowed_batch + h * allowed_head;
    found.allowed_stride = n;
    return found;
  }
  // About 100 us of arithmetic for a thread to be worth waking.
  int64_t head_grain(int64_t products) const {
    return 1 + (1 << 22) / (2 * products * shape.n * shape.n * shape.width + 1);
  }
  int64_t row_grain() const { return 1 + (1 << 17) / (shape.memories + 1); }
};

template <typename T>
Stage<T> stage(const Tensor& z, const Tensor& beta, const std::optional<Tensor>& memory_beta,
               const std::optional<Tensor>& mask, const std::optional<Tensor>& allowed,
               int64_t heads, int64_t width, bool self, bool causal, int64_t activation) {
  const int64_t batch = z.size(0), n = z.size(1), rows = z.size(2);
  Shape shape{batch, n, rows, heads, width, rows - 2 * heads * width, self, causal, activation};
  Stage<T> s{shape, Tokens(mask, batch, n), nullptr, nullptr, nullptr, 0, 0, T(1)};
  s.z = static_cast<const T*>(z.const_data_ptr());
  s.beta = static_cast<const T*>(beta.const_data_ptr());
  if (memory_beta) s.memory_beta = *static_cast<const T*>(memory_beta->const_data_ptr());
  if (allowed) {
    s.allowed = static_cast<const bool*>(allowed->const_data_ptr());
    s.allowed_head = allowed->size(1) > 1 ? n * n : 0;
    s.allowed_batch = allowed->size(0) > 1 ? allowed->size(1) * n * n : 0;
  }
  return s;
}

// Padded rows of a (batch, n, rows) buffer take no part: their activations are zero.
template <typename T>
void clear_padding(const Stage<T>& s, const std::optional<Tensor>& mask, T* out) {
  if (!mask) return;
  const bool* real = static_cast<const bool*>(mask->const_data_ptr());
  for (int64_t i = 0; i < s.shape.batch * s.shape.n; ++i)
    if (!real[i]) std::memset(out + i * s.shape.rows, 0, s.shape.rows * sizeof(T));
}

template <typename T>
void push(const Stage<T>& s, const std::optional<Tensor>& mask, Tensor& out, Tensor& head_energy,
          Tensor& token_energy) {
  const Shape& shape = s.shape;
  T* to = static_cast<T*>(out.mutable_data_ptr());
  double* by_head = static_cast<double*>(head_energy.mutable_data_ptr());
  double* by_token = static_cast<double*>(token_energy.mutable_data_ptr());
  const bool* real = mask ? static_cast<const bool*>(mask->const_data_ptr()) : nullptr;
  const int64_t n = shape.n, rows = shape.rows, memory_at = 2 * shape.heads * shape.width;
  torch::stable::parallel_for(
      0, shape.batch * shape.heads, s.head_grain(3), [&](int64_t lo, int64_t hi) {
        Scratch<T> scratch;
        for (int64_t t = lo; t < hi; ++t) {
          T* sample = to + t / shape.heads * n * rows;
          by_head[t] = lawful::energy::push_head(s.head(t), sample, scratch);
        }
      });
  torch::stable::parallel_for(0, shape.batch * n, s.row_grain(), [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      by_token[i] = 0;
      if (real && !real[i]) continue;
      const T* from = s.z + i * rows + memory_at;
      T* at = to + i * rows + memory_at;
      if (shape.activation == kRelu)
        by_token[i] = lawful::energy::push_relu(from, at, shape.memories);
      if (shape.activation == kSoftmax)
        by_token[i] =
            lawful::energy::push_softmax(from, at, shape.memories, s.memory_beta);
    }
  });
  clear_padding(s, mask, to);
}

template <typename T>
void pull(const Stage<T>& s, const std::optional<Tensor>& mask, const Tensor& c,
          const std::optional<Tensor>& ebar, Tensor& dz, Tensor& out, Tensor& dbeta,
          Tensor& dmemory_beta) {
  const Shape& shape = s.shape;
  const T* cotangent = static_cast<const T*>(c.const_data_ptr());
  const T* e = ebar ? static_cast<const T*>(ebar->const_data_ptr()) : nullptr;
  const bool* real = mask ? static_cast<const bool*>(mask->const_data_ptr()) : nullptr;
  T *d = static_cast<T*>(dz.mutable_data_ptr()), *to = static_cast<T*>(out.mutable_data_ptr());
  double* by_head = static_cast<double*>(dbeta.mutable_data_ptr());
  double* by_token = static_cast<double*>(dmemory_beta.mutable_data_ptr());
  const int64_t n = shape.n, rows = shape.rows, memory_at = 2 * shape.heads * shape.width;
  torch::stable::parallel_for(
      0, shape.batch * shape.heads, s.head_grain(9), [&](int64_t lo, int64_t hi) {
        Scratch<T> scratch;
        for (int64_t t = lo; t < hi; ++t) {
          const int64_t b = t / shape.heads, at = b * n * rows;
          by_head[t] = lawful::energy::pull_head(s.head(t), cotangent + at, e ? double(e[b]) : 0.0,
                                                 d + at, to + at, scratch);
        }
      });
  torch::stable::parallel_for(0, shape.batch * n, s.row_grain(), [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      by_token[i] = 0;
      if (real && !real[i]) continue;
      const int64_t at = i * rows + memory_at;
      const T share = e ? e[i / n] : T(0);
      if (shape.activation == kRelu)
        lawful::energy::pull_relu(s.z + at, cotangent + at, share, d + at, to + at,
                                  shape.memories);
      if (shape.activation == kSoftmax)
        by_token[i] = lawful::energy::pull_softmax(s.z + at, cotangent + at, double(share), d + at,
                                                   to + at, shape.memories, s.memory_beta);
    }
  });
  clear_padding(s, mask, d);
  clear_padding(s, mask, to);
}

void energy_push(Tensor z, Tensor out, Tensor head_energy, Tensor token_energy,
                 Tensor beta, std::optional<Tensor> memory_beta, std::optional<Tensor> mask,
                 std::optional<Tensor> allowed, int64_t heads, int64_t width, bool self,
                 bool causal, int64_t activation) {
  if (z.scalar_type() == ScalarType::Double) {
    push(stage<double>(z, beta, memory_beta, mask, allowed, heads, width, self, causal, activation),
         mask, out, head_energy, token_energy);
  } else {
    push(stage<float>(z, beta, memory_beta, mask, allowed, heads, width, self, causal, activation),
         mask, out, head_energy, token_energy);
  }
}

void energy_pull(Tensor z, Tensor c, std::optional<Tensor> ebar, Tensor dz, Tensor out,
                 Tensor dbeta, Tensor dmemory_beta, Tensor beta, std::optional<Tensor> memory_beta,
                 std::optional<Tensor> mask, std::optional<Tensor> allowed, int64_t heads,
                 int64_t width, bool self, bool causal, int64_t activation) {
  if (z.scalar_type() == ScalarType::Double) {
    pull(stage<double>(z, beta, memory_beta, mask, allowed, heads, width, self, causal, activation),
         mask, c, ebar, dz, out, dbeta, dmemory_beta);
  } else {
    pull(stage<float>(z, beta, memory_beta, mask, allowed, heads, width, self, causal, activation),
         mask, c, ebar, dz, out, dbeta, dmemory_beta);
  }
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(lawful, m) {
  m.def(
      "energy_push(Tensor z, Tensor(a!) out, Tensor(b!) head_energy, Tensor(c!) token_energy, "
      "Tensor beta, Tensor? memory_beta, Tensor? mask, Tensor? allowed, int heads, "
      "int width, bool self_attention, bool causal, int activation) -> ()");
  m.def(
      "energy_pull(Tensor z, Tensor c, Tensor? ebar, Tensor(a!) dz, Tensor(b!) out, Tensor(c!) "
      "dbeta, Tensor(d!) dmemory_beta, Tensor beta, Tensor? memory_beta, Tensor? mask, Tensor? "
      "allowed, int heads, int width, bool self_attention, bool causal, int activation) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(lawful, CPU, m) {
  m.impl("energy_push", TORCH_BOX(&energy_push));
  m.impl("energy_pull", TORCH_BOX(&energy_pull));
}
