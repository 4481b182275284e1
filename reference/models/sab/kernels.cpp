// Fused steps of Sparse Attentive Backtracking; `scan.py` has the same steps in plain torch operations.
//
// Each thread takes its share of the batch through all steps and never waits for another. No sum crosses
// sequences, so results don't depend on the number of threads. Compiled and loaded by `kernels.py`.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

// Mirrors `Buffers` in kernels.py.
template <typename T>
struct Buffers {
    int64_t steps, batch, hidden, width, ranks, read, row_stride, capacity, shift, threads;
    int64_t start, stored;  // steps and memories before step 0
    int64_t k_att, k_trunc;  // k_trunc 0: never
    int64_t sparse, mental;  // else dense, or without reads if `dense` is null; gradient through memories
    int64_t before_read;  // what is stored: the LSTM's output, else the state with what was read
    T *gates, *cells, *hiddens, *outputs, *reads, *queries;  // [T(+1), B, ...]
    int64_t* rows;
    T *weights, *inverse;  // [T, B, row_stride], [T, B]
    T *values, *keys, *w3, *scores;  // [N, B, H], [N, B, D], [D], [B, N]
    T** dense;  // [T] addresses of weights [N, B]
    T *to_gates, *to_query, *to_key, *from_gates, *from_query, *from_key;  // weights, packed for `product`
    T denominator, margin;
    T *hidden_gradient, *read_gradient, *value_gradient, *key_gradient, *cell_gradient;
    T *phi, *scratch;  // [B, D]
};

// Memories before step t, and what happens at it; `options.py` defines the same.
template <typename T>
static inline int64_t memories(const Buffers<T>& s, int64_t t) {
    return s.stored + (s.start + t) / s.k_att - s.start / s.k_att;
}

template <typename T>
static inline bool stores(const Buffers<T>& s, int64_t t) { return (s.start + t + 1) % s.k_att == 0; }

template <typename T>
static inline bool truncates(const Buffers<T>& s, int64_t t) {
    return s.k_trunc > 0 && (s.start + t) % s.k_trunc == 0;
}

// Whether a step reads n memories; few are left to `scan.py`.
template <typename T>
static inline bool enough(const Buffers<T>& s, int64_t n) { return s.sparse ? n > s.read : n > 0 && s.dense; }

// Calls work(first, last) for each thread's sequences. Shuffled, sequences read each other: one thread.
template <typename T, typename Work>
static void share(const Buffers<T>& s, Work work) {
    const int64_t parts = s.shift ? 1 : s.threads;
#pragma omp parallel for num_threads(parts) schedule(static)
    for (int64_t part = 0; part < parts; ++part) work(s.batch * part / parts, s.batch * (part + 1) / parts);
}

template <typename T>
constexpr int64_t PANEL = 64 / sizeof(T);  // columns of a packed matrix that lie together: a cache line

// Adds R rows a times one panel [inner, PANEL] to `width` columns of c. The sums stay in registers.
template <int R, typename T>
static inline void tile(const T* __restrict__ a, const T* __restrict__ panel, T* __restrict__ c, int64_t inner,
                        int64_t columns, int64_t width) {
    T sum[R][PANEL<T>] = {};
    for (int64_t k = 0; k < inner; ++k)
        for (int r = 0; r < R; ++r) {
            const T x = a[r * inner + k];
#pragma omp simd
            for (int j = 0; j < PANEL<T>; ++j) sum[r][j] += x * panel[k * PANEL<T> + j];
        }
    for (int r = 0; r < R; ++r)
        for (int64_t j = 0; j < width; ++j) c[r * columns + j] += sum[r][j];
}

// Adds a [rows, inner] times a matrix of `columns` columns, packed by `kernels.pack`, to c.
template <typename T>
static void product(const T* a, const T* packed, T* c, int64_t rows, int64_t inner, int64_t columns) {
    for (int64_t j = 0; j < columns; j += PANEL<T>) {
        const T* panel = packed + j * inner;
        const int64_t width = std::min(PANEL<T>, columns - j);
        int64_t r = 0;
        for (; r + 6 <= rows; r += 6) tile<6>(a + r * inner, panel, c + r * columns + j, inner, columns, width);
        for (; r + 2 <= rows; r += 2) tile<2>(a + r * inner, panel, c + r * columns + j, inner, columns, width);
        for (; r < rows; ++r) tile<1>(a + r * inner, panel, c + r * columns + j, inner, columns, width);
    }
}

