// The whole sequence of an LSTM with sparse attentive backtracking, forwards and backwards, for a block
// of rows. Rows are independent: each thread runs its own from the first step to the last. No torch.
//
// All arrays are dense and row-major. n is a multiple of 16, and so is n / heads. A row's memories are
// the slots begin .. end of its log; slots carried in come first.
#pragma once
#include "sab_attention.h"

namespace lawful_sab {

struct Shape {
  int64_t B, T, S, carried, d, n, heads, K;  // S log slots, K places for selected memories
};

template <class T>
struct Weights {
  const T *input, *hidden, *bias;  // (4n, d), (4n, n), (4n): gates i, f, g, o
  const T *key, *query, *score;    // (n, n), (n, n), (n)
};

struct Plan {  // (B, T) each
  const uint8_t *active, *reset, *cut, *store;
  const int64_t* steps;
};

template <class T>
struct Options {
  Rules<T> rules;
  T scale;        // h = ĥ + scale · s
  int64_t bound;  // most memories kept, or 0
  bool full;      // credit flows through the scores into states
  bool mental;    // credit flows into recalled memories
};

// What the backward pass needs; absent (null) in inference.
template <class T>
struct Saved {
  T *gates, *cells, *query;  // (B, T, 4n) activated, (B, T, n), (B, T, n) as e^{2Q}
  T *sums, *weights;         // (B, T, heads), (B, T, heads, K)
  int32_t *slots, *span;     // (B, T, heads, K): log slot, or -1; (B, T, 2): begin, end
  int8_t* modes;             // (B, T, heads): Mode, or kOverflow
};
constexpr int8_t kOverflow = 64;  // more were selected than there are places: select again
constexpr int32_t kTied = 1 << 30;

template <class T>
struct Tensors {
  const T* x;              // (B, T, d)
  const T *h0, *c0;        // (B, n)
  T *h, *s;                // (B, T, n)
  T *hn, *cn;              // (B, n)
  T *memory, *keys, *exp;  // (B, S, n): states, W1 m, e^{2 W1 m}
  int64_t* stamps;         // (B, S)
  int64_t *begin, *end;    // (B), in and out
  Saved<T> saved;
};

template <class T>
inline void exponentials(const T* from, T* to, int64_t n) {
  for (int64_t j = 0; j < n; j += kLanes<T>) store(to + j, exponential(2 * load(from + j)));
}

template <class T>
struct PackedWeights {
  Packed<T> gates, key, query;
  Array<T> bias;
  Array<T> offset;  // Σ score of each head, for weights that are raw scores

  PackedWeights(const Shape& z, const Weights<T>& w, const Options<T>& o)
      : gates(int(z.d + z.n), int(4 * z.n),
              [&](int k, int j) {
                return k < z.d ? w.input[j * z.d + k] : w.hidden[j * z.n + (k - z.d)];
              }),
        key(int(z.n), int(z.n), [&](int k, int j) { return w.key[j * z.n + k]; }),
        query(int(z.n), int(z.n), [&](int k, int j) { return w.query[j * z.n + k]; }),
        bias(size_t(gates.width())), offset(size_t(z.heads)) {
    std::memcpy(bias.get(), w.bias, sizeof(T) * 4 * z.n);
    if (o.rules.small == Small::raw)
      for (int64_t j = 0; j < z.n; ++j) offset[j / (z.n / z.heads)] += w.score[j];
  }
};

template <class T>
class Forward {
 public:
  Forward(const Shape& z, const Weights<T>& w, const PackedWeights<T>& packed, const Plan& plan,
          const Options<T>& o, const Tensors<T>& t, int rows)
      : z_(z), w_(w), packed_(packed), plan_(plan), o_(o), t_(t), joint_(rows * (z.d + z.n)),
        gates_(size_t(rows) * packed.gates.width()), raw_(rows * z.n), cell_(rows * z.n),
        query_(size_t(rows) * packed.query.width()), scores_(z.S + 1) {}

