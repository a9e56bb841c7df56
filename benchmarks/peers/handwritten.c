/* The common model, searched breadth-first by code written for this model and no other; one thread.

   What a person would write by hand to be fast: a state is one 64-bit word, the sizes are constants of the
   compilation (-DN= -DR= -DV=, and -DBUG=), the states lie in one array in order of depth, which is also the queue, the
   table holds states themselves, and look-ups are done in batches whose slots were prefetched. Both grow by doubling.
   Prints one line of JSON. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef BUG
#define BUG 0
#endif

typedef uint64_t word;

enum { IDLE, PAUSE, FLUSH, UPDATE, RESUME, REBUILD };
enum { WAIT, RUN, DONE };

/* Bits of a load, of a load or none, and of an engine or none. A load is counted from 0, none is 0. */
#define LOAD_BITS (V <= 2 ? 1 : V <= 4 ? 2 : 3)
#define CACHE_BITS (V <= 1 ? 1 : V <= 3 ? 2 : 3)
#define AT_BITS (N <= 1 ? 1 : N <= 3 ? 2 : 3)
#define REQUEST_BITS (2 + AT_BITS + V)

#define TARGET_AT 0
#define PHASE_AT (TARGET_AT + LOAD_BITS)
#define DONE_AT (PHASE_AT + 3)
#define PAUSED_AT (DONE_AT + N)
#define WEIGHTS_AT(e) (PAUSED_AT + N + LOAD_BITS * (e))
#define CACHE_AT(e) (WEIGHTS_AT(N) + CACHE_BITS * (e))
#define STATUS_AT(r) (CACHE_AT(N) + REQUEST_BITS * (r))
#define ENGINE_AT(r) (STATUS_AT(r) + 2)
#define KV_AT(r) (ENGINE_AT(r) + AT_BITS)

#define ONES(n) ((1ull << (n)) - 1)
#define ALL_ENGINES ONES(N)
#define USED (1ull << 63)
#define BATCH 256
#define MOST_STEPS (R * N + R * 2 + N + 2 * N + 1)

_Static_assert(STATUS_AT(R) <= 63, "a state must leave the top bit free");

static inline word get(word s, int at, int bits) { return s >> at & ONES(bits); }
static inline word put(word s, int at, int bits, word value) { return (s & ~(ONES(bits) << at)) | value << at; }

static inline word finished(word s, int e, word following) {
  word done = get(s, DONE_AT, N) | 1ull << e;
  if (done == ALL_ENGINES) return put(put(s, DONE_AT, N, 0), PHASE_AT, 3, following);
  return put(s, DONE_AT, N, done);
}

static inline int successors(word s, word *out) {
  int n = 0;
  word paused = get(s, PAUSED_AT, N), phase = get(s, PHASE_AT, 3), target = get(s, TARGET_AT, LOAD_BITS);
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) {
    word status = get(s, STATUS_AT(r), 2), at = get(s, ENGINE_AT(r), AT_BITS);
    if (status == DONE) continue;
    if (at == 0) {
#pragma GCC unroll 4
      for (int e = 0; e < N; e++) out[n++] = put(s, ENGINE_AT(r), AT_BITS, e + 1);
      continue;
    }
    int e = (int)at - 1;
    if (paused >> e & 1) continue;
    word cache = get(s, CACHE_AT(e), CACHE_BITS);
    if (status == WAIT) {
      word kv = 1ull << get(s, WEIGHTS_AT(e), LOAD_BITS);
      if (cache) kv |= 1ull << (cache - 1);
      out[n++] = put(put(s, STATUS_AT(r), 2, RUN), KV_AT(r), V, kv);
    } else {
      if (!cache) out[n++] = put(s, CACHE_AT(e), CACHE_BITS, __builtin_ctzll(get(s, KV_AT(r), V)) + 1);
      out[n++] = put(s, STATUS_AT(r), REQUEST_BITS, DONE);
    }
  }
#pragma GCC unroll 4
  for (int e = 0; e < N; e++)
    if (!(paused >> e & 1) && get(s, CACHE_AT(e), CACHE_BITS)) out[n++] = put(s, CACHE_AT(e), CACHE_BITS, 0);
  if (phase == IDLE) {
    if (target < V - 1) out[n++] = put(put(put(s, TARGET_AT, LOAD_BITS, target + 1), PHASE_AT, 3, PAUSE), DONE_AT, N, 0);
    return n;
  }
