// The way back through sab.h. Steps whose state carries no gradient are passed over. No torch here.
#pragma once
#include "sab.h"

namespace lawful_sab {

template <class T>
struct Gradients {
  const T *h, *s;    // (B, T, n), may be null
  const T *hn, *cn;  // (B, n), may be null
  T* gates;          // (B, T, 4n) before activation; written where `live`
  T* query;          // (B, T, n) at Q = W2 ĥ; written where `live`
  T *memory, *keys;  // (B, S, n), in: derivative from outside; out: the total
  T *h0, *c0;        // (B, n)
  T* score;          // (blocks, n), zero at first
  uint8_t* live;     // (B, T), zero at first: rows of `gates` and `query` that were written
};

template <class T>
struct PackedTransposes {
  Packed<T> hidden, key, query;
  PackedTransposes(const Shape& z, const Weights<T>& w)
      : hidden(int(4 * z.n), int(z.n), [&](int k, int j) { return w.hidden[k * z.n + j]; }),
        key(int(z.n), int(z.n), [&](int k, int j) { return w.key[k * z.n + j]; }),
        query(int(z.n), int(z.n), [&](int k, int j) { return w.query[k * z.n + j]; }) {}
};

// Whether any of n numbers is not zero.
template <class T>
inline bool any(const T* v, int64_t n) {
  Vec<T> sum = {};
  for (int64_t j = 0; j < n; j += kLanes<T>) {
    const Vec<T> x = load(v + j);
    sum += x < Vec<T>{} ? -x : x;
  }
  return sum_lanes(sum) != 0;  // NaN counts as some
}
template <class T>
inline void add_to(T* to, const T* from, int64_t n) {
  for (int64_t j = 0; j < n; j += kLanes<T>) store(to + j, load(to + j) + load(from + j));
}
template <class T>
inline void prefetch(const T* p, int64_t n) {
  for (int64_t j = 0; j < n; j += int64_t(64 / sizeof(T))) __builtin_prefetch(p + j);
}

template <class T>
class Backward {
 public:
  Backward(const Shape& z, const Weights<T>& w, const PackedTransposes<T>& packed, const Plan& plan,
           const Options<T>& o, const Tensors<T>& t, const Gradients<T>& g, int rows)
      : z_(z), w_(w), packed_(packed), plan_(plan), o_(o), t_(t), g_(g), dh_(rows * z.n),
        dc_(rows * z.n), ds_(z.n), in_(rows * 4 * z.n), out_(size_t(rows) * packed.hidden.width()),
        scores_(z.S + 1) {}

  void run(int64_t first, int64_t last, int64_t block) {
    first_ = first;
    rows_ = int(last - first);
    score_ = g_.score + block * z_.n;
    cursor_.assign(t_.end + first, t_.end + last);
    for (int r = 0; r < rows_; ++r) {
      start(dh(r), g_.hn, first + r);
      start(dc(r), g_.cn, first + r);
    }
    for (int64_t t = z_.T - 1; t >= 0; --t) step(t);
    for (int r = 0; r < rows_; ++r) {
      std::memcpy(g_.h0 + (first + r) * z_.n, dh(r), sizeof(T) * z_.n);
      std::memcpy(g_.c0 + (first + r) * z_.n, dc(r), sizeof(T) * z_.n);
    }
  }

 private:
  int64_t at(int r, int64_t t) const { return (first_ + r) * z_.T + t; }
  T* dh(int r) { return dh_.get() + r * z_.n; }
  T* dc(int r) { return dc_.get() + r * z_.n; }
  T* result(int j) { return out_.get() + size_t(j) * packed_.hidden.width(); }

  void start(T* to, const T* given, int64_t b) {
    if (given == nullptr) std::memset(to, 0, sizeof(T) * z_.n);
    else std::memcpy(to, given + b * z_.n, sizeof(T) * z_.n);
  }