template <typename T>
static inline T exponential(T x) {
    using Int = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
    constexpr bool single = sizeof(T) == 4;
    constexpr T limit = single ? T(87) : T(708);
    constexpr T round = single ? T(12582912.0) : T(6755399441055744.0);  // 1.5 * 2^mantissa: rounds to integers
    constexpr T high = single ? T(0.693359375) : T(6.93145751953125e-1);
    constexpr T low = single ? T(-2.12194440e-4) : T(1.42860682030941723212e-6);
    x = std::min(std::max(x, -limit), limit);
    const T shifted = x * T(1.44269504088896340736) + round;
    const Int power = std::bit_cast<Int>(shifted) - std::bit_cast<Int>(round);
    const T whole = shifted - round;
    const T r = (x - whole * high) - whole * low;
    T p;
    if constexpr (single) {
        p = T(1.9875691500e-4);
        p = p * r + T(1.3981999507e-3);
        p = p * r + T(8.3334519073e-3);
        p = p * r + T(4.1665795894e-2);
        p = p * r + T(1.6666665459e-1);
        p = p * r + T(5.0000001201e-1);
        p = p * r * r + r + T(1);
    } else {
        p = T(1) / T(6227020800.0);
        p = p * r + T(1) / T(479001600.0);
        p = p * r + T(1) / T(39916800.0);
        p = p * r + T(1) / T(3628800.0);
        p = p * r + T(1) / T(362880.0);
        p = p * r + T(1) / T(40320.0);
        p = p * r + T(1) / T(5040.0);
        p = p * r + T(1) / T(720.0);
        p = p * r + T(1) / T(120.0);
        p = p * r + T(1) / T(24.0);
        p = p * r + T(1) / T(6.0);
        p = p * r + T(0.5);
        p = p * r * r + r + T(1);
    }
    constexpr Int bias = single ? 127 : 1023, mantissa = single ? 23 : 52;
    return p * std::bit_cast<T>(Int((power + bias) << mantissa));
}

template <typename T>
static inline T sigmoid(T x) { return T(1) / (T(1) + exponential(-x)); }

template <typename T>
static inline T hyperbolic(T x) { return T(1) - T(2) / (T(1) + exponential(x + x)); }

// Gates (output, input, forget, candidate) to activations in place; c_t and the LSTM output.
template <typename T>
static void cell_forward(const Buffers<T>& s, int64_t t, int64_t first, int64_t last) {
    const int64_t H = s.hidden, at = t * s.batch + first;
    product(s.hiddens + at * H, s.to_gates, s.gates + at * 4 * H, last - first, H, 4 * H);
    for (int64_t b = first; b < last; ++b) {
        T* __restrict__ o = s.gates + (t * s.batch + b) * 4 * H;
        T* __restrict__ i = o + H;
        T* __restrict__ f = i + H;
        T* __restrict__ g = f + H;
        const T* __restrict__ before = s.cells + (t * s.batch + b) * H;
        T* __restrict__ c = s.cells + ((t + 1) * s.batch + b) * H;
        T* __restrict__ out = s.outputs + (t * s.batch + b) * H;
        T* __restrict__ h = s.hiddens + ((t + 1) * s.batch + b) * H;
#pragma omp simd
        for (int64_t j = 0; j < H; ++j) {
            o[j] = sigmoid(o[j]);
            i[j] = sigmoid(i[j]);
            f[j] = sigmoid(f[j]);
            g[j] = hyperbolic(g[j]);
            c[j] = f[j] * before[j] + i[j] * g[j];
            h[j] = out[j] = o[j] * hyperbolic(c[j]);
        }
    }
}

// Copies what is stored of step t, with its key, e^{2 W1 m}.
template <typename T>
static void store(const Buffers<T>& s, int64_t t, int64_t first, int64_t last) {
    const int64_t H = s.hidden, D = s.width, at = memories(s, t) * s.batch;
    const T* states = s.before_read ? s.outputs + t * s.batch * H : s.hiddens + (t + 1) * s.batch * H;
    for (int64_t b = first; b < last; ++b) {
        const int64_t from = s.shift ? (b + 1) % s.batch : b;
        std::memcpy(s.values + (at + b) * H, states + from * H, H * sizeof(T));
    }
    T* __restrict__ keys = s.keys + (at + first) * D;
    const int64_t size = (last - first) * D;
    std::fill(keys, keys + size, T(0));
    product(s.values + (at + first) * H, s.to_key, keys, last - first, H, D);
#pragma omp simd
    for (int64_t j = 0; j < size; ++j) keys[j] = exponential(keys[j]);
}

