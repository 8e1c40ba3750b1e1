"""The random numbers of trainer/data/splitmix.h in Python."""

M = 2**64 - 1


def mix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & M
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & M
    return x ^ (x >> 31)


class SplitMix64:
    def __init__(self, seed, stream):
        self.state = mix(mix(seed) + stream & M)

    def next(self):
        self.state = self.state + 0x9E3779B97F4A7C15 & M
        return mix(self.state)

    def below(self, n):
        while True:
            random = self.next()
            if random >= 2**64 % n:
                return random % n

    def uniform(self):
        return (self.next() >> 11) * 2.0**-53