  void step(int64_t t) {
    const int64_t n = z_.n;
    from_memories(t);
    live_.clear();
    chosen_.clear();
    for (int r = 0; r < rows_; ++r) {
      if (!plan_.active[at(r, t)] || !arrive(r, t)) continue;
      live_.push_back(r);
      if (!attention(r, t) || !o_.full) continue;
      std::memcpy(in_.get() + chosen_.size() * n, g_.query + at(r, t) * n, sizeof(T) * n);
      chosen_.push_back(r);
    }
    packed_.query.multiply(int(chosen_.size()), in_.get(), int(n), out_.get(), int(stride()));
    for (size_t j = 0; j < chosen_.size(); ++j) add_to(dh(chosen_[j]), result(int(j)), n);
    chosen_.clear();
    for (int r : live_) {
      lstm(r, t);
      if (plan_.cut[at(r, t)] || plan_.reset[at(r, t)]) {
        std::memset(dh(r), 0, sizeof(T) * n);
        std::memset(dc(r), 0, sizeof(T) * n);
        continue;
      }
      std::memcpy(in_.get() + chosen_.size() * 4 * n, g_.gates + at(r, t) * 4 * n, sizeof(T) * 4 * n);
      chosen_.push_back(r);
    }
    packed_.hidden.multiply(int(chosen_.size()), in_.get(), int(4 * n), out_.get(), int(stride()));
    for (size_t j = 0; j < chosen_.size(); ++j)
      std::memcpy(dh(chosen_[j]), result(int(j)), sizeof(T) * n);
  }

  int64_t stride() const { return packed_.hidden.width(); }

  // Credit that later steps sent to the memory made of this step's state.
  void from_memories(int64_t t) {
    const int64_t n = z_.n;
    chosen_.clear();
    for (int r = 0; r < rows_; ++r) {
      if (!plan_.store[at(r, t)]) continue;
      const int64_t slot = (first_ + r) * z_.S + --cursor_[r];
      if (!o_.mental) continue;
      add_to(dh(r), g_.memory + slot * n, n);
      if (!o_.full || !any(g_.keys + slot * n, n)) continue;
      std::memcpy(in_.get() + chosen_.size() * n, g_.keys + slot * n, sizeof(T) * n);
      chosen_.push_back(r);
    }
    packed_.key.multiply(int(chosen_.size()), in_.get(), int(n), out_.get(), int(stride()));
    for (size_t j = 0; j < chosen_.size(); ++j) add_to(dh(chosen_[j]), result(int(j)), n);
  }

  // Adds the derivative from outside; whether there is any.
  bool arrive(int r, int64_t t) {
    const int64_t n = z_.n;
    if (g_.h != nullptr) add_to(dh(r), g_.h + at(r, t) * n, n);
    const bool found = any(dh(r), n) || any(dc(r), n) ||
                       (g_.s != nullptr && any(g_.s + at(r, t) * n, n));
    g_.live[at(r, t)] = found;
    if (found && t > 0) {  // many rows make too many streams for the processor to foresee
      prefetch(t_.saved.gates + (at(r, t) - 1) * 4 * n, 4 * n);
      prefetch(t_.saved.cells + (at(r, t) - 2) * n, n);
      prefetch(t_.saved.query + (at(r, t) - 1) * n, n);
      if (g_.h != nullptr) prefetch(g_.h + (at(r, t) - 1) * n, n);
    }
    return found;
  }

  // Through the recalled sum and its weights; whether the scores had a derivative.
  bool attention(int r, int64_t t) {
    const int64_t n = z_.n, width = n / z_.heads;
    const int32_t* span = t_.saved.span + at(r, t) * 2;
    T* dq = g_.query + at(r, t) * n;
    std::memset(dq, 0, sizeof(T) * n);
    if (span[0] == span[1]) return false;
    for (int64_t j = 0; j < n; j += kLanes<T>) store(&ds_[j], o_.scale * load(dh(r) + j));
    if (g_.s != nullptr) add_to(ds_.get(), g_.s + at(r, t) * n, n);
    const int64_t base = (first_ + r) * z_.S * n;
    bool scored = false;
    for (int64_t a = 0; a < z_.heads; ++a) {
      const int64_t from = a * width;
      restore(r, t, a, span);
      grad_.resize(picked_.weight.size());
      for (int j = 0; j < picked_.count(); ++j) {
        const int64_t place = base + picked_.slot[j] * n + from;
        grad_[j] = value(t_.memory + place, g_.memory + place, ds_.get() + from, picked_.weight[j]);
      }
      weights_backward(picked_, grad_.data());
      for (int j = 0; j < picked_.count(); ++j) {
        if (grad_[j] == 0) continue;
        scored = true;
        const int64_t place = base + picked_.slot[j] * n + from;
        score(place, t_.saved.query + at(r, t) * n + from, int(from), dq + from, grad_[j]);
      }
    }
    return scored;
  }