// Scores of n memories of sequences first..last-1, up to a constant: -2 sum_j w3_j / (1 + e^{2p} e^{2q}).
template <typename T>
static inline void score(const Buffers<T>& s, int64_t t, int64_t n, int64_t first, int64_t last) {
    const int64_t D = s.width, at = t * s.batch + first, size = (last - first) * D;
    T* __restrict__ queries = s.queries + at * D;
    product(s.outputs + at * s.hidden, s.to_query, queries, last - first, s.hidden, D);
#pragma omp simd
    for (int64_t j = 0; j < size; ++j) queries[j] = exponential(queries[j]);
    const T* __restrict__ w = s.w3;
    for (int64_t m = 0; m < n; ++m)
        for (int64_t b = first; b < last; ++b) {
            const T* __restrict__ key = s.keys + (m * s.batch + b) * D;
            const T* __restrict__ query = s.queries + (t * s.batch + b) * D;
            T sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < D; ++j) sum += w[j] / (T(1) + key[j] * query[j]);
            s.scores[b * s.capacity + m] = T(-2) * sum;
        }
}

// Scores, the best `ranks` of them (earliest first among equals), weights, s_t and h_t.
template <typename T>
static void sparse_forward(const Buffers<T>& s, int64_t t, int64_t n, int64_t first, int64_t last) {
    const int64_t H = s.hidden, ranks = s.ranks;
    score(s, t, n, first, last);
    for (int64_t b = first; b < last; ++b) {
        const T* a = s.scores + b * s.capacity;
        int64_t* row = s.rows + (t * s.batch + b) * s.row_stride;
        T* best = s.weights + (t * s.batch + b) * s.row_stride;
        int64_t filled = 0;
        for (int64_t m = 0; m < n; ++m) {
            if (filled == ranks && !(a[m] > best[ranks - 1])) continue;
            int64_t at = filled < ranks ? filled++ : ranks - 1;
            for (; at > 0 && a[m] > best[at - 1]; --at) {
                best[at] = best[at - 1];
                row[at] = row[at - 1];
            }
            best[at] = a[m];
            row[at] = m * s.batch + b;
        }
        const T threshold = best[ranks - 1] + s.margin;
        T total = 0;
        for (int64_t k = 0; k < ranks; ++k) {
            best[k] = k < s.read ? std::max(best[k] - threshold, T(0)) : T(0);
            total += best[k];
        }
        total += s.denominator;
        const T inverse = total > 0 ? T(1) / total : T(0);
        s.inverse[t * s.batch + b] = inverse;
        T* __restrict__ read = s.reads + (t * s.batch + b) * H;
        T* __restrict__ h = s.hiddens + ((t + 1) * s.batch + b) * H;
        for (int64_t k = 0; k < s.read; ++k) {
            best[k] = total > 0 ? best[k] / total : T(0);
            const T weight = best[k];
            const T* __restrict__ value = s.values + row[k] * H;
#pragma omp simd
            for (int64_t j = 0; j < H; ++j) read[j] += weight * value[j];
        }
#pragma omp simd
        for (int64_t j = 0; j < H; ++j) h[j] += read[j];
    }
}

// Softmax over all n memories; the weights go to `weights_NB`.
template <typename T>
static void dense_forward(const Buffers<T>& s, int64_t t, int64_t n, int64_t first, int64_t last) {
    const int64_t H = s.hidden;
    T* weights_NB = s.dense[t];
    score(s, t, n, first, last);
    for (int64_t b = first; b < last; ++b) {
        T* __restrict__ a = s.scores + b * s.capacity;
        T most = a[0], total = 0;
        for (int64_t m = 1; m < n; ++m) most = std::max(most, a[m]);
#pragma omp simd reduction(+ : total)
        for (int64_t m = 0; m < n; ++m) total += a[m] = exponential(a[m] - most);
        T* __restrict__ read = s.reads + (t * s.batch + b) * H;
        T* __restrict__ h = s.hiddens + ((t + 1) * s.batch + b) * H;
        for (int64_t m = 0; m < n; ++m) {
            const T weight = weights_NB[m * s.batch + b] = a[m] / total;
            const T* __restrict__ value = s.values + (m * s.batch + b) * H;
#pragma omp simd
            for (int64_t j = 0; j < H; ++j) read[j] += weight * value[j];
        }
#pragma omp simd
        for (int64_t j = 0; j < H; ++j) h[j] += read[j];
    }
}