  void run(int64_t first, int64_t last) {
    const int rows = int(last - first);
    const int64_t n = z_.n, wide = z_.d + n;
    for (int r = 0; r < rows; ++r) {
      std::memcpy(hidden(r), t_.h0 + (first + r) * n, sizeof(T) * n);
      std::memcpy(cell(r), t_.c0 + (first + r) * n, sizeof(T) * n);
      const int64_t base = (first + r) * z_.S * n;
      exponentials(t_.keys + base, t_.exp + base, z_.carried * n);
    }
    for (int64_t t = 0; t < z_.T; ++t) {
      for (int r = 0; r < rows; ++r) begin_step(first + r, r, t);
      packed_.gates.multiply(rows, joint_.get(), int(wide), gates_.get(), packed_.gates.width(),
                             packed_.bias.get());
      bool ask = false;
      for (int r = 0; r < rows; ++r) {
        if (!plan_.active[at(first + r, t)]) continue;
        lstm(first + r, r, t);
        ask = ask || t_.end[first + r] > t_.begin[first + r];
      }
      if (ask)
        packed_.query.multiply(rows, raw_.get(), int(n), query_.get(), packed_.query.width());
      for (int r = 0; r < rows; ++r) finish_step(first + r, r, t);
      remember(first, rows, t);
    }
    for (int r = 0; r < rows; ++r) {
      const int64_t used = t_.end[first + r], rest = sizeof(T) * n * (z_.S - used);
      std::memset(t_.memory + ((first + r) * z_.S + used) * n, 0, size_t(rest));
      std::memset(t_.keys + ((first + r) * z_.S + used) * n, 0, size_t(rest));
      std::memcpy(t_.hn + (first + r) * n, hidden(r), sizeof(T) * n);
      std::memcpy(t_.cn + (first + r) * n, cell(r), sizeof(T) * n);
    }
  }

 private:
  int64_t at(int64_t b, int64_t t) const { return b * z_.T + t; }
  T* hidden(int r) { return joint_.get() + r * (z_.d + z_.n) + z_.d; }
  T* cell(int r) { return cell_.get() + r * z_.n; }

  void begin_step(int64_t b, int r, int64_t t) {
    if (plan_.reset[at(b, t)]) {
      std::memset(hidden(r), 0, sizeof(T) * z_.n);
      std::memset(cell(r), 0, sizeof(T) * z_.n);
      t_.begin[b] = t_.end[b];
    }
    std::memcpy(joint_.get() + r * (z_.d + z_.n), t_.x + at(b, t) * z_.d, sizeof(T) * z_.d);
  }

  void lstm(int64_t b, int r, int64_t t) {
    const int64_t n = z_.n;
    T* g = gates_.get() + size_t(r) * packed_.gates.width();
    T *c = cell(r), *out = raw_.get() + r * n;
    T* to = t_.saved.gates == nullptr ? g : t_.saved.gates + at(b, t) * 4 * n;
    for (int64_t j = 0; j < n; j += kLanes<T>) {
      const Vec<T> i = sigmoid<T>(load(g + j)), f = sigmoid<T>(load(g + n + j));
      const Vec<T> u = tanh<T>(load(g + 2 * n + j)), o = sigmoid<T>(load(g + 3 * n + j));
      const Vec<T> next = f * load(c + j) + i * u;
      store(c + j, next);
      store(out + j, o * tanh<T>(next));
      store(to + j, i);
      store(to + n + j, f);
      store(to + 2 * n + j, u);
      store(to + 3 * n + j, o);
    }
    if (t_.saved.cells != nullptr)
      std::memcpy(t_.saved.cells + at(b, t) * n, c, sizeof(T) * n);
  }

  // Recalls, and makes h = ĥ + scale · s.
  void finish_step(int64_t b, int r, int64_t t) {
    const int64_t n = z_.n;
    T *h = t_.h + at(b, t) * n, *s = t_.s + at(b, t) * n;
    std::memset(s, 0, sizeof(T) * n);
    if (!plan_.active[at(b, t)]) {
      std::memset(h, 0, sizeof(T) * n);
      return;
    }
    const T* raw = raw_.get() + r * n;
    recall(b, r, t, s);
    T* state = hidden(r);
    for (int64_t j = 0; j < n; j += kLanes<T>) {
      const Vec<T> v = load(raw + j) + o_.scale * load(s + j);
      store(h + j, v);
      store(state + j, v);
    }
  }