#pragma GCC unroll 4
  for (int e = 0; e < N; e++) {
    if (get(s, DONE_AT, N) >> e & 1) continue;
    word t = s;
    switch (phase) {
    case PAUSE:
      t = put(t, PAUSED_AT + e, 1, 1);
      if (BUG != 2)
        for (int r = 0; r < R; r++)
          if (get(t, STATUS_AT(r), 2) == RUN && get(t, ENGINE_AT(r), AT_BITS) == (word)e + 1)
            t = put(put(t, STATUS_AT(r), 2, WAIT), KV_AT(r), V, 0);
      out[n++] = finished(t, e, FLUSH);
      break;
    case FLUSH:
      out[n++] = finished(put(t, CACHE_AT(e), CACHE_BITS, 0), e, UPDATE);
      if (BUG == 1) out[n++] = finished(t, e, UPDATE);
      break;
    case RESUME:
      out[n++] = finished(put(t, PAUSED_AT + e, 1, 0), e, IDLE);
      break;
    default:
      out[n++] = finished(put(t, WEIGHTS_AT(e), LOAD_BITS, target), e, RESUME);
    }
  }
  if (phase != REBUILD) {
    word t = put(put(s, PHASE_AT, 3, REBUILD), DONE_AT, N, 0);
    t = put(t, PAUSED_AT, N, ALL_ENGINES) & ~(ONES(CACHE_BITS * N) << CACHE_AT(0));
    for (int r = 0; r < R; r++)
      if (get(t, STATUS_AT(r), 2) != DONE) t = put(t, STATUS_AT(r), REQUEST_BITS, WAIT);
    out[n++] = t;
  }
  return n;
}

static inline int safe(word s) {
  word paused = get(s, PAUSED_AT, N);
  for (int e = 0; e < N; e++) {
    word cache = get(s, CACHE_AT(e), CACHE_BITS);
    if (!(paused >> e & 1) && cache && cache - 1 != get(s, WEIGHTS_AT(e), LOAD_BITS)) return 0;
  }
  for (int r = 0; r < R; r++) {
    if (get(s, STATUS_AT(r), 2) != RUN) continue;
    int e = (int)get(s, ENGINE_AT(r), AT_BITS) - 1;
    if (!(paused >> e & 1) && get(s, KV_AT(r), V) != 1ull << get(s, WEIGHTS_AT(e), LOAD_BITS)) return 0;
  }
  return 1;
}

static inline word mix(word x) {
  x = (x ^ x >> 32) * 0xD6E8FEB86659FD93ull;
  x = (x ^ x >> 29) * 0xA0761D6478BD642Full;
  return x ^ x >> 32;
}

static word *table, *states;
static word capacity, room, count;

static void *must(void *memory) {
  if (!memory) {
    fputs("handwritten: out of memory\n", stderr);
    exit(1);
  }
  return memory;
}

static void resize(word slots) {
  free(table);
  capacity = slots;
  table = must(calloc(capacity, sizeof(word)));
  for (word i = 0; i < count; i++) {
    word at = mix(states[i]) & (capacity - 1);
    while (table[at]) at = (at + 1) & (capacity - 1);
    table[at] = states[i] | USED;
  }
}

static int insert(const word *batch, int n) {
  word slots[BATCH + MOST_STEPS];
  int fine = 1;
  for (int i = 0; i < n; i++) {
    slots[i] = mix(batch[i]) & (capacity - 1);
    __builtin_prefetch(&table[slots[i]], 1, 3);
  }
  for (int i = 0; i < n; i++) {
    word at = slots[i], key = batch[i] | USED;
    while (table[at] && table[at] != key) at = (at + 1) & (capacity - 1);
    if (table[at]) continue;
    table[at] = key;
    states[count++] = batch[i];
    fine &= safe(batch[i]);
  }
  return fine;
}

int main(void) {
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  room = 1 << 16;
  states = must(malloc(room * sizeof(word)));
  resize(1 << 16);
  word batch[BATCH + MOST_STEPS], first = 0;
  word transitions = 0, from = 0, depth = 0;
  int fine = insert(&first, 1);
  for (word end = count; from < end && fine; end = count, depth += from < end) {
    int filled = 0;
    for (; from < end; from++) {
      int n = successors(states[from], batch + filled);
      transitions += (word)n;
      filled += n;
      if (filled >= BATCH || from + 1 == end) {
        if (count + (word)filled > room) {
          room *= 2;
          states = must(realloc(states, room * sizeof(word)));
        }
        if ((count + (word)filled) * 10 > capacity * 7) resize(capacity * 2);
        fine &= insert(batch, filled);
        filled = 0;
      }
    }
  }
  clock_gettime(CLOCK_MONOTONIC, &b);
  printf("{\"states\": %llu, \"transitions\": %llu, \"depth\": %llu, \"safe\": %s, \"seconds\": %.6f}\n",
         (unsigned long long)count, (unsigned long long)transitions, (unsigned long long)depth,
         fine ? "true" : "false", (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9);
  return 0;
}
