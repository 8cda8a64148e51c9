// Binds sab.h and sab_backward.h to torch. The caller allocates everything; shapes are checked in Python.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <string>

#include "sab_backward.h"

namespace {

using lawful_sab::Options;
using lawful_sab::Plan;
using lawful_sab::Shape;
using torch::stable::Tensor;

template <class T>
T* data(const Tensor& t) {
  return t.numel() == 0 ? nullptr : static_cast<T*>(t.mutable_data_ptr());
}

// Rows for one thread at a time: many share the weights in cache, few share it with their memories.
int64_t block_rows(const Shape& z, size_t item) {
  const int64_t budget = (int64_t(3) << 19) / (std::max<int64_t>(z.S, 1) * z.n * int64_t(item));
  const int64_t threads = torch::stable::get_num_threads();
  const int64_t share = (z.B + threads - 1) / threads;
  int64_t rows = std::min<int64_t>(std::max<int64_t>(budget, 4), 16);
  rows -= rows % 4;
  return std::max<int64_t>(1, std::min(rows, share));
}

Shape shape_of(const Tensor& x, const Tensor& h, const Tensor& memory, const Tensor& slots,
               int64_t carried, int64_t heads, int64_t places) {
  return Shape{x.size(0), x.size(1), memory.size(1), carried, x.size(2), h.size(2), heads, places};
}

Plan plan_of(const Tensor& marks, const Tensor& steps) {
  const int64_t size = steps.numel();
  const uint8_t* m = data<uint8_t>(marks);
  return Plan{m, m + size, m + 2 * size, m + 3 * size, data<int64_t>(steps)};
}

template <class T>
Options<T> options_of(int64_t k_top, double margin, double scale, int64_t flags, int64_t bound) {
  Options<T> o;
  o.rules = {int(k_top), T(margin), (flags & 1) != 0, (flags & 2) != 0,
             lawful_sab::Small((flags >> 2) & 3)};
  o.scale = T(scale);
  o.bound = bound;
  o.full = (flags & 16) != 0;
  o.mental = (flags & 32) != 0;
  return o;
}

struct Args {
  const Tensor &input, &hidden, &bias, &key, &query, &score;
  const Tensor &x, &h0, &c0, &marks, &steps;
  const Tensor &h, &s, &hn, &cn, &memory, &keys, &exp, &stamps, &begin, &end;
  const Tensor &gates, &cells, &asked, &sums, &weights, &slots, &span, &modes;
  int64_t k_top, flags, bound, carried, heads, places;
  double margin, scale;
};

template <class T>
lawful_sab::Weights<T> weights_of(const Args& a) {
  return {data<T>(a.input), data<T>(a.hidden), data<T>(a.bias),
          data<T>(a.key),   data<T>(a.query),  data<T>(a.score)};
}

template <class T>
lawful_sab::Tensors<T> tensors_of(const Args& a) {
  return {data<T>(a.x), data<T>(a.h0), data<T>(a.c0), data<T>(a.h), data<T>(a.s), data<T>(a.hn),
          data<T>(a.cn), data<T>(a.memory), data<T>(a.keys), data<T>(a.exp),
          data<int64_t>(a.stamps), data<int64_t>(a.begin), data<int64_t>(a.end),
          {data<T>(a.gates), data<T>(a.cells), data<T>(a.asked), data<T>(a.sums),
           data<T>(a.weights), data<int32_t>(a.slots), data<int32_t>(a.span),
           data<int8_t>(a.modes)}};
}

// Runs body(first row, last row, block) over all blocks of rows.
template <class F>
void over_blocks(const Shape& z, int64_t rows, const F& body) {
  torch::stable::parallel_for(0, (z.B + rows - 1) / rows, 1, [&](int64_t from, int64_t to) {
    const lawful_sab::FlushDenormals flush;
    for (int64_t block = from; block < to; ++block)
      body(block * rows, std::min(z.B, (block + 1) * rows), block);
  });
}

template <class T>
void forward(const Args& a) {
  const Shape z = shape_of(a.x, a.h, a.memory, a.slots, a.carried, a.heads, a.places);
  const auto w = weights_of<T>(a);
  const auto o = options_of<T>(a.k_top, a.margin, a.scale, a.flags, a.bound);
  const auto t = tensors_of<T>(a);
  const Plan plan = plan_of(a.marks, a.steps);
  const lawful_sab::PackedWeights<T> packed(z, w, o);
  const int64_t rows = block_rows(z, sizeof(T));
  over_blocks(z, rows, [&](int64_t first, int64_t last, int64_t) {
    lawful_sab::Forward<T>(z, w, packed, plan, o, t, int(last - first)).run(first, last);
  });
}

template <class T>
void backward(const Args& a, const lawful_sab::Gradients<T>& g) {
  const Shape z = shape_of(a.x, a.h, a.memory, a.slots, a.carried, a.heads, a.places);
  const auto w = weights_of<T>(a);
  const auto o = options_of<T>(a.k_top, a.margin, a.scale, a.flags, a.bound);
  const auto t = tensors_of<T>(a);
  const Plan plan = plan_of(a.marks, a.steps);
  const lawful_sab::PackedTransposes<T> packed(z, w);
  const int64_t rows = block_rows(z, sizeof(T));
  over_blocks(z, rows, [&](int64_t first, int64_t last, int64_t block) {
    lawful_sab::Backward<T>(z, w, packed, plan, o, t, g, int(last - first)).run(first, last, block);
  });
}

bool is_float(const Tensor& t) { return t.scalar_type() == torch::headeronly::ScalarType::Float; }

void sab_forward(Tensor input, Tensor hidden, Tensor bias, Tensor key, Tensor query, Tensor score,
                 Tensor x, Tensor h0, Tensor c0, Tensor marks, Tensor steps, Tensor h, Tensor s,
                 Tensor hn, Tensor cn, Tensor memory, Tensor keys, Tensor exp, Tensor stamps,
                 Tensor begin, Tensor end, Tensor gates, Tensor cells, Tensor asked, Tensor sums,
                 Tensor weights, Tensor slots, Tensor span, Tensor modes, int64_t k_top,
                 int64_t flags, int64_t bound, int64_t carried, int64_t heads, int64_t places,
                 double margin, double scale) {
  const Args a{input, hidden, bias, key,  query,  score, x,     h0,    c0,    marks,
               steps, h,      s,    hn,   cn,     memory, keys, exp,   stamps, begin,
               end,   gates,  cells, asked, sums, weights, slots, span, modes, k_top,
               flags, bound,  carried, heads, places, margin, scale};
  is_float(x) ? forward<float>(a) : forward<double>(a);
}

void sab_backward(Tensor input, Tensor hidden, Tensor bias, Tensor key, Tensor query, Tensor score,
                  Tensor x, Tensor h0, Tensor c0, Tensor marks, Tensor steps, Tensor h, Tensor s,
                  Tensor memory, Tensor exp, Tensor end, Tensor gates, Tensor cells, Tensor asked,
                  Tensor sums, Tensor weights, Tensor slots, Tensor span, Tensor modes, Tensor gh,
                  Tensor gs, Tensor ghn, Tensor gcn, Tensor dgates, Tensor dquery, Tensor dmemory,
                  Tensor dkeys, Tensor dh0, Tensor dc0, Tensor dscore, Tensor live, int64_t k_top,
                  int64_t flags, int64_t bound, int64_t carried, int64_t heads, int64_t places,
                  double margin, double scale) {
  const Args a{input, hidden, bias, key,  query,  score, x,     h0,    c0,    marks,
               steps, h,      s,    h0,   c0,     memory, memory, exp, end,  end,
               end,   gates,  cells, asked, sums, weights, slots, span, modes, k_top,
               flags, bound,  carried, heads, places, margin, scale};
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    backward<T>(a, {data<T>(gh), data<T>(gs), data<T>(ghn), data<T>(gcn), data<T>(dgates),
                    data<T>(dquery), data<T>(dmemory), data<T>(dkeys), data<T>(dh0), data<T>(dc0),
                    data<T>(dscore), data<uint8_t>(live)});
  };
  is_float(x) ? run(0.0f) : run(0.0);
}