  void recall(int64_t b, int r, int64_t t, T* s) {
    const int64_t n = z_.n, width = n / z_.heads, first = t_.begin[b];
    const int count = int(t_.end[b] - first);
    T* q = query_.get() + size_t(r) * packed_.query.width();
    if (count > 0) exponentials(q, q, n);
    if (t_.saved.query != nullptr) {
      if (count > 0) std::memcpy(t_.saved.query + at(b, t) * n, q, sizeof(T) * n);
      t_.saved.span[at(b, t) * 2] = int32_t(first);
      t_.saved.span[at(b, t) * 2 + 1] = int32_t(first + count);
    }
    const int64_t base = (b * z_.S + first) * n;
    for (int64_t a = 0; a < z_.heads; ++a) {
      const int64_t from = a * width;
      score_memories(t_.exp + base + from, n, q + from, w_.score + from, count, int(width),
                     packed_.offset.get()[a], scores_.get());
      pick(scores_.get(), count, o_.rules, best_, picked_);
      for (int j = 0; j < picked_.count(); ++j) {
        const T w = picked_.weight[j];
        const T* m = t_.memory + base + picked_.slot[j] * n + from;
        for (int64_t c = 0; c < width; c += kLanes<T>)
          store(s + from + c, load(s + from + c) + w * load(m + c));
      }
      if (t_.saved.slots != nullptr) keep(at(b, t) * z_.heads + a, first);
    }
  }

  void keep(int64_t place, int64_t first) {
    const int count = picked_.count();
    const bool fits = count <= z_.K;
    t_.saved.modes[place] = fits ? int8_t(picked_.mode) : kOverflow;
    t_.saved.sums[place] = picked_.sum;
    for (int64_t j = 0; j < z_.K; ++j) {
      const bool used = fits && j < count;
      int32_t slot = -1;
      if (used) slot = int32_t(picked_.slot[j] + first) | (picked_.tied[j] ? kTied : 0);
      t_.saved.slots[place * z_.K + j] = slot;
      t_.saved.weights[place * z_.K + j] = used ? picked_.weight[j] : 0;
    }
  }

  // Appends the new states of those rows whose turn it is.
  void remember(int64_t first, int rows, int64_t t) {
    const int64_t n = z_.n, wide = z_.d + n;
    bool any = false;
    for (int r = 0; r < rows; ++r) any = any || plan_.store[at(first + r, t)];
    if (!any) return;
    packed_.key.multiply(rows, hidden(0), int(wide), query_.get(), packed_.key.width());
    for (int r = 0; r < rows; ++r) {
      const int64_t b = first + r;
      if (!plan_.store[at(b, t)]) continue;
      const int64_t slot = b * z_.S + t_.end[b];
      const T* key = query_.get() + size_t(r) * packed_.key.width();
      std::memcpy(t_.memory + slot * n, hidden(r), sizeof(T) * n);
      std::memcpy(t_.keys + slot * n, key, sizeof(T) * n);
      exponentials(key, t_.exp + slot * n, n);
      t_.stamps[slot] = plan_.steps[at(b, t)];
      ++t_.end[b];
      if (o_.bound > 0 && t_.end[b] - t_.begin[b] > o_.bound) ++t_.begin[b];
    }
  }

  const Shape& z_;
  const Weights<T>& w_;
  const PackedWeights<T>& packed_;
  const Plan& plan_;
  const Options<T>& o_;
  const Tensors<T>& t_;
  Array<T> joint_, gates_, raw_, cell_, query_, scores_;  // joint: [x | h] of each row
  std::vector<T> best_;
  Picked<T> picked_;
};

}  // namespace lawful_sab
