// The loops of bernoulli.cc, which includes this file once per set of vector instructions, between
// pragmas that enable them, in a namespace with kLanes and CompareSome.

using Words = uint32_t __attribute__((vector_size(kLanes * sizeof(uint32_t))));

GENESIS_INLINE Words Load(const uint32_t* words) {
  Words loaded;
  std::memcpy(&loaded, words, sizeof(loaded));
  return loaded;
}
GENESIS_INLINE void Store(Words words, uint32_t* to) { std::memcpy(to, &words, sizeof(words)); }

template <typename Word>
GENESIS_INLINE Word Twist(Word left, Word right) {
  const Word mixed = (left & at::UMASK) | (right & at::LMASK);
  return (mixed >> 1) ^ ((right & 1) * at::MATRIX_A);
}

// Updates `count` words from `begin` on: words[i] from itself, words[i + distance] and
// words[i + 1].
void Renew(uint32_t* words, int begin, int count, int distance) {
  int i = begin;
  for (; i + kLanes <= begin + count; i += kLanes) {
    Store(Load(words + i + distance) ^ Twist(Load(words + i), Load(words + i + 1)), words + i);
  }
  for (; i < begin + count; ++i) words[i] = words[i + distance] ^ Twist(words[i], words[i + 1]);
}

void Renew(std::array<uint32_t, kState>& state) {
  uint32_t* const words = state.data();
  Renew(words, 0, kState - kShift, kShift);
  Renew(words, kState - kShift, kShift - 1, kShift - kState);
  words[kState - 1] = words[kShift - 1] ^ Twist(words[kState - 1], words[0]);
}

template <typename Word>
GENESIS_INLINE Word Tempered(Word word) {
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680;
  word ^= (word << 15) & 0xefc60000;
  return word ^ (word >> 18);
}

// Writes the next `count` numbers of the generator.
void Draw(at::mt19937_data_pod& twister, uint32_t* out, int count) {
  while (count > 0) {
    if (twister.left_ == 1) {
      Renew(twister.state_);
      twister.left_ = kState + 1;
      twister.next_ = 0;
    }
    const int some = std::min(count, twister.left_ - 1);
    const uint32_t* const from = twister.state_.data() + twister.next_;
    int i = 0;
    for (; i + kLanes <= some; i += kLanes) Store(Tempered(Load(from + i)), out + i);
    for (; i < some; ++i) out[i] = Tempered(from[i]);
    twister.left_ -= some;
    twister.next_ += static_cast<uint32_t>(some);
    out += some;
    count -= some;
  }
}

template <typename T>
void Compare(const uint32_t* drawn, uint64_t bound, T* out, int count) {
  int i = 0;
  if constexpr (!std::is_same_v<T, c10::BFloat16>) {
    for (; i + kLanes / 2 <= count; i += kLanes / 2) CompareSome(drawn + 2 * i, bound, out + i);
  }
  for (; i < count; ++i) {
    const uint64_t both = uint64_t{drawn[2 * i]} << 32 | drawn[2 * i + 1];
    out[i] = static_cast<T>((both & kBits) < bound);
  }
}

template <typename T>
void Fill(at::mt19937_data_pod& twister, uint64_t bound, T* out, int64_t count) {
  std::array<uint32_t, kState> drawn;
  constexpr int kSome = kState / 2;
  for (int64_t done = 0; done < count; done += kSome) {
    const int some = static_cast<int>(std::min<int64_t>(kSome, count - done));
    Draw(twister, drawn.data(), 2 * some);
    Compare(drawn.data(), bound, out + done, some);
  }
}