template <typename T>
static void forward(const Buffers<T>& s, int64_t low, int64_t high, int64_t first, int64_t last) {
    for (int64_t t = low; t < high; ++t) {
        const int64_t n = memories(s, t);
        cell_forward(s, t, first, last);
        if (enough(s, n)) {
            if (s.sparse)
                sparse_forward(s, t, n, first, last);
            else
                dense_forward(s, t, n, first, last);
        }
        if (stores(s, t)) store(s, t, first, last);
    }
}

// Adds what step t owes to the later reads of its memory to its gradient.
template <typename T>
static void remembered(const Buffers<T>& s, int64_t t, int64_t first, int64_t last) {
    if (!s.mental || !stores(s, t)) return;
    const int64_t H = s.hidden, B = s.batch, size = last - first, at = memories(s, t) * B;
    const T* keys = s.key_gradient + (at + first) * s.width;
    product(keys, s.from_key, s.value_gradient + (at + first) * H, size, s.width, H);
    for (int64_t b = first; b < last; ++b) {
        const int64_t from = s.shift ? (b + B - 1) % B : b;
        const T* __restrict__ value = s.value_gradient + (at + from) * H;
        T* __restrict__ state = s.hidden_gradient + (t * B + b) * H;
#pragma omp simd
        for (int64_t j = 0; j < H; ++j) state[j] += value[j];
    }
}

// Adds what h_t owes to step t + 1, and to its memory if h_t was stored, to its gradient.
template <typename T>
static void arrive(const Buffers<T>& s, int64_t t, int64_t first, int64_t last) {
    const int64_t H = s.hidden, B = s.batch;
    if (t + 1 < s.steps && !truncates(s, t + 1))
        product(s.gates + ((t + 1) * B + first) * 4 * H, s.from_gates, s.hidden_gradient + (t * B + first) * H,
                last - first, 4 * H, H);
    else
        std::fill(s.cell_gradient + first * H, s.cell_gradient + last * H, T(0));
    if (!s.before_read) remembered(s, t, first, last);
}

// Gradient of one pair's score, `gradient`: to key, query and phi = tanh (for w3).
template <typename T>
static inline void pair(const Buffers<T>& s, T gradient, const T* __restrict__ key, const T* __restrict__ query,
                        T* __restrict__ to_key, T* __restrict__ to_query, T* __restrict__ phi) {
    const T* __restrict__ w = s.w3;
#pragma omp simd
    for (int64_t j = 0; j < s.width; ++j) {
        const T half = T(1) / (T(1) + key[j] * query[j]);  // (1 - tanh) / 2
        const T slope = gradient * T(2) * w[j] * half * (T(1) - half);
        to_key[j] += slope;
        to_query[j] += slope;
        phi[j] += gradient * (T(1) - (half + half));
    }
}

template <typename T>
static inline T dot(const T* __restrict__ x, const T* __restrict__ y, int64_t n) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; ++j) sum += x[j] * y[j];
    return sum;
}

