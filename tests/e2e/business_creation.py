"""A simulated business, for tests that train a world model of it.

The simulator is deterministic: everything follows from a seed through its own splitmix64, so a test that fails once fails again. It is
not economics, but it has what a world model must learn: actions that take effect weeks later, quantities that limit each other, noise,
and an end.

One step is a week. An observation has ten numbers, each about 1 in size:
    cash         money, in units of the initial cash
    demand       customers of this week, in units of the market
    price        price per unit, in units of the market price
    staff        number of people, in units of a full team
    reputation   0 to 1; follows the fraction of customers that were served
    inventory    units in stock, in units of the market
    marketing    awareness, which fades and grows by spending
    morale       0 to 1; falls while people are hired, fired or overworked
    season       sine and cosine of the week of the year

An action has four numbers, each in [-1, 1]: change of price, change of staff, production, and marketing spending. The reward is the
week's profit in units of the initial cash. A business without cash is bankrupt, a terminal state. One that reaches its horizon is
truncated, a timeout.
"""

import math

OBSERVATION = ("cash", "demand", "price", "staff", "reputation", "inventory", "marketing", "morale",
               "season_sine", "season_cosine")
ACTION = ("price", "hiring", "production", "advertising")

HORIZON = 52
_WORD = (1 << 64) - 1


class SplitMix64:
    """The generator of Steele, Lea and Flood (2014), with 64 bits of state and the same numbers on every platform."""

    def __init__(self, seed):
        self._state = seed & _WORD

    def word(self):
        self._state = (self._state + 0x9E3779B97F4A7C15) & _WORD
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _WORD
        return mixed ^ (mixed >> 31)

    def uniform(self, low=0.0, high=1.0):
        return low + (high - low) * (self.word() >> 11) / (1 << 53)

    def around_zero(self):
        """Returns a number with mean 0 and standard deviation 1: the sum of twelve uniform numbers minus 6."""
        return sum(self.uniform() for _ in range(12)) - 6


def clamp(value, low, high):
    return min(max(value, low), high)


class Business:
    """One business from its founding to its end."""

    def __init__(self, seed):
        self._random = SplitMix64(seed)
        draw = self._random.uniform
        self.cash = draw(0.8, 1.2)
        self.price = draw(0.8, 1.2)
        self.staff = draw(0.3, 0.6)
        self.reputation = draw(0.4, 0.6)
        self.inventory = draw(0.1, 0.4)
        self.marketing = draw(0.0, 0.3)
        self.morale = draw(0.6, 0.9)
        self.demand = 0.3
        self.week = int(draw(0, 52))
        self.age = 0

    def observation(self):
        angle = 2 * math.pi * self.week / 52
        return [self.cash, self.demand, self.price, self.staff, self.reputation, self.inventory,
                self.marketing, self.morale, math.sin(angle), math.cos(angle)]

    def step(self, action):
        """Simulates one week. Returns (reward, bankrupt, truncated)."""
        pricing, hiring, production, advertising = (clamp(each, -1, 1) for each in action)
        self.price = clamp(self.price * (1 + 0.08 * pricing), 0.4, 2.5)
        change = 0.1 * hiring * (0.5 + self.staff)
        self.staff = clamp(self.staff + change, 0.05, 2.0)
        spent = 0.05 * (1 + advertising)
        self.marketing = clamp(0.85 * self.marketing + 3 * spent, 0, 2)

        made = self.staff * self.morale * 0.6 * (1 + production)
        overwork = max(0.0, production) * 0.03
        self.inventory = clamp(self.inventory + made, 0, 3)

        season = 1 + 0.25 * math.sin(2 * math.pi * self.week / 52)
        appeal = (0.2 + 0.8 * self.reputation) * (0.4 + 0.6 * math.tanh(self.marketing))
        noise = 1 + 0.05 * self._random.around_zero()
        self.demand = clamp(season * appeal * math.exp(-1.2 * (self.price - 1)) * noise, 0, 3)

        sold = min(self.demand, self.inventory)
        self.inventory -= sold
        served = sold / self.demand if self.demand > 1e-6 else 1.0
        self.reputation = clamp(self.reputation + 0.1 * (served - 0.7) - 0.03 * (self.price - 1),
                                0, 1)
        self.morale = clamp(self.morale + 0.05 * (0.85 - self.morale) - overwork - 0.2 * abs(change),
                            0.2, 1)

        rent, wages, material, storage = 0.03, 0.12 * self.staff, 0.12 * made, 0.02 * self.inventory
        profit = 0.58 * self.price * sold - rent - wages - material - storage - spent
        self.cash += profit
        self.week = (self.week + 1) % 52
        self.age += 1
        bankrupt = self.cash <= 0
        return profit, bankrupt, not bankrupt and self.age >= HORIZON


def founders_choice(business, random):
    """Returns an action by rules of thumb, with enough noise that every action occurs in every state."""
    short = business.demand > business.inventory + 0.4 * business.staff
    rules = [0.5 if short else -0.4,
             0.6 if short and business.cash > 0.5 else -0.3,
             0.8 - 1.5 * business.inventory,
             0.5 - business.marketing]
    return [clamp(rule + 0.6 * random.around_zero(), -1, 1) for rule in rules]


class Recording:
    """Transitions in columns, as AppendTrajectories accepts them."""

    def __init__(self):
        self.observations, self.actions, self.next_observations = [], [], []
        self.rewards, self.terminals, self.timeouts = [], [], []

    def __len__(self):
        return len(self.rewards)


def live(seed):
    """Returns the recording of a whole episode, the life of one business."""
    business, whim = Business(seed), SplitMix64(seed ^ 0x5EED)
    recording = Recording()
    ended = False
    while not ended:
        action = founders_choice(business, whim)
        recording.observations += business.observation()
        recording.actions += action
        reward, bankrupt, cut_off = business.step(action)
        recording.next_observations += business.observation()
        recording.rewards.append(reward)
        recording.terminals.append(bankrupt)
        recording.timeouts.append(cut_off)
        ended = bankrupt or cut_off
    return recording