  void restore(int r, int64_t t, int64_t head, const int32_t* span) {
    const int64_t place = at(r, t) * z_.heads + head, width = z_.n / z_.heads;
    if (t_.saved.modes[place] == kOverflow) {
      const int64_t from = ((first_ + r) * z_.S + span[0]) * z_.n + head * width;
      const int count = span[1] - span[0];
      score_memories(t_.exp + from, z_.n, t_.saved.query + at(r, t) * z_.n + head * width,
                     w_.score + head * width, count, int(width), T(0), scores_.get());
      pick(scores_.get(), count, o_.rules, best_, picked_);
      for (int& slot : picked_.slot) slot += span[0];
      return;
    }
    picked_.clear();
    picked_.mode = Mode(t_.saved.modes[place]);
    picked_.sum = t_.saved.sums[place];
    for (int64_t j = place * z_.K; j < (place + 1) * z_.K && t_.saved.slots[j] >= 0; ++j) {
      const int32_t slot = t_.saved.slots[j];
      picked_.add(slot & ~kTied, t_.saved.weights[j], (slot & kTied) != 0);
    }
  }

  // dm += w ds; returns m·ds.
  T value(const T* m, T* dm, const T* ds, T w) {
    Vec<T> sum = {};
    for (int64_t c = 0; c < z_.n / z_.heads; c += kLanes<T>) {
      const Vec<T> d = load(ds + c);
      sum += load(m + c) * d;
      store(dm + c, load(dm + c) + w * d);
    }
    return sum_lanes(sum);
  }

  // With r = 1 / (1 + E G): tanh = 1 - 2r, and its derivative 1 - tanh² = 4 r (1 - r).
  void score(int64_t place, const T* G, int from, T* dq, T grad) {
    const T* E = t_.exp + place;
    T* dk = g_.keys + place;
    for (int64_t c = 0; c < z_.n / z_.heads; c += kLanes<T>) {
      const Vec<T> x = reciprocal(1 + load(E + c) * load(G + c));
      const Vec<T> d = (grad * load(w_.score + from + c)) * (4 * x * (1 - x));
      store(score_ + from + c, load(score_ + from + c) + grad * (1 - 2 * x));
      store(dq + c, load(dq + c) + d);
      store(dk + c, load(dk + c) + d);
    }
  }

  void lstm(int r, int64_t t) {
    const int64_t n = z_.n;
    const T* g = t_.saved.gates + at(r, t) * 4 * n;
    const T* c = t_.saved.cells + at(r, t) * n;
    const T* before = t > 0 ? c - n : t_.c0 + (first_ + r) * n;
    const T keep = plan_.reset[at(r, t)] ? 0 : 1;
    T *out = g_.gates + at(r, t) * 4 * n, *h = dh(r), *carry = dc(r);
    for (int64_t j = 0; j < n; j += kLanes<T>) {
      const Vec<T> i = load(g + j), f = load(g + n + j), u = load(g + 2 * n + j);
      const Vec<T> o = load(g + 3 * n + j), tc = tanh<T>(load(c + j)), d = load(h + j);
      const Vec<T> dcell = load(carry + j) + d * o * (1 - tc * tc);
      store(out + j, dcell * u * i * (1 - i));
      store(out + n + j, dcell * (keep * load(before + j)) * f * (1 - f));
      store(out + 2 * n + j, dcell * i * (1 - u * u));
      store(out + 3 * n + j, d * tc * o * (1 - o));
      store(carry + j, dcell * f);
    }
  }

  const Shape& z_;
  const Weights<T>& w_;
  const PackedTransposes<T>& packed_;
  const Plan& plan_;
  const Options<T>& o_;
  const Tensors<T>& t_;
  const Gradients<T>& g_;
  int64_t first_ = 0;
  int rows_ = 0;
  T* score_ = nullptr;
  Array<T> dh_, dc_, ds_, in_, out_, scores_;
  std::vector<int64_t> cursor_;
  std::vector<int> live_, chosen_;
  std::vector<T> best_, grad_;
  Picked<T> picked_;
};

}  // namespace lawful_sab