// Gradient of s_t to memories, keys and the query, whose gradient takes the query's place, and to the LSTM's
// output.
template <typename T>
static void read_backward(const Buffers<T>& s, int64_t t, int64_t n, int64_t first, int64_t last) {
    const int64_t H = s.hidden, D = s.width, B = s.batch;
    const bool sparse = s.sparse;
    const T* weights_NB = sparse ? nullptr : s.dense[t];
    for (int64_t b = first; b < last; ++b) {
        const int64_t at = t * B + b, count = sparse ? s.ranks : n;
        T* read = s.read_gradient + at * H;
        const T* state = s.hidden_gradient + at * H;
#pragma omp simd
        for (int64_t j = 0; j < H; ++j) read[j] += state[j];
        T* to_score = s.scores + b * std::max(s.capacity, s.row_stride);
        T mean = 0, sum = 0;
        for (int64_t k = 0; k < count; ++k) {
            const int64_t row = sparse ? s.rows[at * s.row_stride + k] : k * B + b;
            const T weight = sparse ? s.weights[at * s.row_stride + k] : weights_NB[row];
            to_score[k] = weight > 0 ? dot(s.values + row * H, read, H) : T(0);
            mean += weight * to_score[k];
        }
        for (int64_t k = 0; k < count; ++k) {
            const T weight = sparse ? s.weights[at * s.row_stride + k] : weights_NB[k * B + b];
            to_score[k] = weight > 0 ? (to_score[k] - mean) * (sparse ? s.inverse[at] : weight) : T(0);
            sum += to_score[k];
        }
        if (sparse) to_score[s.ranks - 1] -= sum;
        T* query = s.queries + at * D;
        T* to_query = s.scratch + b * D;
        std::fill(to_query, to_query + D, T(0));
        for (int64_t k = 0; k < count; ++k) {
            const int64_t row = sparse ? s.rows[at * s.row_stride + k] : k * B + b;
            const T weight = sparse ? s.weights[at * s.row_stride + k] : weights_NB[row];
            T* __restrict__ value = s.value_gradient + row * H;
#pragma omp simd
            for (int64_t j = 0; j < H; ++j) value[j] += weight * read[j];
            pair(s, to_score[k], s.keys + row * D, query, s.key_gradient + row * D, to_query, s.phi + b * D);
        }
        std::copy(to_query, to_query + D, query);
    }
    const int64_t at = t * B + first;
    product(s.queries + at * D, s.from_query, s.hidden_gradient + at * H, last - first, D, H);
}

// Gradients of the gates in their place; cell_gradient goes from c_t to c_{t-1}.
template <typename T>
static void cell_backward(const Buffers<T>& s, int64_t t, int64_t first, int64_t last) {
    const int64_t H = s.hidden;
    if (s.before_read) remembered(s, t, first, last);
    for (int64_t b = first; b < last; ++b) {
        T* __restrict__ o = s.gates + (t * s.batch + b) * 4 * H;
        T* __restrict__ i = o + H;
        T* __restrict__ f = i + H;
        T* __restrict__ g = f + H;
        const T* __restrict__ before = s.cells + (t * s.batch + b) * H;
        const T* __restrict__ c = s.cells + ((t + 1) * s.batch + b) * H;
        const T* __restrict__ state = s.hidden_gradient + (t * s.batch + b) * H;
        T* __restrict__ cell = s.cell_gradient + b * H;
#pragma omp simd
        for (int64_t j = 0; j < H; ++j) {
            const T squashed = hyperbolic(c[j]);
            const T to_cell = cell[j] + state[j] * o[j] * (T(1) - squashed * squashed);
            o[j] = state[j] * squashed * o[j] * (T(1) - o[j]);
            const T candidate = g[j];
            g[j] = to_cell * i[j] * (T(1) - candidate * candidate);
            i[j] = to_cell * candidate * i[j] * (T(1) - i[j]);
            cell[j] = to_cell * f[j];
            f[j] = to_cell * before[j] * f[j] * (T(1) - f[j]);
        }
    }
}

template <typename T>
static void backward(const Buffers<T>& s, int64_t low, int64_t high, int64_t first, int64_t last) {
    for (int64_t t = high - 1; t >= low; --t) {
        const int64_t n = memories(s, t);
        arrive(s, t, first, last);
        if (enough(s, n)) read_backward(s, t, n, first, last);
        cell_backward(s, t, first, last);
    }
}

#define EXPORT(suffix, T)                                                                                         \
    void forward_##suffix(const Buffers<T>* s, int64_t low, int64_t high) {                                       \
        share(*s, [=](int64_t first, int64_t last) { forward(*s, low, high, first, last); });                     \
    }                                                                                                             \
    void backward_##suffix(const Buffers<T>* s, int64_t low, int64_t high) {                                      \
        share(*s, [=](int64_t first, int64_t last) { backward(*s, low, high, first, last); });                    \
    }                                                                                                             \
    void cell_forward_##suffix(const Buffers<T>* s, int64_t t) { cell_forward(*s, t, 0, s->batch); }              \
    void store_##suffix(const Buffers<T>* s, int64_t t) { store(*s, t, 0, s->batch); }                            \
    void arrive_##suffix(const Buffers<T>* s, int64_t t) { arrive(*s, t, 0, s->batch); }                          \
    void cell_backward_##suffix(const Buffers<T>* s, int64_t t) { cell_backward(*s, t, 0, s->batch); }

extern "C" {
EXPORT(float32, float)
EXPORT(float64, double)
}