int64_t sab_blocks(Tensor x, Tensor h, Tensor memory) {
  const Shape z = shape_of(x, h, memory, memory, 0, 1, 0);
  const int64_t rows = block_rows(z, is_float(x) ? 4 : 8);
  return (z.B + rows - 1) / rows;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(lawful, m) {
  m.def(
      "sab_forward_(Tensor input, Tensor hidden, Tensor bias, Tensor key, Tensor query, "
      "Tensor score, Tensor x, Tensor h0, Tensor c0, Tensor marks, Tensor steps, Tensor(a!) h, "
      "Tensor(b!) s, Tensor(c!) hn, Tensor(d!) cn, Tensor(e!) memory, Tensor(f!) keys, "
      "Tensor(g!) exp, Tensor(h!) stamps, Tensor(i!) begin, Tensor(j!) end, Tensor(k!) gates, "
      "Tensor(l!) cells, Tensor(m!) asked, Tensor(n!) sums, Tensor(o!) weights, "
      "Tensor(p!) slots, Tensor(q!) span, Tensor(r!) modes, int k_top, int flags, int bound, "
      "int carried, int heads, int places, float margin, float scale) -> ()");
  m.def(
      "sab_backward_(Tensor input, Tensor hidden, Tensor bias, Tensor key, Tensor query, "
      "Tensor score, Tensor x, Tensor h0, Tensor c0, Tensor marks, Tensor steps, Tensor h, "
      "Tensor s, Tensor memory, Tensor exp, Tensor end, Tensor gates, Tensor cells, "
      "Tensor asked, Tensor sums, Tensor weights, Tensor slots, Tensor span, Tensor modes, "
      "Tensor gh, Tensor gs, Tensor ghn, Tensor gcn, Tensor(a!) dgates, Tensor(b!) dquery, "
      "Tensor(c!) dmemory, Tensor(d!) dkeys, Tensor(e!) dh0, Tensor(f!) dc0, Tensor(g!) dscore, "
      "Tensor(h!) live, int k_top, int flags, int bound, int carried, int heads, int places, "
      "float margin, float scale) -> ()");
  m.def("sab_blocks_(Tensor x, Tensor h, Tensor memory) -> int");
}

STABLE_TORCH_LIBRARY_IMPL(lawful, CPU, m) {
  m.impl("sab_forward_", TORCH_BOX(&sab_forward));
  m.impl("sab_backward_", TORCH_BOX(&sab_backward));
  m.impl("sab_blocks_", TORCH_BOX(&sab_blocks));
}
